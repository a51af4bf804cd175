//! What the measured exchange looks like: who speaks what, and what the app does.

use std::time::Duration;

use crate::client::Told;

/// Time the app thinks before it answers.
pub(crate) const THINK: Duration = Duration::from_millis(300);
/// Between two pieces of anything that comes in pieces.
pub(crate) const GAP: Duration = Duration::from_millis(50);
/// Until a slow app takes a connection: later than the first window, sooner than a silent tunnel is
/// dead.
pub(crate) const SLOW: Duration = Duration::from_millis(4_700);
/// What a route takes of a body that is longer, if it has a limit.
pub(crate) const MAX_BODY: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    Http1,
    Http2,
    /// Bytes of no known protocol, half-closed by the client and then by the app.
    Tcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    None,
    /// Fits into one frame.
    One,
    /// Needs many frames and more than the app's socket takes at once.
    Many,
    /// Three pieces with gaps, without a length.
    Trickle,
}

impl Body {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let len = match self {
            Self::None => 0,
            Self::One => 1000,
            Self::Many => 72 * 1024,
            Self::Trickle => 3 * 700,
        };
        pattern(len, 31)
    }
}

/// What the app does beside answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    /// Reads the request, thinks, answers in two pieces.
    Answer,
    /// Answers after the head and reads the body then.
    Early,
    /// Says `100 Continue` and then reads and answers.
    Expect,
    /// Becomes a pipe and echoes.
    WebSocket,
    /// Streams events.
    Events,
    /// Leaves bytes on the kept connection after the warm-up.
    Stale,
    /// Thinks once more between its head and its body.
    Headed,
    /// Takes connections later than the first window of a request waits.
    Slow,
    /// Streams messages of gRPC's media type.
    Grpc,
}

/// What is spoken to the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    Http1,
    H2c,
    /// Everything is echoed.
    Tcp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    pub(crate) method: &'static str,
    pub(crate) body: Body,
    pub(crate) front: Front,
    pub(crate) back: Back,
    pub(crate) script: Script,
    /// A first exchange leaves a kept connection to the app.
    pub(crate) reused: bool,
    /// The app takes one exchange at a time, and another client's is there already.
    pub(crate) queued: bool,
    /// Agents that offer the app from the start.
    pub(crate) agents: u16,
    /// Its first window is longer than a tunnel is silent before it is dead.
    pub(crate) patient: bool,
    /// The body is longer than the route allows.
    pub(crate) limited: bool,
}

const fn shape(name: &'static str, method: &'static str, body: Body) -> Shape {
    Shape {
        name,
        method,
        body,
        front: Front::Http1,
        back: Back::Http1,
        script: Script::Answer,
        reused: false,
        queued: false,
        agents: 1,
        patient: false,
        limited: false,
    }
}

impl Shape {
    const fn h2(self) -> Self {
        Self {
            front: Front::Http2,
            ..self
        }
    }

    const fn h2c(self) -> Self {
        Self {
            back: Back::H2c,
            ..self
        }
    }

    const fn reused(self) -> Self {
        Self {
            reused: true,
            ..self
        }
    }

    const fn tcp(self) -> Self {
        Self {
            front: Front::Tcp,
            back: Back::Tcp,
            ..self
        }
    }

    const fn queued(self) -> Self {
        Self {
            queued: true,
            ..self
        }
    }

    const fn does(self, script: Script) -> Self {
        Self { script, ..self }
    }

    const fn agents(self, agents: u16) -> Self {
        Self { agents, ..self }
    }

    const fn patient(self) -> Self {
        Self {
            patient: true,
            ..self
        }
    }

    const fn limited(self) -> Self {
        Self {
            limited: true,
            ..self
        }
    }

    /// The client was told what it is told when nothing goes wrong.
    pub(crate) fn is_served(&self, told: &Told) -> bool {
        let code = told.verdict.as_ref().map(|verdict| &*verdict.code);
        let own = match (self.limited, self.script) {
            (true, _) => code == Some("BODY_TOO_LARGE"),
            (false, Script::Slow) => code.is_some_and(|code| code.starts_with("BH_APP_")),
            (false, _) => code.is_none(),
        };
        let said = match self.front {
            Front::Tcp => told.body == self.sent(),
            Front::Http1 | Front::Http2 => true,
        };
        told.whole && own && said
    }

