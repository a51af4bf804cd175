//! The tunnel itself between two carriers: windows, silence, what is said again, a side that slept.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::tests::*;
use super::*;
use crate::conn::*;
use crate::testing::Pair;
use crate::wire::{AppKind, GoAwayReason};

// ---- the tunnel ----------------------------------------------------------------------------

#[test]
fn a_tunnel_without_a_resume_window_ends_with_its_carrier() {
    let mut pair = Pair::new(Settings::default());
    let (key, _) = opened(&mut pair);
    pair.gateway.suspend(pair.now);
    assert_eq!(pair.gateway.failure(), Some(&ConnError::Closed));
    assert!(!pair.gateway.is_suspended() && !pair.gateway.wants_carrier());
    assert_eq!(pair.view(key).ended, Some(Ended::Lost));
    pair.gateway.resume(pair.now);
    assert!(!pair.gateway.is_suspended());
}

#[test]
fn a_silent_peer_suspends_the_tunnel() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    pair.advance(SECOND).unwrap();
    let mut now = pair.now;
    while !pair.gateway.wants_carrier() {
        now = pair.gateway.poll_timeout();
        pair.gateway.handle_timeout(now).unwrap();
    }
    assert!(now.since(pair.now) <= SECOND * 6);
    assert_eq!(pair.gateway.poll_event(), Some(Event::Suspended));
    assert!(pair.view(key).suspended);
    assert_eq!(pair.gateway.poll_timeout(), now + WINDOW);
}

#[test]
fn a_tunnel_ends_when_no_carrier_comes_within_its_window() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.cut();
    let queued = pair.open(AppKind::Tcp);
    pair.advance(WINDOW - SECOND).unwrap();
    assert_eq!(pair.view(key).ended, None);
    assert_eq!(pair.advance(SECOND), Err(ConnError::Lapsed));
    assert_eq!(pair.view(key).ended, Some(Ended::Lost));
    assert_eq!(pair.view(queued).ended, Some(Ended::NotOpened));
    assert!(!pair.gateway.is_suspended());
    assert_eq!(
        pair.agent.handle_timeout(pair.now + SECOND),
        Err(ConnError::Lapsed)
    );
    assert_eq!(pair.agent.front(app), Front::Closed { idle: false });
}

#[test]
fn a_tunnel_that_ended_without_a_carrier_says_nothing_more() {
    let mut pair = pair();
    pair.gateway.drain(GoAwayReason::Draining, SECOND);
    pair.cut();
    pair.agent.announce(Vec::new());
    pair.gateway.lose();
    pair.agent.lose();
    assert!(!pair.gateway.wants_transmit() && !pair.agent.wants_transmit());
    assert_eq!(pair.emit_gateway() + pair.emit_agent(), 0);
}

#[test]
fn the_window_counts_from_the_first_cut_until_a_resume_is_complete() {
    let mut pair = pair();
    let start = pair.now;
    pair.cut();
    pair.advance(SECOND * 10).unwrap();
    pair.gateway.resume(pair.now);
    assert!(pair.gateway.is_suspended() && !pair.gateway.wants_carrier());
    // The agent's statement never comes: silence, then the end of the window.
    let mut ended = Ok(());
    while ended.is_ok() {
        pair.now = pair.gateway.poll_timeout();
        ended = pair.gateway.handle_timeout(pair.now);
        let suspended = std::iter::from_fn(|| pair.gateway.poll_event())
            .filter(|event| *event == Event::Suspended)
            .count();
        assert!(suspended <= 1, "told once");
    }
    assert_eq!(ended, Err(ConnError::Lapsed));
    assert_eq!(pair.now, start + WINDOW);
}

#[test]
fn only_probes_follow_a_statement_until_the_peer_has_stated_its_own() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    write(&mut pair, key, b"question");
    pair.redial();
    let from = pair.gateway_sent.len();
    pair.emit_gateway();
    pair.gateway.handle_timeout(pair.now + SECOND * 3).unwrap();
    pair.emit_gateway();
    let sent = frames(&pair.gateway_sent, from);
    assert!(matches!(sent[0], Frame::Resume(_)));
    assert!(sent.len() > 2 && sent[1..].iter().all(|f| matches!(f, Frame::Ping(_))));
}

#[test]
fn apps_and_a_goaway_are_said_again() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    pair.agent.announce(Vec::new());
    pair.agent.drain(GoAwayReason::Draining, SECOND * 30);
    pair.emit_agent();
    pair.cut();
    pair.advance(SECOND * 10).unwrap();
    pair.redial();
    pair.settle().unwrap();
    assert!(pair.gateway.is_going_away());
    assert_eq!(
        count(&pair.gateway_events, |e| matches!(e, Event::Apps(_))),
        1
    );
    let deadline = SECOND * 20;
    let away = Event::GoAway {
        reason: GoAwayReason::Draining,
        deadline,
    };
    assert!(
        pair.gateway_events.contains(&away),
        "{:?}",
        pair.gateway_events
    );
    assert_eq!(pair.view(key).ended, None);
}

