//! The beginning of every public connection: who it is, and whether that address may have one more.
//!
//! Behind a trusted proxy that speaks the PROXY protocol the address is what the proxy says; a
//! trusted proxy itself is not counted as one client. Nothing of the client's own bytes is read.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::gate::{DoorPlace, Permit};
use super::listener::Arrival;
use super::proxy_header::{self, Proxied};
use crate::config::Cidr;
use crate::request::front::ClientInfo;
use crate::telemetry::labels::ConnectionRefused;

/// How connections to a listener begin.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Proxies that are believed.
    pub trusted: Vec<Cidr>,
    /// They send a PROXY header first; nobody else may.
    pub proxy_headers: bool,
    /// How long the header may take.
    pub patience: Duration,
}

impl Opening {
    /// True if connections from there may be those of many clients.
    #[must_use]
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted.iter().any(|net| net.contains(address))
    }
}

/// A connection whose client is known.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) stream: TcpStream,
    pub(super) info: ClientInfo,
    pub(super) permit: Permit,
}

/// How a connection began.
#[derive(Debug)]
pub(super) enum Entry {
    Opened(Opened),
    /// Its address has no place left.
    Full(TcpStream, ClientInfo, Option<DoorPlace>),
    /// It is gone already.
    Gone,
}

/// Finds out who it is.
pub(super) async fn open(arrival: Arrival, opening: &Opening) -> Entry {
    let Arrival {
        mut stream,
        peer,
        mut permit,
    } = arrival;
    let mut peer = canonical(peer);
    let Ok(local) = stream.local_addr() else {
        return Entry::Gone;
    };
    let mut local = canonical(local);
    let trusted = opening.trusts(peer.ip());
    let mut announced = false;
    if trusted && opening.proxy_headers {
        match timeout(opening.patience, read_header(&mut stream)).await {
            Ok(Ok(Proxied::Client {
                peer: client,
                local: target,
            })) => {
                (peer, local) = (canonical(client), canonical(target));
                announced = true;
            }
            Ok(Ok(Proxied::Itself)) => {}
            // As a balancer does that only looks whether the port answers.
            Ok(Err(NoHeader::Nothing)) => {
                tracing::debug!(%peer, "a trusted proxy closed without a byte");
                return Entry::Gone;
            }
            Ok(Err(NoHeader::Invalid)) | Err(_) => {
                permit.refused(ConnectionRefused::ProxyHeader);
                if let Some(count) = permit.worth_a_warning() {
                    tracing::warn!(%peer, count, "a trusted proxy sent no valid PROXY header");
                }
                return Entry::Gone;
            }
        }
    }
    let info = ClientInfo {
        peer,
        announced,
        local,
        tls: false,
        sni: None,
        certified: false,
        allowance: None,
        connection: permit.number(),
    };
    let counted = announced || !trusted;
    if counted && !permit.claim(peer.ip()) {
        let door = permit.door();
        return Entry::Full(stream, info, door);
    }
    Entry::Opened(Opened {
        stream,
        info,
        permit,
    })
}

/// Why there is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoHeader {
    /// The connection ended before it began.
    Nothing,
    /// What came is none.
    Invalid,
}

/// Read the header and not one byte more.
async fn read_header(stream: &mut TcpStream) -> Result<Proxied, NoHeader> {
    let mut header = Vec::new();
    loop {
        let parsed = proxy_header::parse(&header).map_err(|_| NoHeader::Invalid)?;
        if let Some((proxied, len)) = parsed {
            debug_assert_eq!(len, header.len());
            return Ok(proxied);
        }
        let mut filled = header.len();
        header.resize(filled + proxy_header::missing(&header), 0);
        while filled < header.len() {
            match stream.read(&mut header[filled..]).await {
                Ok(0) | Err(_) if filled == 0 => return Err(NoHeader::Nothing),
                Ok(0) | Err(_) => return Err(NoHeader::Invalid),
                Ok(read) => filled += read,
            }
        }
    }
}

/// An IPv4 client of a dual-stack listener is an IPv4 client.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
