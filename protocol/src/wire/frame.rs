//! The frame values. One struct a frame; what the bytes look like stands in the sibling files.
//!
//! Pure data: nothing here checks order or state (that is `conn`).

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

/// Wire number of a stream; 0 is the tunnel itself, the gateway's are odd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

impl StreamId {
    /// The tunnel itself.
    pub const TUNNEL: Self = Self(0);
}

/// How the agent speaks to an app on behalf of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppKind {
    /// HTTP/1.1: after the app's end of stream nothing more is written.
    Http1,
    /// HTTP/2 by prior knowledge; same evidence rules as HTTP/1.1.
    H2c,
    /// Raw bytes; half-close is kept.
    Tcp,
}

/// Why the agent could not hand a stream to its app. Zero bytes were written, ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedReason {
    /// The app's port answered with a reset.
    ConnectRefused,
    /// The connection to the app was not established in time.
    ConnectTimeout,
    /// The connection broke while it was being established.
    ConnectReset,
    /// The TLS handshake with the app failed.
    TlsFailed,
    /// The agent serves no app of that name.
    NoSuchApp,
    /// The agent is going away.
    Draining,
    /// The agent's stream or descriptor limit is reached.
    Limit,
    /// The time left for the exchange was over before the connection stood.
    Expired,
    /// The app's host name did not resolve, or no route leads to it.
    Unreachable,
}

/// What ended a stream at the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FinalCause {
    /// The app ended its side and everything it wrote was passed on.
    AppClosed,
    /// The app's socket failed (reset, broken pipe).
    AppReset,
    /// The gateway sent RESET.
    Reset,
    /// The gateway sent FENCE and the request was not wholly written.
    Fenced,
    /// BEGIN found leftover bytes, an end or an error on the app's socket; nothing of the exchange was written.
    Stale,
    /// BEGIN came after the exchange's time; nothing of the exchange was written.
    Expired,
    /// The lingering after a fence is over.
    LingerOver,
    /// The agent is stopping.
    Stopping,
    /// Credit or memory ran out for a stream that made no progress.
    Starved,
}

/// Why a sender ends a stream abruptly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResetCode {
    /// The client left.
    Cancelled,
    /// Done with a kept connection.
    Idle,
    /// The app broke HTTP.
    AppBroken,
    /// The stream broke the protocol or its budget.
    Abuse,
    /// The sender is stopping.
    Stopping,
    /// Anything internal.
    Internal,
}

/// Why a tunnel stops accepting streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoAwayReason {
    /// The sender is shutting down in order.
    Draining,
    /// A newer instance of the same agent took over.
    Replaced,
    /// The agent's token was revoked.
    Revoked,
    /// Stream ids are nearly used up; redial.
    IdsExhausted,
    /// The peer broke the protocol.
    ProtocolError,
}

/// Why an agent is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefuseCode {
    /// Token unknown, expired or revoked.
    Unauthorized,
    /// The token does not cover one of the apps.
    ScopeDenied,
    /// No common protocol version.
    VersionUnsupported,
    /// The hello is malformed or breaks a limit.
    Malformed,
    /// The tunnel to resume is gone; start anew.
    ResumeGone,
    /// A lower epoch than one already seen.
    StaleEpoch,
    /// Too many tunnels or attempts; wait.
    Busy,
    /// The gateway is draining; dial another node.
    Draining,
}

/// State of an app as its agent sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AppHealth {
    /// Not looked at, or just announced.
    Unknown,
    /// Its port answers.
    Ready,
    /// Started by the agent, port not open yet.
    Starting,
    /// Its port refuses or its process ended.
    Failing,
    /// Will be removed; finish what runs.
    Draining,
}

/// One app an agent offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppOffer {
    /// App name, `[a-z0-9-]{1,40}`.
    pub name: String,
    /// How the agent reaches it.
    pub kind: AppKind,
    /// Share of the load relative to other agents of the same app; 1 to 100.
    pub weight: u8,
    /// Health at the time of sending.
    pub health: AppHealth,
    /// Host header the app wants to see; empty = the client's own.
    pub upstream_host: String,
}

/// Limits one side asks the other to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLimits {
    /// Streams open at once.
    pub max_streams: u32,
    /// Credit the sender of this will give a fresh stream, bytes.
    pub initial_credit: u32,
    /// How long a fenced, fully written exchange is kept open for its late answer.
    pub linger: Duration,
}

/// HELLO, the first frame on every carrier.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// Protocol versions the agent speaks, highest first.
    pub versions: Vec<u16>,
    /// Feature names; the intersection rules.
    pub features: Vec<String>,
    /// Agent id (identity together with the token's subject).
    pub agent: String,
    /// Random per start of the agent.
    pub instance: u128,
    /// Token text; empty if it travelled in the WebSocket request.
    pub token: String,
    /// Apps offered.
    pub apps: Vec<AppOffer>,
    /// Limits asked of the gateway.
    pub limits: PeerLimits,
    /// Set when the agent wants to continue a tunnel.
    pub resume: Option<ResumeTicket>,
}

/// What proves the right to continue a tunnel.
#[derive(Clone, PartialEq, Eq)]
pub struct ResumeTicket {
    /// Tunnel to continue.
    pub tunnel: u128,
    /// Secret given in WELCOME.
    pub secret: [u8; 32],
    /// Number of the carrier. HELLO names the one that its carrier would have, higher than in any
    /// HELLO before; WELCOME repeats it.
    pub epoch: u32,
}

