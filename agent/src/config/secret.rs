//! The token of this agent: a type that cannot be logged by accident, and where it comes from.
//!
//! A file is read again at every dial, so that a rotated token needs no restart.
//! Must not judge whether a token is valid beyond its shape (that is the gateway's word).

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use super::ConfigError;

/// Longest token text accepted; a well-formed one has under 100 bytes.
const TOKEN_FILE_LIMIT: u64 = 4096;

/// A token `bh_<key id>_<43 characters base64url>`. Its `Debug` shows the key id only.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Takes a token text; white space around it is dropped.
    ///
    /// # Errors
    /// If the text is not of the shape `bh_<key id>_<43 characters>`. The text is never repeated.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let text = text.trim();
        let well_formed = text
            .strip_prefix("bh_")
            .and_then(|rest| rest.len().checked_sub(44).map(|at| (rest, at)))
            .filter(|(rest, at)| *at > 0 && rest.is_char_boundary(*at))
            .map(|(rest, at)| rest.split_at(at))
            .is_some_and(|(id, secret)| {
                let safe = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                id.chars().all(safe) && secret.starts_with('_') && secret[1..].chars().all(safe)
            });
        if well_formed {
            Ok(Self(text.to_owned()))
        } else {
            Err(ConfigError::TokenShape)
        }
    }

    /// The text to send. For HELLO only.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The part that names the key and is no secret.
    fn key_id(&self) -> &str {
        &self.0["bh_".len()..self.0.len() - 44]
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bh_{}_***", self.key_id())
    }
}

/// Where the token comes from.
#[derive(Clone, Debug)]
pub enum TokenSource {
    /// Given by the environment, the configuration or a library caller.
    Given(Token),
    /// A file, read at every dial.
    File(PathBuf),
}

impl TokenSource {
    /// The token as it is now.
    ///
    /// # Errors
    /// If the file cannot be read, is too large, or holds no well-formed token.
    pub fn load(&self) -> Result<Token, ConfigError> {
        match self {
            Self::Given(token) => Ok(token.clone()),
            Self::File(path) => read(path),
        }
    }
}

fn read(path: &Path) -> Result<Token, ConfigError> {
    let failed = |what: String| ConfigError::TokenFile {
        path: path.to_owned(),
        what,
    };
    let size = fs::metadata(path).map_err(|e| failed(e.to_string()))?.len();
    if size > TOKEN_FILE_LIMIT {
        return Err(failed(format!(
            "it has {size} bytes, a token has under 100"
        )));
    }
    let text = fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    Token::parse(&text).map_err(|e| failed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789012345678901234567890123456789_-A";

    #[test]
    fn a_token_shows_its_key_and_hides_its_secret() {
        let token = Token::parse(&format!(" bh_key-1_{SECRET}\n")).expect("token");
        let shown = format!("{token:?} {:?}", TokenSource::Given(token.clone()));
        assert!(shown.starts_with("bh_key-1_***"), "{shown}");
        assert!(!shown.contains("0123"), "{shown}");
        assert_eq!(token.expose(), format!("bh_key-1_{SECRET}"));
    }

    #[test]
    fn a_malformed_token_is_refused_without_being_repeated() {
        for text in [
            "",
            "bh_",
            "bh__short",
            &format!("bx_id_{SECRET}"),
            &format!("bh_{SECRET}"),
            &format!("bh_ä_{SECRET}é"),
        ] {
            let said = Token::parse(text).expect_err(text).to_string();
            assert!(!said.contains("0123"), "{said}");
        }
    }

    #[test]
    fn a_token_file_is_read_anew_each_time() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let source = TokenSource::File(file.path().to_owned());
        assert!(source.load().is_err());
        for key in ["first", "second"] {
            fs::write(file.path(), format!("bh_{key}_{SECRET}\n")).expect("write");
            assert_eq!(source.load().expect("token").key_id(), key);
        }
    }

    #[test]
    fn a_missing_token_file_is_named() {
        let said = TokenSource::File("/nowhere/token".into())
            .load()
            .expect_err("missing")
            .to_string();
        assert!(said.contains("/nowhere/token"), "{said}");
    }
}
