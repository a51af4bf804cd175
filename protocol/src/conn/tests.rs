//! The core's promises, one sentence a test, on two cores and a virtual clock.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::*;
use crate::testing::Pair;
use crate::wire::{AppKind, FinalCause, Frame, Open, RefusedReason, ResetCode, encode};

fn pair() -> Pair {
    let mut pair = Pair::new(Settings::default());
    pair.settle().unwrap();
    pair
}

fn opened(pair: &mut Pair) -> (StreamKey, StreamKey) {
    let key = pair.open(AppKind::Http1);
    pair.settle().unwrap();
    let app = pair.accepted().unwrap();
    pair.agent.opened(app);
    pair.settle().unwrap();
    (key, app)
}

fn app_says(pair: &mut Pair, app: StreamKey, text: &'static [u8]) {
    let mut bytes = Bytes::from_static(text);
    assert_eq!(pair.agent.write(app, &mut bytes), text.len());
}

fn feed_gateway(pair: &mut Pair, frame: &Frame) -> Result<(), ConnError> {
    let mut bytes = BytesMut::new();
    encode(frame, &mut bytes);
    pair.gateway.handle_bytes(pair.now, &mut bytes)
}

#[test]
fn bytes_cross_in_order_and_are_counted_at_the_app() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    assert_eq!(pair.begin(key, Some(0), b"GET / HTTP/1.1\r\n\r\n"), 0);
    pair.settle().unwrap();
    assert_eq!(pair.app_takes(app), b"GET / HTTP/1.1\r\n\r\n");
    app_says(&mut pair, app, b"HTTP/1.1 204 No Content\r\n\r\n");
    pair.settle().unwrap();
    assert_eq!(pair.gateway.read(pair.now, key, 4).unwrap(), "HTTP");
    assert_eq!(pair.gateway.read(pair.now, key, 1000).unwrap().len(), 23);
    pair.advance(Duration::from_millis(25)).unwrap();
    assert_eq!(
        pair.view(key).consumed,
        18,
        "consumption is told soon after it happened"
    );
}

#[test]
fn a_stream_given_up_before_its_open_was_emitted_leaves_no_trace() {
    let mut pair = pair();
    let key = pair.open(AppKind::Http1);
    pair.begin(key, Some(0), b"POST");
    assert_eq!(pair.cancel(key), 0);
    assert_eq!(pair.view(key).ended, Some(Ended::NotOpened));
    assert_eq!(pair.emit_gateway(), 0);
}

#[test]
fn giving_up_forgets_what_was_not_emitted_in_the_same_step() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, Some(0), b"POST / HTTP/1.1\r\n\r\n");
    assert_eq!(
        pair.gateway.fence(key, true),
        0,
        "nothing of it had been given to the carrier"
    );
    pair.settle().unwrap();
    assert_eq!(pair.app_takes(app), b"");
    assert_eq!(
        pair.view(key).counted,
        Some(Counted {
            written: 0,
            read: 0
        })
    );
}

#[test]
fn a_fence_stops_the_app_from_seeing_more_and_is_answered_with_counts() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, Some(0), b"abcdef");
    pair.settle().unwrap();
    assert!(matches!(pair.agent.front(app), Front::Begin { .. }));
    pair.agent.begun(app);
    pair.agent.app_took(pair.now, app, 2);
    assert_eq!(pair.gateway.fence(key, true), 6);
    pair.settle().unwrap();
    assert_eq!(
        pair.view(key).counted,
        Some(Counted {
            written: 2,
            read: 0
        })
    );
    assert_eq!(
        pair.agent.front(app),
        Front::Fenced { linger: false },
        "not all of it was written"
    );
    pair.agent.conclude(app, FinalCause::Fenced);
    pair.settle().unwrap();
    assert_eq!(
        pair.view(key).ended,
        Some(Ended::Final {
            written: 2,
            read: 0,
            cause: FinalCause::Fenced
        })
    );
}

#[test]
fn a_fenced_exchange_that_was_written_whole_lingers_for_its_late_answer() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, Some(0), b"abc");
    pair.settle().unwrap();
    pair.app_takes(app);
    pair.gateway.fence(key, true);
    pair.settle().unwrap();
    assert_eq!(pair.agent.front(app), Front::Fenced { linger: true });
    app_says(&mut pair, app, b"late");
    pair.settle().unwrap();
    assert_eq!(pair.gateway.read(pair.now, key, 100).unwrap(), "late");
}

