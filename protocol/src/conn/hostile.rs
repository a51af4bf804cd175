//! A peer that speaks frames but keeps no rule: nothing panics, nothing grows without bound, and a
//! breach ends this tunnel with every stream of it.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::testing::Pair;
use crate::wire::{
    AppHealth, AppKind, AppOffer, Begin, FinalCause, Frame, Open, RefusedReason, ReportEntry,
    ResetCode, Resume, encode,
};

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
    max_streams: 4,
    linger: Duration::from_secs(60),
    held_limit: 24 * 1024,
    resume_window: Duration::from_secs(20),
};

fn id() -> impl Strategy<Value = StreamId> {
    prop_oneof![
        12 => select(vec![1, 3, 5, 7, 9]).prop_map(StreamId),
        1 => select(vec![2, 4, 11, 99, (1 << 31) - 1]).prop_map(StreamId),
    ]
}

/// Offsets near those that mean something, and far beyond.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![0..6_u64, Just(4096), Just(1 << 20), Just(u64::MAX)]
}

fn common() -> impl Strategy<Value = Frame> {
    let bytes = prop_oneof![0..5_usize, Just(1500), Just(4096), Just(60_000)];
    prop_oneof![
        (id(), bytes, any::<bool>()).prop_map(|(stream, len, fin)| Frame::Data {
            stream,
            bytes: Bytes::from(vec![7; len]),
            fin,
        }),
        (id(), offset(), offset()).prop_map(|(stream, limit, consumed)| Frame::Credit {
            stream,
            limit,
            consumed,
        }),
        (id(), select(ResetCode::ALL)).prop_map(|(stream, code)| Frame::Reset { stream, code }),
        (id(), select(GoAwayReason::ALL)).prop_map(|(last, reason)| Frame::GoAway {
            last,
            reason,
            deadline: Duration::ZERO,
        }),
        any::<[u8; 8]>().prop_map(Frame::Ping),
        any::<[u8; 8]>().prop_map(Frame::Pong),
        statement(),
    ]
}

fn statement() -> impl Strategy<Value = Frame> {
    let highest = select(vec![0, 1, 3, 5, 9, 4]);
    let streams = vec((id(), offset()), 0..4);
    (highest, streams, any::<bool>()).prop_map(|(highest_open, streams, more)| {
        Frame::Resume(Resume {
            highest_open,
            streams,
            more,
        })
    })
}

/// What an honest peer could state: all the attacked side has, from where it is.
fn likely(core: &Conn) -> Frame {
    let stands = |(id, key)| {
        let stream = core.store.get(key)?;
        Some((id, stream.out.consumed()))
    };
    Frame::Resume(Resume {
        highest_open: match core.side {
            Side::Gateway => core.highest_open,
            Side::Agent => 0,
        },
        streams: core.store.bound().into_iter().filter_map(stands).collect(),
        more: false,
    })
}

fn from_agent() -> impl Strategy<Value = Frame> {
    let offer = AppOffer {
        name: "demo".into(),
        kind: AppKind::Http1,
        weight: 1,
        health: AppHealth::Ready,
        upstream_host: String::new(),
    };
    prop_oneof![
        4 => common(),
        2 => (id(), any::<u32>()).prop_map(|(stream, credit)| Frame::Opened { stream, credit }),
        1 => (id(), select(RefusedReason::ALL)).prop_map(|(stream, reason)| Frame::Refused {
            stream,
            reason,
            errno: 1,
        }),
        1 => (id(), offset(), offset()).prop_map(|(stream, written, read)| Frame::Count {
            stream,
            written,
            read,
        }),
        1 => (id(), offset(), offset(), select(FinalCause::ALL)).prop_map(
            |(stream, written, read, cause)| Frame::Final { stream, written, read, cause }
        ),
        1 => (0..4_u64).prop_map(move |revision| Frame::Apps {
            revision,
            apps: vec![offer.clone()],
        }),
        1 => vec(id(), 0..3).prop_map(|ids| Frame::Report(ids.into_iter().map(entry).collect())),
        1 => from_gateway_only(),
    ]
}

fn entry(stream: StreamId) -> ReportEntry {
    ReportEntry {
        tunnel: 7,
        stream,
        written: 1,
        read: 2,
        cause: FinalCause::Reset,
    }
}

