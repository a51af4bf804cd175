//! Lists of operations on the tunnel's state machine: two honest cores, and a core before a peer that
//! keeps no rule.
//!
//! Between honest cores bytes arrive once and in order and nobody is accused; before a hostile peer
//! nothing panics, an accusation is final, and what is held stays bounded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bridgehead_protocol::conn::{Conn, Event, Front, Outbox, Settings, Side, StreamKey};
use bridgehead_protocol::testing::Pair;
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::wire::{
    AppHealth, AppKind, AppOffer, Begin, FinalCause, Frame, GoAwayReason, Open, PeerLimits,
    RefusedReason, ReportEntry, ResetCode, Resume, StreamId, encode,
};
use bytes::{Bytes, BytesMut};

use super::feed::Feed;
use super::{signature, size, variant};

/// Operations of one input: a longer list finds nothing more and costs time.
const STEPS: usize = 400;

/// Small, so that short lists fill windows and queues.
fn settings() -> Settings {
    Settings {
        initial_window: 4096,
        max_window: 16 * 1024,
        long_window: 32 * 1024,
        queue_limit: 2048,
        retain_limit: 16 * 1024,
        max_streams: 6,
        ..Settings::default()
    }
}

pub(super) fn run(data: &[u8]) -> u64 {
    let mut feed = Feed::new(data);
    match feed.byte() % 4 {
        0 | 1 => honest(&mut feed),
        2 => hostile(&mut feed, Side::Gateway),
        _ => hostile(&mut feed, Side::Agent),
    }
}

fn pattern(from: u64, len: usize) -> Bytes {
    (from..from + len as u64)
        .map(|at| (at % 251) as u8)
        .collect()
}

fn follows(bytes: &[u8], from: u64) -> bool {
    (from..)
        .zip(bytes)
        .all(|(at, byte)| (at % 251) as u8 == *byte)
}

fn begin(feed: &mut Feed<'_>, expect_read: Option<u64>) -> Begin {
    Begin {
        request: feed.number().into(),
        remaining: Duration::from_secs(30),
        expect_read,
    }
}

fn pick(keys: &[StreamKey], feed: &mut Feed<'_>) -> Option<StreamKey> {
    let at = usize::from(feed.byte());
    (!keys.is_empty()).then(|| keys[at % keys.len()])
}

/// What one end of a stream has said and heard so far.
#[derive(Clone, Copy, Default)]
struct Offsets {
    said: u64,
    heard: u64,
    /// Where its last exchange began.
    start: Option<u64>,
}

