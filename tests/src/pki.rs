//! Certificates made for one test and forgotten with it.

use std::path::{Path, PathBuf};

/// A self-signed certificate on disk, and the trust in it.
pub struct Certificate {
    /// PEM file of the certificate.
    pub cert: PathBuf,
    /// PEM file of its key.
    pub key: PathBuf,
    /// A store that trusts it and nothing else.
    pub roots: rustls::RootCertStore,
}

/// Makes a certificate for `names` in `folder`.
pub fn make(folder: &Path, stem: &str, names: &[&str]) -> Certificate {
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate can be made");
    let cert = folder.join(format!("{stem}.crt"));
    let key = folder.join(format!("{stem}.key"));
    std::fs::write(&cert, made.cert.pem()).expect("the test's folder can be written");
    std::fs::write(&key, made.signing_key.serialize_pem())
        .expect("the test's folder can be written");
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(made.cert.der().clone())
        .expect("our own certificate is well formed");
    Certificate { cert, key, roots }
}

/// Somebody who issues certificates.
pub struct Authority {
    /// PEM file of its own certificate.
    pub cert: PathBuf,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    folder: PathBuf,
}

/// How long an issued certificate is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// Longer than any test.
    Now,
    /// Not any more.
    Over,
}

impl Authority {
    /// Makes one in `folder`.
    pub fn new(folder: &Path, stem: &str) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key can be made");
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let name = &mut params.distinguished_name;
        name.push(rcgen::DnType::CommonName, stem);
        let made = params.self_signed(&key).expect("a certificate can be made");
        let cert = folder.join(format!("{stem}.crt"));
        std::fs::write(&cert, made.pem()).expect("the test's folder can be written");
        Self {
            cert,
            issuer: rcgen::Issuer::new(params, key),
            folder: folder.to_owned(),
        }
    }

    /// Issues a certificate to `name`: its file and that of its key.
    pub fn issue(&self, name: &str, validity: Validity) -> (PathBuf, PathBuf) {
        let key = rcgen::KeyPair::generate().expect("a key can be made");
        let mut params =
            rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name for a certificate");
        if validity == Validity::Over {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        }
        let made = params.signed_by(&key, &self.issuer);
        let made = made.expect("a certificate can be made");
        let files = ["crt", "key"].map(|kind| self.folder.join(format!("{name}.{kind}")));
        let [cert, private] = files;
        std::fs::write(&cert, made.pem()).expect("the test's folder can be written");
        std::fs::write(&private, key.serialize_pem()).expect("the test's folder can be written");
        (cert, private)
    }
}
