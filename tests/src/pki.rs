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
