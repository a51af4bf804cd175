//! The token an agent shows, and the hash a gateway keeps.
//!
//! Text: `bh_<key id>_<43 characters base64url of 32 random bytes>`. Hash: BLAKE3 over the whole
//! text, written `blake3:<64 hex digits>`; 256 random bits need no slow hash. The key id finds the
//! hash and is no secret; it may hold `_`, the secret always has the last 43 characters.
//!
//! Invariants: wiped when dropped; neither Debug nor an error repeats a secret or a hash; a token
//! has one spelling; hashes are compared in constant time.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::names::is_agent_id;

const PREFIX: &str = "bh_";

/// Characters of 32 bytes in base64url without padding.
const SECRET_CHARS: usize = 43;

/// Why a text is no token. Never holds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It does not look like a token.
    #[error("a token looks like bh_<key id>_<43 characters>")]
    Shape,
    /// The key id has other characters or another length than it may.
    #[error("a key id is 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")]
    KeyId,
    /// The last 43 characters are not base64url of 32 bytes.
    #[error("the last 43 characters of the token are not base64url of 32 bytes")]
    Secret,
    /// A hash is not `blake3:` and 64 hex digits.
    #[error("a hash looks like blake3:<64 hex digits>")]
    Hash,
}

/// A well-formed token.
#[derive(Clone)]
pub struct Token {
    text: Zeroizing<String>,
    key_chars: usize,
}

impl Token {
    /// A new token of key `key` from 32 bytes of a cryptographic random source.
    ///
    /// # Errors
    /// [`TokenError::KeyId`].
    pub fn generate(key: &str, random: &[u8; 32]) -> Result<Self, TokenError> {
        if !is_agent_id(key) {
            return Err(TokenError::KeyId);
        }
        // Room for all of it at once: growing would leave copies of the secret behind.
        let mut text = Zeroizing::new(String::with_capacity(
            PREFIX.len() + key.len() + 1 + SECRET_CHARS,
        ));
        text.push_str(PREFIX);
        text.push_str(key);
        text.push('_');
        URL_SAFE_NO_PAD.encode_string(random, &mut text);
        Ok(Self {
            text,
            key_chars: key.len(),
        })
    }

    /// Reads a token; blanks around it are not accepted.
    ///
    /// # Errors
    /// [`TokenError`], which never repeats the text.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let rest = text.strip_prefix(PREFIX).ok_or(TokenError::Shape)?;
        let at = rest
            .len()
            .checked_sub(SECRET_CHARS + 1)
            .ok_or(TokenError::Shape)?;
        let (key, secret) = rest.split_at_checked(at).ok_or(TokenError::Shape)?;
        let secret = secret.strip_prefix('_').ok_or(TokenError::Shape)?;
        if !is_agent_id(key) {
            return Err(TokenError::KeyId);
        }
        let mut bytes = Zeroizing::new([0_u8; 33]);
        let length = URL_SAFE_NO_PAD
            .decode_slice(secret, bytes.as_mut_slice())
            .map_err(|_| TokenError::Secret)?;
        if length != 32 {
            return Err(TokenError::Secret);
        }
        Ok(Self {
            text: Zeroizing::new(text.to_owned()),
            key_chars: key.len(),
        })
    }

    /// The part by which a gateway finds the hash; no secret.
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.text[PREFIX.len()..PREFIX.len() + self.key_chars]
    }

    /// The whole text: for the one message that carries it, and for the person who made it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// What a gateway keeps.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        TokenHash(*blake3::hash(self.text.as_bytes()).as_bytes())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_***", self.key_id())
    }
}

/// Hash of a token's text.
///
/// No `PartialEq`: the only comparison is [`TokenHash::matches`].
#[derive(Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// The hash with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads `blake3:<64 hex digits>`.
    ///
    /// # Errors
    /// [`TokenError::Hash`].
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let hex = text.strip_prefix("blake3:").ok_or(TokenError::Hash)?;
        let hash = blake3::Hash::from_hex(hex).map_err(|_| TokenError::Hash)?;
        Ok(Self(*hash.as_bytes()))
    }

    /// The hash itself, for what is compared outside the handshake.
    #[must_use]
    pub fn value(&self) -> blake3::Hash {
        blake3::Hash::from_bytes(self.0)
    }

    /// The text that goes into a configuration.
    #[must_use]
    pub fn to_config(&self) -> String {
        format!("blake3:{}", blake3::Hash::from_bytes(self.0).to_hex())
    }

    /// True if it is the hash of `token`. Takes the same time whatever differs.
    #[must_use]
    pub fn matches(&self, token: &Token) -> bool {
        self.0.ct_eq(&token.hash().0).into()
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("blake3:***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_token_is_read_back_and_matches_its_hash_only() {
        let token = Token::generate("k1", &[7; 32]).expect("a token");
        assert_eq!(
            token.reveal(),
            "bh_k1_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc"
        );
        let read = Token::parse(token.reveal()).expect("the same token");
        assert_eq!(read.key_id(), "k1");
        let hash = TokenHash::parse(&token.hash().to_config()).expect("a hash");
        assert!(hash.matches(&read));
        let other_key = Token::generate("k2", &[7; 32]).expect("a token");
        let other_secret = Token::generate("k1", &[8; 32]).expect("a token");
        assert!(!hash.matches(&other_key) && !hash.matches(&other_secret));
    }

    #[test]
    fn the_hash_is_that_of_the_whole_text() {
        let token = Token::generate("k1", &[7; 32]).expect("a token");
        let hash = blake3::hash(token.reveal().as_bytes()).to_hex();
        assert_eq!(token.hash().to_config(), format!("blake3:{hash}"));
    }

    #[test]
    fn a_key_id_may_hold_what_stands_between_the_parts() {
        let token = Token::generate("my_laptop-1", &[0xff; 32]).expect("a token");
        assert_eq!(
            Token::parse(token.reveal()).expect("a token").key_id(),
            "my_laptop-1"
        );
    }

    #[test]
    fn a_text_that_is_no_token_is_refused() {
        let good = Token::generate("k1", &[7; 32]).expect("a token");
        let good = good.reveal();
        let last_bits_set = format!("{}d", &good[..good.len() - 1]);
        for (text, error) in [
            (String::new(), TokenError::Shape),
            (good[1..].to_owned(), TokenError::Shape),
            (format!("{good}x"), TokenError::Shape),
            (format!(" {good}"), TokenError::Shape),
            (good.replace("k1", ""), TokenError::KeyId),
            (good.replace("k1", "k 1"), TokenError::KeyId),
            (good.replace("BwcH", "Bw+H"), TokenError::Secret),
            (last_bits_set, TokenError::Secret),
            (good.replace("BwcH", "Bwä"), TokenError::Secret),
        ] {
            assert_eq!(Token::parse(&text).expect_err(&text), error, "{text}");
        }
    }

    #[test]
    fn neither_token_nor_hash_nor_error_shows_what_it_holds() {
        let token = Token::generate("k1", &[7; 32]).expect("a token");
        let hash = token.hash();
        let error = Token::parse("bh_k1_canary").expect_err("too short");
        let said = format!("{token:?} {hash:?} {error} {error:?}");
        assert!(said.contains("bh_k1_***"), "{said}");
        assert!(!said.contains("BwcH") && !said.contains("canary"), "{said}");
        assert!(!said.contains(&hash.to_config()[7..]), "{said}");
    }
}
