//! Memory under pressure, one sentence a test.

#![allow(clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};

use super::*;
use crate::conn::flow::{Due, RecvHalf};
use crate::conn::*;
use crate::testing::Pair;
use crate::wire::{AppKind, FinalCause, Frame, encode};

const SECOND: Duration = Duration::from_secs(1);

/// A hundred thousand bytes may be held.
fn pair() -> Pair {
    let mut pair = Pair::new(Settings {
        held_limit: 100_000,
        ..Settings::default()
    });
    pair.settle().unwrap();
    pair
}

fn opened(pair: &mut Pair) -> (StreamKey, StreamKey) {
    let key = pair.open(AppKind::Tcp);
    pair.settle().unwrap();
    let app = pair.accepted().unwrap();
    pair.agent.opened(app);
    pair.settle().unwrap();
    (key, app)
}

/// Bytes that arrive and that nobody reads.
fn pile_up(pair: &mut Pair, app: StreamKey, len: usize) {
    pair.agent.write_all(app, Bytes::from(vec![7; len]));
    pair.settle().unwrap();
}

#[test]
fn a_stream_without_progress_is_given_up_when_the_tunnel_holds_too_much() {
    let mut pair = pair();
    let (stuck, app) = opened(&mut pair);
    pile_up(&mut pair, app, 90_000);
    let (other, second) = opened(&mut pair);
    pile_up(&mut pair, second, 30_000);
    pair.advance(SECOND * 7).unwrap();
    assert!(pair.view(stuck).starved);
    assert!(!pair.view(other).starved, "the rest fits");
    assert_eq!(pair.gateway.starved_streams(), 1);
    assert_eq!(pair.agent.front(app), Front::Closed { idle: false });
    pair.agent.conclude(app, FinalCause::Reset);
    pair.settle().unwrap();
    let ended = pair.view(stuck).ended;
    assert!(
        matches!(
            ended,
            Some(Ended::Final {
                cause: FinalCause::Starved,
                ..
            })
        ),
        "{ended:?}"
    );
}

#[test]
fn below_the_limit_a_stream_may_rest_for_ever() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pile_up(&mut pair, app, 99_000);
    pair.advance(SECOND * 100).unwrap();
    assert!(!pair.view(key).starved);
    assert_eq!(pair.gateway.held_bytes(), 99_000);
}

#[test]
fn a_slow_reader_that_reads_is_never_given_up() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pile_up(&mut pair, app, 200_000);
    for _ in 0..20 {
        assert!(pair.gateway.read(pair.now, key, 10).is_some());
        pair.advance(SECOND * 4).unwrap();
    }
    assert!(!pair.view(key).starved);
    assert!(pair.gateway.held_bytes() > 100_000);
}

#[test]
fn an_agent_gives_up_an_app_that_takes_nothing_and_says_so() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    for _ in 0..4 {
        pair.gateway.write(key, &mut Bytes::from(vec![7; 60_000]));
        pair.settle().unwrap();
    }
    pair.agent.app_took(pair.now, app, 100);
    // The gateway holds the same bytes; it would act as soon.
    let now = pair.now + SECOND * 10;
    pair.agent.look_at_budget(pair.now + SECOND);
    pair.agent.look_at_budget(now);
    assert_eq!(pair.agent.front(app), Front::Closed { idle: false });
    pair.agent.conclude(app, FinalCause::Reset);
    pair.settle().unwrap();
    let (written, read, cause) = (100, 0, FinalCause::Starved);
    let ended = Ended::Final {
        written,
        read,
        cause,
    };
    assert_eq!(pair.view(key).ended, Some(ended));
    assert_eq!(pair.agent.starved_streams(), 1);
}

#[test]
fn nobody_is_given_up_while_there_is_no_carrier() {
    let mut pair = Pair::new(Settings {
        held_limit: 100_000,
        resume_window: SECOND * 20,
        ..Settings::default()
    });
    pair.settle().unwrap();
    let (key, app) = opened(&mut pair);
    pile_up(&mut pair, app, 200_000);
    pair.cut();
    pair.advance(SECOND * 15).unwrap();
    pair.redial();
    pair.settle().unwrap();
    pair.advance(SECOND * 4).unwrap();
    assert!(!pair.view(key).starved);
    pair.advance(SECOND * 3).unwrap();
    assert!(pair.view(key).starved);
}

