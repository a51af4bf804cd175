//! What a lost carrier never took was never emitted, one sentence a test.

#![allow(clippy::unwrap_used)]

use bytes::BytesMut;

use super::tests::{opened, over_the_next_carrier, pair, read, say, write};
use super::*;
use crate::conn::*;
use crate::testing::Pair;
use crate::wire::{AppKind, FinalCause, ResetCode, encode};

/// What the gateway has to send, in an outbox of which `taken` bytes went out.
fn outbox(pair: &mut Pair, taken: usize) -> Outbox {
    let mut out = Outbox::default();
    pair.gateway.poll_transmit(&mut out, usize::MAX);
    assert!(taken <= out.len());
    out.advance(taken);
    out
}

/// The carrier is lost with this left.
fn lose_with(pair: &mut Pair, left: Outbox) {
    pair.gateway.never_taken(left);
    pair.gateway.check_invariants();
    pair.cut();
    pair.gateway.check_invariants();
}

#[test]
fn an_exchange_that_its_carrier_never_took_is_given_up_unemitted_and_unwritten() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    let start = pair.begin(key, Some(0), b"question");
    let left = outbox(&mut pair, 0);
    assert_eq!(pair.view(key).emitted, 8);
    lose_with(&mut pair, left);
    assert_eq!(pair.view(key).emitted, start);
    assert_eq!(pair.gateway.reset(key, ResetCode::Cancelled), start);
    over_the_next_carrier(&mut pair);
    assert_eq!(pair.app_takes(app), b"");
    pair.agent.conclude(app, FinalCause::Reset);
    pair.settle().unwrap();
    assert!(matches!(
        pair.view(key).ended,
        Some(Ended::Final { written: 0, .. })
    ));
}

#[test]
fn a_frame_of_which_one_byte_was_taken_counts_as_emitted_whole() {
    let mut taken = 0;
    loop {
        let mut pair = pair();
        let (key, _) = opened(&mut pair);
        pair.begin(key, Some(0), b"question");
        let whole = outbox(&mut pair, 0);
        let (len, header_and_bytes) = (whole.len(), 9 + b"question".len());
        let mut left = whole;
        left.advance(taken);
        lose_with(&mut pair, left);
        let data_begins = len - header_and_bytes;
        let emitted = if taken > data_begins { 8 } else { 0 };
        assert_eq!(
            pair.gateway.reset(key, ResetCode::Cancelled),
            emitted,
            "{taken} of {len} bytes taken"
        );
        if taken == len {
            return;
        }
        taken += 1;
    }
}

#[test]
fn what_a_carrier_never_took_goes_out_over_the_next_one_once_and_in_order() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    write(&mut pair, key, b"one ");
    pair.settle().unwrap();
    write(&mut pair, key, b"two ");
    pair.gateway.finish(key);
    let left = outbox(&mut pair, 0);
    lose_with(&mut pair, left);
    over_the_next_carrier(&mut pair);
    assert_eq!(pair.app_takes(app), b"one two ");
    assert_eq!(pair.agent.front(app), Front::Fin);
    say(&mut pair, app, b"answer");
    pair.settle().unwrap();
    assert_eq!(read(&mut pair, key), b"answer");
    // Bytes that never left are not sent a second time.
    assert!(pair.gateway_events.contains(&Event::Resumed { resent: 0 }));
}

#[test]
fn what_an_earlier_carrier_took_stays_emitted_whatever_the_next_one_takes() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    pair.begin(key, Some(0), b"question");
    pair.emit_gateway();
    pair.redial();
    // Both statements, and nothing else.
    pair.emit_gateway();
    pair.emit_agent();
    pair.deliver_to_agent(usize::MAX).unwrap();
    pair.deliver_to_gateway(usize::MAX).unwrap();
    write(&mut pair, key, b" and more");
    let left = outbox(&mut pair, 0);
    assert_eq!(pair.view(key).emitted, 17);
    lose_with(&mut pair, left);
    assert_eq!(pair.gateway.reset(key, ResetCode::Cancelled), 8);
}

#[test]
fn of_several_streams_each_keeps_what_was_taken_of_it() {
    let mut pair = pair();
    let (one, _) = opened(&mut pair);
    let (two, _) = opened(&mut pair);
    write(&mut pair, one, b"first");
    write(&mut pair, two, b"second");
    let left = outbox(&mut pair, 9 + 5);
    lose_with(&mut pair, left);
    assert_eq!(pair.gateway.fence(one, false), 5);
    assert_eq!(pair.gateway.fence(two, false), 0);
}

#[test]
fn what_was_given_up_before_the_carrier_was_lost_is_known_to_have_stayed_here_after() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    let start = pair.begin(key, Some(0), b"question");
    let left = outbox(&mut pair, 0);
    assert_eq!(pair.gateway.fence(key, true), 8);
    lose_with(&mut pair, left);
    assert_eq!(pair.view(key).emitted, start);
    let (sent, _) = over_the_next_carrier(&mut pair);
    assert!(!sent.iter().any(|frame| matches!(frame, Frame::Data { .. })));
}

#[test]
fn an_open_with_its_request_that_no_carrier_took_is_not_emitted_when_the_tunnel_is_lost() {
    let mut pair = pair();
    let key = pair.open(AppKind::Http1);
    let start = pair.begin(key, Some(0), b"question");
    let left = outbox(&mut pair, 0);
    pair.gateway.never_taken(left);
    pair.gateway.lose();
    assert_eq!(pair.view(key).ended, Some(Ended::Lost));
    assert_eq!(pair.view(key).emitted, start);
}

#[test]
fn a_peer_that_consumes_what_it_never_got_gains_nothing_and_breaks_nothing() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    let id = pair.gateway.stream_id(key).unwrap();
    pair.begin(key, Some(0), b"question");
    let left = outbox(&mut pair, 0);
    let mut told = BytesMut::new();
    encode(
        &Frame::Credit {
            stream: id,
            limit: 100_000,
            consumed: 5,
        },
        &mut told,
    );
    pair.gateway.handle_bytes(pair.now, &mut told).unwrap();
    lose_with(&mut pair, left);
    assert_eq!(pair.gateway.reset(key, ResetCode::Cancelled), 5);
}

#[test]
fn who_asks_what_was_emitted_is_woken_when_it_falls_after_silence_was_told() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    let start = pair.begin(key, Some(0), b"question");
    let left = outbox(&mut pair, 0);
    pair.gateway.suspend(pair.now);
    while pair.gateway.poll_event().is_some() {}
    assert_eq!(pair.view(key).emitted, start + 8);
    pair.gateway.never_taken(left);
    assert_eq!(pair.view(key).emitted, start);
    let news = std::iter::from_fn(|| pair.gateway.poll_event());
    let told = |event: Event| matches!(event, Event::Stream(of, wake) if of == key && wake.has(Wake::CONTROL));
    assert!(news.into_iter().any(told));
}