#[test]
fn streams_an_agent_did_not_accept_are_gone_on_both_sides_after_a_resume() {
    let mut pair = pair();
    let (_, _) = opened(&mut pair);
    pair.agent.drain(GoAwayReason::Draining, SECOND);
    pair.emit_agent();
    let late = pair.open(AppKind::Tcp);
    pair.emit_gateway();
    pair.deliver_to_agent(usize::MAX).unwrap();
    pair.deliver_to_gateway(usize::MAX).unwrap();
    assert_eq!(pair.view(late).ended, Some(Ended::GoAway));
    pair.redial();
    pair.settle().unwrap();
    pair.gateway.release(late);
    assert_eq!(pair.agent.store.len(), 1);
}

#[test]
fn an_echo_of_the_old_carrier_measures_nothing() {
    let mut pair = pair();
    pair.advance(SECOND * 2).unwrap();
    pair.gateway.handle_timeout(pair.now + SECOND * 2).unwrap();
    pair.emit_gateway();
    pair.deliver_to_agent(usize::MAX).unwrap();
    pair.advance(Duration::ZERO).unwrap();
    pair.cut();
    pair.now += SECOND * 9;
    pair.redial();
    pair.settle().unwrap();
    assert_eq!(pair.gateway.rtt(), Some(Duration::ZERO));
    assert_eq!(pair.agent.rtt(), Some(Duration::ZERO));
}

// ---- a side that slept ---------------------------------------------------------------------

#[test]
fn an_agent_that_slept_through_a_cut_begins_nothing_before_it_heard_what_was_given_up() {
    let mut pair = pair();
    let (fenced, first) = opened(&mut pair);
    let (kept, second) = opened(&mut pair);
    pair.begin(fenced, Some(0), b"POST");
    pair.begin(kept, Some(0), b"POST");
    pair.settle().unwrap();
    // Asleep, with both in its buffers; the gateway's window runs out, and the carrier.
    pair.cut_at_gateway();
    pair.now += SECOND * 12;
    pair.gateway.fence(fenced, true);
    pair.cut_at_agent();
    pair.agent.handle_timeout(pair.now).unwrap();
    assert_eq!(pair.agent.front(first), Front::Empty);
    pair.redial();
    pair.emit_agent();
    pair.deliver_to_gateway(usize::MAX).unwrap();
    pair.emit_gateway();
    assert_eq!(pair.agent.front(second), Front::Empty);
    pair.deliver_to_agent(usize::MAX).unwrap();
    assert!(matches!(pair.agent.front(first), Front::Fenced { .. }));
    assert!(matches!(pair.agent.front(second), Front::Begin { .. }));
}

#[test]
fn what_was_given_up_stands_before_the_echo_even_if_it_fills_many_turns() {
    let mut pair = pair();
    let streams: Vec<_> = (0..40).map(|_| opened(&mut pair).0).collect();
    let from = pair.gateway_sent.len();
    streams.iter().for_each(|key| {
        pair.gateway.fence(*key, false);
    });
    pair.redial();
    pair.emit_agent();
    pair.deliver_to_gateway(usize::MAX).unwrap();
    for _ in 0..60 {
        pair.emit_gateway_some(20);
    }
    let sent = frames(&pair.gateway_sent, from);
    let echo = position(&sent, |f| matches!(f, Frame::Pong(_)));
    let fences = sent[..echo]
        .iter()
        .filter(|f| matches!(f, Frame::Fence { .. }));
    assert_eq!(fences.count(), 40);
}

#[test]
fn an_agent_frozen_for_longer_than_the_window_writes_nothing_late() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, Some(0), b"POST");
    pair.settle().unwrap();
    pair.cut_at_gateway();
    pair.now += WINDOW * 2;
    assert_eq!(
        pair.gateway.handle_timeout(pair.now),
        Err(ConnError::Lapsed)
    );
    // It wakes, finds its carrier dead, and nobody to resume with.
    pair.agent.handle_timeout(pair.now).unwrap();
    assert_eq!(pair.agent.front(app), Front::Empty);
    pair.cut_at_agent();
    assert_eq!(pair.agent.front(app), Front::Empty);
    pair.agent.lose();
    assert_eq!(pair.agent.front(app), Front::Closed { idle: false });
    let fates = pair.agent.take_fates();
    assert_eq!(fates.len(), 1);
    assert_eq!((fates[0].stream, fates[0].written), (StreamId(1), 0));
}
