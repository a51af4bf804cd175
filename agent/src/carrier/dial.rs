//! Resolve, connect, encrypt: one carrier to one gateway, under one deadline.
//!
//! Names are resolved at every dial, so that a moved gateway is found. All addresses are tried, a quarter
//! of a second apart, the first that stands wins (RFC 8305's idea without its bookkeeping). The token is
//! given to a WebSocket's request only.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::handshake::Token;
use bridgehead_protocol::io::carrier::upgrade::ConnectError as UpgradeError;
use bridgehead_protocol::io::carrier::{Carrier, CarrierKind};
use bridgehead_protocol::io::socket::tune_carrier;
use bridgehead_protocol::io::tls::{ALPN, ALPN_HTTP1, TlsError, Trust, client_config_as};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rustls::CertificateError;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::session::core::Fault;

use super::address::{GatewayAddress, Scheme};
use super::proxy::{Proxies, connect_through};
use super::tls::{OwnCertificate, Roots, certificate_hint};
use super::ws;

/// Head start of an address before the next one is tried too.
const HEAD_START: Duration = Duration::from_millis(250);

/// Addresses of one name that are tried at most.
const MOST_ADDRESSES: usize = 8;

/// Silence after which the kernel gives up unacknowledged bytes; the tunnel's own limit.
const DEAD_AFTER: Duration = Duration::from_secs(6);

/// Why no carrier stands.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name has no address now.
    #[error("{host} does not resolve: {error}")]
    Resolve {
        /// The gateway's or the proxy's name.
        host: String,
        /// What the system says.
        error: io::Error,
    },
    /// No address answers.
    #[error("{address} does not answer: {error}")]
    Connect {
        /// The address tried last.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The proxy does not lead there.
    #[error("no way through the proxy: {0}")]
    Proxy(io::Error),
    /// The host can stand in no certificate.
    #[error("{0} is no name that a certificate can hold")]
    Name(String),
    /// Encrypting failed.
    #[error("TLS with {gateway} failed: {error}{hint}", hint = tls_hint(error))]
    Tls {
        /// The gateway.
        gateway: String,
        /// What the library says.
        error: io::Error,
    },
    /// The agent's own certificate cannot be used now; it may just be renewed.
    #[error("this agent's own certificate: {0}")]
    OwnCertificate(#[from] TlsError),
    /// TLS stands, but not with a tunnel listener.
    #[error("{0} speaks TLS but is no tunnel listener; is it the port of [tunnel]?")]
    Alpn(String),
    /// The WebSocket was not granted.
    #[error("{error}{hint}", hint = ws::hint(error))]
    Upgrade {
        /// What came instead.
        #[from]
        error: UpgradeError,
    },
    /// The deadline passed.
    #[error("{0} does not answer in time")]
    TimedOut(String),
}

impl DialError {
    /// Whose fault it is.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Tls { error, .. } if is_distrust(error) => Fault::SetUp,
            Self::Name(_)
            | Self::Upgrade {
                error: UpgradeError::Address(_),
            } => Fault::SetUp,
            Self::Upgrade {
                error: UpgradeError::Status(401),
            } => Fault::SetUp,
            Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::Proxy(_)
            | Self::Tls { .. }
            | Self::OwnCertificate(_)
            | Self::Alpn(_)
            | Self::Upgrade { .. }
            | Self::TimedOut(_) => Fault::Passing,
        }
    }
}

fn certificate_error(error: &io::Error) -> Option<&CertificateError> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(error) => Some(error),
        _ => None,
    }
}

/// True if the certificate is of a stranger; one that is out of date may be renewed at any moment.
fn is_distrust(error: &io::Error) -> bool {
    certificate_error(error).is_some_and(|error| {
        matches!(
            error,
            CertificateError::UnknownIssuer
                | CertificateError::BadSignature
                | CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. }
        )
    })
}

fn tls_hint(error: &io::Error) -> &'static str {
    match certificate_error(error) {
        // The latter: a root of the same name, but not the same key.
        Some(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "; if its CA is your own, name it with --ca"
        }
        Some(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "; the certificate is for another host than --gateway names",
        Some(_) => "",
        None => certificate_hint(error),
    }
}

/// What it takes to dial, made once.
pub struct Dialer {
    /// `None` if every gateway is plain, so that an agent in a bare container needs no roots.
    tls: Option<Tls>,
    proxies: Proxies,
}

/// How to encrypt.
enum Tls {
    /// For raw and for WebSocket carriers.
    Anonymous(TlsConnector, TlsConnector),
    /// With the certificate as it is at each dial.
    Known(Trust, OwnCertificate),
}

impl Tls {
    fn build(roots: &Roots, own: Option<&OwnCertificate>) -> Result<Self, TlsError> {
        let trust = roots.trust()?;
        let Some(own) = own else {
            let connector = |alpn| connector(&trust, None, alpn);
            return Ok(Self::Anonymous(connector(ALPN)?, connector(ALPN_HTTP1)?));
        };
        // Told at the start, not at the first dial.
        own.load()?;
        Ok(Self::Known(trust, own.clone()))
    }

    fn connector(&self, scheme: Scheme) -> Result<TlsConnector, TlsError> {
        match (self, scheme.is_websocket()) {
            (Self::Anonymous(raw, _), false) => Ok(raw.clone()),
            (Self::Anonymous(_, websocket), true) => Ok(websocket.clone()),
            (Self::Known(trust, own), false) => connector(trust, Some(own.load()?), ALPN),
            (Self::Known(trust, own), true) => connector(trust, Some(own.load()?), ALPN_HTTP1),
        }
    }
}

