//! A tunnel over several carriers, one sentence a test.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::*;
use crate::conn::*;
use crate::testing::Pair;
use crate::wire::{AppKind, FinalCause, Frame, Limits, ResetCode, decode};

pub(in crate::conn) const WINDOW: Duration = Duration::from_secs(20);
pub(in crate::conn) const SECOND: Duration = Duration::from_secs(1);

pub(in crate::conn) fn pair() -> Pair {
    let mut pair = Pair::new(Settings {
        resume_window: WINDOW,
        ..Settings::default()
    });
    pair.settle().unwrap();
    pair
}

/// A stream whose app's connection stands.
pub(in crate::conn) fn opened(pair: &mut Pair) -> (StreamKey, StreamKey) {
    let key = pair.open(AppKind::Tcp);
    pair.settle().unwrap();
    let app = pair.accepted().unwrap();
    pair.agent.opened(app);
    pair.settle().unwrap();
    (key, app)
}

pub(in crate::conn) fn write(pair: &mut Pair, key: StreamKey, text: &'static [u8]) {
    let mut bytes = Bytes::from_static(text);
    assert_eq!(pair.gateway.write(key, &mut bytes), text.len());
}

pub(in crate::conn) fn say(pair: &mut Pair, app: StreamKey, text: &'static [u8]) {
    pair.agent.write_all(app, Bytes::from_static(text));
}

pub(in crate::conn) fn read(pair: &mut Pair, key: StreamKey) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = pair.gateway.read(pair.now, key, usize::MAX) {
        all.extend_from_slice(&bytes);
    }
    all
}

/// Frames in what a side has sent since `from`.
pub(in crate::conn) fn frames(sent: &BytesMut, from: usize) -> Vec<Frame> {
    let mut bytes = BytesMut::from(&sent[from..]);
    std::iter::from_fn(|| decode(&mut bytes, &Limits::default()).unwrap()).collect()
}

/// The next carrier, everything carried; answers what each side sent over it.
pub(in crate::conn) fn over_the_next_carrier(pair: &mut Pair) -> (Vec<Frame>, Vec<Frame>) {
    let (gateway, agent) = (pair.gateway_sent.len(), pair.agent_sent.len());
    pair.redial();
    pair.settle().unwrap();
    (
        frames(&pair.gateway_sent, gateway),
        frames(&pair.agent_sent, agent),
    )
}

pub(in crate::conn) fn position(frames: &[Frame], is: impl Fn(&Frame) -> bool) -> usize {
    frames.iter().position(is).unwrap()
}

pub(in crate::conn) fn count(events: &[Event], is: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| is(event)).count()
}

pub(in crate::conn) fn nothing_is_kept(pair: &Pair) {
    assert_eq!(pair.gateway.store.len(), 0, "{:?}", pair.gateway.store);
    assert_eq!(pair.agent.store.len(), 0, "{:?}", pair.agent.store);
}

// ---- bytes ---------------------------------------------------------------------------------

#[test]
fn bytes_lost_with_a_carrier_are_sent_again_once_and_in_order() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    write(&mut pair, key, b"one ");
    pair.settle().unwrap();
    assert_eq!(pair.app_takes(app), b"one ");
    write(&mut pair, key, b"two ");
    say(&mut pair, app, b"answer");
    pair.emit_gateway();
    pair.emit_agent();
    pair.cut();
    write(&mut pair, key, b"three");
    assert_eq!(pair.emit_gateway() + pair.emit_agent(), 0);
    assert!(!pair.gateway.wants_transmit() && !pair.agent.wants_transmit());
    pair.redial();
    pair.settle().unwrap();
    assert_eq!(pair.app_takes(app), b"two three");
    assert_eq!(read(&mut pair, key), b"answer");
    assert!(pair.gateway_events.contains(&Event::Resumed { resent: 4 }));
    assert!(pair.agent_events.contains(&Event::Resumed { resent: 6 }));
}

