//! Whatever is done in whatever order on two honest cores: counts tell the truth, `not_delivered`
//! stays true, credit returns, ids are given once, order holds on the wire, and nothing is left;
//! over one carrier or many, whatever each of them lost.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::testing::Pair;
use crate::verdict::{Delivery, Evidence, judge};
use crate::wire::{AppKind, Begin, FinalCause, RefusedReason, ResetCode};

use order::Wire;

mod ending;
mod order;

/// Small, so that short runs fill windows and queues.
const SETTINGS: Settings = Settings {
    initial_window: 4096,
    max_window: 16 * 1024,
    long_window: 32 * 1024,
    long_path: Duration::from_millis(20),
    queue_limit: 2048,
    retain_limit: 16 * 1024,
    ping_after: Duration::from_secs(2),
    dead_after: Duration::from_secs(6),
    credit_delay: Duration::from_millis(20),
    max_streams: 6,
    linger: Duration::from_secs(60),
    held_limit: 24 * 1024,
    resume_window: Duration::from_secs(20),
};

/// One step; the first number of each picks the stream.
#[derive(Clone, Debug)]
enum Op {
    Open,
    Begin(usize, u16),
    Write(usize, u16),
    Finish(usize),
    Read(usize, u16),
    Fence(usize, bool),
    Reset(usize),
    Release(usize),
    AppOpened(usize),
    AppRefused(usize),
    AppTakes(usize, u16),
    AppSays(usize, u16),
    AppEnds(usize),
    Conclude(usize),
    LetGo(usize),
    EmitGateway(u16),
    EmitAgent(u16),
    ToAgent(u16),
    ToGateway(u16),
    Settle,
    Advance(u8),
    Wait(u8),
    DrainAgent,
    DrainGateway,
    Cut,
    CutAtGateway,
    CutAtAgent,
    Redial,
    Lose,
}

fn op() -> impl Strategy<Value = Op> {
    let at = || 0..8_usize;
    let size = || prop_oneof![1..40_u16, 1000..6000_u16];
    prop_oneof![
        6 => Just(Op::Open),
        6 => (at(), size()).prop_map(|(s, n)| Op::Begin(s, n)),
        6 => (at(), size()).prop_map(|(s, n)| Op::Write(s, n)),
        2 => at().prop_map(Op::Finish),
        5 => (at(), size()).prop_map(|(s, n)| Op::Read(s, n)),
        3 => (at(), any::<bool>()).prop_map(|(s, l)| Op::Fence(s, l)),
        2 => at().prop_map(Op::Reset),
        2 => at().prop_map(Op::Release),
        8 => at().prop_map(Op::AppOpened),
        1 => at().prop_map(Op::AppRefused),
        8 => (at(), size()).prop_map(|(s, n)| Op::AppTakes(s, n)),
        6 => (at(), size()).prop_map(|(s, n)| Op::AppSays(s, n)),
        2 => at().prop_map(Op::AppEnds),
        2 => at().prop_map(Op::Conclude),
        1 => at().prop_map(Op::LetGo),
        5 => select(vec![1, 100, 4000, u16::MAX]).prop_map(Op::EmitGateway),
        5 => select(vec![1, 100, 4000, u16::MAX]).prop_map(Op::EmitAgent),
        6 => select(vec![1, 13, 700, u16::MAX]).prop_map(Op::ToAgent),
        6 => select(vec![1, 13, 700, u16::MAX]).prop_map(Op::ToGateway),
        6 => Just(Op::Settle),
        3 => any::<u8>().prop_map(Op::Advance),
        3 => select(vec![Op::Cut, Op::Cut, Op::CutAtGateway, Op::CutAtAgent]),
        5 => Just(Op::Redial),
        // Rare: much of what follows them is short.
        1 => select(vec![Op::DrainAgent, Op::DrainGateway, Op::Settle, Op::Wait(3), Op::Wait(9), Op::Wait(21), Op::Lose, Op::Settle]),
    ]
}

/// What a test knows of a stream beyond the cores.
#[derive(Debug, Default)]
struct Known {
    wrote: u64,
    read: u64,
    /// Bytes the app's socket took: the truth.
    took: u64,
    said: u64,
    start: u64,
    begun: bool,
    /// Offset of an exchange that was called undelivered.
    undelivered: Option<u64>,
    counted: Option<Counted>,
    emitted: u64,
    ended: Option<Ended>,
    released: bool,
}

