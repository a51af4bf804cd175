//! What a connection needs of its bytes' carrier beyond reading and writing.

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::request::front::RawClient;

/// A byte stream to a client.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send {
    /// True if the peer has reset the connection, as far as can be known without reading.
    fn is_reset(&self) -> bool;

    /// Make closing the stream a reset, so that no clean end can be read into it.
    fn reset_on_close(&self);
}

impl RawClient for TcpStream {
    async fn broken(&self) {
        if self.peek(&mut [0]).await.is_ok() {
            std::future::pending().await
        }
    }

    fn reset_on_close(&self) {
        Transport::reset_on_close(self);
    }
}

impl Transport for TcpStream {
    fn is_reset(&self) -> bool {
        !matches!(self.take_error(), Ok(None))
    }

    fn reset_on_close(&self) {
        // It fails only on a socket that is already gone.
        if let Err(error) = self.set_zero_linger() {
            tracing::debug!(%error, "cannot make a close a reset");
        }
    }
}

impl<IO: Transport> Transport for TlsStream<IO> {
    fn is_reset(&self) -> bool {
        self.get_ref().0.is_reset()
    }

    fn reset_on_close(&self) {
        self.get_ref().0.reset_on_close();
    }
}

/// In memory; a dropped peer shows itself by failing writes.
impl Transport for DuplexStream {
    fn is_reset(&self) -> bool {
        false
    }

    fn reset_on_close(&self) {}
}