#[test]
fn the_end_of_a_stream_comes_behind_an_exchange_that_begins_there() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, Some(0), b"fir");
    pair.settle().unwrap();
    assert_eq!(pair.app_takes(app), b"fir");
    pair.gateway.write(key, &mut Bytes::from_static(b"st"));
    pair.begin(key, Some(0), b"");
    pair.gateway.finish(key);
    pair.settle().unwrap();
    let Front::Bytes(bytes) = pair.agent.front(app) else {
        panic!("{:?}", pair.agent.front(app));
    };
    assert_eq!(bytes, "st");
    pair.agent.app_took(pair.now, app, 2);
    assert!(matches!(pair.agent.front(app), Front::Begin { .. }));
    pair.agent.begun(app);
    assert_eq!(pair.agent.front(app), Front::Fin);
}

#[test]
fn a_reset_reaches_the_app_side_and_its_final_overtakes_data() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, Some(0), b"abc");
    pair.settle().unwrap();
    pair.app_takes(app);
    app_says(&mut pair, app, b"half an answer");
    pair.cancel(key);
    pair.emit_gateway();
    pair.deliver_to_agent(usize::MAX).unwrap();
    assert_eq!(pair.agent.front(app), Front::Closed { idle: false });
    pair.agent.conclude(app, FinalCause::AppClosed);
    pair.settle().unwrap();
    let Some(Ended::Final {
        written: 3,
        cause: FinalCause::Reset,
        ..
    }) = pair.view(key).ended
    else {
        panic!("{:?}", pair.view(key));
    };
}

#[test]
fn a_final_waits_for_everything_read_from_the_app() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    app_says(&mut pair, app, b"goodbye");
    pair.agent.conclude(app, FinalCause::AppClosed);
    pair.settle().unwrap();
    assert_eq!(
        pair.view(key).ended,
        Some(Ended::Final {
            written: 0,
            read: 7,
            cause: FinalCause::AppClosed
        })
    );
    assert_eq!(
        pair.gateway.read(pair.now, key, 100).unwrap(),
        "goodbye",
        "what came before the end can be read"
    );
    assert!(pair.gateway.is_read_out(key));
}

#[test]
fn a_refused_stream_is_ended_without_a_byte() {
    let mut pair = pair();
    let key = pair.open(AppKind::Http1);
    pair.begin(key, Some(0), b"GET");
    pair.settle().unwrap();
    let app = pair.accepted().unwrap();
    pair.agent.refuse(app, RefusedReason::ConnectRefused, 111);
    // Whoever refused lets go at once; that must not overwrite the reason before it is sent.
    pair.agent.let_go(app);
    pair.settle().unwrap();
    assert_eq!(
        pair.view(key).ended,
        Some(Ended::Refused {
            reason: RefusedReason::ConnectRefused,
            errno: 111
        })
    );
    assert!(pair.gateway_woke(key, Wake::ALL));
}

#[test]
fn a_writer_without_credit_waits_until_the_app_takes() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    let window = Settings::default().initial_window as usize;
    let mut sent = 0;
    while sent < window {
        let mut chunk = Bytes::from(vec![b'x'; 16 * 1024]);
        sent += pair.gateway.write(key, &mut chunk);
        pair.settle().unwrap();
    }
    assert_eq!((sent, pair.gateway.room(key)), (window, 0));
    assert_eq!(pair.app_takes(app).len(), window);
    pair.settle().unwrap();
    assert!(pair.gateway.room(key) > 0);
}

#[test]
fn data_beyond_credit_ends_the_tunnel_and_every_stream_with_it() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    let bytes = Bytes::from(vec![0; 60_000]);
    let flood = Frame::Data {
        stream: StreamId(1),
        bytes,
        fin: false,
    };
    let breach = (0..5).find_map(|_| feed_gateway(&mut pair, &flood).err());
    assert_eq!(breach, Some(ConnError::Breach("data beyond credit")));
    assert_eq!(pair.view(key).ended, Some(Ended::Lost));
}

#[test]
fn an_agent_that_counts_more_than_was_sent_is_cut_off() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    pair.begin(key, Some(0), b"abc");
    pair.settle().unwrap();
    let lie = Frame::Final {
        stream: StreamId(1),
        written: 4,
        read: 0,
        cause: FinalCause::AppClosed,
    };
    assert!(matches!(
        feed_gateway(&mut pair, &lie),
        Err(ConnError::Breach(_))
    ));
}

