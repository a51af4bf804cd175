//! TLS settings of both sides: the one place where the crypto provider is chosen, ALPN names, and
//! reading PEM files.
//!
//! Must not dial, accept or watch files. Errors are one line and name the file; they never repeat
//! what stands in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// ALPN of a raw carrier.
pub const ALPN: &[u8] = b"bh/1";

/// ALPN of a carrier inside a WebSocket.
pub const ALPN_HTTP1: &[u8] = b"http/1.1";

/// Why TLS cannot be set up. The operator's fault, no retry helps.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// File.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A file holds no certificate, or a broken one.
    #[error("{}: {fault}", path.display())]
    Certificate {
        /// File.
        path: PathBuf,
        /// What is wrong.
        fault: &'static str,
    },
    /// A file holds no private key, or a broken one.
    #[error("{}: {fault}", path.display())]
    Key {
        /// File.
        path: PathBuf,
        /// What is wrong.
        fault: &'static str,
    },
    /// A private key is not that of the certificate, or of a kind that is not supported.
    #[error("{} does not fit {}: {error}", key.display(), certificate.display())]
    Pair {
        /// Certificate file.
        certificate: PathBuf,
        /// Key file.
        key: PathBuf,
        /// What the library says.
        error: rustls::Error,
    },
    /// A given root is no certificate, or the provider is not complete.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// Whom a client trusts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// These roots and no others.
    Roots(Vec<CertificateDer<'static>>),
    /// Whatever this verifier accepts (the system's, as a rule).
    Verifier(Arc<dyn ServerCertVerifier>),
}

/// The crypto provider of this process.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Reads the certificates of a PEM file, at least one.
///
/// # Errors
/// [`TlsError::Read`], [`TlsError::Certificate`].
pub fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let fault = |fault| TlsError::Certificate {
        path: path.to_owned(),
        fault,
    };
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&bytes)
        .collect::<Result<_, _>>()
        .map_err(|_| fault("not valid PEM"))?;
    if certificates.is_empty() {
        return Err(fault("holds no certificate (PEM, BEGIN CERTIFICATE)"));
    }
    Ok(certificates)
}

/// Reads the first private key of a PEM file.
///
/// # Errors
/// [`TlsError::Read`], [`TlsError::Key`].
pub fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let bytes = zeroize::Zeroizing::new(read(path)?);
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| {
        let fault = match error {
            pem::Error::NoItemsFound => "holds no private key (PEM, BEGIN PRIVATE KEY)",
            _ => "not valid PEM",
        };
        TlsError::Key {
            path: path.to_owned(),
            fault,
        }
    })
}

/// Reads a certificate chain and its key, and checks that they belong together.
///
/// # Errors
/// [`TlsError`].
pub fn read_identity(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain = read_certificates(certificate)?;
    let private = read_key(key)?;
    CertifiedKey::from_der(chain, private, &provider()).map_err(|error| TlsError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        error,
    })
}

/// A resolver that always answers with `identity`.
#[must_use]
pub fn always(identity: CertifiedKey) -> Arc<dyn ResolvesServerCert> {
    Arc::new(SingleCertAndKey::from(identity))
}

/// A server without client certificates that offers `alpn`, best first.
///
/// # Errors
/// [`TlsError::Setup`].
pub fn server_config(
    certificates: Arc<dyn ResolvesServerCert>,
    alpn: &[&[u8]],
) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = owned(alpn);
    Ok(config)
}

/// A client without a certificate of its own that offers `alpn`, best first.
///
/// # Errors
/// [`TlsError::Setup`].
pub fn client_config(trust: &Trust, alpn: &[&[u8]]) -> Result<ClientConfig, TlsError> {
    client_config_as(trust, None, alpn)
}

/// A client that shows `identity` where it is asked for a certificate.
///
/// # Errors
/// [`TlsError::Setup`].
pub fn client_config_as(
    trust: &Trust,
    identity: Option<CertifiedKey>,
    alpn: &[&[u8]],
) -> Result<ClientConfig, TlsError> {
    let builder =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match trust {
        Trust::Roots(roots) => {
            let mut store = RootCertStore::empty();
            for root in roots {
                store.add(root.clone())?;
            }
            builder.with_root_certificates(store)
        }
        Trust::Verifier(verifier) => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(verifier)),
    };
    let mut config = match identity {
        Some(identity) => {
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = owned(alpn);
    Ok(config)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|error| TlsError::Read {
        path: path.to_owned(),
        error,
    })
}

fn owned(alpn: &[&[u8]]) -> Vec<Vec<u8>> {
    alpn.iter().map(|name| name.to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey as Made, generate_simple_self_signed};
    use rustls::pki_types::ServerName;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    fn file(dir: &Path, name: &str, text: &str) -> PathBuf {
        let path = dir.join(name);
        fs::write(&path, text).expect("a file");
        path
    }

    fn made() -> (String, String) {
        let Made { cert, signing_key } =
            generate_simple_self_signed(vec!["gw.test".to_owned()]).expect("a certificate");
        (cert.pem(), signing_key.serialize_pem())
    }

    #[tokio::test]
    async fn both_sides_agree_on_the_alpn_of_a_raw_carrier() {
        let dir = tempfile::tempdir().expect("a folder");
        let (certificate, key) = made();
        let certificate = file(dir.path(), "cert.pem", &certificate);
        let key = file(dir.path(), "key.pem", &key);
        let identity = read_identity(&certificate, &key).expect("an identity");
        let server = server_config(always(identity), &[ALPN, ALPN_HTTP1]).expect("a server");
        let trust = Trust::Roots(read_certificates(&certificate).expect("a root"));
        let client = client_config(&trust, &[ALPN]).expect("a client");

        let (near, far) = tokio::io::duplex(64 * 1024);
        let name = ServerName::try_from("gw.test").expect("a name");
        let connector = TlsConnector::from(Arc::new(client));
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let (client, server) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
        let client = client.expect("a client's handshake");
        let server = server.expect("a server's handshake");
        assert_eq!(client.get_ref().1.alpn_protocol(), Some(ALPN));
        assert_eq!(server.get_ref().1.alpn_protocol(), Some(ALPN));
    }

    #[test]
    fn what_is_wrong_with_a_file_is_one_line_that_names_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let (certificate_text, key_text) = made();
        let (_, other_text) = made();
        let certificate = file(dir.path(), "cert.pem", &certificate_text);
        let key = file(dir.path(), "key.pem", &key_text);
        let other = file(dir.path(), "other.pem", &other_text);
        let empty = file(dir.path(), "empty.pem", "");
        let torn = file(dir.path(), "torn.pem", &key_text[..key_text.len() / 2]);
        let missing = dir.path().join("missing.pem");
        for (certificate, key, named) in [
            (&missing, &key, "missing.pem"),
            (&empty, &key, "empty.pem"),
            (&key, &key, "key.pem"),
            (&certificate, &missing, "missing.pem"),
            (&certificate, &empty, "empty.pem"),
            (&certificate, &torn, "torn.pem"),
            (&certificate, &certificate, "cert.pem"),
            (&certificate, &other, "other.pem"),
        ] {
            let said = read_identity(certificate, key)
                .expect_err(named)
                .to_string();
            assert!(said.contains(named) && !said.contains('\n'), "{said}");
            assert!(!said.contains(&key_text[40..60]), "{said}");
        }
    }
}
