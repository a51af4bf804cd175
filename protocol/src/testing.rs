//! Two cores joined by a pipe on a virtual clock: the smallest world a tunnel can live in.
//!
//! Deterministic: everything that happens is decided by the calls made on it.

pub mod dice;
pub mod pure;

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use crate::conn::{Conn, ConnError, Event, Front, Outbox, Settings, Side, StreamKey, View, Wake};
use crate::time::Moment;
use crate::wire::{AppKind, Begin, Open, PeerLimits, ResetCode};

/// A gateway core and an agent core, and what each has sent but the other not yet received.
#[derive(Debug)]
pub struct Pair {
    /// Virtual time.
    pub now: Moment,
    /// The gateway's core.
    pub gateway: Conn,
    /// The agent's core.
    pub agent: Conn,
    to_agent: BytesMut,
    to_gateway: BytesMut,
    agent_inbox: BytesMut,
    gateway_inbox: BytesMut,
    /// Everything the gateway ever gave to the carrier.
    pub gateway_sent: BytesMut,
    /// Everything the agent ever gave to the carrier.
    pub agent_sent: BytesMut,
    /// Events of the gateway's core so far, in order.
    pub gateway_events: Vec<Event>,
    /// Events of the agent's core so far, in order.
    pub agent_events: Vec<Event>,
}