/// WELCOME.
#[derive(Clone, PartialEq, Eq)]
pub struct Welcome {
    /// Version chosen.
    pub version: u16,
    /// Features both sides have.
    pub features: Vec<String>,
    /// Node id of the gateway.
    pub node: String,
    /// Tunnel and the secret to resume it; epoch of this carrier.
    pub ticket: ResumeTicket,
    /// Silence after which each side pings.
    pub ping_after: Duration,
    /// How long a lost tunnel may be resumed; zero = never.
    pub resume_window: Duration,
    /// Limits asked of the agent.
    pub limits: PeerLimits,
    /// Other gateway nodes (URLs) the agent may dial.
    pub nodes: Vec<String>,
}

/// REFUSE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refuse {
    /// Why.
    pub code: RefuseCode,
    /// True if trying again without a change is useless.
    pub permanent: bool,
    /// Wait at least this long before the next attempt.
    pub retry_after: Duration,
    /// One line for a person.
    pub text: String,
}

/// RESUME: offsets stated after a resumed WELCOME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// Highest stream id seen in OPEN.
    pub highest_open: u32,
    /// Next expected offset per live stream.
    pub streams: Vec<(StreamId, u64)>,
    /// More RESUME frames follow.
    pub more: bool,
}

/// OPEN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// App to connect to.
    pub app: String,
    /// How to speak to it.
    pub kind: AppKind,
    /// Time left for the connection to be used.
    pub remaining: Duration,
    /// Bytes the agent may send before a CREDIT.
    pub credit: u32,
    /// The client's address, for logs at the agent and PROXY headers.
    pub client: Option<SocketAddr>,
}

/// BEGIN: stands in stream order before an exchange's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begin {
    /// Id of the request (UUID bits), for the agent's log.
    pub request: u128,
    /// Time left for the first byte to reach the app.
    pub remaining: Duration,
    /// Bytes the agent must have read from the app so far; `None` = any (h2c).
    pub expect_read: Option<u64>,
}

/// A terminal an agent reports for a tunnel that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportEntry {
    /// Tunnel it belonged to.
    pub tunnel: u128,
    /// Stream in that tunnel.
    pub stream: StreamId,
    /// Bytes accepted by the app's socket.
    pub written: u64,
    /// Bytes read from the app's socket.
    pub read: u64,
    /// What ended it.
    pub cause: FinalCause,
}

/// Any frame, with the stream it belongs to where that is not the tunnel.
#[derive(Clone, PartialEq, Eq)]
pub enum Frame {
    /// See [`Hello`].
    Hello(Hello),
    /// See [`Welcome`].
    Welcome(Welcome),
    /// See [`Refuse`].
    Refuse(Refuse),
    /// See [`Resume`].
    Resume(Resume),
    /// Liveness probe with 8 opaque bytes.
    Ping([u8; 8]),
    /// Its echo.
    Pong([u8; 8]),
    /// Apps the agent offers now, with a rising revision.
    Apps {
        /// Rises with every change.
        revision: u64,
        /// The full list.
        apps: Vec<AppOffer>,
    },
    /// Streams above `last` were not and will not be started.
    GoAway {
        /// Last stream id accepted.
        last: StreamId,
        /// Why.
        reason: GoAwayReason,
        /// When the sender will close what is left.
        deadline: Duration,
    },
    /// See [`Open`].
    Open(StreamId, Open),
    /// The app's connection stands; zero bytes were written.
    Opened {
        /// Stream.
        stream: StreamId,
        /// Bytes the gateway may send before a CREDIT.
        credit: u32,
    },
    /// Terminal: zero bytes of this stream were and will be written.
    Refused {
        /// Stream.
        stream: StreamId,
        /// Why.
        reason: RefusedReason,
        /// The system's error number, 0 if none.
        errno: u16,
    },
    /// See [`Begin`].
    Begin(StreamId, Begin),
    /// Stream bytes; `fin` ends this direction.
    Data {
        /// Stream.
        stream: StreamId,
        /// Bytes, possibly none with `fin`.
        bytes: Bytes,
        /// Ends this direction.
        fin: bool,
    },
    /// Absolute credit.
    Credit {
        /// Stream.
        stream: StreamId,
        /// The peer may send up to this offset.
        limit: u64,
        /// Bytes taken: accepted by the app's socket (agent) or by the reader (gateway).
        consumed: u64,
    },
    /// Write nothing more of this stream, answer COUNT.
    Fence {
        /// Stream.
        stream: StreamId,
        /// The whole request has been sent: keep the app's connection for its late answer.
        linger: bool,
    },
    /// Answer to FENCE.
    Count {
        /// Stream.
        stream: StreamId,
        /// Bytes accepted by the app's socket.
        written: u64,
        /// Bytes read from the app's socket.
        read: u64,
    },
    /// Abrupt end of both directions.
    Reset {
        /// Stream.
        stream: StreamId,
        /// Why.
        code: ResetCode,
    },
    /// Terminal, exactly once per opened stream.
    Final {
        /// Stream.
        stream: StreamId,
        /// Bytes accepted by the app's socket.
        written: u64,
        /// Bytes read from the app's socket.
        read: u64,
        /// What ended it.
        cause: FinalCause,
    },
    /// Terminals received.
    Done(Vec<StreamId>),
    /// Terminals of lost tunnels.
    Report(Vec<ReportEntry>),
}
