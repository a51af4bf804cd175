//! A carrier: the one connection under a tunnel, whatever it is made of.
//!
//! Bytes in, bytes out; frames are not its business, except that a WebSocket never cuts one.

mod raw;
pub mod upgrade;
pub mod ws;

use std::convert::Infallible;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::oneshot;

/// What a carrier is made of; the label of the `carriers` metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CarrierKind {
    /// TLS with ALPN `bh/1`.
    Tls,
    /// Plain TCP.
    Tcp,
    /// WebSocket over TLS.
    Wss,
    /// WebSocket over plain TCP.
    Ws,
}

impl CarrierKind {
    /// Every kind.
    pub const ALL: &'static [Self] = &[Self::Tls, Self::Tcp, Self::Wss, Self::Ws];

    /// Label and URL scheme.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Tcp => "tcp",
            Self::Wss => "wss",
            Self::Ws => "ws",
        }
    }

    /// True if what it carries is encrypted.
    #[must_use]
    pub const fn is_encrypted(self) -> bool {
        matches!(self, Self::Tls | Self::Wss)
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// One connection of an agent with a gateway. The box is paid once per read or write of many
/// frames; without it the kind would run through every type above.
pub struct Carrier {
    io: Box<dyn Duplex>,
    kind: CarrierKind,
    /// Whatever must end with it; see [`Carrier::keep`].
    kept: Vec<Box<dyn Send>>,
}

/// Waits for the end of a carrier that somebody else has now.
#[derive(Debug)]
pub struct CarrierEnd(oneshot::Receiver<Infallible>);

impl CarrierEnd {
    /// Ready once the carrier is dropped. Cancel safe.
    pub async fn ended(&mut self) {
        // Nothing is ever sent: the error is the news.
        drop((&mut self.0).await);
    }
}

impl Carrier {
    pub(super) fn new(
        io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        kind: CarrierKind,
    ) -> Self {
        Self {
            io: Box::new(io),
            kind,
            kept: Vec::new(),
        }
    }

    /// Drops `guard` with this carrier, after its connection: places and gauges follow the connection,
    /// not the tunnel that goes on without it.
    pub fn keep(&mut self, guard: impl Send + 'static) {
        self.kept.push(Box::new(guard));
    }

    /// A look at the end of this carrier, for whoever answers for its connection while a tunnel has
    /// it.
    pub fn watch(&mut self) -> CarrierEnd {
        let (end, ended) = oneshot::channel();
        self.keep(end);
        CarrierEnd(ended)
    }

    /// What it is made of.
    #[must_use]
    pub const fn kind(&self) -> CarrierKind {
        self.kind
    }
}

/// In one process, for tests and for whoever brings both ends.
impl From<DuplexStream> for Carrier {
    fn from(pipe: DuplexStream) -> Self {
        Self::tcp(pipe)
    }
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl AsyncRead for Carrier {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