impl Pair {
    /// A pair with the same settings on both sides.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let limits = PeerLimits {
            max_streams: settings.max_streams,
            initial_credit: settings.initial_window,
            linger: settings.linger,
        };
        Self {
            now: Moment::ZERO,
            gateway: Conn::new(Side::Gateway, settings, limits, Moment::ZERO),
            agent: Conn::new(Side::Agent, settings, limits, Moment::ZERO),
            to_agent: BytesMut::new(),
            to_gateway: BytesMut::new(),
            agent_inbox: BytesMut::new(),
            gateway_inbox: BytesMut::new(),
            gateway_sent: BytesMut::new(),
            agent_sent: BytesMut::new(),
            gateway_events: Vec::new(),
            agent_events: Vec::new(),
        }
    }

    /// Lets time pass and both timers act.
    ///
    /// # Errors
    /// What a core says of its peer.
    pub fn advance(&mut self, span: Duration) -> Result<(), ConnError> {
        let end = self.now + span;
        loop {
            let due = self.gateway.poll_timeout().min(self.agent.poll_timeout());
            if due > end {
                break;
            }
            self.now = self.now.max(due);
            self.gateway.handle_timeout(self.now)?;
            self.agent.handle_timeout(self.now)?;
            self.settle()?;
        }
        self.now = end;
        Ok(())
    }

    /// Carries bytes both ways until nothing moves.
    ///
    /// # Errors
    /// What a core says of its peer.
    pub fn settle(&mut self) -> Result<(), ConnError> {
        loop {
            self.emit_gateway();
            self.emit_agent();
            if self.to_agent.is_empty() && self.to_gateway.is_empty() {
                return Ok(());
            }
            self.deliver_to_agent(usize::MAX)?;
            self.deliver_to_gateway(usize::MAX)?;
        }
    }

    /// The gateway gives its frames to the carrier; answers how many bytes.
    pub fn emit_gateway(&mut self) -> usize {
        self.emit_gateway_some(usize::MAX)
    }

    /// As [`Pair::emit_gateway`], about `budget` bytes.
    pub fn emit_gateway_some(&mut self, budget: usize) -> usize {
        let bytes = emit(&mut self.gateway, budget);
        self.gateway_sent.extend_from_slice(&bytes);
        self.to_agent.extend_from_slice(&bytes);
        bytes.len()
    }

    /// The agent gives its frames to the carrier; answers how many bytes.
    pub fn emit_agent(&mut self) -> usize {
        self.emit_agent_some(usize::MAX)
    }

    /// As [`Pair::emit_agent`], about `budget` bytes.
    pub fn emit_agent_some(&mut self, budget: usize) -> usize {
        let bytes = emit(&mut self.agent, budget);
        self.agent_sent.extend_from_slice(&bytes);
        self.to_gateway.extend_from_slice(&bytes);
        bytes.len()
    }

    /// The agent receives at most `max` bytes.
    ///
    /// # Errors
    /// What the core says of its peer.
    pub fn deliver_to_agent(&mut self, max: usize) -> Result<(), ConnError> {
        self.agent_inbox
            .unsplit(self.to_agent.split_to(max.min(self.to_agent.len())));
        let result = self.agent.handle_bytes(self.now, &mut self.agent_inbox);
        self.agent_events
            .extend(std::iter::from_fn(|| self.agent.poll_event()));
        self.agent.check_invariants();
        result
    }

    /// The gateway receives at most `max` bytes.
    ///
    /// # Errors
    /// What the core says of its peer.
    pub fn deliver_to_gateway(&mut self, max: usize) -> Result<(), ConnError> {
        self.gateway_inbox
            .unsplit(self.to_gateway.split_to(max.min(self.to_gateway.len())));
        let result = self.gateway.handle_bytes(self.now, &mut self.gateway_inbox);
        self.gateway_events
            .extend(std::iter::from_fn(|| self.gateway.poll_event()));
        self.gateway.check_invariants();
        result
    }

    /// The carrier is cut and both sides know: what is under way is lost, parts of frames too.
    pub fn cut(&mut self) {
        self.cut_at_gateway();
        self.cut_at_agent();
    }

    /// The gateway alone gives the carrier up; what the agent sends meanwhile is lost.
    pub fn cut_at_gateway(&mut self) {
        self.to_gateway.clear();
        self.gateway_inbox.clear();
        self.gateway.suspend(self.now);
    }

    /// The agent alone gives the carrier up; what the gateway sends meanwhile is lost.
    pub fn cut_at_agent(&mut self) {
        self.to_agent.clear();
        self.agent_inbox.clear();
        self.agent.suspend(self.now);
    }

    /// The next carrier, its handshake done; nothing is carried yet.
    pub fn redial(&mut self) {
        self.cut();
        self.gateway.resume(self.now);
        self.agent.resume(self.now);
    }

    /// A stream of `kind`, opened by the gateway; nothing is emitted yet.
    ///
    /// # Panics
    /// If the core refuses it.
    pub fn open(&mut self, kind: AppKind) -> StreamKey {
        let open = Open {
            app: "demo".into(),
            kind,
            remaining: Duration::from_secs(30),
            credit: 0,
            client: None,
        };
        match self.gateway.open(self.now, open) {
            Ok(key) => key,
            Err(error) => panic!("the core refused a stream: {error}"),
        }
    }

    /// The agent's key of the stream it accepted last.
    #[must_use]
    pub fn accepted(&self) -> Option<StreamKey> {
        self.agent_events.iter().rev().find_map(|e| {
            if let Event::Incoming(key) = e {
                Some(*key)
            } else {
                None
            }
        })
    }

    /// An exchange that begins with all of `bytes`; answers its start.
    pub fn begin(&mut self, key: StreamKey, expect_read: Option<u64>, bytes: &[u8]) -> u64 {
        let begin = Begin {
            request: 7,
            remaining: Duration::from_secs(30),
            expect_read,
        };
        let start = self.gateway.begin(self.now, key, begin);
        let mut bytes = Bytes::copy_from_slice(bytes);
        self.gateway.write(key, &mut bytes);
        start
    }

    /// The agent's app takes all that stands in front; answers the bytes.
    pub fn app_takes(&mut self, key: StreamKey) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match self.agent.front(key) {
                Front::Bytes(bytes) => {
                    self.agent.app_took(self.now, key, bytes.len());
                    all.extend_from_slice(&bytes);
                }
                Front::Begin { .. } => self.agent.begun(key),
                _ => return all,
            }
        }
    }

    /// What the gateway sees of a stream.
    ///
    /// # Panics
    /// If the stream is gone.
    #[must_use]
    pub fn view(&self, key: StreamKey) -> View {
        match self.gateway.view(key) {
            Some(view) => view,
            None => panic!("the stream is gone"),
        }
    }

    /// True if the gateway's user of `key` was woken for all of `wake` since the start.
    #[must_use]
    pub fn gateway_woke(&self, key: StreamKey, wake: Wake) -> bool {
        self.gateway_events
            .iter()
            .any(|e| matches!(e, Event::Stream(k, w) if *k == key && w.has(wake)))
    }

    /// Gives up a stream the way a leaving client does.
    pub fn cancel(&mut self, key: StreamKey) -> u64 {
        self.gateway.reset(key, ResetCode::Cancelled)
    }
}

fn emit(conn: &mut Conn, budget: usize) -> BytesMut {
    let mut out = Outbox::default();
    conn.poll_transmit(&mut out, budget);
    let mut bytes = BytesMut::new();
    out.segments()
        .for_each(|segment| bytes.extend_from_slice(segment));
    bytes
}
