//! Names of outcomes: ids made by the gateway, keys brought by callers.
//!
//! Both are secrets that open one outcome each: whoever has one may ask, nobody else can find it.
//! Pure. Invariant: neither shows in `Debug`, and of a key only a digest is kept.

use std::collections::BTreeSet;
use std::fmt;

/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 32;
/// Fewest characters of a key: 22 of base64url carry 132 bits.
const KEY_MIN: usize = 22;
/// Longest key; more brings no security and has to be hashed.
const KEY_MAX: usize = 128;
/// Fewest digits of a key in hexadecimal, for 128 bits.
const KEY_MIN_HEX: usize = 32;
/// A random key of the least length has fewer different characters once in 10⁸ (hexadecimal) or
/// far more keys; a placeholder nearly always has.
const KEY_MIN_DIFFERENT: usize = 8;

/// Id of an outcome: 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OutcomeId(u128);

impl OutcomeId {
    /// `random`: from a generator fit for secrets.
    #[must_use]
    pub const fn new(random: u128) -> Self {
        Self(random)
    }

    /// Reads 32 lower-case hexadecimal digits; one spelling only.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() != ID_DIGITS || !text.bytes().all(digits) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for OutcomeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for OutcomeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OutcomeId(…)")
    }
}

/// Why a key is refused. The text never holds the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Too short for 128 bits, or longer than anyone needs.
    #[error("has fewer than {KEY_MIN} or more than {KEY_MAX} characters")]
    Length,
    /// Something else than letters, digits, `-` and `_`.
    #[error("has characters beside A-Z a-z 0-9 - _")]
    Character,
    /// Hexadecimal, and too short for 128 bits.
    #[error("is hexadecimal and has fewer than {KEY_MIN_HEX} digits")]
    Hexadecimal,
    /// A placeholder.
    #[error("is not random: it has fewer than {KEY_MIN_DIFFERENT} different characters")]
    Repetitive,
}

/// A caller's key that has the form of at least 128 random bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OutcomeKey<'t>(&'t str);

impl<'t> OutcomeKey<'t> {
    /// Checks the form; whether the bits are random only the caller knows.
    ///
    /// # Errors
    /// [`KeyError`] for what cannot hold 128 random bits.
    pub fn parse(text: &'t str) -> Result<Self, KeyError> {
        if !(KEY_MIN..=KEY_MAX).contains(&text.len()) {
            return Err(KeyError::Length);
        }
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        if !text.bytes().all(allowed) {
            return Err(KeyError::Character);
        }
        let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
        let hexadecimal = text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
        if hexadecimal && digits < KEY_MIN_HEX {
            return Err(KeyError::Hexadecimal);
        }
        if text.bytes().collect::<BTreeSet<u8>>().len() < KEY_MIN_DIFFERENT {
            return Err(KeyError::Repetitive);
        }
        Ok(Self(text))
    }

    /// What is kept. The same key for another host is another one, so that nobody can write into,
    /// or ask about, what was asked of a host that he does not name.
    pub(super) fn digest(&self, secret: &[u8; 32], host: &str) -> KeyDigest {
        let mut hasher = blake3::Hasher::new_keyed(secret);
        // A host has no zero byte, so no two pairs are the same text.
        hasher.update(host.as_bytes()).update(&[0]);
        hasher.update(self.0.as_bytes());
        KeyDigest(*hasher.finalize().as_bytes())
    }
}

impl fmt::Debug for OutcomeKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OutcomeKey(…)")
    }
}

/// A key and its host, hashed under a secret of the process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest([u8; 32]);

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_one_spelling() {
        let id = OutcomeId::new(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(OutcomeId::parse(&id.to_string()), Some(id));
        assert_eq!(
            OutcomeId::parse(&OutcomeId::new(7).to_string()),
            Some(OutcomeId::new(7))
        );
        let upper = id.to_string().to_uppercase();
        let short = "0123456789abcdef0123456789abcde";
        let long = "0123456789abcdef0123456789abcdef0";
        let signed = "+123456789abcdef0123456789abcdef";
        for bad in ["", &upper, short, long, signed, "by-key"] {
            assert_eq!(OutcomeId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_holds_128_bits_in_its_alphabet() {
        for good in [
            "0123456789abcdef0123456789abcdef",
            "1b4e28ba-2fa1-11d2-883f-0016d3cca427",
            "Zm9vYmFyYmF6cXV4MTIzNA",
            "Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MDEyMzQ1Njc4OTAx_-",
        ] {
            assert!(OutcomeKey::parse(good).is_ok(), "{good}");
        }
        let long = "0123456789abcdefX".repeat(8);
        for (bad, why) in [
            ("", KeyError::Length),
            ("Zm9vYmFyYmF6cXV4MTIzN", KeyError::Length),
            (long.as_str(), KeyError::Length),
            ("Zm9vYmFyYmF6cXV4MTIzN+", KeyError::Character),
            ("Zm9vYmFyYmF6cXV4 MTIzNA", KeyError::Character),
            ("0123456789abcdef0123456", KeyError::Hexadecimal),
            ("1b4e28ba-2fa1-11d2-883f-0016d3cc", KeyError::Hexadecimal),
            ("xxxxxxxxxxxxxxxxxxxxxxxxxx", KeyError::Repetitive),
            ("00000000000000000000000000000000", KeyError::Repetitive),
        ] {
            assert_eq!(OutcomeKey::parse(bad), Err(why), "{bad}");
        }
    }

    #[test]
    fn a_key_of_another_host_or_process_is_another_one() {
        let key = OutcomeKey::parse("Zm9vYmFyYmF6cXV4MTIzNA").unwrap();
        let digest = key.digest(&[1; 32], "a.example.com");
        assert_eq!(digest, key.digest(&[1; 32], "a.example.com"));
        assert_ne!(digest, key.digest(&[1; 32], "b.example.com"));
        assert_ne!(digest, key.digest(&[2; 32], "a.example.com"));
    }

    #[test]
    fn nothing_of_a_secret_shows() {
        let key = OutcomeKey::parse("Zm9vYmFyYmF6cXV4MTIzNA").unwrap();
        let digest = key.digest(&[1; 32], "a.example.com");
        let shown = format!("{key:?} {digest:?} {:?}", OutcomeId::new(0xdead_beef));
        assert_eq!(shown, "OutcomeKey(…) KeyDigest(…) OutcomeId(…)");
    }
}
