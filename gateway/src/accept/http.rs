//! One public HTTP connection from its first byte: address, TLS, and which HTTP is spoken.
//!
//! TLS clients choose by ALPN. Plain clients are HTTP/1 unless their first bytes are the HTTP/2
//! preface (prior knowledge); `Upgrade: h2c` is never followed.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::BytesMut;
use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use super::door::{self, Doorkeeper};
use super::gate::{DoorPlace, Permit};
use super::listener::{Arrival, Serve, refuse};
use super::opening::{Entry, Opened, Opening, canonical, open};
use super::prefixed::Prefixed;
use super::{Corridor, Limits, Spoken, Transport, http1, http2};
use crate::cert::agents::PublicTerms;
use crate::request::front::ClientInfo;
use crate::shutdown::Signal;
use crate::telemetry::labels::TlsFailure;

/// Protocols offered to TLS clients, preferred first.
pub const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// What an HTTP/2 client sends first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves the connections of one HTTP listener.
#[derive(Clone)]
pub struct HttpFront<C> {
    /// Where exchanges go.
    pub corridor: C,
    /// Bounds on clients, as a connection finds them.
    pub limits: Arc<ArcSwap<Limits>>,
    /// How connections begin.
    pub opening: Arc<ArcSwap<Opening>>,
    /// TLS terms; without them the listener is plain.
    pub tls: Option<Arc<PublicTerms>>,
    /// Draining ends connections after their running exchanges.
    pub signal: Signal,
}

impl<C: Corridor> Serve for HttpFront<C> {
    async fn serve(self, arrival: Arrival) {
        let Opened {
            stream,
            info,
            permit,
        } = match open(arrival, &self.opening.load_full()).await {
            Entry::Opened(opened) => opened,
            Entry::Full(stream, info, Some(door)) => {
                return self.at_the_door(stream, info, door).await;
            }
            Entry::Full(stream, ..) => return refuse(&stream),
            Entry::Gone => return,
        };
        match self.tls.clone() {
            Some(terms) => self.secured(stream, info, &terms, &permit).await,
            None => self.plain(stream, info).await,
        }
        drop(permit);
    }

    async fn turn_away(self, stream: TcpStream, peer: SocketAddr, door: DoorPlace) {
        let Ok(local) = stream.local_addr() else {
            return;
        };
        if self.opening.load().proxy_headers {
            // The first bytes may be a proxy's, not a request.
            return refuse(&stream);
        }
        let info = ClientInfo {
            peer: canonical(peer),
            announced: false,
            local: canonical(local),
            tls: false,
            sni: None,
            certified: false,
            allowance: None,
            connection: 0,
        };
        self.at_the_door(stream, info, door).await;
    }
}

impl<C: Corridor> HttpFront<C> {
    /// Tells the client that there is no place for it.
    async fn at_the_door(self, stream: TcpStream, info: ClientInfo, door: DoorPlace) {
        if self.tls.is_some() {
            return refuse(&stream);
        }
        let front = HttpFront {
            limits: Arc::new(ArcSwap::from_pointee(door::limits(&self.limits.load()))),
            corridor: Doorkeeper(self.corridor),
            opening: self.opening,
            tls: None,
            signal: self.signal,
        };
        // Told or not, it leaves now.
        let _late = timeout(door::DOOR, front.plain(stream, info)).await;
        drop(door);
    }

    async fn secured(
        &self,
        stream: TcpStream,
        mut info: ClientInfo,
        terms: &PublicTerms,
        permit: &Permit,
    ) {
        let limits = self.limits.load_full();
        let pending = self.corridor.connected(Spoken::Pending);
        let handshake = async {
            let hello = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
            let terms = terms.for_name(hello.client_hello().server_name());
            hello.into_stream(terms).await
        };
        let stream: TlsStream<TcpStream> = match timeout(limits.handshake, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                permit.tls_failed(tls_failure(&error));
                return tracing::debug!(peer = %info.peer, %error, "a TLS handshake failed");
            }
            Err(_) => {
                permit.tls_failed(TlsFailure::TimedOut);
                return tracing::debug!(peer = %info.peer, "a TLS handshake took too long");
            }
        };
        let session = stream.get_ref().1;
        let is_h2 = session.alpn_protocol() == Some(ALPN[0]);
        info.tls = true;
        info.certified = session.peer_certificates().is_some();
        info.sni = session.server_name().map(str::to_ascii_lowercase);
        let signal = self.signal.clone();
        drop(pending);
        let _place = self.corridor.connected(spoken(is_h2));
        match is_h2 {
            true => http2::serve(stream, &info, &self.corridor, &limits, signal).await,
            false => {
                let first = BytesMut::new();
                http1::serve(stream, first, &info, &self.corridor, &limits, signal).await;
            }
        }
    }

    /// Serves a connection without TLS, whatever carries its bytes.
    pub async fn plain<IO: Transport>(&self, mut stream: IO, info: ClientInfo) {
        let limits = self.limits.load_full();
        let mut signal = self.signal.clone();
        let pending = self.corridor.connected(Spoken::Pending);
        let Some(first) = first_bytes(&mut stream, &limits, &mut signal).await else {
            return;
        };
        let is_h2 = first.starts_with(PREFACE);
        drop(pending);
        let _place = self.corridor.connected(spoken(is_h2));
        match is_h2 {
            true => {
                let stream = Prefixed::new(first, stream);
                http2::serve(stream, &info, &self.corridor, &limits, signal).await;
            }
            false => {
                http1::serve(stream, first, &info, &self.corridor, &limits, signal).await;
            }
        }
    }
}

/// Whose fault it was: what rustls says is carried as an error of invalid data.
#[must_use]
pub fn tls_failure(error: &std::io::Error) -> TlsFailure {
    let told = (error.get_ref()).is_some_and(|inner| inner.is::<rustls::Error>());
    match told {
        true => TlsFailure::Failed,
        false => TlsFailure::Closed,
    }
}

const fn spoken(is_h2: bool) -> Spoken {
    match is_h2 {
        true => Spoken::Http2,
        false => Spoken::Http1,
    }
}

/// Read until the bytes are the whole preface or cannot become it; `None` if nothing comes. A
/// beginning that goes no further in time is HTTP/1's to refuse.
async fn first_bytes<IO: AsyncRead + Unpin>(
    io: &mut IO,
    limits: &Limits,
    signal: &mut Signal,
) -> Option<BytesMut> {
    let mut first = BytesMut::with_capacity(4 * 1024);
    let mut end = Instant::now() + limits.keep_alive;
    let mut draining = false;
    loop {
        let len = first.len().min(PREFACE.len());
        if first[..len] != PREFACE[..len] || len == PREFACE.len() {
            return Some(first);
        }
        let silent = first.is_empty();
        tokio::select! { biased;
            () = signal.draining(), if silent && !draining => {
                draining = true;
                end = end.min(Instant::now() + limits.drain_patience);
            }
            read = io.read_buf(&mut first) => match read {
                Ok(0) | Err(_) => return None,
                Ok(_) if silent => end = Instant::now() + limits.head_time,
                Ok(_) => {}
            },
            () = sleep_until(end) => return (!silent).then_some(first),
        }
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