struct World {
    pair: Pair,
    /// By the gateway's key.
    known: BTreeMap<StreamKey, Known>,
    /// Streams in the order they were opened, and the agent's in the order they came.
    gateway: Vec<StreamKey>,
    agent: Vec<StreamKey>,
    events_seen: usize,
    ids: BTreeMap<StreamId, StreamKey>,
    /// The tunnel is over.
    cut: bool,
    requests: u128,
    wire: Wire,
}

/// Byte `at` of every stream of that direction; a hole or an exchange of bytes shows.
fn pattern(from: u64, len: u64) -> Bytes {
    (from..from + len).map(|at| (at % 253) as u8).collect()
}

fn follows(bytes: &[u8], from: u64) -> bool {
    (from..).zip(bytes).all(|(at, b)| (at % 253) as u8 == *b)
}

impl World {
    fn new() -> Self {
        Self {
            pair: Pair::new(SETTINGS),
            known: BTreeMap::new(),
            gateway: Vec::new(),
            agent: Vec::new(),
            events_seen: 0,
            ids: BTreeMap::new(),
            cut: false,
            requests: 0,
            wire: Wire::default(),
        }
    }

    fn at_gateway(&self, at: usize) -> Option<StreamKey> {
        let live: Vec<_> = self
            .gateway
            .iter()
            .filter(|k| !self.known[k].released)
            .collect();
        (!live.is_empty()).then(|| *live[at % live.len()])
    }

    fn at_agent(&self, at: usize) -> Option<StreamKey> {
        (!self.agent.is_empty()).then(|| self.agent[at % self.agent.len()])
    }