#[test]
fn a_carrier_may_be_cut_behind_any_byte_of_an_exchange() {
    let mut cut_at = 0;
    loop {
        let mut pair = pair();
        let (key, app) = opened(&mut pair);
        pair.begin(key, Some(0), b"question");
        pair.gateway.finish(key);
        let sent = pair.emit_gateway();
        pair.deliver_to_agent(cut_at).unwrap();
        let mut took = pair.app_takes(app);
        say(&mut pair, app, b"answer");
        pair.agent.finish(app);
        let answered = pair.emit_agent();
        pair.deliver_to_gateway(cut_at).unwrap();
        pair.redial();
        pair.settle().unwrap();
        took.extend(pair.app_takes(app));
        assert_eq!(took, b"question", "cut behind byte {cut_at}");
        assert_eq!(pair.agent.front(app), Front::Fin);
        assert_eq!(read(&mut pair, key), b"answer");
        assert!(pair.gateway.is_read_to_fin(key));
        pair.agent.conclude(app, FinalCause::AppClosed);
        pair.agent.let_go(app);
        pair.settle().unwrap();
        pair.gateway.release(key);
        nothing_is_kept(&pair);
        if cut_at > sent.max(answered) {
            return;
        }
        cut_at += 1;
    }
}

#[test]
fn what_a_peer_has_not_consumed_bounds_what_is_taken_without_a_carrier() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    pair.cut();
    let mut taken = 0;
    while pair.gateway.room(key) > 0 {
        taken += pair.gateway.write(key, &mut Bytes::from(vec![7; 100_000])) as u64;
    }
    assert_eq!(taken, pair.gateway.settings().queue_limit as u64);
}

#[test]
fn a_peer_that_received_but_did_not_consume_is_not_sent_it_again() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    write(&mut pair, key, b"waits at the agent");
    pair.settle().unwrap();
    let (sent, _) = over_the_next_carrier(&mut pair);
    assert!(!sent.iter().any(|f| matches!(f, Frame::Data { .. })));
    assert_eq!(pair.app_takes(app), b"waits at the agent");
}

#[test]
fn a_carrier_that_is_cut_while_bytes_are_sent_again_is_followed_by_the_next() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    let text: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
    assert_eq!(
        pair.gateway.write(key, &mut Bytes::from(text.clone())),
        40_000
    );
    pair.emit_gateway();
    let mut took = Vec::new();
    for part in [900, 0, 5000, 17_000, 1] {
        pair.redial();
        pair.emit_gateway();
        pair.emit_agent();
        pair.deliver_to_gateway(usize::MAX).unwrap();
        pair.emit_gateway_some(part);
        pair.deliver_to_agent(part + 60).unwrap();
        took.extend(pair.app_takes(app));
        assert_eq!(pair.view(key).emitted, 40_000, "what was emitted stays so");
    }
    pair.redial();
    pair.settle().unwrap();
    took.extend(pair.app_takes(app));
    assert!(took == text, "{} bytes", took.len());
}

#[test]
fn credit_told_over_a_lost_carrier_is_told_again() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    let window = pair.gateway.settings().initial_window as usize;
    let mut sent = 0;
    loop {
        let more = pair.gateway.write(key, &mut Bytes::from(vec![7; 60_000]));
        sent += more;
        pair.settle().unwrap();
        if more == 0 {
            break;
        }
    }
    assert_eq!(sent, window);
    pair.app_takes(app);
    pair.agent.handle_timeout(pair.now + SECOND).unwrap();
    assert!(pair.emit_agent() > 0);
    pair.redial();
    pair.settle().unwrap();
    assert_eq!(pair.view(key).consumed, window as u64);
    assert!(pair.gateway.room(key) > 0);
}

// ---- opens and marks -----------------------------------------------------------------------

