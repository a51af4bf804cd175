//! What the agent is told: flags, environment and a TOML file, checked into [`RunOptions`].
//!
//! | File | Holds |
//! |---|---|
//! | [`options`] | the checked result |
//! | [`mod@file`] | the keys of the TOML file |
//! | `values` | what a text means, wherever it stood |
//! | [`parse`] | flags over file, into the checked result |
//! | [`secret`] | where the token comes from |
//!
//! Reads files (configuration, token, CA); opens no connection.

use std::path::PathBuf;

pub mod file;
pub mod options;
pub mod parse;
pub mod secret;
mod values;

pub use options::RunOptions;
pub use secret::TokenSource;

use bridgehead_protocol::config::ConfigErrors;
use bridgehead_protocol::io::tls::TlsError;

/// What is wrong with what the agent was told. All are the operator's to mend; the agent ends with code 2.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// What is wrong in the configuration file, a line each.
    #[error(transparent)]
    File(#[from] ConfigErrors),
    /// A setting with an unusable value.
    #[error("{name}: {what}")]
    Setting {
        /// The flag or variable.
        name: &'static str,
        /// What is wrong and what would be right.
        what: String,
    },
    /// A setting is missing.
    #[error("{name} is missing; {how}")]
    Missing {
        /// The flag.
        name: &'static str,
        /// How to give it.
        how: &'static str,
    },
    /// The token file cannot be used.
    #[error("token file {}: {what}", path.display())]
    TokenFile {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A CA file cannot be used.
    #[error("CA file {0}")]
    Ca(#[from] TlsError),
}