    /// The gateway's key of the agent's stream.
    fn twin(&self, app: StreamKey) -> Option<StreamKey> {
        let id = self.pair.agent.store.get(app)?.id?;
        self.ids.get(&id).copied()
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Open => {
                let open = crate::wire::Open {
                    app: "demo".into(),
                    kind: AppKind::Tcp,
                    remaining: Duration::from_secs(30),
                    credit: 0,
                    client: None,
                };
                if let Ok(key) = self.pair.gateway.open(self.pair.now, open) {
                    self.gateway.push(key);
                    self.known.insert(key, Known::default());
                }
            }
            Op::EmitGateway(budget) => {
                self.pair.emit_gateway_some(budget.into());
            }
            Op::EmitAgent(budget) => {
                self.pair.emit_agent_some(budget.into());
            }
            Op::ToAgent(max) => self.deliver_to_agent(max.into()),
            Op::ToGateway(max) => self.deliver_to_gateway(max.into()),
            Op::Settle => self.settle(),
            Op::Advance(ms) => self.advance(Duration::from_millis(ms.into())),
            Op::DrainAgent => self
                .pair
                .agent
                .drain(GoAwayReason::Draining, Duration::ZERO),
            Op::DrainGateway => self
                .pair
                .gateway
                .drain(GoAwayReason::Draining, Duration::ZERO),
            Op::Wait(seconds) => self.advance(Duration::from_secs(seconds.into())),
            Op::Cut => self.pair.cut(),
            Op::CutAtGateway => self.pair.cut_at_gateway(),
            Op::CutAtAgent => self.pair.cut_at_agent(),
            Op::Redial => self.pair.redial(),
            Op::Lose => self.lose(),
            Op::Begin(s, _)
            | Op::Write(s, _)
            | Op::Finish(s)
            | Op::Read(s, _)
            | Op::Fence(s, _)
            | Op::Reset(s)
            | Op::Release(s) => {
                if let Some(key) = self.at_gateway(s) {
                    self.gateway_step(op, key);
                }
            }
            Op::AppOpened(s)
            | Op::AppRefused(s)
            | Op::AppTakes(s, _)
            | Op::AppSays(s, _)
            | Op::AppEnds(s)
            | Op::Conclude(s)
            | Op::LetGo(s) => {
                if let Some(app) = self.at_agent(s) {
                    self.agent_step(op, app);
                }
            }
        }
        self.check();
    }

    fn gateway_step(&mut self, op: &Op, key: StreamKey) {
        let now = self.pair.now;
        let known = self.known.get_mut(&key).unwrap();
        let core = &mut self.pair.gateway;
        self.requests += 1;
        match *op {
            Op::Begin(_, len) => {
                let view = core.view(key).unwrap();
                // An exchange begins after the answer to the last one, which came after its first byte was taken.
                let last_was_taken = !known.begun || view.consumed > known.start;
                if core.room(key) == 0 || known.undelivered.is_some() || !last_was_taken {
                    return;
                }
                known.begun = true;
                known.start = core.begin(
                    now,
                    key,
                    Begin {
                        request: self.requests,
                        remaining: Duration::from_secs(30),
                        expect_read: Some(view.taken),
                    },
                );
                known.wrote += core.write(key, &mut pattern(known.wrote, len.into())) as u64;
            }
            Op::Write(_, len) => {
                known.wrote += core.write(key, &mut pattern(known.wrote, len.into())) as u64;
            }
            Op::Finish(_) => core.finish(key),
            Op::Read(_, max) => {
                if let Some(bytes) = core.read(now, key, max.into()) {
                    assert!(follows(&bytes, known.read), "bytes read out of order");
                    known.read += bytes.len() as u64;
                }
            }
            Op::Fence(_, linger) => {
                let emitted = core.fence(key, linger);
                self.judge(key, emitted);
            }
            Op::Reset(_) => {
                let emitted = core.reset(key, ResetCode::Cancelled);
                self.judge(key, emitted);
            }
            Op::Release(_) => {
                known.released = true;
                core.release(key);
            }
            _ => unreachable!("not a step of the gateway"),
        }
    }

    fn agent_step(&mut self, op: &Op, app: StreamKey) {
        let now = self.pair.now;
        let twin = self.twin(app);
        let core = &mut self.pair.agent;
        match *op {
            Op::AppOpened(_) => core.opened(app),
            Op::AppRefused(_) => core.refuse(app, RefusedReason::ConnectRefused, 111),
            Op::AppTakes(_, most) => {
                if core
                    .store
                    .get(app)
                    .is_none_or(|s| s.phase < stream::Phase::Open)
                {
                    return;
                }
                match core.front(app) {
                    Front::Bytes(bytes) => {
                        let count = bytes.len().min(most.into());
                        let known = self.known.get_mut(&twin.unwrap()).unwrap();
                        assert!(follows(&bytes, known.took), "bytes taken out of order");
                        assert!(
                            known.undelivered.is_none_or(|start| known.took < start),
                            "taken after it was called undelivered"
                        );
                        known.took += count as u64;
                        core.app_took(now, app, count);
                    }
                    Front::Begin { begin, .. } if begin.expect_read == Some(core.app_read(app)) => {
                        core.begun(app);
                    }
                    Front::Begin { .. } => core.conclude(app, FinalCause::Stale),
                    Front::Fenced { linger: false } => core.conclude(app, FinalCause::Fenced),
                    Front::Closed { .. } => core.conclude(app, FinalCause::Reset),
                    Front::Fin | Front::Empty | Front::Fenced { linger: true } => {}
                }
            }
            Op::AppSays(_, len) => {
                if let Some(known) = twin.and_then(|twin| self.known.get_mut(&twin))
                    && core
                        .store
                        .get(app)
                        .is_some_and(|s| s.phase == stream::Phase::Open)
                {
                    known.said += core.write(app, &mut pattern(known.said, len.into())) as u64;
                }
            }
            Op::AppEnds(_) => {
                if core
                    .store
                    .get(app)
                    .is_some_and(|s| s.phase == stream::Phase::Open)
                {
                    core.finish(app);
                }
            }
            Op::Conclude(_) => {
                if core
                    .store
                    .get(app)
                    .is_some_and(|s| s.phase == stream::Phase::Open)
                {
                    core.conclude(app, FinalCause::AppClosed);
                }
            }
            Op::LetGo(_) => {
                core.let_go(app);
                self.agent.retain(|k| *k != app);
            }
            _ => unreachable!("not a step of the agent"),
        }
    }

    /// What the gateway would say now, remembered if it is a promise.
    fn judge(&mut self, key: StreamKey, emitted: u64) {
        let view = self.pair.gateway.view(key).unwrap();
        let known = self.known.get_mut(&key).unwrap();
        let judgement = judge(&Evidence {
            start: known.start,
            emitted,
            head_len: 1,
            request_len: None,
            terminal: view.terminal(known.start),
            answer_bytes: 0,
        });
        if judgement.delivery == Delivery::NotDelivered {
            assert!(known.took <= known.start, "a lie: {known:?} {view:?}");
            known.undelivered = Some(known.start);
        }
    }

    fn deliver_to_agent(&mut self, max: usize) {
        if !self.cut {
            self.pair.deliver_to_agent(max).unwrap();
        }
    }

    fn deliver_to_gateway(&mut self, max: usize) {
        if !self.cut {
            self.pair.deliver_to_gateway(max).unwrap();
        }
    }

    fn settle(&mut self) {
        if !self.cut {
            self.pair.settle().unwrap();
        }
    }

    fn advance(&mut self, span: Duration) {
        if self.cut {
            return;
        }
        match self.pair.advance(span) {
            Ok(()) => {}
            Err(ConnError::Lapsed) => self.lose(),
            Err(other) => panic!("honest sides found fault: {other}"),
        }
    }

    /// A carrier, if there may be one.
    fn reconnect(&mut self) {
        if self.pair.gateway.is_suspended() || self.pair.agent.is_suspended() {
            self.pair.redial();
        }
        self.settle();
    }

    /// Everything that must hold at every moment.
    fn check(&mut self) {
        self.pair.gateway.check_invariants();
        self.pair.agent.check_invariants();
        for event in &self.pair.agent_events[self.events_seen..] {
            if let Event::Incoming(app) = event {
                self.agent.push(*app);
            }
        }
        self.events_seen = self.pair.agent_events.len();
        for stream in self.pair.gateway.store.iter() {
            if let Some(id) = stream.id {
                let first = *self.ids.entry(id).or_insert(stream.key);
                assert_eq!(first, stream.key, "an id was given twice");
            }
        }
        self.wire.follow(&self.pair);
        self.check_counts();
        for core in [&self.pair.gateway, &self.pair.agent] {
            for stream in core.store.iter() {
                assert!(stream.inn.held() <= u64::from(SETTINGS.long_window));
            }
            assert!(core.sched.standing() <= 3 * (2 * core.store.len() + 64));
        }
    }

    fn check_counts(&mut self) {
        let keys: Vec<_> = self.known.keys().copied().collect();
        for key in keys {
            let Some(view) = self.pair.gateway.view(key) else {
                continue;
            };
            let known = self.known.get_mut(&key).unwrap();
            assert!(
                view.consumed <= known.took,
                "consumption told before it was"
            );
            assert!(view.received <= known.said && view.queued_to <= known.wrote);
            assert!(view.emitted >= known.emitted, "what was emitted stays so");
            known.emitted = view.emitted;
            assert!(known.ended.is_none() || known.ended == view.ended);
            known.ended = view.ended;
            if let Some(counted) = view.counted {
                assert_eq!(
                    counted.written, known.took,
                    "a count is the truth, for ever"
                );
                assert!(known.counted.is_none_or(|before| before == counted));
                known.counted = Some(counted);
            }
            match view.ended {
                Some(Ended::Final { written, .. }) => assert_eq!(written, known.took),
                Some(Ended::NotOpened | Ended::Refused { .. } | Ended::GoAway) => {
                    assert_eq!(known.took, 0);
                }
                Some(Ended::Lost) | None => {}
            }
            if view.ended.is_some() || view.counted.is_some() {
                self.judge(key, view.emitted);
            }
        }
    }
}

fn run(ops: &[Op]) -> World {
    let mut world = World::new();
    ops.iter().for_each(|op| world.step(op));
    world
}

/// `BH_DEEP=1` searches fifty times as long.
fn config() -> ProptestConfig {
    let times = if std::env::var_os("BH_DEEP").is_some() {
        50
    } else {
        1
    };
    ProptestConfig {
        cases: 150 * times,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn in_any_order_of_steps_the_counts_are_true_and_nothing_is_left(ops in vec(op(), 1..250)) {
        run(&ops).end();
    }

    #[test]
    fn after_any_steps_all_credit_comes_back(ops in vec(op(), 1..120)) {
        let mut world = run(&ops);
        world.check_credit();
        world.end();
    }
}
