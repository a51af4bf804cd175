//! The small parts of the core, each by itself: outbox, schedule, a stream's sending half, counts, wakes.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;

use super::emit::Outbox;
use super::flow::{Piece, SendHalf};
use super::sched::Sched;
use super::*;
use crate::testing::Pair;
use crate::wire::{AppKind, FinalCause, Frame, ReportEntry, ResetCode};

/// Two cores with three streams: two are open, the last one is only asked for.
fn three_streams() -> (Pair, [StreamKey; 3]) {
    let mut pair = Pair::new(Settings::default());
    pair.settle().unwrap();
    let keys = [true, true, false].map(|answered| {
        let key = pair.open(AppKind::Http1);
        pair.settle().unwrap();
        if answered {
            let app = pair.accepted().unwrap();
            pair.agent.opened(app);
            pair.settle().unwrap();
        }
        key
    });
    (pair, keys)
}

#[test]
fn streams_are_counted_by_how_far_they_are() {
    let (mut pair, keys) = three_streams();
    let counts = pair.gateway.stream_counts();
    assert_eq!((counts.opening, counts.open, counts.closing), (1, 2, 0));
    pair.gateway.reset(keys[0], ResetCode::Cancelled);
    let counts = pair.gateway.stream_counts();
    assert_eq!((counts.opening, counts.open, counts.closing), (1, 1, 1));
    assert_eq!(counts.total(), 3);
    let uneven = StreamCounts {
        opening: 2,
        open: 3,
        closing: 5,
    };
    assert_eq!(uneven.total(), 10);
    assert_eq!(pair.gateway.live_streams(), 3);
}

#[test]
fn a_wake_has_whom_it_was_made_of_and_nobody_else() {
    let both = Wake::READ.and(Wake::WRITE);
    assert!(both.has(Wake::READ) && both.has(Wake::WRITE) && both.has(both));
    assert!(!both.has(Wake::CONTROL) && !both.has(Wake::ALL));
    assert!(!Wake::READ.has(both), "one of two is not both");
    assert!(both.has(Wake::NONE) && !Wake::NONE.has(Wake::READ));
}

/// What stands in the segments of an outbox.
fn standing(out: &Outbox) -> usize {
    out.segments().map(Bytes::len).sum()
}

#[test]
fn an_outbox_is_as_long_as_its_segments_until_the_last_byte_is_written() {
    let (mut pair, keys) = three_streams();
    let mut out = Outbox::default();
    assert!(out.is_empty() && out.front().is_none());
    // Short pieces are copied beside their headers, long ones stand by themselves.
    for len in [100, 8000] {
        pair.begin(keys[0], None, &vec![b'x'; len]);
        pair.gateway.poll_transmit(&mut out, 1 << 20);
        assert_eq!(out.len(), standing(&out));
    }
    assert!(out.segments().count() > 2, "several segments");
    while !out.is_empty() {
        // Up to the end of a segment but one, then to the end, then beyond it.
        for step in [out.front().unwrap().len() - 1, 1, 3] {
            let step = step.min(out.len());
            let left = out.len() - step;
            out.advance(step);
            assert_eq!((out.len(), standing(&out)), (left, left));
            assert!(
                out.segments().all(|s| !s.is_empty()),
                "no empty segment stays"
            );
        }
    }
    assert!(out.front().is_none());
}

#[test]
fn a_schedule_is_empty_only_if_nothing_of_any_kind_waits() {
    let (_, keys) = three_streams();
    let entry = ReportEntry {
        tunnel: 1,
        stream: StreamId(1),
        written: 0,
        read: 0,
        cause: FinalCause::AppClosed,
    };
    type Put<'a> = Box<dyn Fn(&mut Sched) + 'a>;
    let kinds: [(&str, Put); 10] = [
        ("statement", Box::new(|s| s.state(Frame::Ping([0; 8])))),
        ("ping", Box::new(|s| s.ping([0; 8]))),
        ("pong", Box::new(|s| s.pong([0; 8]))),
        ("apps", Box::new(|s| s.apps(Frame::Ping([0; 8])))),
        ("goaway", Box::new(|s| s.goaway(Frame::Ping([0; 8])))),
        ("done", Box::new(|s| assert_eq!(s.done(StreamId(1)), 1))),
        ("report", Box::new(|s| s.report(vec![entry]))),
        ("control", Box::new(|s| s.control(keys[0]))),
        ("first bytes", Box::new(|s| s.data(keys[0], true))),
        ("bulk", Box::new(|s| s.data(keys[0], false))),
    ];
    assert!(Sched::default().is_empty());
    for (kind, put) in kinds {
        let mut sched = Sched::default();
        put(&mut sched);
        assert!(!sched.is_empty(), "{kind} waits");
        sched.hush();
        let dies = ["statement", "ping", "pong", "done"].contains(&kind);
        assert_eq!(sched.is_empty(), dies, "{kind} with its carrier");
    }
}

#[test]
fn a_queue_is_crowded_beyond_twice_the_streams_and_some() {
    let (_, keys) = three_streams();
    for streams in [0, 1, 50] {
        let bound = 2 * streams + 64;
        let mut queues = [Sched::default(), Sched::default()];
        for n in 0..=bound {
            assert!(
                !queues.iter().any(|q| q.is_crowded(streams)),
                "{n} of {bound}"
            );
            queues[0].control(keys[0]);
            queues[1].data(keys[0], n % 2 == 0);
        }
        assert!(queues.iter().all(|q| q.is_crowded(streams)));
    }
}

#[test]
fn what_the_peer_consumed_is_not_kept_to_the_byte() {
    let mut half = SendHalf::default();
    half.grant(10_000);
    half.push(Bytes::from(vec![b'x'; 6000]));
    let mut pieces = 0;
    while let Some(Piece::Data(bytes, fin)) = half.next_piece(Moment::ZERO, 3000) {
        assert!(
            !bytes.is_empty() && !fin,
            "a piece of exactly what is allowed leaves nothing behind"
        );
        pieces += 1;
    }
    assert_eq!((pieces, half.held()), (2, 6000));
    for consumed in [1, 2, 2999, 3000, 3001, 5999, 6000] {
        assert_eq!(half.consumed_to(consumed), Ok(true));
        assert_eq!(half.consumed_to(consumed), Ok(false), "said again");
        assert_eq!(half.held(), 6000 - consumed);
    }
    assert_eq!(half.consumed_to(6001), Err(()), "more than was sent");
}
