//! Certificates that agents show: who may have issued them, and what a handshake demands.
//!
//! A certificate only lets an agent come to the token check; which apps it may serve is the token's.
//! Owns the issuers in use, replaced while tunnels go on: a handshake is judged by those of its
//! moment, a tunnel that stands is not touched. The tunnel's own listener demands a certificate in
//! the handshake. On the gateway's own host, where agents come over WebSocket beside people, one is
//! only asked for, and the upgrade is refused without it. Sessions are not resumed: that would skip
//! the check.

use std::path::Path;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use bridgehead_protocol::io::tls::{provider, read_certificates};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig, SignatureScheme,
};

use super::{CertError, CertStore};
use crate::config::{AgentCa, Demand};

/// The issuers in use.
#[derive(Debug)]
pub struct AgentIssuers {
    now: ArcSwapOption<Issuers>,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
struct Issuers {
    demand: Demand,
    roots: Vec<CertificateDer<'static>>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// Issuers that were read and are usable; nothing if no certificate is asked for.
#[derive(Debug)]
pub struct PreparedIssuers {
    next: Option<Arc<Issuers>>,
    differs: bool,
}

impl PreparedIssuers {
    /// True if they are not the ones in use.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.differs
    }
}

impl AgentIssuers {
    /// Reads them, if there are any to read.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn load(settings: Option<&AgentCa>) -> Result<Arc<Self>, CertError> {
        let issuers = Self {
            now: ArcSwapOption::empty(),
            provider: provider(),
        };
        let prepared = issuers.prepare(settings)?;
        issuers.replace(prepared);
        Ok(Arc::new(issuers))
    }

    /// Reads the file again, for a later [`AgentIssuers::replace`].
    ///
    /// # Errors
    /// As [`AgentIssuers::load`].
    pub fn prepare(&self, settings: Option<&AgentCa>) -> Result<PreparedIssuers, CertError> {
        let next = settings
            .map(|settings| self.read(&settings.file, settings.demand).map(Arc::new))
            .transpose()?;
        let roots =
            |issuers: &Option<Arc<Issuers>>| issuers.as_ref().map(|issuers| issuers.roots.clone());
        let differs = roots(&next) != roots(&self.now.load_full());
        Ok(PreparedIssuers { next, differs })
    }

    /// New handshakes are judged by these.
    pub fn replace(&self, prepared: PreparedIssuers) {
        self.now.store(prepared.next);
    }

    /// True if an agent must show a certificate.
    #[must_use]
    pub fn are_required(&self) -> bool {
        let now = self.now.load();
        now.as_ref()
            .is_some_and(|now| now.demand == Demand::Required)
    }

    fn read(&self, file: &Path, demand: Demand) -> Result<Issuers, CertError> {
        let fault = |error: String| CertError::Issuers {
            path: file.to_owned(),
            error,
        };
        let roots = read_certificates(file).map_err(|error| fault(error.to_string()))?;
        let mut store = RootCertStore::empty();
        for root in &roots {
            let added = store.add(root.clone());
            added.map_err(|error| fault(error.to_string()))?;
        }
        let provider = Arc::clone(&self.provider);
        let built = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider).build();
        let verifier = built.map_err(|error| fault(error.to_string()))?;
        Ok(Issuers {
            demand,
            roots,
            verifier,
        })
    }
}

/// Where a handshake takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Tunnel,
    OwnHost,
}

/// What a handshake asks.
#[derive(Debug)]
struct Asked {
    issuers: Arc<AgentIssuers>,
    at: At,
}

impl ClientCertVerifier for Asked {
    fn offer_client_auth(&self) -> bool {
        self.issuers.now.load().is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.at == At::Tunnel && self.issuers.are_required()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // They change; an agent has one certificate and shows it unasked.
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match &*self.issuers.now.load() {
            Some(issuers) => (issuers.verifier).verify_client_cert(end_entity, intermediates, now),
            None => Err(Error::General("no certificate was asked for".to_owned())),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.issuers.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.issuers.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.issuers.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// TLS terms of the tunnel's own listener.
///
/// # Errors
/// The TLS library refuses its own defaults.
pub fn tunnel_terms(
    store: &Arc<CertStore>,
    issuers: &Arc<AgentIssuers>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, CertError> {
    terms(store, issuers, At::Tunnel, protocols)
}

fn terms(
    store: &Arc<CertStore>,
    issuers: &Arc<AgentIssuers>,
    at: At,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, CertError> {
    let issuers = Arc::clone(issuers);
    let mut config = store.server_config_asking(Arc::new(Asked { issuers, at }), protocols)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// TLS terms of the public listeners: the gateway's own hosts ask for an agent's certificate if one
/// is wanted, no other host does, so that no visitor's browser is asked for one.
#[derive(Debug)]
pub struct PublicTerms {
    everybody: Arc<ServerConfig>,
    own: Option<OwnHosts>,
}

#[derive(Debug)]
struct OwnHosts {
    terms: Arc<ServerConfig>,
    issuers: Arc<AgentIssuers>,
    names: ArcSwap<Vec<String>>,
}

impl PublicTerms {
    /// Nobody is asked.
    #[must_use]
    pub fn open(everybody: Arc<ServerConfig>) -> Arc<Self> {
        Arc::new(Self {
            everybody,
            own: None,
        })
    }

    /// `names` are the gateway's own hosts.
    ///
    /// # Errors
    /// The TLS library refuses its own defaults.
    pub fn new(
        store: &Arc<CertStore>,
        issuers: &Arc<AgentIssuers>,
        names: Vec<String>,
        protocols: &[&[u8]],
    ) -> Result<Arc<Self>, CertError> {
        let own = OwnHosts {
            terms: terms(store, issuers, At::OwnHost, protocols)?,
            issuers: Arc::clone(issuers),
            names: ArcSwap::from_pointee(names),
        };
        Ok(Arc::new(Self {
            everybody: store.server_config(protocols)?,
            own: Some(own),
        }))
    }

    /// The gateway's own hosts are these from now on.
    pub fn rename(&self, names: Vec<String>) {
        if let Some(own) = &self.own {
            own.names.store(Arc::new(names));
        }
    }

    /// The terms for a handshake that names this server.
    #[must_use]
    pub fn for_name(&self, server: Option<&str>) -> Arc<ServerConfig> {
        let named = |own: &&OwnHosts| {
            let names = own.names.load();
            let is_own = |server: &str| names.iter().any(|own| own.eq_ignore_ascii_case(server));
            own.issuers.now.load().is_some() && server.is_some_and(is_own)
        };
        match self.own.as_ref().filter(named) {
            Some(own) => Arc::clone(&own.terms),
            None => Arc::clone(&self.everybody),
        }
    }
}