fn honest(feed: &mut Feed<'_>) -> u64 {
    let mut pair = Pair::new(settings());
    let (mut opened, mut accepted): (Vec<StreamKey>, Vec<StreamKey>) = (Vec::new(), Vec::new());
    let (mut gateway, mut agent) = (BTreeMap::new(), BTreeMap::new());
    // Streams whose app's connection stands: only those have an app that speaks.
    let mut standing = BTreeSet::new();
    let (mut seen, mut steps, mut draining) = (0, 0, false);
    while !feed.is_empty() && steps < STEPS {
        steps += 1;
        let fine = match feed.byte() % 19 {
            0 | 1 if !draining && opened.len() < 24 => {
                let open = Open {
                    app: "demo".into(),
                    kind: AppKind::Tcp,
                    remaining: Duration::from_secs(30),
                    credit: 0,
                    client: None,
                };
                if let Ok(key) = pair.gateway.open(pair.now, open) {
                    opened.push(key);
                    gateway.insert(key, Offsets::default());
                }
                Ok(())
            }
            2 | 3 => {
                if let Some(key) = pick(&opened, feed) {
                    let offsets: &mut Offsets = gateway.entry(key).or_default();
                    // An exchange begins after the answer to the last one, so its first byte was taken.
                    let consumed = pair.gateway.view(key).map_or(0, |view| view.consumed);
                    let may = offsets.start.is_none_or(|start| consumed > start);
                    if feed.byte().is_multiple_of(4) && may && pair.gateway.room(key) > 0 {
                        let begin = begin(feed, None);
                        offsets.start = Some(pair.gateway.begin(pair.now, key, begin));
                    }
                    let mut bytes = pattern(offsets.said, feed.below(3000));
                    offsets.said += pair.gateway.write(key, &mut bytes) as u64;
                }
                Ok(())
            }
            4 => {
                if let Some(key) = pick(&opened, feed) {
                    pair.gateway.finish(key);
                }
                Ok(())
            }
            5 => {
                if let Some(key) = pick(&opened, feed) {
                    pair.gateway.fence(key, feed.flag());
                }
                Ok(())
            }
            6 => {
                if let Some(key) = pick(&opened, feed) {
                    pair.gateway.reset(key, feed.pick(ResetCode::ALL));
                }
                Ok(())
            }
            7 => {
                if let Some(key) = pick(&opened, feed) {
                    pair.gateway.release(key);
                    opened.retain(|k| *k != key);
                }
                Ok(())
            }
            8 => {
                if let Some(key) = pick(&opened, feed) {
                    let offsets: &mut Offsets = gateway.entry(key).or_default();
                    if let Some(bytes) = pair.gateway.read(pair.now, key, feed.below(5000) + 1) {
                        assert!(follows(&bytes, offsets.heard), "an answer is out of order");
                        offsets.heard += bytes.len() as u64;
                    }
                }
                Ok(())
            }
            9 => {
                if let Some(key) = pick(&accepted, feed) {
                    match feed.byte() % 8 {
                        0 => pair.agent.refuse(key, feed.pick(RefusedReason::ALL), 1),
                        _ => {
                            pair.agent.opened(key);
                            standing.insert(key);
                        }
                    }
                }
                Ok(())
            }
            10 | 11 => {
                if let Some(key) = pick(&accepted, feed).filter(|k| standing.contains(k)) {
                    let offsets: &mut Offsets = agent.entry(key).or_default();
                    take(&mut pair.agent, pair.now, key, feed, &mut offsets.heard);
                }
                Ok(())
            }
            12 => {
                if let Some(key) = pick(&accepted, feed).filter(|k| standing.contains(k)) {
                    let offsets: &mut Offsets = agent.entry(key).or_default();
                    let mut bytes = pattern(offsets.said, feed.below(3000));
                    offsets.said += pair.agent.write(key, &mut bytes) as u64;
                }
                Ok(())
            }
            13 => {
                if let Some(key) = pick(&accepted, feed).filter(|k| standing.contains(k)) {
                    match feed.byte() % 4 {
                        0 => pair.agent.conclude(key, feed.pick(FinalCause::ALL)),
                        1 => {
                            pair.agent.let_go(key);
                            accepted.retain(|k| *k != key);
                        }
                        _ => pair.agent.finish(key),
                    }
                }
                Ok(())
            }
            14 => pair.advance(Duration::from_millis(feed.number() % 1500)),
            15 => {
                pair.emit_gateway_some(feed.below(9000));
                pair.deliver_to_agent(feed.below(9000))
            }
            16 => {
                pair.emit_agent_some(feed.below(9000));
                pair.deliver_to_gateway(feed.below(9000))
            }
            17 if feed.byte() == 255 => {
                draining = true;
                pair.agent.drain(GoAwayReason::Draining, Duration::ZERO);
                Ok(())
            }
            _ => pair.settle(),
        };
        fine.unwrap_or_else(|error| panic!("an honest core is accused: {error}"));
        for event in &pair.agent_events[seen..] {
            if let Event::Incoming(key) = event {
                accepted.push(*key);
            }
        }
        seen = pair.agent_events.len();
        pair.gateway.check_invariants();
        pair.agent.check_invariants();
    }
    signature(&[
        size(opened.len()),
        size(accepted.len()),
        size(pair.gateway_sent.len()),
        size(pair.agent_sent.len()),
        u64::from(draining),
        size(pair.gateway.live_streams()),
    ])
}

