//! Whom to trust on the other end of a TLS connection, for carriers and for `https` apps.
//!
//! The crypto provider, ALPN names and the reading of PEM files are `protocol::io::tls`'s; here stands
//! only what the agent alone has: the system's verifier.

use std::sync::Arc;

use bridgehead_protocol::io::tls::{TlsError, Trust, provider};
use rustls::pki_types::CertificateDer;
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
