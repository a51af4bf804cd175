//! Values that must never be printed: their `Debug` is a mask and they are wiped when dropped.
//!
//! Owns [`Secret`]; token hashes are the protocol's own type. Must not implement `Display`. Invariant: no formatting of a
//! configuration, an error or a log line can show what stands inside.

use std::fmt;

use bridgehead_protocol::handshake::TokenHash;
use zeroize::Zeroizing;

use bridgehead_protocol::config::Fault;

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

/// Reads a hash; the text is not repeated, since somebody may have pasted the token itself.
pub(super) fn parse_hash(text: &str) -> Result<TokenHash, Fault> {
    TokenHash::parse(text).map_err(|error| {
        Fault::new(
            error.to_string(),
            "paste the hash that `bh-gateway token new` printed",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_formatted() {
        let secret = Secret::new("bh_demo_canary".into());
        assert_eq!(secret.reveal(), "bh_demo_canary");
        assert_eq!(
            format!("{secret:?} {:#?}", Some(&secret)),
            "*** Some(\n    ***,\n)"
        );
    }

    #[test]
    fn a_pasted_token_is_refused_without_showing_it() {
        for bad in ["bh_demo_canary", "blake3:canary", "sha256:00"] {
            let fault = parse_hash(bad).expect_err("no hash");
            assert!(!fault.what.contains("canary") && !fault.mend.contains("canary"));
        }
    }
}
