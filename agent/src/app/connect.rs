//! One connection to the app, or the reason why there is none.
//!
//! Owns resolving, dialling and the TLS handshake with the app. Writes no byte of a stream itself, so an
//! error from here is always a proof that the app saw nothing. Every name is resolved at every connection.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bridgehead_protocol::io::socket::tune_app;
use bridgehead_protocol::io::tls::TlsError;
use bridgehead_protocol::wire::RefusedReason;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::target::{Host, Place, Target, Tls};
use super::tls::AppTrust;

/// Longest time one connection to an app may take, name and TLS included.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Send buffer of an app's Unix socket, bytes, as `tune_app` sets it for TCP.
#[cfg(unix)]
const SEND_BUFFER: usize = 128 * 1024;

/// Pause between tries while a Unix socket's backlog is full (the kernel answers at once there).
#[cfg(unix)]
const BACKLOG_PAUSE: Duration = Duration::from_millis(10);

/// Addresses of one name that are tried at most.
const MOST_ADDRESSES: usize = 8;

/// Why no connection to the app stands. Zero bytes were written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct ConnectError {
    /// What to tell the gateway.
    pub reason: RefusedReason,
    /// The system's error number, 0 if none.
    pub errno: u16,
    /// One line for the agent's log.
    pub text: String,
}

impl ConnectError {
    fn new(reason: RefusedReason, text: impl fmt::Display) -> Self {
        Self {
            reason,
            errno: 0,
            text: text.to_string(),
        }
    }

    /// Classifies what the system said about `peer`.
    fn from_io(peer: impl fmt::Display, error: &io::Error) -> Self {
        let errno = error
            .raw_os_error()
            .and_then(|n| u16::try_from(n).ok())
            .unwrap_or(0);
        Self {
            reason: classify(error),
            errno,
            text: format!("{peer}: {error}"),
        }
    }

    /// How much this says about the app, to choose among several addresses: a refusal proves that the
    /// machine lives and nobody listens, an unreachable address says least.
    fn weight(&self) -> u8 {
        match self.reason {
            RefusedReason::ConnectRefused => 4,
            RefusedReason::TlsFailed | RefusedReason::ConnectReset => 3,
            RefusedReason::ConnectTimeout | RefusedReason::Expired => 2,
            RefusedReason::Limit => 1,
            RefusedReason::Unreachable | RefusedReason::NoSuchApp | RefusedReason::Draining => 0,
        }
    }
}

/// The reason a failed connect stands for.
fn classify(error: &io::Error) -> RefusedReason {
    use io::ErrorKind as Kind;
    match error.kind() {
        // A missing socket file is what a stopped app leaves behind: nobody listens.
        Kind::ConnectionRefused | Kind::NotFound => RefusedReason::ConnectRefused,
        Kind::TimedOut | Kind::WouldBlock => RefusedReason::ConnectTimeout,
        Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::BrokenPipe
        | Kind::UnexpectedEof => RefusedReason::ConnectReset,
        // Descriptors, memory, or the local ports towards this app are used up.
        Kind::AddrNotAvailable | Kind::AddrInUse | Kind::OutOfMemory => RefusedReason::Limit,
        _ if is_descriptor_limit(error) => RefusedReason::Limit,
        _ => RefusedReason::Unreachable,
    }
}

#[cfg(unix)]
fn is_descriptor_limit(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS)
    )
}

/// `WSAEMFILE` and `WSAENOBUFS`.
#[cfg(windows)]
fn is_descriptor_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(10_024 | 10_055))
}

/// A connection to an app. Reads and writes go straight to the kernel (or the TLS session): nothing is
/// buffered above it, so what `poll_write` accepted is what the app can still be given.
#[derive(Debug)]
pub enum AppSocket {
    /// TCP.
    Tcp(TcpStream),
    /// TLS over TCP; the handshake is done.
    Tls(Box<TlsStream<TcpStream>>),
    /// A Unix domain socket.
    #[cfg(unix)]
    Unix(UnixStream),
    /// What [`crate::outside::Connect`] gave.
    Given(Box<dyn Given>),
}

