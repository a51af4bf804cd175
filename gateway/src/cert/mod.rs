//! Certificates of the TLS listeners: loaded from files, chosen by server name, replaced while
//! connections go on.
//!
//! Owns the private keys in memory. A reload that fails changes nothing. Invariant: there is always
//! at least one usable certificate; the first one serves names that no other covers (the request's
//! host is then judged by `request::normalize`, which answers 421).

pub mod agents;
mod validity;

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoClientAuth, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::config::CertificateFiles;

pub use validity::Validity;

/// Why certificates could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum CertError {
    /// There is nothing to load.
    #[error("no certificate is configured")]
    None,
    /// A file cannot be read or is no PEM.
    #[error("{} cannot be used: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: pem::Error,
    },
    /// The key does not belong to the certificate, or is of an unknown kind.
    #[error("{} and its key are no usable pair: {error}", path.display())]
    Pair {
        /// File of the certificate.
        path: PathBuf,
        /// What is wrong.
        error: rustls::Error,
    },
    /// The issuers of agents' certificates cannot be used.
    #[error("the agents' CA {} cannot be used: {error}", path.display())]
    Issuers {
        /// Their file.
        path: PathBuf,
        /// What is wrong with it.
        error: String,
    },
    /// The TLS library refuses its own defaults.
    #[error("TLS cannot be set up: {0}")]
    Setup(rustls::Error),
}

/// The certificates in use.
#[derive(Debug)]
pub struct CertStore {
    pairs: ArcSwap<Vec<Arc<CertifiedKey>>>,
    provider: Arc<CryptoProvider>,
}

/// Certificates that were read and are usable.
#[derive(Debug)]
pub struct Prepared {
    pairs: Vec<Arc<CertifiedKey>>,
    differs: bool,
}

impl Prepared {
    /// True if they are not the ones in use.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.differs
    }
}

impl CertStore {
    /// Load every pair.
    ///
    /// # Errors
    /// The first pair that is not usable, or an empty list.
    pub fn load(files: &[CertificateFiles]) -> Result<Self, CertError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let pairs = load_all(files, &provider)?;
        Ok(Self {
            pairs: ArcSwap::from_pointee(pairs),
            provider,
        })
    }

    /// Reads the files again, for a later [`CertStore::replace`].
    ///
    /// # Errors
    /// As [`CertStore::load`].
    pub fn prepare(&self, files: &[CertificateFiles]) -> Result<Prepared, CertError> {
        let pairs = load_all(files, &self.provider)?;
        let chains = |pairs: &[Arc<CertifiedKey>]| -> Vec<_> {
            pairs.iter().map(|pair| pair.cert.clone()).collect()
        };
        let differs = chains(&pairs) != chains(&self.pairs.load());
        Ok(Prepared { pairs, differs })
    }

    /// New handshakes use these; connections that stand are not touched.
    pub fn replace(&self, prepared: Prepared) {
        self.pairs.store(Arc::new(prepared.pairs));
    }

    /// From when to when each pair is good, in the order of the files; nothing where the certificate
    /// does not say it in a way that is understood.
    #[must_use]
    pub fn validities(&self) -> Vec<Option<Validity>> {
        let pairs = self.pairs.load();
        let own = |pair: &Arc<CertifiedKey>| Validity::of(pair.cert.first()?);
        pairs.iter().map(own).collect()
    }

    /// True if one of them is made for this name or address; brackets of an IPv6 address are as in a URL.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        let bare = name.trim_start_matches('[').trim_end_matches(']');
        let Ok(name) = ServerName::try_from(bare) else {
            return false;
        };
        self.pairs.load().iter().any(|pair| covers(pair, &name))
    }

    /// TLS terms of a listener that uses this store and offers `protocols` (ALPN), preferred first.
    ///
    /// # Errors
    /// The TLS library refuses its own defaults.
    pub fn server_config(
        self: &Arc<Self>,
        protocols: &[&[u8]],
    ) -> Result<Arc<ServerConfig>, CertError> {
        self.server_config_asking(Arc::new(NoClientAuth), protocols)
            .map(Arc::new)
    }

    fn server_config_asking(
        self: &Arc<Self>,
        peers: Arc<dyn ClientCertVerifier>,
        protocols: &[&[u8]],
    ) -> Result<ServerConfig, CertError> {
        let resolver: Arc<dyn ResolvesServerCert> = Arc::<Self>::clone(self);
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(CertError::Setup)?
            .with_client_cert_verifier(peers)
            .with_cert_resolver(resolver);
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Ok(config)
    }
}

impl ResolvesServerCert for CertStore {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let pairs = self.pairs.load();
        let name = hello.server_name().and_then(|name| {
            let name = ServerName::try_from(name).ok()?;
            pairs.iter().find(|pair| covers(pair, &name))
        });
        name.or_else(|| pairs.first()).cloned()
    }
}

/// True if the certificate is valid for `name` (wildcards included).
fn covers(pair: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let Some(first) = pair.cert.first() else {
        return false;
    };
    ParsedCertificate::try_from(first).is_ok_and(|cert| verify_server_name(&cert, name).is_ok())
}

fn load_all(
    files: &[CertificateFiles],
    provider: &CryptoProvider,
) -> Result<Vec<Arc<CertifiedKey>>, CertError> {
    if files.is_empty() {
        return Err(CertError::None);
    }
    let load = |pair| load_pair(pair, provider).map(Arc::new);
    files.iter().map(load).collect()
}

fn load_pair(
    files: &CertificateFiles,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, CertError> {
    let fault = |path: &PathBuf| {
        let path = path.clone();
        move |error| CertError::File { path, error }
    };
    let chain = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(fault(&files.cert))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(fault(&files.key))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| CertError::Pair {
        path: files.cert.clone(),
        error,
    })
}
