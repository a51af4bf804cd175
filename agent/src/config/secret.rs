//! Where the token of this agent comes from.
//!
//! A file is read again at every dial, so that a rotated token needs no restart.
//! Must not judge whether a token is valid beyond its shape (that is the gateway's word).

use std::fs;
use std::path::{Path, PathBuf};

use bridgehead_protocol::handshake::Token;
use zeroize::Zeroizing;

use super::ConfigError;

/// Longest token text accepted; a well-formed one has under 100 bytes.
const TOKEN_FILE_LIMIT: u64 = 4096;

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
    let text = Zeroizing::new(fs::read_to_string(path).map_err(|e| failed(e.to_string()))?);
    Token::parse(text.trim()).map_err(|e| failed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

    #[test]
    fn a_source_hides_its_secret() {
        let token = Token::parse(&format!("bh_key-1_{SECRET}")).expect("token");
        let shown = format!("{:?}", TokenSource::Given(token));
        assert!(
            shown.contains("key-1") && !shown.contains("AAEC"),
            "{shown}"
        );
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
    fn a_malformed_token_file_is_refused_without_being_repeated() {
        let file = tempfile::NamedTempFile::new().expect("file");
        for text in ["", "bh_AAEC", &format!("bx_id_{SECRET}"), &"x".repeat(5000)] {
            fs::write(file.path(), text).expect("write");
            let said = TokenSource::File(file.path().to_owned())
                .load()
                .expect_err(text)
                .to_string();
            assert!(!said.contains("AAEC") && !said.contains("xxxx"), "{said}");
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