#[test]
fn a_lost_open_is_sent_again_before_anything_else_with_the_time_that_is_left() {
    let mut pair = pair();
    let first = pair.open(AppKind::Tcp);
    write(&mut pair, first, b"first");
    pair.emit_gateway();
    pair.cut();
    let second = pair.open(AppKind::Tcp);
    pair.advance(SECOND * 3).unwrap();
    let (sent, _) = over_the_next_carrier(&mut pair);
    let opens: Vec<_> = sent
        .iter()
        .filter_map(|frame| match frame {
            Frame::Open(id, open) => Some((id.0, open.remaining.as_secs())),
            _ => None,
        })
        .collect();
    assert_eq!(opens, [(1, 27), (3, 27)]);
    let data = position(&sent, |f| matches!(f, Frame::Data { .. }));
    assert!(position(&sent, |f| matches!(f, Frame::Open(..))) < data);
    assert!(pair.view(second).ended.is_none());
    let incoming = count(&pair.agent_events, |e| matches!(e, Event::Incoming(_)));
    assert_eq!(incoming, 2);
}

#[test]
fn an_open_that_arrived_is_not_sent_again() {
    let mut pair = pair();
    let key = pair.open(AppKind::Tcp);
    pair.emit_gateway();
    pair.deliver_to_agent(usize::MAX).unwrap();
    let (sent, _) = over_the_next_carrier(&mut pair);
    assert!(!sent.iter().any(|f| matches!(f, Frame::Open(..))));
    let app = pair.accepted().unwrap();
    pair.agent.opened(app);
    pair.settle().unwrap();
    assert!(pair.view(key).opened);
}

#[test]
fn streams_given_up_before_their_open_arrived_end_with_nothing_written() {
    let mut pair = pair();
    let keys: Vec<_> = (0..4).map(|_| pair.open(AppKind::Tcp)).collect();
    for key in &keys {
        write(&mut pair, *key, b"POST");
    }
    pair.emit_gateway();
    pair.cut();
    assert_eq!(pair.gateway.reset(keys[1], ResetCode::Cancelled), 4);
    assert_eq!(pair.gateway.fence(keys[3], true), 4);
    pair.redial();
    pair.settle().unwrap();
    for given_up in [keys[1], keys[3]] {
        let ended = pair.view(given_up).ended;
        assert!(
            matches!(
                ended,
                Some(Ended::Final {
                    written: 0,
                    read: 0,
                    ..
                })
            ),
            "{ended:?}"
        );
    }
    let incoming = count(&pair.agent_events, |e| matches!(e, Event::Incoming(_)));
    assert_eq!(incoming, 2, "the others were opened");
    assert_eq!(pair.agent.store.len(), 2);
}

#[test]
fn a_stream_opened_without_a_carrier_is_opened_over_the_next() {
    let mut pair = pair();
    pair.cut();
    let key = pair.open(AppKind::Tcp);
    write(&mut pair, key, b"waits");
    pair.redial();
    pair.settle().unwrap();
    let app = pair.accepted().unwrap();
    pair.agent.opened(app);
    assert_eq!(pair.app_takes(app), b"waits");
}

#[test]
fn a_mark_that_arrived_without_its_first_byte_is_one_exchange() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, Some(0), b"question");
    let sent = pair.emit_gateway();
    pair.deliver_to_agent(sent - b"question".len()).unwrap();
    assert!(matches!(pair.agent.front(app), Front::Begin { .. }));
    let (sent, _) = over_the_next_carrier(&mut pair);
    assert_eq!(
        sent.iter()
            .filter(|f| matches!(f, Frame::Begin(..)))
            .count(),
        1,
        "the gateway cannot know"
    );
    assert!(matches!(pair.agent.front(app), Front::Begin { .. }));
    pair.agent.begun(app);
    assert_eq!(
        pair.agent.front(app),
        Front::Bytes(Bytes::from_static(b"question"))
    );
    assert_eq!(pair.app_takes(app), b"question");
}

#[test]
fn a_mark_that_was_passed_before_the_cut_is_not_passed_again() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, Some(0), b"question");
    let sent = pair.emit_gateway();
    pair.deliver_to_agent(sent - b"question".len()).unwrap();
    pair.agent.begun(app);
    pair.redial();
    pair.settle().unwrap();
    assert_eq!(
        pair.agent.front(app),
        Front::Bytes(Bytes::from_static(b"question"))
    );
}

