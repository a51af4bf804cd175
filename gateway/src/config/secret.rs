//! Values that must never be printed: their `Debug` is a mask and they are wiped when dropped.
//!
//! Owns [`Secret`] and [`TokenHash`]. Must not implement `Display`. Invariant: no formatting of a
//! configuration, an error or a log line can show what stands inside.

use std::fmt;

use zeroize::Zeroizing;

use super::error::Fault;

/// Text that is shown as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text over.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself, for the one place that needs it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// BLAKE3 hash of a token, written `blake3:<64 hex digits>`.
///
/// A 256-bit random token cannot be guessed from its hash, but the hash says which token belongs to
/// whom, so it is masked as well.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Hash of a whole token text (`bh_…`).
    #[must_use]
    pub fn of(token: &str) -> Self {
        Self(*blake3::hash(token.as_bytes()).as_bytes())
    }

    /// The hash. Compare it in constant time only.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The text that goes into a configuration.
    #[must_use]
    pub fn to_config(&self) -> String {
        format!("blake3:{}", blake3::Hash::from_bytes(self.0).to_hex())
    }

    pub(super) fn parse(text: &str) -> Result<Self, Fault> {
        let mend = "paste what `bh-gateway token new` printed: blake3:<64 hex digits>";
        // The text is not repeated: somebody may have pasted the token itself.
        let hex = text
            .strip_prefix("blake3:")
            .ok_or_else(|| Fault::new("the hash does not begin with blake3:", mend))?;
        let hash = blake3::Hash::from_hex(hex)
            .map_err(|_| Fault::new("the hash is not 64 hex digits", mend))?;
        Ok(Self(*hash.as_bytes()))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("blake3:***")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_secret_is_never_formatted() {
        let secret = Secret::new("bh_demo_canary".into());
        let hash = TokenHash::of(secret.reveal());
        let shown = format!("{secret:?} {hash:?} {:#?}", (&secret, &hash));
        assert!(!shown.contains("canary"));
        assert!(!shown.contains(&hash.to_config()[7..]));
    }

    #[test]
    fn a_hash_survives_its_text_and_refuses_a_pasted_token_without_showing_it() {
        let hash = TokenHash::of("bh_x_y");
        assert_eq!(TokenHash::parse(&hash.to_config()).unwrap(), hash);
        for bad in ["bh_demo_canary", "blake3:canary", "sha256:00"] {
            let fault = TokenHash::parse(bad).unwrap_err();
            assert!(!fault.what.contains("canary") && !fault.mend.contains("canary"));
        }
    }
}
