//! Where requests go: the gateway's address, the host they name, TLS or none.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;

use crate::client::Io;

/// Protocol of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2; WebSockets stay on HTTP/1.1.
    Http2,
}

/// The gateway.
#[derive(Clone)]
pub struct Target {
    /// Where it listens.
    pub addr: SocketAddr,
    /// Host of the app.
    pub host: String,
    /// Protocol.
    pub speaks: Speaks,
    /// Trust, if it speaks TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

/// A connection to the gateway.
pub(super) type Stream = Box<dyn Io>;

impl Target {
    /// A plain HTTP/1.1 target.
    pub fn plain(addr: SocketAddr, host: &str) -> Self {
        Self {
            addr,
            host: host.to_owned(),
            speaks: Speaks::Http1,
            tls: None,
        }
    }

    /// Connects, offering `alpn`.
    pub(super) async fn connect(&self, alpn: &[u8]) -> std::io::Result<Stream> {
        let stream = TcpStream::connect(self.addr).await?;
        stream.set_nodelay(true)?;
        let Some(config) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let mut config = ClientConfig::clone(config);
        config.alpn_protocols = vec![alpn.to_vec()];
        let name = self.host.split(':').next().unwrap_or_default().to_owned();
        let name = ServerName::try_from(name).map_err(std::io::Error::other)?;
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await?;
        Ok(Box::new(stream))
    }
}
