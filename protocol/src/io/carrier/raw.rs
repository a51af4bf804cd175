//! Carriers whose bytes are the tunnel's bytes: TLS with ALPN `bh/1`, or plain TCP where the
//! operator says so.

use tokio::io::{AsyncRead, AsyncWrite};

use super::{Carrier, CarrierKind};

impl Carrier {
    /// A TLS session that has agreed on ALPN [`ALPN`](crate::io::tls::ALPN).
    #[must_use]
    pub fn tls(session: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self::new(session, CarrierKind::Tls)
    }

    /// A plain connection.
    #[must_use]
    pub fn tcp(connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Self {
        Self::new(connection, CarrierKind::Tcp)
    }
}