fn from_gateway_only() -> impl Strategy<Value = Frame> {
    prop_oneof![
        4 => (id(), any::<u32>(), select(AppKind::ALL)).prop_map(|(id, credit, kind)| Frame::Open(
            id,
            Open {
                app: "demo".into(),
                kind,
                remaining: Duration::from_secs(1),
                credit,
                client: None,
            }
        )),
        3 => (id(), any::<Option<u64>>()).prop_map(|(id, expect_read)| Frame::Begin(
            id,
            Begin { request: 1, remaining: Duration::from_secs(1), expect_read }
        )),
        1 => (id(), any::<bool>()).prop_map(|(stream, linger)| Frame::Fence { stream, linger }),
        1 => vec(id(), 0..3).prop_map(Frame::Done),
    ]
}

fn from_gateway() -> impl Strategy<Value = Frame> {
    prop_oneof![3 => common(), 4 => from_gateway_only(), 1 => from_agent()]
}

/// What the attacked side does between the frames.
#[derive(Clone, Copy, Debug)]
enum Own {
    Open,
    Begin(usize),
    Write(usize),
    Finish(usize),
    Read(usize),
    Fence(usize),
    Reset(usize),
    Release(usize),
    Opened(usize),
    Refuse(usize),
    Take(usize),
    Conclude(usize),
    Drain,
    Emit(u16),
    Wait,
    Cut,
    Redial,
    Report,
    /// The peer states what an honest one could.
    Meet,
}

