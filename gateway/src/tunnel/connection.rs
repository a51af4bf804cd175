//! A connection to an app by what is spoken on it. Says whether another exchange may begin on it.

use bridgehead_protocol::io::{StreamControl, TunnelStream};
use bridgehead_protocol::planted::Bug;
use bridgehead_protocol::wire::AppKind;

use super::http2::Http2Connection;

/// A connection to an app, by what is spoken on it.
pub enum AppConnection {
    /// HTTP/1.1.
    Http1(TunnelStream),
    /// HTTP/2, with nothing said on it yet; never kept.
    NewHttp2(TunnelStream),
    /// HTTP/2.
    Http2(Box<Http2Connection>),
}

impl AppConnection {
    /// A connection over a new stream.
    #[must_use]
    pub fn new(kind: AppKind, stream: TunnelStream) -> Self {
        match kind {
            AppKind::H2c => Self::NewHttp2(stream),
            AppKind::Http1 | AppKind::Tcp => Self::Http1(stream),
        }
    }

    /// Evidence and giving up.
    #[must_use]
    pub fn control(&self) -> &StreamControl {
        match self {
            Self::Http1(stream) | Self::NewHttp2(stream) => stream.control(),
            Self::Http2(connection) => connection.control(),
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
            Self::NewHttp2(_) => false,
            Self::Http2(connection) => connection.is_usable(),
        }
    }
}