#[test]
fn an_agent_that_takes_back_what_it_counted_is_cut_off() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, Some(0), b"abc");
    pair.settle().unwrap();
    pair.app_takes(app);
    pair.advance(Duration::from_secs(1)).unwrap();
    assert_eq!(pair.view(key).consumed, 3);
    let lie = Frame::Final {
        stream: StreamId(1),
        written: 0,
        read: 0,
        cause: FinalCause::Stale,
    };
    assert!(matches!(
        feed_gateway(&mut pair, &lie),
        Err(ConnError::Breach(_))
    ));
}

#[test]
fn a_going_agent_ends_streams_it_never_accepted() {
    let mut pair = pair();
    let (old, _) = opened(&mut pair);
    pair.agent
        .drain(GoAwayReason::Draining, Duration::from_secs(30));
    let late = pair.open(AppKind::Http1);
    pair.begin(late, Some(0), b"POST");
    pair.emit_gateway();
    pair.settle().unwrap();
    assert_eq!(pair.view(late).ended, Some(Ended::GoAway));
    assert_eq!(pair.view(old).ended, None, "what runs goes on");
    assert!(pair.view(old).closing);
    assert!(matches!(
        pair.gateway.open(pair.now, pair_open()),
        Err(OpenError::GoingAway)
    ));
}

fn pair_open() -> Open {
    Open {
        app: "demo".into(),
        kind: AppKind::Tcp,
        remaining: Duration::from_secs(1),
        credit: 0,
        client: None,
    }
}

#[test]
fn a_lost_tunnel_tells_apart_what_was_never_opened() {
    let mut pair = pair();
    let (old, _) = opened(&mut pair);
    let fresh = pair.open(AppKind::Http1);
    pair.cut();
    assert_eq!(pair.view(old).ended, Some(Ended::Lost));
    assert_eq!(pair.view(fresh).ended, Some(Ended::NotOpened));
}

#[test]
fn a_half_closed_tcp_stream_still_answers() {
    let mut pair = pair();
    let key = pair.open(AppKind::Tcp);
    pair.settle().unwrap();
    let app = pair.accepted().unwrap();
    pair.agent.opened(app);
    pair.settle().unwrap();
    let mut bytes = Bytes::from_static(b"ask");
    pair.gateway.write(key, &mut bytes);
    pair.gateway.finish(key);
    pair.settle().unwrap();
    assert_eq!(pair.app_takes(app), b"ask");
    assert_eq!(pair.agent.front(app), Front::Fin);
    app_says(&mut pair, app, b"answer");
    pair.agent.finish(app);
    pair.settle().unwrap();
    assert_eq!(pair.gateway.read(pair.now, key, 100).unwrap(), "answer");
    assert!(pair.gateway.is_read_to_fin(key));
}

#[test]
fn a_small_exchange_goes_before_a_bulk_stream() {
    let mut pair = pair();
    let (bulk, _) = opened(&mut pair);
    for _ in 0..4 {
        let mut chunk = Bytes::from(vec![b'x'; 16 * 1024]);
        pair.gateway.write(bulk, &mut chunk);
    }
    let mut out = Outbox::default();
    pair.gateway.poll_transmit(&mut out, 1024);
    let small = pair.open(AppKind::Http1);
    pair.begin(small, Some(0), b"GET /small");
    let mut out = Outbox::default();
    pair.gateway.poll_transmit(&mut out, 200_000);
    let bytes: Vec<u8> = out.segments().flat_map(|s| s.to_vec()).collect();
    let at = bytes.windows(10).position(|w| w == b"GET /small").unwrap();
    assert!(at < 1024, "the small request stands at {at}");
}

#[test]
fn keys_of_ended_streams_find_nothing_later() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.gateway.release(key);
    pair.settle().unwrap();
    pair.agent.conclude(app, FinalCause::AppClosed);
    pair.agent.let_go(app);
    pair.settle().unwrap();
    assert_eq!(pair.gateway.view(key), None);
    let next = pair.open(AppKind::Http1);
    assert_eq!(next.index(), key.index(), "the slot is used again");
    assert_eq!(pair.gateway.view(key), None);
    assert_eq!(
        (pair.gateway.live_streams(), pair.agent.live_streams()),
        (1, 0)
    );
}

#[test]
fn a_silent_peer_is_given_up_after_the_dead_time() {
    let mut pair = pair();
    let mut dead = None;
    while dead.is_none() {
        pair.now = pair.gateway.poll_timeout();
        dead = pair.gateway.handle_timeout(pair.now).err();
    }
    assert_eq!(dead, Some(ConnError::Dead));
    assert_eq!(pair.now, Moment::ZERO + Duration::from_secs(6));
}