fn own() -> impl Strategy<Value = Own> {
    let at = || 0..5_usize;
    prop_oneof![
        3 => Just(Own::Open),
        2 => at().prop_map(Own::Begin),
        2 => at().prop_map(Own::Write),
        1 => at().prop_map(Own::Finish),
        3 => at().prop_map(Own::Read),
        1 => at().prop_map(Own::Fence),
        1 => at().prop_map(Own::Reset),
        1 => at().prop_map(Own::Release),
        3 => at().prop_map(Own::Opened),
        1 => at().prop_map(Own::Refuse),
        3 => at().prop_map(Own::Take),
        1 => at().prop_map(Own::Conclude),
        1 => Just(Own::Drain),
        4 => select(vec![1, 2000, u16::MAX]).prop_map(Own::Emit),
        2 => Just(Own::Wait),
        1 => select(vec![Own::Cut, Own::Report]),
        2 => Just(Own::Redial),
        3 => Just(Own::Meet),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Own(Own),
    Peer(Box<Frame>),
}

fn steps(frames: impl Strategy<Value = Frame>) -> impl Strategy<Value = Vec<Step>> {
    vec(
        prop_oneof![2 => own().prop_map(Step::Own), 3 => frames.prop_map(|f| Step::Peer(Box::new(f)))],
        1..150,
    )
}

/// A side under attack.
struct Victim {
    core: Conn,
    now: Moment,
    streams: Vec<StreamKey>,
    /// What was emitted last; no byte of it was taken yet.
    out: Outbox,
}

impl Victim {
    fn new(side: Side) -> Self {
        let pair = Pair::new(SETTINGS);
        let core = match side {
            Side::Gateway => pair.gateway,
            Side::Agent => pair.agent,
        };
        Self {
            core,
            now: Moment::ZERO,
            streams: Vec::new(),
            out: Outbox::default(),
        }
    }

    fn key(&self, at: usize) -> Option<StreamKey> {
        (!self.streams.is_empty()).then(|| self.streams[at % self.streams.len()])
    }

    fn own(&mut self, own: Own) {
        let (now, core) = (self.now, &mut self.core);
        match own {
            Own::Open if core.side == Side::Gateway => {
                let open = Open {
                    app: "demo".into(),
                    kind: AppKind::Http1,
                    remaining: Duration::from_secs(1),
                    credit: 0,
                    client: None,
                };
                self.streams.extend(core.open(now, open).ok());
            }
            Own::Open => {}
            Own::Emit(budget) => {
                // The carrier has taken what was emitted before.
                self.out = Outbox::default();
                core.poll_transmit(&mut self.out, budget.into());
                assert!(self.out.len() < usize::from(budget) + 40_000);
            }
            Own::Cut => {
                core.never_taken(std::mem::take(&mut self.out));
                core.suspend(now);
            }
            Own::Redial => {
                core.never_taken(std::mem::take(&mut self.out));
                core.resume(now);
            }
            Own::Report => core.report(vec![entry(StreamId(1)); 3]),
            Own::Meet => {
                if core.is_suspended() && !core.wants_carrier() {
                    let frame = likely(core);
                    self.hear(&frame);
                }
            }
            Own::Drain => core.drain(GoAwayReason::Draining, Duration::ZERO),
            Own::Wait => {
                self.now += Duration::from_millis(30);
                drop(core.handle_timeout(self.now));
            }
            Own::Begin(s)
            | Own::Write(s)
            | Own::Finish(s)
            | Own::Read(s)
            | Own::Fence(s)
            | Own::Reset(s)
            | Own::Release(s)
            | Own::Opened(s)
            | Own::Refuse(s)
            | Own::Take(s)
            | Own::Conclude(s) => {
                if let Some(key) = self.key(s) {
                    match self.core.side {
                        Side::Gateway => self.as_gateway(own, key),
                        Side::Agent => self.as_agent(own, key),
                    }
                }
            }
        }
    }

    fn as_gateway(&mut self, own: Own, key: StreamKey) {
        let core = &mut self.core;
        match own {
            Own::Begin(_) => {
                let begin = Begin {
                    request: 1,
                    remaining: Duration::from_secs(1),
                    expect_read: Some(0),
                };
                core.begin(self.now, key, begin);
            }
            Own::Write(_) => {
                core.write(key, &mut Bytes::from(vec![7; 900]));
            }
            Own::Finish(_) => core.finish(key),
            Own::Read(_) => {
                core.read(self.now, key, 700);
            }
            Own::Fence(_) => {
                core.fence(key, true);
            }
            Own::Reset(_) => {
                core.reset(key, ResetCode::Cancelled);
            }
            Own::Release(_) => {
                core.release(key);
                self.streams.retain(|k| *k != key);
            }
            _ => {}
        }
    }

    fn as_agent(&mut self, own: Own, key: StreamKey) {
        let core = &mut self.core;
        match own {
            Own::Opened(_) => core.opened(key),
            Own::Refuse(_) => core.refuse(key, RefusedReason::Limit, 0),
            Own::Take(_) => match core.front(key) {
                Front::Bytes(bytes) if core.view(key).is_some_and(|v| v.opened) => {
                    core.app_took(self.now, key, bytes.len().min(1000));
                }
                Front::Begin { .. } => core.begun(key),
                Front::Closed { .. } | Front::Fenced { .. } => {
                    core.conclude(key, FinalCause::Reset);
                }
                _ => {}
            },
            Own::Write(_) => {
                core.write(key, &mut Bytes::from(vec![7; 900]));
            }
            Own::Finish(_) => core.finish(key),
            Own::Conclude(_) => core.conclude(key, FinalCause::AppClosed),
            Own::Release(_) => {
                core.let_go(key);
                self.streams.retain(|k| *k != key);
            }
            _ => {}
        }
    }

    /// Feeds a frame; true while the tunnel stands.
    fn hear(&mut self, frame: &Frame) -> bool {
        let mut bytes = BytesMut::new();
        encode(frame, &mut bytes);
        let result = self.core.handle_bytes(self.now, &mut bytes);
        while let Some(event) = self.core.poll_event() {
            if let Event::Incoming(key) = event {
                self.streams.push(key);
            }
        }
        result.is_ok()
    }

    fn check(&self) {
        self.core.check_invariants();
        for stream in self.core.store.iter() {
            assert!(stream.inn.held() <= u64::from(SETTINGS.long_window));
            assert!(stream.inn.pieces() < 64, "many pieces for few bytes");
        }
        assert!(self.core.sched.standing() <= 3 * (2 * self.core.store.len() + 64) + 1024);
        assert!(self.core.store.live() <= SETTINGS.max_streams as usize + 1024);
    }
}

fn attack(side: Side, steps: &[Step]) {
    let mut victim = Victim::new(side);
    let mut stands = true;
    for step in steps {
        match step {
            Step::Own(own) => victim.own(*own),
            Step::Peer(frame) => stands &= victim.hear(frame),
        }
        victim.check();
        stands &= victim.core.failure().is_none();
        if !stands {
            let core = &mut victim.core;
            assert!(core.store.iter().all(|s| s.ended.is_some()));
            assert!(core.takes_no_streams());
            assert_eq!(core.live_streams(), 0);
        }
    }
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
    fn a_hostile_agent_ends_only_its_own_tunnel(steps in steps(from_agent())) {
        attack(Side::Gateway, &steps);
    }

    #[test]
    fn a_hostile_gateway_ends_only_its_own_tunnel(steps in steps(from_gateway())) {
        attack(Side::Agent, &steps);
    }
}
