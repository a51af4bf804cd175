//! The configuration: TOML text → sections → validated values (`parse`, `check`).
//!
//! Owns every rule about what an operator may write. Must not bind, dial or log; the only I/O is
//! reading the file and its certificates in [`Config::load`]. Place in the path: before everything;
//! `wiring` hands the values out. Invariant: an unknown or misplaced key is an
//! error, never ignored.

mod admission;
mod changes;
mod check;
pub mod defaults;
mod dev;
mod files;
mod media;
mod names;
mod net;
mod parse;
mod secret;
mod settings;
mod summary;

#[cfg(test)]
mod tests;

use std::path::Path;

pub use admission::{Admission, ClientRate, Rate};
use bridgehead_protocol::config::units::parse_duration;
pub use bridgehead_protocol::config::{
    ConfigError, ConfigErrors, Percent, nearest as nearest_word, show_duration, show_size,
};
pub use changes::Changes;
pub use dev::DevOptions;
pub use media::MediaTypes;
pub use names::AppName;
pub use net::Cidr;
pub use secret::Secret;
pub use settings::*;
pub use summary::summary;

pub use bridgehead_protocol::handshake::{AppPattern, TokenHash};

impl Config {
    /// Reads, parses and validates a file; certificates and keys it names must be readable and
    /// belong together.
    ///
    /// # Errors
    /// All mistakes of the file, one line each.
    pub fn load(path: &Path) -> Result<Self, ConfigErrors> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            ConfigErrors::whole_file(
                &file,
                format!("cannot be read ({error})"),
                "give the path of a readable TOML file with --config",
            )
        })?;
        // Relative certificate paths start where the file lies, whatever the working directory is.
        let base = path.parent().unwrap_or(Path::new("."));
        let config = Self::from_toml(&text, &file, base)?;
        files::check(&config, &file)?;
        Ok(config)
    }

    /// Parses and validates a text; pure. `file` is the name for messages, `base` the folder that
    /// relative paths start from.
    ///
    /// # Errors
    /// All mistakes of the text, one line each.
    pub fn from_toml(text: &str, file: &str, base: &Path) -> Result<Self, ConfigErrors> {
        parse::parse(text, file, base)
    }
}

/// A duration as a command line gives it: `500ms`, `30s`, `5m`, `1h`, `90d`.
///
/// # Errors
/// One line that says what is wrong and how to write it.
pub fn duration_argument(text: &str) -> Result<std::time::Duration, String> {
    parse_duration(text).map_err(|fault| fault.to_string())
}

/// The same, above zero: a window of zero would end everything at once.
///
/// # Errors
/// One line that says what is wrong and how to write it.
pub fn window_argument(text: &str) -> Result<std::time::Duration, String> {
    let span = duration_argument(text)?;
    match span.is_zero() {
        true => Err("zero would end everything at once, write a longer time".to_owned()),
        false => Ok(span),
    }
}

/// A listener's address as a command line gives it: `127.0.0.1:8080`, `localhost:0`, `:8080`.
///
/// # Errors
/// One line that says what is wrong and how to write it.
pub fn listener_argument(text: &str) -> Result<std::net::SocketAddr, String> {
    net::parse_listener(text).map_err(|fault| fault.to_string())
}

/// An app name as a command line gives it.
///
/// # Errors
/// One line that says what is wrong and how to write it.
pub fn app_name_argument(text: &str) -> Result<AppName, String> {
    AppName::parse(text).map_err(|fault| fault.to_string())
}