/// A connection that is no socket of ours, with what is asked of one beyond bytes. As with a socket, what
/// `poll_write` accepted is what the app can still be given, and a failed write took nothing.
pub trait Given: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin {
    /// See [`AppSocket::has_news`].
    fn has_news(&self) -> bool;

    /// See [`AppSocket::abort_on_drop`].
    fn abort_on_drop(&self);
}

impl AppSocket {
    /// True if bytes, an end or an error wait to be read: asks the kernel itself, because the runtime's
    /// cached readiness may be older than the app's last word. TLS sockets answer false (records that carry no
    /// data are no news); their session is read instead.
    #[must_use]
    pub fn has_news(&self) -> bool {
        let mut byte = [std::mem::MaybeUninit::uninit(); 1];
        let peeked = match self {
            Self::Tcp(tcp) => socket2::SockRef::from(tcp).peek(&mut byte),
            Self::Tls(_) => return false,
            #[cfg(unix)]
            Self::Unix(unix) => socket2::SockRef::from(unix).peek(&mut byte),
            Self::Given(given) => return given.has_news(),
        };
        !matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// True if the kernel holds bytes that must pass the TLS session before anyone knows whether they are news.
    /// Sockets without TLS have none: what they hold is news.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        let Self::Tls(tls) = self else { return false };
        let mut byte = [std::mem::MaybeUninit::uninit(); 1];
        let peeked = socket2::SockRef::from(tls.get_ref().0).peek(&mut byte);
        !matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Makes the coming drop an abrupt end (RST) instead of an orderly one, where the transport has one.
    /// The app then cannot take a cut-off body for a complete one.
    pub fn abort_on_drop(&self) {
        let tcp = match self {
            Self::Tcp(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
            #[cfg(unix)]
            Self::Unix(_) => return,
            Self::Given(given) => return given.abort_on_drop(),
        };
        if let Err(error) = tcp.set_zero_linger() {
            tracing::debug!(%error, "app socket keeps its orderly end");
        }
    }
}

/// What it takes to connect to one app, made once.
#[derive(Clone)]
pub struct Dialer {
    target: Target,
    /// Set for `https` targets.
    tls: Option<TlsConnector>,
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dialer({})", self.target)
    }
}

impl Dialer {
    /// Prepares connections to `target`; `trust` matters for `https` targets only.
    ///
    /// # Errors
    /// If the roots to trust cannot be read.
    pub fn build(target: Target, trust: &AppTrust) -> Result<Self, TlsError> {
        let tls = match target.place {
            Place::Tcp { tls: Tls::Yes, .. } => Some(super::tls::connector(trust)?),
            Place::Tcp { tls: Tls::No, .. } => None,
            #[cfg(unix)]
            Place::Unix(_) => None,
        };
        Ok(Self { target, tls })
    }

    /// Connects to the app.
    ///
    /// `deadline` is the end of the exchange's time; the connection gets at most [`CONNECT_LIMIT`] of it.
    /// Cancel safe: a dropped future closes what it opened, and no byte of a stream was written.
    ///
    /// # Errors
    /// The reason in the protocol's words, with the system's error number.
    pub async fn connect(&self, deadline: Instant) -> Result<AppSocket, ConnectError> {
        let own_end = Instant::now() + CONNECT_LIMIT;
        let late = if deadline < own_end {
            RefusedReason::Expired
        } else {
            RefusedReason::ConnectTimeout
        };
        let end = deadline.min(own_end);
        match timeout_at(end, self.connect_until(end)).await {
            // The last address's share ends when the whole does; whichever timer fires first means the same.
            Ok(Err(error)) if error.reason == RefusedReason::ConnectTimeout && error.errno == 0 => {
                Err(ConnectError {
                    reason: late,
                    ..error
                })
            }
            Ok(done) => done,
            Err(_) => Err(ConnectError::new(
                late,
                format_args!("{}: no connection in time", self.target),
            )),
        }
    }

    async fn connect_until(&self, end: Instant) -> Result<AppSocket, ConnectError> {
        match &self.target.place {
            Place::Tcp { host, port, .. } => {
                let tcp = connect_tcp(host, *port, end).await?;
                match &self.tls {
                    None => Ok(AppSocket::Tcp(tcp)),
                    Some(connector) => self.shake(connector, host, tcp).await,
                }
            }
            #[cfg(unix)]
            Place::Unix(path) => connect_unix(path).await.map(AppSocket::Unix),
        }
    }

