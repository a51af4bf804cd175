//! Whom to trust on the other end of a TLS connection, for carriers and for `https` apps.
//!
//! The crypto provider, ALPN names and the reading of PEM files are `protocol::io::tls`'s; here stands
//! only what the agent alone has: the system's verifier.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bridgehead_protocol::io::tls::{TlsError, Trust, provider, read_identity};
use rustls::AlertDescription;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use rustls_platform_verifier::Verifier;

/// Roots that a server's certificate may end at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Roots {
    /// Those of the system.
    #[default]
    System,
    /// These and no others: naming a CA pins it.
    Only(Vec<CertificateDer<'static>>),
}

impl Roots {
    /// Reads the system's roots if they are the ones to trust. Takes milliseconds: once per process.
    ///
    /// # Errors
    /// If the system has no roots, as in a bare container.
    pub fn trust(&self) -> Result<Trust, TlsError> {
        match self {
            Self::System => Ok(Trust::Verifier(Arc::new(Verifier::new(provider())?))),
            Self::Only(roots) => Ok(Trust::Roots(roots.clone())),
        }
    }
}

/// Files of the certificate that the agent shows to a gateway that asks for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCertificate {
    /// Chain, the agent's own first, PEM.
    pub cert: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
}

impl OwnCertificate {
    /// Reads both; at every dial, since such certificates live short and are renewed in place.
    ///
    /// # Errors
    /// They cannot be read, or are no pair.
    pub fn load(&self) -> Result<CertifiedKey, TlsError> {
        read_identity(&self.cert, &self.key)
    }
}

/// What a gateway's word about the agent's certificate means, and what to do; empty if it is about
/// something else. In TLS 1.3 it comes after the agent's side of the handshake is through, so it may
/// stand in any error of the first exchange.
#[must_use]
pub fn certificate_hint(error: &io::Error) -> &'static str {
    use AlertDescription as Alert;
    match alert(error) {
        Some(Alert::CertificateRequired | Alert::NoCertificate) => {
            "; the gateway wants a certificate of this agent: name it with --cert and --key"
        }
        Some(Alert::CertificateExpired) => {
            "; the gateway says that this agent's certificate (--cert) has expired"
        }
        Some(Alert::UnknownCA) => {
            "; this agent's certificate (--cert) is not from the CA that the gateway trusts"
        }
        Some(
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::DecryptError
            | Alert::AccessDenied,
        ) => "; the gateway does not accept this agent's certificate (--cert)",
        _ => "",
    }
}

fn alert(error: &io::Error) -> Option<AlertDescription> {
    let inner = error.get_ref()?;
    match inner.downcast_ref::<rustls::Error>() {
        Some(rustls::Error::AlertReceived(alert)) => Some(*alert),
        Some(_) => None,
        None => alert(inner.downcast_ref::<io::Error>()?),
    }
}
