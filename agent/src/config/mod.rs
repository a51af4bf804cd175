//! What the agent is told: flags, environment and a TOML file, checked into [`RunOptions`].
//!
//! | File | Holds |
//! |---|---|
//! | [`options`] | the checked result |
//! | [`raw`] | the TOML file as written, unknown keys refused |
//! | [`parse`] | flags over file, into the checked result |
//! | [`secret`] | where the token comes from |
//! | [`units`] | durations |
//!
//! Reads files (configuration, token, CA); opens no connection.

use std::path::PathBuf;

mod nearest;
pub mod options;
pub mod parse;
pub mod raw;
pub mod secret;
pub mod units;

pub use options::RunOptions;
pub use secret::TokenSource;

use bridgehead_protocol::handshake::TokenError;
use bridgehead_protocol::io::tls::TlsError;

/// What is wrong with what the agent was told. All are the operator's to mend; the agent ends with code 2.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file cannot be read.
    #[error("configuration {}: {what}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system or the parser said.
        what: String,
    },
    /// A key that does not exist.
    #[error("configuration {}: unknown key `{key}`{}", path.display(), nearest.as_ref().map(|near| format!(", did you mean `{near}`?")).unwrap_or_default())]
    UnknownKey {
        /// Which file.
        path: PathBuf,
        /// Where in it, such as `app[1].wieght`.
        key: String,
        /// The key that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A setting with an unusable value.
    #[error("{name}: {what}")]
    Setting {
        /// The flag or key.
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
    /// A text that is no token.
    #[error("token: {0}; `bh-gateway token new` makes one")]
    Token(#[from] TokenError),
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