#[test]
fn a_flood_of_pings_is_answered_once_a_turn() {
    let mut pair = pair();
    let mut bytes = BytesMut::new();
    for n in 0..10_000_u64 {
        encode(&Frame::Ping(n.to_be_bytes()), &mut bytes);
    }
    pair.gateway.handle_bytes(pair.now, &mut bytes).unwrap();
    assert_eq!(pair.emit_gateway(), 9 + 8);
}

#[test]
fn frames_cut_anywhere_give_the_same_stream() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, Some(0), b"cut me anywhere");
    pair.emit_gateway();
    for _ in 0..200 {
        pair.deliver_to_agent(1).unwrap();
    }
    assert_eq!(pair.app_takes(app), b"cut me anywhere");
}

#[test]
fn a_reset_for_a_stream_never_seen_is_answered_with_nothing_written() {
    let mut pair = pair();
    let mut bytes = BytesMut::new();
    encode(
        &Frame::Reset {
            stream: StreamId(9),
            code: ResetCode::Cancelled,
        },
        &mut bytes,
    );
    pair.agent.handle_bytes(pair.now, &mut bytes).unwrap();
    encode(&Frame::Open(StreamId(9), pair_open()), &mut bytes);
    pair.agent.handle_bytes(pair.now, &mut bytes).unwrap();
    assert_eq!(pair.accepted(), None, "the id counts as seen");
    assert!(pair.emit_agent() > 0, "its terminal goes out");
}

#[test]
fn consumption_is_told_before_the_first_byte_of_an_answer() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, Some(0), b"GET");
    pair.settle().unwrap();
    pair.app_takes(app);
    app_says(&mut pair, app, b"HTTP/1.1 200 OK");
    pair.emit_agent();
    while pair.view(key).received == 0 {
        pair.deliver_to_gateway(1).unwrap();
    }
    assert_eq!(pair.view(key).consumed, 3);
}

#[test]
fn an_agent_cannot_disown_a_stream_that_it_opened() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    let goaway = Frame::GoAway {
        last: crate::wire::StreamId(0),
        reason: crate::wire::GoAwayReason::Draining,
        deadline: Duration::ZERO,
    };
    let told = feed_gateway(&mut pair, &goaway);
    assert!(matches!(told, Err(ConnError::Breach(_))), "{told:?}");
    assert_eq!(pair.view(key).ended, Some(Ended::Lost));
}

#[test]
fn a_stream_that_was_refused_was_never_opened() {
    let mut pair = pair();
    let key = pair.open(AppKind::Http1);
    pair.settle().unwrap();
    let app = pair.accepted().unwrap();
    pair.agent.refuse(app, RefusedReason::ConnectRefused, 111);
    pair.settle().unwrap();
    assert!(!pair.view(key).opened);
}

/// Bytes a fast app takes in one round trip of `rtt` after the window has grown as far as it does.
fn grown_window(rtt: Duration) -> usize {
    let mut pair = Pair::new(Settings::default());
    // The first probe's echo measures the path.
    pair.emit_gateway();
    pair.emit_agent();
    pair.now += rtt;
    pair.deliver_to_agent(usize::MAX).unwrap();
    pair.deliver_to_gateway(usize::MAX).unwrap();
    pair.settle().unwrap();
    let (key, app) = opened(&mut pair);
    let mut most = 0;
    for _ in 0..64 {
        let mut sent = 0;
        while pair.gateway.room(key) > 0 {
            sent += pair
                .gateway
                .write(key, &mut Bytes::from(vec![b'x'; 16 * 1024]));
            pair.emit_gateway();
            pair.deliver_to_agent(usize::MAX).unwrap();
        }
        most = most.max(sent);
        pair.now += rtt / 2;
        pair.app_takes(app);
        pair.emit_agent();
        pair.deliver_to_gateway(usize::MAX).unwrap();
        pair.now += rtt / 2;
    }
    most
}

#[test]
fn a_window_grows_on_a_long_path_and_stays_modest_on_a_short_one() {
    let short = grown_window(Duration::from_millis(5));
    let long = grown_window(Duration::from_millis(100));
    assert!((512 * 1024..=1024 * 1024).contains(&short), "{short}");
    assert!(long >= 4 * 1024 * 1024, "{long}");
}
