//! How the certificate of an `https` app is checked: by the system's roots, by a file of the operator's,
//! or, only if the operator says so for this app, not at all.
//!
//! Owns the client configuration for one app; sessions belong to `connect`.

use std::sync::Arc;

use bridgehead_protocol::io::tls::{ALPN_HTTP1, TlsError, Trust, client_config, provider};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tokio_rustls::TlsConnector;

use crate::carrier::tls::Roots;

/// What is trusted when the app shows its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AppTrust {
    /// The roots of the system.
    #[default]
    System,
    /// These roots and no others.
    Roots(Vec<CertificateDer<'static>>),
    /// Any certificate at all: for an app on a network that is trusted as it is.
    Anything,
}

/// The client side of TLS towards one app. HTTP/1.1 is the only protocol offered.
///
/// # Errors
/// If the system's roots cannot be read or a given root is no certificate.
pub(super) fn connector(trust: &AppTrust) -> Result<TlsConnector, TlsError> {
    let trust = match trust {
        AppTrust::System => Roots::System.trust()?,
        AppTrust::Roots(roots) => Trust::Roots(roots.clone()),
        AppTrust::Anything => Trust::Verifier(Arc::new(Unverified {
            provider: provider(),
        })),
    };
    Ok(Arc::new(client_config(&trust, &[ALPN_HTTP1])?).into())
}

/// Takes any certificate; signatures of the handshake are still checked.
#[derive(Debug)]
struct Unverified {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