    /// What the client sends as the body, or through a pipe. On TCP it begins like a request, by which
    /// the oracle knows whose bytes they are.
    pub(crate) fn sent(&self) -> Vec<u8> {
        match self.front {
            Front::Tcp => [b"P", &*self.body.bytes()].concat(),
            Front::Http1 | Front::Http2 => self.body.bytes(),
        }
    }

    /// Status of the app's answer.
    pub(crate) fn status(&self) -> u16 {
        match self.script {
            Script::WebSocket => 101,
            _ => 200,
        }
    }

    /// Its head goes to the client at once.
    pub(crate) fn streams(&self) -> bool {
        matches!(self.script, Script::Events | Script::Grpc)
    }

    /// No window runs behind its head.
    pub(crate) fn is_endless(&self) -> bool {
        self.is_pipe() || self.script == Script::Grpc
    }

    /// Both directions flow after the head; no window runs.
    pub(crate) fn is_pipe(&self) -> bool {
        self.script == Script::WebSocket || self.front == Front::Tcp
    }
}

pub(crate) const SHAPES: &[Shape] = &[
    shape("get", "GET", Body::None),
    shape("get_reused", "GET", Body::None).reused(),
    shape("get_stale", "GET", Body::None)
        .reused()
        .does(Script::Stale),
    shape("get_two_agents", "GET", Body::None).agents(2),
    shape("post_empty", "POST", Body::None),
    shape("post_one", "POST", Body::One),
    shape("post_one_reused", "POST", Body::One).reused(),
    shape("post_one_stale", "POST", Body::One)
        .reused()
        .does(Script::Stale),
    shape("post_one_two_agents", "POST", Body::One).agents(2),
    shape("post_many", "POST", Body::Many),
    shape("post_many_reused", "POST", Body::Many).reused(),
    shape("post_trickle", "POST", Body::Trickle),
    shape("post_early", "POST", Body::Many).does(Script::Early),
    shape("post_expect", "POST", Body::One).does(Script::Expect),
    shape("websocket", "GET", Body::One).does(Script::WebSocket),
    shape("events", "GET", Body::None).does(Script::Events),
    shape("get_queued", "GET", Body::None).queued(),
    shape("post_one_queued", "POST", Body::One).queued(),
    shape("h2_get", "GET", Body::None).h2(),
    shape("h2_post_one", "POST", Body::One).h2(),
    shape("h2_post_many", "POST", Body::Many).h2(),
    shape("h2_early", "POST", Body::Many)
        .h2()
        .does(Script::Early),
    shape("h2_events", "GET", Body::None)
        .h2()
        .does(Script::Events),
    shape("h2c_get", "GET", Body::None).h2c(),
    shape("h2c_post_one", "POST", Body::One).h2c(),
    shape("h2c_post_many_reused", "POST", Body::Many)
        .h2c()
        .reused(),
    shape("h2_h2c_post_one", "POST", Body::One).h2().h2c(),
    shape("get_headed", "GET", Body::None).does(Script::Headed),
    shape("h2_post_headed", "POST", Body::One)
        .h2()
        .does(Script::Headed),
    shape("post_limited", "POST", Body::Trickle).limited(),
    shape("h2_post_limited", "POST", Body::Many).h2().limited(),
    shape("get_slow", "GET", Body::None).does(Script::Slow),
    shape("h2_get_slow", "GET", Body::None)
        .h2()
        .does(Script::Slow),
    shape("get_patient", "GET", Body::None).patient(),
    shape("post_one_patient_reused", "POST", Body::One)
        .patient()
        .reused(),
    shape("tcp", "POST", Body::One).tcp(),
    shape("tcp_many", "POST", Body::Many).tcp(),
    shape("h2_grpc", "POST", Body::One).h2().does(Script::Grpc),
];

/// What the app says to the measured exchange.
pub(crate) fn answer() -> Vec<u8> {
    pattern(1600, 17)
}

/// What the app says to the warm-up.
pub(crate) const WARM: &[u8] = b"warm";

/// Bytes that differ from their neighbours and from those of another `step`.
fn pattern(len: usize, step: usize) -> Vec<u8> {
    (0..len)
        .map(|at| b'a' + u8::try_from((at * step + at / 97) % 26).unwrap_or(0))
        .collect()
}