#[test]
fn near_the_limit_fresh_windows_are_small_and_none_grows() {
    let mut pair = pair();
    let (_, app) = opened(&mut pair);
    pile_up(&mut pair, app, 60_000);
    pair.advance(SECOND * 2).unwrap();
    let (_, fresh) = opened(&mut pair);
    assert_eq!(pair.agent.asked(fresh).unwrap().0.credit, SMALL_WINDOW);
    for _ in 0..100 {
        pile_up(&mut pair, fresh, 1000);
        let key = pair.gateway.store.keys()[1];
        while pair.gateway.read(pair.now, key, usize::MAX).is_some() {}
        pair.settle().unwrap();
    }
    assert!(pair.agent.room(fresh) <= SMALL_WINDOW as usize);
}

/// Credit that a reader grants who takes all there is, `steps` times.
fn read_on(half: &mut RecvHalf, steps: usize) -> u64 {
    for _ in 0..steps {
        let come = usize::try_from(half.exposure()).expect("it fits");
        half.push(Bytes::from(vec![0; come]), false)
            .expect("within its credit");
        while half.take(usize::MAX).is_some() {}
        // Far beyond two round trips: nothing grows by itself.
        let later = Moment::from_micros(u64::MAX / 2);
        assert!(
            half.credit_due(later, Duration::ZERO, 1 << 20, Due::Half)
                .is_some()
        );
    }
    half.exposure()
}

#[test]
fn a_bounded_stream_is_never_granted_more_than_its_bound_and_opens_up_at_once_when_it_is_lifted() {
    const USUAL: u32 = 256 * 1024;
    let mut half = RecvHalf::new(8 * 1024, Moment::ZERO);
    half.cap(8 * 1024, USUAL);
    assert_eq!(read_on(&mut half, 3), 8 * 1024);
    half.cap(u32::MAX, USUAL);
    assert_eq!(half.exposure(), 8 * 1024, "nothing was read since");
    assert_eq!(read_on(&mut half, 1), u64::from(USUAL));
    // What was granted stays granted until it is used up.
    half.cap(16 * 1024, USUAL);
    assert_eq!(half.exposure(), u64::from(USUAL));
    assert_eq!(read_on(&mut half, 2), 16 * 1024);
}

#[test]
fn a_piece_that_is_kept_does_not_keep_the_buffer_it_was_read_into() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    let mut frame = BytesMut::new();
    let data = Frame::Data {
        stream: pair.gateway.stream_id(key).unwrap(),
        bytes: Bytes::from(vec![7; 16 * 1024]),
        fin: false,
    };
    encode(&data, &mut frame);
    let mut inbox = BytesMut::with_capacity(64 * 1024);
    inbox.extend_from_slice(&frame);
    pair.agent.handle_bytes(pair.now, &mut inbox).unwrap();
    assert_eq!(pair.agent.store.get(app).unwrap().inn.pieces(), 1);
    assert!(
        inbox.try_reclaim(64 * 1024),
        "somebody else has a part of it"
    );
}

#[test]
fn a_bound_on_what_is_kept_ends_with_what_the_app_takes_or_when_it_is_lifted() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.gateway.keep_at_most(key, Some(1000));
    let mut bytes = Bytes::from(vec![7; 4000]);
    assert_eq!(pair.gateway.write(key, &mut bytes), 1000);
    pair.settle().unwrap();
    assert_eq!(pair.gateway.write(key, &mut bytes), 0, "emitted is kept");
    assert_eq!(pair.app_takes(app).len(), 1000);
    pair.settle().unwrap();
    pair.advance(Settings::default().credit_delay).unwrap();
    pair.settle().unwrap();
    assert_eq!(pair.gateway.write(key, &mut bytes), 1000);
    pair.gateway.keep_at_most(key, None);
    assert_eq!(pair.gateway.write(key, &mut bytes), 2000);
}

#[test]
fn what_was_unread_when_a_stream_was_given_up_is_no_clean_end() {
    let mut pair = pair();
    let (stuck, app) = opened(&mut pair);
    pile_up(&mut pair, app, 120_000);
    // The app ends its direction in order; the client takes nothing.
    pair.agent.finish(app);
    pair.settle().unwrap();
    let (read, second) = opened(&mut pair);
    pile_up(&mut pair, second, 10);
    pair.agent.finish(second);
    pair.settle().unwrap();
    assert_eq!(pair.gateway.read(pair.now, read, 10).unwrap().len(), 10);
    pair.advance(SECOND * 7).unwrap();
    assert!(pair.view(stuck).starved);
    assert!(pair.gateway.read(pair.now, stuck, 10).is_none());
    assert!(!pair.gateway.is_read_to_fin(stuck), "bytes are missing");
    assert!(pair.gateway.is_read_out(stuck), "and none will come");
    pair.gateway.reset(read, ResetCode::Cancelled);
    assert!(
        pair.gateway.is_read_to_fin(read),
        "nothing of it was dropped"
    );
}