    async fn shake(
        &self,
        connector: &TlsConnector,
        host: &Host,
        tcp: TcpStream,
    ) -> Result<AppSocket, ConnectError> {
        let failed = |error: &dyn fmt::Display| {
            ConnectError::new(
                RefusedReason::TlsFailed,
                format_args!("{}: {error}", self.target),
            )
        };
        let name = server_name(host).map_err(|error| failed(&error))?;
        let session = connector
            .connect(name, tcp)
            .await
            .map_err(|error| failed(&error))?;
        Ok(AppSocket::Tls(Box::new(session)))
    }
}

fn server_name(host: &Host) -> Result<ServerName<'static>, rustls::pki_types::InvalidDnsNameError> {
    match host {
        Host::Address(address) => Ok(ServerName::IpAddress((*address).into())),
        Host::Localhost => ServerName::try_from("localhost"),
        Host::Name(name) => ServerName::try_from(name.clone()),
    }
}

/// Tries each address in turn, each with an equal share of the time that is left.
async fn connect_tcp(host: &Host, port: u16, end: Instant) -> Result<TcpStream, ConnectError> {
    let addresses = resolve(host, port).await?;
    let mut worst: Option<ConnectError> = None;
    for (index, address) in addresses.iter().enumerate() {
        let left = u32::try_from(addresses.len() - index).unwrap_or(1);
        let now = Instant::now();
        let share = now + end.saturating_duration_since(now) / left;
        let error = match timeout_at(share, connect_address(*address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => ConnectError::from_io(address, &error),
            Err(_) => ConnectError::new(
                RefusedReason::ConnectTimeout,
                format_args!("{address}: no connection in time"),
            ),
        };
        if worst
            .as_ref()
            .is_none_or(|known| known.weight() < error.weight())
        {
            worst = Some(error);
        }
    }
    Err(worst.unwrap_or_else(|| {
        ConnectError::new(
            RefusedReason::Unreachable,
            format_args!("{host} has no address"),
        )
    }))
}

async fn resolve(host: &Host, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    let at = |address| SocketAddr::new(address, port);
    match host {
        Host::Address(address) => Ok(vec![at(*address)]),
        Host::Localhost => Ok(vec![
            at(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            at(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        ]),
        Host::Name(name) => match tokio::net::lookup_host((name.as_str(), port)).await {
            Ok(found) => Ok(found.take(MOST_ADDRESSES).collect()),
            Err(error) => Err(ConnectError::new(
                RefusedReason::Unreachable,
                format_args!("{name} does not resolve: {error}"),
            )),
        },
    }
}

async fn connect_address(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    tune_app(&stream)?;
    Ok(stream)
}

/// Connects to a Unix socket; a full backlog is waited out until the caller's deadline.
#[cfg(unix)]
async fn connect_unix(path: &std::path::Path) -> Result<UnixStream, ConnectError> {
    loop {
        match UnixStream::connect(path).await {
            Ok(stream) => {
                if let Err(error) =
                    socket2::SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER)
                {
                    tracing::debug!(%error, "app socket keeps its send buffer");
                }
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(BACKLOG_PAUSE).await
            }
            Err(error) => return Err(ConnectError::from_io(path.display(), &error)),
        }
    }
}

/// Runs the same method on whichever socket it is.
macro_rules! each {
    ($socket:expr, $inner:ident => $call:expr) => {
        match $socket {
            AppSocket::Tcp($inner) => $call,
            AppSocket::Tls($inner) => $call,
            #[cfg(unix)]
            AppSocket::Unix($inner) => $call,
            AppSocket::Given($inner) => $call,
        }
    };
}

impl AsyncRead for AppSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self.get_mut(), inner => Pin::new(inner).poll_read(cx, buffer))
    }
}

impl AsyncWrite for AppSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), inner => Pin::new(inner).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), inner => Pin::new(inner).poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        each!(self, inner => inner.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), inner => Pin::new(inner).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), inner => Pin::new(inner).poll_shutdown(cx))
    }
}

#[cfg(test)]
#[path = "connect_tests.rs"]
mod tests;