/// The app takes a part of what stands in front.
fn take(agent: &mut Conn, now: Moment, key: StreamKey, feed: &mut Feed<'_>, heard: &mut u64) {
    match agent.front(key) {
        Front::Bytes(bytes) => {
            let count = feed.below(bytes.len()) + 1;
            assert!(
                follows(&bytes[..count], *heard),
                "a request is out of order"
            );
            agent.app_took(now, key, count);
            *heard += count as u64;
        }
        Front::Begin { .. } => agent.begun(key),
        Front::Fin | Front::Empty | Front::Fenced { .. } | Front::Closed { .. } => {}
    }
}

/// Any frame, near the ids that are in use.
fn frame(feed: &mut Feed<'_>) -> Frame {
    let stream = match feed.byte() % 8 {
        0 => StreamId((feed.number() as u32).clamp(1, (1 << 31) - 1)),
        n => StreamId(u32::from(n % 4) * 2 + 1),
    };
    match feed.byte() % 19 {
        0 | 1 => Frame::Data {
            stream,
            bytes: Bytes::from(vec![7; feed.number() as usize % 65_537]),
            fin: feed.flag(),
        },
        2 => Frame::Credit {
            stream,
            limit: feed.number(),
            consumed: feed.number(),
        },
        3 => Frame::Reset {
            stream,
            code: feed.pick(ResetCode::ALL),
        },
        4 => Frame::GoAway {
            last: stream,
            reason: feed.pick(GoAwayReason::ALL),
            deadline: Duration::from_millis(feed.number()),
        },
        5 => Frame::Ping(feed.array()),
        6 => Frame::Pong(feed.array()),
        7 => Frame::Opened {
            stream,
            credit: feed.number() as u32,
        },
        8 => Frame::Refused {
            stream,
            reason: feed.pick(RefusedReason::ALL),
            errno: feed.number() as u16,
        },
        9 => Frame::Count {
            stream,
            written: feed.number(),
            read: feed.number(),
        },
        10 => Frame::Final {
            stream,
            written: feed.number(),
            read: feed.number(),
            cause: feed.pick(FinalCause::ALL),
        },
        11 => Frame::Apps {
            revision: feed.number(),
            apps: vec![AppOffer {
                name: feed.text(12),
                kind: feed.pick(AppKind::ALL),
                weight: feed.byte(),
                health: feed.pick(AppHealth::ALL),
                upstream_host: feed.text(12),
            }],
        },
        12 => Frame::Open(
            stream,
            Open {
                app: "demo".into(),
                kind: feed.pick(AppKind::ALL),
                remaining: Duration::from_millis(feed.number()),
                credit: feed.number() as u32,
                client: None,
            },
        ),
        13 => {
            let expect = feed.flag().then(|| feed.number());
            Frame::Begin(stream, begin(feed, expect))
        }
        14 => Frame::Fence {
            stream,
            linger: feed.flag(),
        },
        15 => Frame::Done(vec![stream; feed.below(4)]),
        16 => Frame::Report(vec![ReportEntry {
            tunnel: feed.number().into(),
            stream,
            written: feed.number(),
            read: feed.number(),
            cause: feed.pick(FinalCause::ALL),
        }]),
        17 => Frame::Resume(Resume {
            highest_open: feed.number() as u32,
            streams: vec![(stream, feed.number())],
            more: feed.flag(),
        }),
        _ => Frame::Refuse(bridgehead_protocol::wire::Refuse {
            code: feed.pick(bridgehead_protocol::wire::RefuseCode::ALL),
            permanent: feed.flag(),
            retry_after: Duration::ZERO,
            text: String::new(),
        }),
    }
}

