//! Whom to trust on the other end of a TLS connection, for carriers and for `https` apps.
//!
//! Owns the client configurations and the reading of CA files. The crypto provider is chosen in one place,
//! `protocol::io`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;

/// ALPN of the raw carrier.
pub const ALPN: &[u8] = b"bh/1";

/// Roots that a server's certificate may end at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Roots {
    /// Those of the system.
    #[default]
    System,
    /// These and no others: naming a CA pins it.
    Only(Vec<CertificateDer<'static>>),
}

/// Why a CA file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("CA file {}: {what}", path.display())]
pub struct CaError {
    path: PathBuf,
    what: String,
}

/// Reads the certificates of a PEM file.
///
/// # Errors
/// If it cannot be read or holds no certificate.
pub fn read_roots(path: &Path) -> Result<Vec<CertificateDer<'static>>, CaError> {
    let failed = |what: String| CaError {
        path: path.to_owned(),
        what,
    };
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let roots: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| failed(error.to_string()))?;
    if roots.is_empty() {
        return Err(failed("no certificate in it; it must be PEM".to_owned()));
    }
    Ok(roots)
}

/// A client that accepts servers of these roots, without ALPN.
///
/// # Errors
/// If the system's roots cannot be read or a given root is no certificate.
pub fn verified_by(roots: &Roots) -> Result<ClientConfig, rustls::Error> {
    let builder =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match roots {
        Roots::System => {
            let verifier = Verifier::new(provider())?;
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(verifier))
        }
        Roots::Only(given) => {
            let mut store = RootCertStore::empty();
            for root in given {
                store.add(root.clone())?;
            }
            builder.with_root_certificates(store)
        }
    };
    Ok(builder.with_no_client_auth())
}

/// The crypto provider of this process.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
