//! A script of faults as values: when, what, for how long.
//!
//! Pure data. What the text looks like is `parse`'s business, what a rule does is `engine`'s.
//! Invariant: a [`Fault`] that lasts and a trigger that repeats never meet without a span, so no rule
//! piles up without end.

use std::fmt;
use std::time::Duration;

use bridgehead_protocol::wire::Kind;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the gateway to the agent.
    ToAgent,
    /// From the agent to the gateway.
    ToGateway,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::ToAgent, Self::ToGateway];

    /// As a script writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToAgent => "to-agent",
            Self::ToGateway => "to-gateway",
        }
    }

    /// Place in a pair.
    pub const fn index(self) -> usize {
        match self {
            Self::ToAgent => 0,
            Self::ToGateway => 1,
        }
    }
}

/// Which frames a rule looks at; nothing said means any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Type.
    pub kind: Option<Kind>,
    /// Stream; 0 is the tunnel.
    pub stream: Option<u32>,
    /// Way.
    pub direction: Option<Direction>,
}

/// On which side of its frame a fault falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The frame is not passed.
    Before,
    /// The frame is passed, nothing behind it is.
    After,
}

/// How often a rule that counts may fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Often {
    /// Once in the whole run, on whichever connection gets there first.
    Once,
    /// Once on each connection.
    EachConnection,
    /// Whenever it matches.
    Always,
}

/// When a rule fires.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trigger {
    /// From the start to the end.
    Always,
    /// At the `number`th frame, counted on each connection from 1, that `filter` accepts.
    Frame {
        /// From 1.
        number: u64,
        /// Which frames are counted.
        filter: Filter,
        /// Before or behind it.
        place: Place,
        /// How often.
        often: Often,
    },
    /// At every `step`th frame of a connection that `filter` accepts.
    EveryFrames {
        /// From 1.
        step: u64,
        /// Which frames are counted.
        filter: Filter,
    },
    /// When `offset` bytes of a connection have been passed one way.
    Byte {
        /// Bytes that still pass.
        offset: u64,
        /// Way; none means whichever gets there first.
        direction: Option<Direction>,
        /// How often.
        often: Often,
    },
    /// At each frame that `filter` accepts, with this chance.
    PerFrame {
        /// Parts of a million.
        chance: u32,
        /// Which frames are drawn for.
        filter: Filter,
    },
    /// At each new connection, with this chance.
    PerConnection {
        /// Parts of a million.
        chance: u32,
    },
    /// At the `number`th connection, from 1.
    Connection {
        /// From 1.
        number: u64,
    },
    /// This long after the start.
    After {
        /// From the start.
        delay: Duration,
    },
    /// Again and again, first after one period.
    Every {
        /// Between two.
        period: Duration,
    },
}

impl Trigger {
    /// True if nothing but whole frames can fire it.
    pub const fn needs_frames(&self) -> bool {
        matches!(
            self,
            Self::Frame { .. } | Self::EveryFrames { .. } | Self::PerFrame { .. }
        )
    }

    /// True if it can fire more than once.
    pub const fn repeats(&self) -> bool {
        match self {
            Self::Frame { often, .. } | Self::Byte { often, .. } => !matches!(often, Often::Once),
            Self::EveryFrames { .. }
            | Self::PerFrame { .. }
            | Self::PerConnection { .. }
            | Self::Every { .. } => true,
            Self::Always | Self::Connection { .. } | Self::After { .. } => false,
        }
    }
}

/// How a connection is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// FIN both ways; what was passed before arrives.
    Cut,
    /// RST both ways; what is on its way may be lost.
    Reset,
}

/// What lasts for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Bytes are kept back and passed when it is over, as a network that lost its way does.
    BlackHole,
    /// Each frame is passed later.
    Delay {
        /// By this.
        by: Duration,
        /// More or less by at most this.
        jitter: Duration,
    },
    /// At most this many bytes a second.
    Rate(u64),
    /// Written in pieces of this many bytes.
    Slice(usize),
    /// New connections are reset as soon as they are accepted.
    Refuse,
    /// Nobody listens.
    Down,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Ends connections.
    End(End),
    /// FIN one way; the other way goes on.
    HalfClose(Direction),
    /// Something that lasts.
    Last {
        /// What.
        effect: Effect,
        /// Way; none means both.
        direction: Option<Direction>,
        /// How long; none means to the end of the connection or, for rules of time, of the run.
        span: Option<Duration>,
    },
}

/// Kind of a fault, as the report counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// FIN.
    Cut,
    /// RST.
    Reset,
    /// FIN one way.
    HalfClose,
    /// Silence.
    BlackHole,
    /// Lateness.
    Delay,
    /// Slowness.
    Rate,
    /// Small pieces.
    Slice,
    /// Reset at once.
    Refuse,
    /// Nobody listens.
    Down,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::Cut,
        Self::Reset,
        Self::HalfClose,
        Self::BlackHole,
        Self::Delay,
        Self::Rate,
        Self::Slice,
        Self::Refuse,
        Self::Down,
    ];

    /// As a script writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Reset => "reset",
            Self::HalfClose => "half-close",
            Self::BlackHole => "blackhole",
            Self::Delay => "delay",
            Self::Rate => "rate",
            Self::Slice => "slice",
            Self::Refuse => "refuse",
            Self::Down => "down",
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Fault {
    /// Kind of it.
    pub const fn kind(&self) -> FaultKind {
        match self {
            Self::End(End::Cut) => FaultKind::Cut,
            Self::End(End::Reset) => FaultKind::Reset,
            Self::HalfClose(_) => FaultKind::HalfClose,
            Self::Last { effect, .. } => match effect {
                Effect::BlackHole => FaultKind::BlackHole,
                Effect::Delay { .. } => FaultKind::Delay,
                Effect::Rate(_) => FaultKind::Rate,
                Effect::Slice(_) => FaultKind::Slice,
                Effect::Refuse => FaultKind::Refuse,
                Effect::Down => FaultKind::Down,
            },
        }
    }
}

/// One line of a script.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// As it was written.
    pub text: String,
    /// When.
    pub trigger: Trigger,
    /// What, in this order.
    pub faults: Vec<Fault>,
}

/// All rules, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// The rules.
    pub rules: Vec<Rule>,
}

impl Script {
    /// Adds the rules of another script behind these.
    pub fn extend(&mut self, more: Self) {
        self.rules.extend(more.rules);
    }
}