fn connector(
    trust: &Trust,
    own: Option<CertifiedKey>,
    alpn: &[u8],
) -> Result<TlsConnector, TlsError> {
    client_config_as(trust, own, &[alpn]).map(|config| Arc::new(config).into())
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer")
            .field("proxies", &self.proxies)
            .finish_non_exhaustive()
    }
}

impl Dialer {
    /// Prepares dialling these gateways.
    ///
    /// # Errors
    /// If one needs TLS and the roots or the agent's own certificate cannot be read.
    pub fn build(
        gateways: &[GatewayAddress],
        roots: &Roots,
        own: Option<&OwnCertificate>,
        proxies: Proxies,
    ) -> Result<Self, TlsError> {
        let tls = match gateways.iter().all(|gateway| gateway.scheme.is_plain()) {
            true => None,
            false => Some(Tls::build(roots, own)?),
        };
        Ok(Self { tls, proxies })
    }

    /// Dials a gateway. Cancel safe: a dropped future closes what it opened.
    ///
    /// # Errors
    /// What stood in the way, in one line.
    pub async fn dial(
        &self,
        gateway: &GatewayAddress,
        token: &Token,
        until: Instant,
    ) -> Result<Carrier, DialError> {
        match timeout_at(until, self.dial_unbounded(gateway, token, until)).await {
            Ok(done) => done,
            Err(_) => Err(DialError::TimedOut(gateway.to_string())),
        }
    }

    async fn dial_unbounded(
        &self,
        gateway: &GatewayAddress,
        token: &Token,
        until: Instant,
    ) -> Result<Carrier, DialError> {
        let tcp = self.reach(gateway).await?;
        match (gateway.scheme, &self.tls) {
            (Scheme::Tcp, _) => Ok(Carrier::tcp(tcp)),
            (Scheme::Ws, _) => Ok(ws::upgrade(tcp, gateway, token, CarrierKind::Ws, until).await?),
            (Scheme::Tls, Some(tls)) => {
                let session = encrypt(&tls.connector(gateway.scheme)?, gateway, tcp).await?;
                match session.get_ref().1.alpn_protocol() {
                    Some(ALPN) => Ok(Carrier::tls(session)),
                    _ => Err(DialError::Alpn(gateway.to_string())),
                }
            }
            (Scheme::Wss, Some(tls)) => {
                let session = encrypt(&tls.connector(gateway.scheme)?, gateway, tcp).await?;
                Ok(ws::upgrade(session, gateway, token, CarrierKind::Wss, until).await?)
            }
            // `build` saw other gateways than these: the caller mixed two dialers up.
            (Scheme::Tls | Scheme::Wss, None) => Err(DialError::Name(gateway.to_string())),
        }
    }

    /// A connection to the gateway, by way of the proxy if one leads there.
    async fn reach(&self, gateway: &GatewayAddress) -> Result<TcpStream, DialError> {
        let stream = match self.proxies.towards(gateway) {
            None => connect(&gateway.host, gateway.port).await?,
            Some(proxy) => {
                let mut stream = connect(&proxy.host, proxy.port).await?;
                connect_through(&mut stream, proxy, gateway)
                    .await
                    .map_err(DialError::Proxy)?;
                stream
            }
        };
        if let Err(error) = tune_carrier(&stream, DEAD_AFTER) {
            tracing::debug!(%error, "carrier keeps its socket options");
        }
        Ok(stream)
    }
}

async fn encrypt(
    connector: &TlsConnector,
    gateway: &GatewayAddress,
    tcp: TcpStream,
) -> Result<TlsStream<TcpStream>, DialError> {
    let name = ServerName::try_from(gateway.host.clone())
        .map_err(|_| DialError::Name(gateway.host.clone()))?;
    connector
        .connect(name, tcp)
        .await
        .map_err(|error| DialError::Tls {
            gateway: gateway.to_string(),
            error,
        })
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let resolve = |error| DialError::Resolve {
        host: host.to_owned(),
        error,
    };
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port))
        .await
        .map_err(resolve)?
        .collect();
    if found.is_empty() {
        return Err(resolve(io::Error::other("no address")));
    }
    race(alternate(found)).await
}

/// The resolver's order, but the two families take turns: one that is broken costs one head start.
fn alternate(found: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let first_is_v6 = found.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) = found
        .into_iter()
        .partition(|address| address.is_ipv6() == first_is_v6);
    let mut all = VecDeque::with_capacity(MOST_ADDRESSES);
    while all.len() < MOST_ADDRESSES && !(first.is_empty() && second.is_empty()) {
        all.extend(first.pop_front());
        all.extend(second.pop_front());
    }
    all
}

/// The first address that answers; each gets a head start before the next is tried too, a refusal none.
async fn race(mut addresses: VecDeque<SocketAddr>) -> Result<TcpStream, DialError> {
    let mut running = FuturesUnordered::new();
    loop {
        let waiting = match addresses.pop_front() {
            Some(address) => {
                running.push(async move { (address, TcpStream::connect(address).await) });
                !addresses.is_empty()
            }
            None => false,
        };
        tokio::select! {
            biased;
            Some((address, done)) = running.next() => match done {
                Ok(stream) => return Ok(stream),
                Err(error) if addresses.is_empty() && running.is_empty() => {
                    return Err(DialError::Connect { address, error });
                }
                Err(_) => {}
            },
            () = sleep(HEAD_START), if waiting => {}
        }
    }
}

#[cfg(test)]
#[path = "dial_tests.rs"]
mod tests;
