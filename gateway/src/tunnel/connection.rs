//! A connection to an app by what is spoken on it. Says whether another exchange may begin on it.

use bridgehead_protocol::io::{StreamControl, TunnelStream};
use bridgehead_protocol::planted::Bug;
use bridgehead_protocol::wire::AppKind;

use super::http2::Http2Connection;

/// A connection to an app, by what is spoken on it.
pub enum AppConnection {
    /// HTTP/1.1.
    Http1(TunnelStream),
    /// HTTP/2, with nothing said on it yet; never kept. What the app may send unasked.
    NewHttp2(TunnelStream, u32),
    /// HTTP/2.
    Http2(Box<Http2Connection>),
}

impl AppConnection {
    /// A connection over a new stream, whose app may send `cap` bytes unasked.
    #[must_use]
    pub fn new(kind: AppKind, stream: TunnelStream, cap: u32) -> Self {
        match kind {
            AppKind::H2c => Self::NewHttp2(stream, cap),
            AppKind::Http1 | AppKind::Tcp => Self::Http1(stream),
        }
    }

    /// Evidence and giving up.
    #[must_use]
    pub fn control(&self) -> &StreamControl {
        match self {
            Self::Http1(stream) | Self::NewHttp2(stream, _) => stream.control(),
            Self::Http2(connection) => connection.control(),
        }
    }

    /// Bytes of an answer that are here unread, or that the app may send unasked.
    #[must_use]
    pub fn exposure(&self) -> u64 {
        match self {
            Self::Http1(stream) | Self::NewHttp2(stream, _) => stream.control().exposure(),
            Self::Http2(connection) => connection.exposure(),
        }
    }

    /// The app may send at most so many bytes unasked from now on; what it was granted stays granted.
    pub fn cap(&mut self, cap: u32) {
        match self {
            Self::Http1(stream) => stream.control().cap(cap),
            Self::NewHttp2(stream, own) => {
                stream.control().cap(cap);
                *own = cap;
            }
            Self::Http2(connection) => connection.cap(cap),
        }
    }

    /// No terminal, nothing unread that matters, and the tunnel takes exchanges.
    pub fn is_usable(&mut self) -> bool {
        match self {
            Self::Http1(stream) => {
                let view = stream.control().view();
                let nothing_waits = view.received == view.taken || Bug::LeftoverKept.bites();
                view.ended.is_none() && !view.closing && nothing_waits
            }
            Self::NewHttp2(..) => false,
            Self::Http2(connection) => connection.is_usable(),
        }
    }
}
