//! From when to when a certificate is good, as it says itself.
//!
//! Only read, never enforced: a listener serves what it was given, and clients judge.

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// Both in seconds of the epoch, and both within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from: i64,
    /// The last second.
    pub until: i64,
}

impl Validity {
    /// `None` if the certificate is not understood.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
        let told = parsed.validity();
        Some(Self {
            from: told.not_before.timestamp(),
            until: told.not_after.timestamp(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_says_from_when_to_when_it_is_good() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params =
            rcgen::CertificateParams::new(vec!["a.example".to_owned()]).expect("params");
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2051, 1, 1);
        let made = params.self_signed(&key).expect("a certificate");
        let told = Validity::of(made.der()).expect("it is understood");
        assert_eq!((told.from, told.until), (1_577_836_800, 2_556_144_000));
        assert_eq!(Validity::of(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
