//! TLS ended on both sides, so that frames of an encrypted carrier can be seen.
//!
//! Must not: be more than the two handshakes. What the agent offers by ALPN is offered to the gateway.

use std::path::Path;
use std::sync::Arc;

use bridgehead_protocol::io::tls::{self, TlsError, Trust};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// Certificates for both sides.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    roots: Vec<CertificateDer<'static>>,
    name: ServerName<'static>,
}

impl Tls {
    /// Shows `certificate` to agents, trusts the roots in `ca`, and expects the gateway to be `name`.
    ///
    /// # Errors
    /// A file that cannot be read or does not fit, as one line.
    pub fn read(
        certificate: &Path,
        key: &Path,
        ca: &Path,
        name: ServerName<'static>,
    ) -> Result<Self, TlsError> {
        let identity = tls::read_identity(certificate, key)?;
        let config = tls::server_config(tls::always(identity), &[tls::ALPN, tls::ALPN_HTTP1])?;
        let roots = tls::read_certificates(ca)?;
        // Judged now, so that a broken root is a usage mistake and not a connection that fails.
        tls::client_config(&Trust::Roots(roots.clone()), &[tls::ALPN])?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            roots,
            name,
        })
    }

    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> std::io::Result<server::TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }

    pub(super) async fn connect(
        &self,
        stream: TcpStream,
        alpn: Option<&[u8]>,
    ) -> std::io::Result<client::TlsStream<TcpStream>> {
        let trust = Trust::Roots(self.roots.clone());
        let offered: Vec<&[u8]> = alpn.into_iter().collect();
        let config = tls::client_config(&trust, &offered).map_err(std::io::Error::other)?;
        TlsConnector::from(Arc::new(config))
            .connect(self.name.clone(), stream)
            .await
    }
}
