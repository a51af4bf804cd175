//! Two cores, one or two exchanges, an app, a carrier that may be cut anywhere: what can be done next,
//! and what must hold whatever is done.
//!
//! The oracle is what the app's socket accepted. Every promise is checked at the step that could
//! break it: `not_delivered` never for what the app saw or will see, `delivered` never without a byte
//! of the answer to this exchange, bytes once and in order, an exchange begun at most once, no first
//! byte later than its window, silence and a second; and at the end nothing is left on either side.

mod enabled;
mod finish;
mod search;
mod seeded;
mod step;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bytes::BytesMut;

use crate::conn::{Conn, Settings, Side, StreamKey};
use crate::time::Moment;
use crate::verdict::Delivery;
use crate::wire::PeerLimits;

pub use search::{Search, search};
pub use seeded::{Seeds, run_seed, run_seeds, schedule_of};

/// Bytes of a question's head.
const HEAD: usize = 5;

/// How long an exchange may take to its first byte.
const WINDOW: Duration = Duration::from_secs(30);

/// One step of anybody; the number picks the exchange (corridor) or the stream (agent).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The corridor asks for a stream.
    Open(usize),
    /// It begins the exchange and writes its head.
    Ask(usize),
    /// It writes a part of the body.
    Send(usize),
    /// It ends its direction.
    End(usize),
    /// It reads what has come.
    Read(usize),
    /// The exchange's window runs out: fence.
    Expire(usize),
    /// The client leaves: reset.
    Leave(usize),
    /// The corridor says what became of the exchange.
    Tell(usize),
    /// The app's connection stands.
    Connect(usize),
    /// The app refuses it.
    Refuse(usize),
    /// The app's socket takes what stands in front.
    Take(usize),
    /// It takes one byte.
    TakeByte(usize),
    /// The app says something, asked or not.
    Answer(usize),
    /// The app closes its connection.
    Close(usize),
    /// The agent drops the stream's task.
    Stop(usize),
    /// A side gives its frames to the carrier.
    EmitGateway,
    /// The same, a little at a time.
    EmitGatewaySome,
    /// The agent's frames.
    EmitAgent,
    /// The same, a little at a time.
    EmitAgentSome,
    /// Everything under way arrives.
    CarryToAgent,
    /// A few bytes arrive.
    CarrySomeToAgent,
    /// Everything under way arrives.
    CarryToGateway,
    /// A few bytes arrive.
    CarrySomeToGateway,
    /// Both sides find the carrier dead.
    Cut,
    /// Only the gateway does.
    CutAtGateway,
    /// Only the agent does.
    CutAtAgent,
    /// The next carrier, its handshake done.
    Redial,
    /// The tunnel is lost for good (another instance took over).
    Lose,
    /// Time passes to the next deadline of either side.
    Deadline,
    /// The agent's process is stopped for three seconds.
    Freeze,
    /// A flood of pings from the peer arrives at both sides.
    Flood,
    /// The agent drains.
    DrainAgent,
    /// The gateway drains.
    DrainGateway,
}

/// What a world holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Exchanges, one or two.
    pub exchanges: usize,
    /// The second goes through the first one's stream.
    pub reuse: bool,
    /// Bytes of one written part of a body.
    pub part: usize,
    /// Parts of each body.
    pub parts: usize,
    /// How often an app says something.
    pub answers: u64,
}

impl Plan {
    const fn stream_of(&self, exchange: usize) -> usize {
        if self.reuse { 0 } else { exchange }
    }
}

/// A promise that was broken, in words.
pub type Broken = String;

/// An exchange as the corridor sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    start: u64,
    is_asked: bool,
    asked_at: Moment,
    /// Length of what was written of it.
    wrote: u64,
    parts: usize,
    ended: bool,
    given_up: bool,
    answer: u64,
    told: Option<Delivery>,
}

/// A stream at both ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Link {
    key: Option<StreamKey>,
    /// Offset after the last byte written by the gateway, and read by it.
    wrote: u64,
    read: u64,
    released: bool,
    app: Option<App>,
}

/// The app's end: the truth.
#[derive(Clone, Debug)]
pub(super) struct App {
    key: StreamKey,
    connected: bool,
    gone: bool,
    took: u64,
    said: u64,
    /// Exchanges begun here, and what the app had said by then.
    begun: Vec<(usize, u64)>,
}

/// Everything, at one moment.
#[derive(Clone, Debug)]
pub struct World {
    plan: Plan,
    now: Moment,
    gateway: Conn,
    agent: Conn,
    to_agent: BytesMut,
    to_gateway: BytesMut,
    agent_inbox: BytesMut,
    gateway_inbox: BytesMut,
    exchanges: Vec<Exchange>,
    links: Vec<Link>,
    /// Streams told by the agent after the tunnel was lost: stream, written.
    fates: Vec<(u32, u64)>,
    faults: usize,
}

impl World {
    /// Two fresh sides and nothing asked yet.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let settings = Settings {
            initial_window: 16 * 1024,
            max_window: 32 * 1024,
            queue_limit: 16 * 1024,
            retain_limit: 64 * 1024,
            max_streams: 4,
            resume_window: Duration::from_secs(20),
            ..Settings::default()
        };
        let limits = PeerLimits {
            max_streams: settings.max_streams,
            initial_credit: settings.initial_window,
            linger: settings.linger,
        };
        let streams = if plan.reuse { 1 } else { plan.exchanges };
        Self {
            plan,
            now: Moment::ZERO,
            gateway: Conn::new(Side::Gateway, settings, limits, Moment::ZERO),
            agent: Conn::new(Side::Agent, settings, limits, Moment::ZERO),
            to_agent: BytesMut::new(),
            to_gateway: BytesMut::new(),
            agent_inbox: BytesMut::new(),
            gateway_inbox: BytesMut::new(),
            exchanges: vec![Exchange::default(); plan.exchanges],
            links: vec![Link::default(); streams],
            fates: Vec::new(),
            faults: 0,
        }
    }

    /// The same for two worlds in which the same can follow.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hash = Hashing(DefaultHasher::new());
        // Writing into a hasher cannot fail.
        let _ = write!(hash, "{self:?}");
        hash.0.finish()
    }

    /// What was told of each exchange so far.
    #[must_use]
    pub fn told(&self) -> Vec<Option<Delivery>> {
        self.exchanges.iter().map(|e| e.told).collect()
    }

    /// Faults that have struck.
    #[must_use]
    pub const fn faults(&self) -> usize {
        self.faults
    }

    /// What it was made for.
    #[must_use]
    pub const fn plan_of(&self) -> Plan {
        self.plan
    }

    fn is_over(&self) -> bool {
        self.gateway.failure().is_some() && self.agent.failure().is_some()
    }

    fn stream_of(&self, exchange: usize) -> usize {
        self.plan.stream_of(exchange)
    }
}

struct Hashing(DefaultHasher);

impl std::fmt::Write for Hashing {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        text.hash(&mut self.0);
        Ok(())
    }
}

/// Byte `at` of every stream, so that a hole or a repetition shows.
fn pattern(from: u64, len: usize) -> bytes::Bytes {
    (from..).take(len).map(|at| (at % 251) as u8).collect()
}

fn follows(bytes: &[u8], from: u64) -> bool {
    (from..).zip(bytes).all(|(at, b)| (at % 251) as u8 == *b)
}