fn hostile(feed: &mut Feed<'_>, side: Side) -> u64 {
    let peer = PeerLimits {
        max_streams: 6,
        initial_credit: 4096,
        linger: Duration::from_secs(60),
    };
    let mut core = Conn::new(side, settings(), peer, Moment::ZERO);
    let (mut now, mut keys, mut steps) = (Moment::ZERO, Vec::new(), 0);
    let mut standing = BTreeSet::new();
    let mut inbox = BytesMut::new();
    let mut last = 0;
    while !feed.is_empty() && steps < STEPS {
        steps += 1;
        let choice = feed.byte();
        if choice.is_multiple_of(3) {
            own(&mut core, side, now, (&mut keys, &mut standing), feed);
        } else {
            let frame = frame(feed);
            last = u64::from(frame.kind().number());
            encode(&frame, &mut inbox);
            if choice % 16 == 1 {
                // Now and then only a part of what was said arrives.
                inbox.truncate(inbox.len().saturating_sub(feed.below(30)));
            }
            let heard = core.handle_bytes(now, &mut inbox);
            if let Err(error) = heard {
                let said = core.failure().expect("an accusation is kept");
                assert_eq!(said.to_string(), error.to_string());
                let again = core.handle_bytes(now, &mut BytesMut::new());
                assert!(again.is_err(), "an accusation is final");
                drain(&mut core, usize::MAX);
                return signature(&[1, last, variant(&error)]);
            }
        }
        while let Some(event) = core.poll_event() {
            if let Event::Incoming(key) = event {
                keys.push(key);
            }
        }
        if choice % 8 == 7 {
            now += Duration::from_millis(feed.number() % 2000);
            if core.handle_timeout(now).is_err() {
                return signature(&[2, last]);
            }
        }
        core.check_invariants();
        assert!(keys.len() <= STEPS);
    }
    let sent = drain(&mut core, usize::MAX);
    signature(&[
        3,
        size(core.live_streams()),
        size(sent),
        last,
        u64::from(core.takes_no_streams()),
    ])
}

fn drain(core: &mut Conn, budget: usize) -> usize {
    let mut out = Outbox::default();
    core.poll_transmit(&mut out, budget);
    out.len()
}

/// What the attacked side does between the frames.
fn own(
    core: &mut Conn,
    side: Side,
    now: Moment,
    (keys, standing): (&mut Vec<StreamKey>, &mut BTreeSet<StreamKey>),
    feed: &mut Feed<'_>,
) {
    let choice = feed.byte();
    if choice.is_multiple_of(4) {
        drain(core, feed.below(5000));
        return;
    }
    if side == Side::Gateway && (keys.is_empty() || choice % 8 == 1) {
        let open = Open {
            app: "demo".into(),
            kind: AppKind::Http1,
            remaining: Duration::from_secs(30),
            credit: 0,
            client: None,
        };
        keys.extend(core.open(now, open).ok());
        return;
    }
    let Some(key) = pick(keys, feed) else { return };
    let mut bytes = pattern(0, feed.below(2000));
    match (side, feed.byte() % 7) {
        (Side::Gateway, 0) => drop(core.begin(now, key, begin(feed, None))),
        (Side::Gateway, 1) => drop(core.fence(key, feed.flag())),
        (Side::Gateway, 2) => drop(core.reset(key, ResetCode::Cancelled)),
        (Side::Gateway, 3) => {
            core.release(key);
            keys.retain(|k| *k != key);
        }
        (Side::Gateway, 4) => drop(core.read(now, key, 4096)),
        (Side::Agent, 0 | 1) => {
            core.opened(key);
            standing.insert(key);
        }
        (Side::Agent, 2) => core.refuse(key, RefusedReason::ConnectRefused, 111),
        (Side::Agent, 3) => core.conclude(key, FinalCause::AppClosed),
        (Side::Agent, 4) if standing.contains(&key) => match core.front(key) {
            Front::Bytes(bytes) => core.app_took(now, key, bytes.len()),
            Front::Begin { .. } => core.begun(key),
            Front::Fin | Front::Empty | Front::Fenced { .. } | Front::Closed { .. } => {}
        },
        // Before its app's connection stands an agent has nothing to say.
        (Side::Agent, _) if !standing.contains(&key) => {}
        (_, 5) => core.finish(key),
        _ => drop(core.write(key, &mut bytes)),
    }
}
