//! The certificates a configuration names: readable, PEM, and each key belongs to its certificate.
//!
//! The one place of `config` that reads files beside the configuration itself. Must not keep what
//! it read: `cert` loads again, so that a reload sees the newest files.

use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::settings::{CertificateFiles, Config};
use bridgehead_protocol::config::{ConfigError, ConfigErrors};

pub(super) fn check(config: &Config, file: &str) -> Result<(), ConfigErrors> {
    let mut errors = Vec::new();
    let mut check_all = |path: &str, pairs: &[CertificateFiles]| {
        for pair in pairs {
            if let Err((what, mend)) = check_pair(pair) {
                errors.push(ConfigError {
                    file: file.to_owned(),
                    line: None,
                    path: path.to_owned(),
                    what,
                    mend: mend.to_owned(),
                });
            }
        }
    };
    check_all("[public].tls", &config.public.tls);
    if config.tunnel.tls != config.public.tls {
        check_all("[tunnel].tls", &config.tunnel.tls);
    }
    if let Some(ca) = &config.tunnel.agent_ca
        && let Err((what, mend)) = check_issuers(&ca.file)
    {
        errors.push(ConfigError {
            file: file.to_owned(),
            line: None,
            path: "[tunnel].agent_ca".to_owned(),
            what,
            mend: mend.to_owned(),
        });
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ConfigErrors::new(errors)),
    }
}

type Mistake = (String, &'static str);

fn check_pair(pair: &CertificateFiles) -> Result<(), Mistake> {
    let chain = chain(&pair.cert)?;
    let key = PrivateKeyDer::from_pem_file(&pair.key).map_err(|error| {
        let what = format!("the key {} cannot be used ({error})", pair.key.display());
        (what, "give a readable PEM file with one private key")
    })?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map_err(|error| {
        let (cert, key) = (pair.cert.display(), pair.key.display());
        let what = format!("{cert} and {key} do not make a usable pair ({error})");
        (what, "give the key the certificate was made for")
    })?;
    Ok(())
}

fn check_issuers(path: &Path) -> Result<(), Mistake> {
    let mut roots = rustls::RootCertStore::empty();
    let added = chain(path)?
        .into_iter()
        .try_for_each(|root| roots.add(root));
    added.map_err(|error| {
        let what = format!("the CA {} cannot be used ({error})", path.display());
        (what, "give the certificates of those who issue the agents'")
    })
}

fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, Mistake> {
    let fault = |error: String| {
        let what = format!(
            "the certificate {} cannot be used ({error})",
            path.display()
        );
        (
            what,
            "give a readable PEM file, the server's certificate first",
        )
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| fault(error.to_string()))?;
    match chain.is_empty() {
        true => Err(fault("no certificate inside".to_owned())),
        false => Ok(chain),
    }
}