#[test]
fn a_lost_mark_is_sent_again_with_the_time_that_is_left() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, Some(0), b"question");
    pair.emit_gateway();
    pair.cut();
    pair.advance(SECOND * 10).unwrap();
    pair.redial();
    pair.settle().unwrap();
    let Front::Begin { deadline, .. } = pair.agent.front(app) else {
        panic!("no mark");
    };
    assert_eq!(deadline.since(pair.now), SECOND * 20);
}

#[test]
fn an_end_told_over_a_lost_carrier_is_told_again_and_heard_once() {
    for arrived in [0, usize::MAX] {
        let mut pair = pair();
        let (key, app) = opened(&mut pair);
        pair.gateway.finish(key);
        pair.emit_gateway();
        pair.deliver_to_agent(arrived).unwrap();
        pair.redial();
        pair.settle().unwrap();
        assert_eq!(pair.agent.front(app), Front::Fin);
    }
}

// ---- giving up -----------------------------------------------------------------------------

#[test]
fn a_fence_without_a_carrier_answers_what_any_carrier_was_given() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, Some(0), b"question");
    pair.emit_gateway();
    pair.cut();
    write(&mut pair, key, b" never emitted");
    assert_eq!(pair.gateway.fence(key, false), 8);
    pair.redial();
    pair.settle().unwrap();
    let counted = Some(Counted {
        written: 0,
        read: 0,
    });
    assert_eq!(pair.view(key).counted, counted);
    assert_eq!(pair.agent.front(app), Front::Fenced { linger: false });
}

#[test]
fn a_fence_behind_a_request_that_was_lost_in_part_waits_for_no_late_answer() {
    for (arrived, lingers) in [(30, false), (usize::MAX, true)] {
        let mut pair = pair();
        let (key, app) = opened(&mut pair);
        write(
            &mut pair,
            key,
            b"a request that is longer than twenty bytes",
        );
        pair.emit_gateway();
        pair.deliver_to_agent(arrived).unwrap();
        pair.app_takes(app);
        pair.gateway.fence(key, true);
        pair.emit_gateway();
        pair.redial();
        pair.settle().unwrap();
        assert_eq!(pair.agent.front(app), Front::Fenced { linger: lingers });
    }
}

#[test]
fn a_fence_that_arrived_is_answered_again_with_the_same_count() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    write(&mut pair, key, b"question");
    pair.settle().unwrap();
    pair.app_takes(app);
    pair.gateway.fence(key, true);
    pair.emit_gateway();
    pair.deliver_to_agent(usize::MAX).unwrap();
    pair.emit_agent();
    pair.cut();
    say(&mut pair, app, b"late answer");
    pair.redial();
    pair.settle().unwrap();
    let counted = Some(Counted {
        written: 8,
        read: 0,
    });
    assert_eq!(pair.view(key).counted, counted);
    pair.redial();
    pair.settle().unwrap();
    assert_eq!(pair.view(key).counted, counted);
}

#[test]
fn a_lost_reset_is_sent_again_until_the_terminal_came() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    write(&mut pair, key, b"question");
    pair.settle().unwrap();
    pair.gateway.reset(key, ResetCode::Cancelled);
    pair.emit_gateway();
    assert_eq!(pair.app_takes(app), b"question");
    let (sent, _) = over_the_next_carrier(&mut pair);
    assert!(sent.iter().any(|f| matches!(f, Frame::Reset { .. })));
    assert_eq!(pair.agent.front(app), Front::Closed { idle: false });
    pair.agent.conclude(app, FinalCause::Reset);
    pair.settle().unwrap();
    let ended = pair.view(key).ended;
    assert!(
        matches!(ended, Some(Ended::Final { written: 8, .. })),
        "{ended:?}"
    );
}

#[test]
fn a_stream_that_no_carrier_was_told_of_is_given_up_without_a_word() {
    let mut pair = pair();
    pair.cut();
    let key = pair.open(AppKind::Tcp);
    write(&mut pair, key, b"POST");
    assert_eq!(pair.gateway.reset(key, ResetCode::Cancelled), 0);
    assert_eq!(pair.view(key).ended, Some(Ended::NotOpened));
    pair.redial();
    pair.settle().unwrap();
    assert_eq!(pair.agent.store.len(), 0);
}
