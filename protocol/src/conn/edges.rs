//! Edges of the core where a wrong word, a lost wake or a growing queue could hide, one sentence a test.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::*;
use crate::testing::Pair;
use crate::wire::{
    AppKind, Begin, FinalCause, Frame, Limits, Open, RefusedReason, ResetCode, decode, encode,
};

fn pair() -> Pair {
    let mut pair = Pair::new(Settings::default());
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

fn open() -> Open {
    Open {
        app: "demo".into(),
        kind: AppKind::Tcp,
        remaining: Duration::from_secs(1),
        credit: 1000,
        client: None,
    }
}

fn begin() -> Begin {
    Begin {
        request: 1,
        remaining: Duration::from_secs(1),
        expect_read: None,
    }
}

fn feed(conn: &mut Conn, frames: &[Frame]) -> Result<(), ConnError> {
    let mut bytes = BytesMut::new();
    frames.iter().for_each(|frame| encode(frame, &mut bytes));
    conn.handle_bytes(Moment::ZERO, &mut bytes)
}

/// Frames in what a side has sent since `from`.
fn frames(sent: &BytesMut, from: usize) -> Vec<Frame> {
    let mut bytes = BytesMut::from(&sent[from..]);
    std::iter::from_fn(|| decode(&mut bytes, &Limits::default()).unwrap()).collect()
}

fn woke(conn: &mut Conn, key: StreamKey, wake: Wake) -> bool {
    std::iter::from_fn(|| conn.poll_event())
        .any(|e| matches!(e, Event::Stream(k, w) if k == key && w.has(wake)))
}

fn quiet(conn: &mut Conn) {
    std::iter::from_fn(|| conn.poll_event()).for_each(drop);
}

// ---- words that must stay true -------------------------------------------------------------

#[test]
fn of_a_stream_that_is_gone_nothing_may_be_concluded() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, None, b"POST");
    pair.settle().unwrap();
    pair.app_takes(app);
    pair.gateway.release(key);
    pair.settle().unwrap();
    pair.agent.conclude(app, FinalCause::Reset);
    pair.settle().unwrap();
    assert_eq!(pair.gateway.view(key), None);
    assert_eq!(pair.gateway.reset(key, ResetCode::Cancelled), u64::MAX);
    assert_eq!(pair.gateway.fence(key, true), u64::MAX);
}

#[test]
fn after_giving_up_not_even_an_end_goes_out() {
    for give_up in [0, 1] {
        let mut pair = pair();
        let (key, _) = opened(&mut pair);
        let mut bytes = Bytes::from_static(b"the last words");
        pair.gateway.write(key, &mut bytes);
        pair.gateway.finish(key);
        let from = pair.gateway_sent.len();
        if give_up == 0 {
            pair.gateway.fence(key, true);
        } else {
            pair.gateway.reset(key, ResetCode::Cancelled);
        }
        pair.settle().unwrap();
        pair.advance(Duration::from_secs(1)).unwrap();
        let sent = frames(&pair.gateway_sent, from);
        assert_eq!(sent.len(), 1, "{sent:?}");
        assert!(matches!(sent[0], Frame::Fence { .. } | Frame::Reset { .. }));
    }
}

#[test]
fn an_agent_cannot_go_away_from_a_stream_that_it_accepted() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    let away = Frame::GoAway {
        last: StreamId(0),
        reason: GoAwayReason::Draining,
        deadline: Duration::ZERO,
    };
    assert!(matches!(
        feed(&mut pair.gateway, &[away]),
        Err(ConnError::Breach(_))
    ));
    assert_eq!(pair.view(key).ended, Some(Ended::Lost), "unknown, not a no");
}

#[test]
fn an_agent_that_consumes_more_than_it_counted_is_cut_off() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    pair.begin(key, None, b"POST");
    pair.settle().unwrap();
    pair.gateway.fence(key, false);
    pair.settle().unwrap();
    assert_eq!(pair.view(key).counted.map(|c| c.written), Some(0));
    let later = Frame::Credit {
        stream: StreamId(1),
        limit: 0,
        consumed: 1,
    };
    assert!(matches!(
        feed(&mut pair.gateway, &[later]),
        Err(ConnError::Breach(_))
    ));
}

#[test]
fn streams_refused_while_draining_are_not_counted_as_accepted_by_a_later_goaway() {
    let mut pair = pair();
    let (_, _) = opened(&mut pair);
    pair.agent
        .drain(GoAwayReason::Draining, Duration::from_secs(1));
    let late = pair.open(AppKind::Tcp);
    pair.begin(late, None, b"POST");
    pair.emit_gateway();
    pair.deliver_to_agent(usize::MAX).unwrap();
    // Nothing of the agent's went out yet; then it fails.
    let breach = Frame::Opened {
        stream: StreamId(1),
        credit: 0,
    };
    feed(&mut pair.agent, &[breach]).unwrap_err();
    pair.emit_agent();
    pair.deliver_to_gateway(usize::MAX).unwrap();
    assert_eq!(pair.view(late).ended, Some(Ended::GoAway));
}

#[test]
fn a_stream_that_stands_cannot_be_refused_any_more() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, None, b"POST");
    pair.settle().unwrap();
    pair.agent.begun(app);
    pair.agent.app_took(pair.now, app, 1);
    pair.agent.refuse(app, RefusedReason::Limit, 0);
    pair.settle().unwrap();
    assert_eq!(pair.view(key).ended, None);
    // And an agent that says so all the same is not believed.
    let late = Frame::Refused {
        stream: StreamId(1),
        reason: RefusedReason::Limit,
        errno: 0,
    };
    feed(&mut pair.gateway, &[late]).unwrap_err();
    assert_eq!(pair.view(key).ended, Some(Ended::Lost));
}

#[test]
fn a_refused_stream_cannot_be_opened_any_more() {
    let mut pair = pair();
    let key = pair.open(AppKind::Tcp);
    pair.begin(key, None, b"POST");
    pair.settle().unwrap();
    let app = pair.accepted().unwrap();
    pair.agent.refuse(app, RefusedReason::ConnectRefused, 111);
    pair.agent.opened(app);
    pair.settle().unwrap();
    let ended = pair.view(key).ended;
    assert!(matches!(ended, Some(Ended::Refused { .. })), "{ended:?}");
}

#[test]
fn a_fence_that_meets_a_refusal_ends_with_the_refusal() {
    let mut pair = pair();
    let key = pair.open(AppKind::Tcp);
    pair.begin(key, None, b"POST");
    pair.settle().unwrap();
    let app = pair.accepted().unwrap();
    pair.agent.refuse(app, RefusedReason::ConnectRefused, 111);
    pair.gateway.fence(key, true);
    pair.emit_gateway();
    pair.deliver_to_agent(usize::MAX).unwrap();
    pair.agent.let_go(app);
    pair.settle().unwrap();
    let ended = pair.view(key).ended;
    assert!(matches!(ended, Some(Ended::Refused { .. })), "{ended:?}");
}

#[test]
fn a_stream_opened_after_its_fence_writes_nothing() {
    let mut pair = pair();
    let key = pair.open(AppKind::Tcp);
    pair.begin(key, None, b"POST");
    pair.settle().unwrap();
    let app = pair.accepted().unwrap();
    pair.gateway.fence(key, true);
    pair.emit_gateway();
    pair.deliver_to_agent(usize::MAX).unwrap();
    pair.agent.opened(app);
    assert_eq!(pair.agent.front(app), Front::Fenced { linger: false });
    pair.agent.conclude(app, FinalCause::Fenced);
    pair.settle().unwrap();
    let ended = pair.view(key).ended;
    assert!(
        matches!(ended, Some(Ended::Final { written: 0, .. })),
        "{ended:?}"
    );
}

#[test]
fn a_stream_that_was_refused_behind_its_fence_says_nothing_more() {
    let mut pair = pair();
    let key = pair.open(AppKind::Tcp);
    pair.settle().unwrap();
    let app = pair.accepted().unwrap();
    pair.gateway.fence(key, false);
    pair.emit_gateway();
    pair.deliver_to_agent(usize::MAX).unwrap();
    pair.agent.refuse(app, RefusedReason::ConnectTimeout, 1);
    pair.agent.opened(app);
    let mut greeting = Bytes::from_static(b"220 hello");
    assert_eq!(pair.agent.write(app, &mut greeting), 0);
    pair.agent.finish(app);
    pair.settle().expect("nobody broke the protocol");
    let ended = pair.view(key).ended;
    assert!(matches!(ended, Some(Ended::Final { .. })), "{ended:?}");
}

#[test]
fn a_reset_behind_a_fence_keeps_the_count() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, None, b"POST");
    pair.settle().unwrap();
    pair.agent.begun(app);
    pair.agent.app_took(pair.now, app, 3);
    pair.gateway.fence(key, true);
    pair.emit_gateway();
    pair.gateway.reset(key, ResetCode::Cancelled);
    pair.settle().unwrap();
    assert_eq!(pair.agent.front(app), Front::Closed { idle: false });
    pair.agent.conclude(app, FinalCause::Reset);
    pair.settle().unwrap();
    let ended = pair.view(key).ended;
    assert!(
        matches!(ended, Some(Ended::Final { written: 3, .. })),
        "{ended:?}"
    );
}

// ---- wakes ---------------------------------------------------------------------------------

#[test]
fn giving_up_wakes_the_writer_and_the_reader_of_the_same_side() {
    for give_up in [0, 1] {
        let mut pair = pair();
        let (key, _) = opened(&mut pair);
        quiet(&mut pair.gateway);
        if give_up == 0 {
            pair.gateway.fence(key, false);
        } else {
            pair.gateway.reset(key, ResetCode::Cancelled);
        }
        assert!(woke(&mut pair.gateway, key, Wake::ALL));
    }
}

#[test]
fn whoever_waits_for_a_released_stream_is_woken_when_it_is_gone() {
    let mut pair = pair();
    let queued = pair.open(AppKind::Tcp);
    quiet(&mut pair.gateway);
    pair.gateway.release(queued);
    assert!(woke(&mut pair.gateway, queued, Wake::ALL));

    let (key, app) = opened(&mut pair);
    pair.gateway.release(key);
    quiet(&mut pair.gateway);
    pair.emit_gateway();
    pair.deliver_to_agent(usize::MAX).unwrap();
    pair.agent.conclude(app, FinalCause::Reset);
    pair.emit_agent();
    let seen = pair.gateway_events.len();
    pair.deliver_to_gateway(usize::MAX).unwrap();
    let woken = Event::Stream(key, Wake::ALL);
    assert!(pair.gateway_events[seen..].contains(&woken));
}

#[test]
fn the_emission_of_queued_bytes_wakes_the_writer() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    while pair.gateway.room(key) > 0 {
        pair.gateway.write(key, &mut Bytes::from(vec![7; 9000]));
    }
    quiet(&mut pair.gateway);
    pair.emit_gateway();
    assert!(pair.gateway.room(key) > 0);
    assert!(woke(&mut pair.gateway, key, Wake::WRITE));
}

#[test]
fn the_emission_of_an_end_wakes_who_waits_for_it() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    pair.gateway.finish(key);
    quiet(&mut pair.gateway);
    pair.emit_gateway();
    assert!(woke(&mut pair.gateway, key, Wake::WRITE));
    assert!(pair.gateway.is_flushed(key));
}

#[test]
fn what_was_written_is_flushed_when_the_app_took_it_and_not_before() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    let mut bytes = Bytes::from_static(b"bytes");
    pair.gateway.write(key, &mut bytes);
    pair.gateway.finish(key);
    pair.settle().unwrap();
    assert!(!pair.gateway.is_flushed(key));
    pair.app_takes(app);
    pair.advance(Duration::from_millis(25)).unwrap();
    assert!(pair.gateway.is_flushed(key));
    pair.agent.finish(app);
    pair.settle().unwrap();
    assert!(
        !pair.gateway.is_flushed(key),
        "its terminal is about to come"
    );
    pair.agent.conclude(app, FinalCause::AppClosed);
    pair.settle().unwrap();
    assert!(pair.gateway.is_flushed(key));
}

// ---- bounds --------------------------------------------------------------------------------

#[test]
fn streams_opened_and_given_up_while_the_carrier_takes_nothing_leave_nothing_behind() {
    let mut pair = pair();
    for _ in 0..10_000 {
        let key = pair.open(AppKind::Tcp);
        pair.begin(key, None, b"POST");
        pair.gateway.release(key);
        quiet(&mut pair.gateway);
    }
    assert_eq!(pair.gateway.store.len(), 0);
    assert!(pair.gateway.sched.standing() < 500);
    assert_eq!(pair.emit_gateway(), 0);
}

#[test]
fn a_gateway_that_opens_far_beyond_the_limit_and_reads_nothing_is_cut_off() {
    let settings = Settings {
        max_streams: 10,
        ..Settings::default()
    };
    let mut pair = Pair::new(settings);
    let flood: Vec<Frame> = (0..5000)
        .map(|n| Frame::Open(StreamId(2 * n + 1), open()))
        .collect();
    let breach = feed(&mut pair.agent, &flood);
    assert!(matches!(breach, Err(ConnError::Breach(_))), "{breach:?}");
    assert!(pair.agent.store.len() < 1100);
}

#[test]
fn streams_over_the_limit_are_refused_while_their_refusals_are_read() {
    let settings = Settings {
        max_streams: 10,
        ..Settings::default()
    };
    let mut pair = Pair::new(settings);
    for n in 0..5000 {
        let id = StreamId(2 * n + 1);
        feed(&mut pair.agent, &[Frame::Open(id, open())]).unwrap();
        pair.emit_agent();
        if n >= 10 {
            feed(&mut pair.agent, &[Frame::Done(vec![id])]).unwrap();
        }
    }
    let refused = frames(&pair.agent_sent, 0)
        .iter()
        .filter(|f| {
            matches!(
                f,
                Frame::Refused {
                    reason: RefusedReason::Limit,
                    ..
                }
            )
        })
        .count();
    assert_eq!(refused, 4990);
    assert_eq!(pair.agent.store.len(), 10);
}

#[test]
fn a_flood_of_opens_and_resets_is_bounded_by_the_stream_limit() {
    let settings = Settings {
        max_streams: 100,
        ..Settings::default()
    };
    let mut pair = Pair::new(settings);
    let mut result = Ok(());
    for n in 0..100_000 {
        let (stream, code) = (StreamId(2 * n + 1), ResetCode::Cancelled);
        let frames = [Frame::Open(stream, open()), Frame::Reset { stream, code }];
        result = feed(&mut pair.agent, &frames);
        if result.is_err() {
            break;
        }
    }
    assert!(matches!(result, Err(ConnError::Breach(_))));
    assert!(pair.agent.store.len() < 1200);
    assert!(pair.agent.sched.standing() < 2500);
}

#[test]
fn a_second_exchange_before_the_first_has_begun_is_a_breach() {
    let mut pair = pair();
    let (_, app) = opened(&mut pair);
    let mark = Frame::Begin(StreamId(1), begin());
    let byte = Frame::Data {
        stream: StreamId(1),
        bytes: Bytes::from_static(b"x"),
        fin: false,
    };
    feed(&mut pair.agent, &[mark.clone(), byte.clone()]).unwrap();
    pair.app_takes(app);
    feed(&mut pair.agent, &[mark.clone(), byte]).unwrap();
    let breach = feed(&mut pair.agent, &[mark]);
    assert!(matches!(breach, Err(ConnError::Breach(_))));
}

#[test]
fn single_bytes_are_gathered_on_both_ends() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    for n in 0..20_000_u32 {
        let mut byte = Bytes::from(vec![(n % 251) as u8]);
        assert_eq!(pair.gateway.write(key, &mut byte), 1);
        pair.emit_gateway();
        pair.deliver_to_agent(usize::MAX).unwrap();
    }
    let kept = pair.gateway.store.get(key).unwrap().out.pieces();
    let held = pair.agent.store.get(app).unwrap().inn.pieces();
    assert!(kept < 20 && held < 20, "{kept} kept, {held} held");
    let took = pair.app_takes(app);
    assert!(took.iter().enumerate().all(|(n, b)| *b as usize == n % 251));
    assert_eq!(took.len(), 20_000);
}

#[test]
fn repeated_goaways_cost_no_walk_over_the_streams() {
    let mut pair = pair();
    let (key, _) = opened(&mut pair);
    let away = Frame::GoAway {
        last: StreamId(1),
        reason: GoAwayReason::Draining,
        deadline: Duration::ZERO,
    };
    feed(&mut pair.gateway, std::slice::from_ref(&away)).unwrap();
    quiet(&mut pair.gateway);
    feed(&mut pair.gateway, &[away]).unwrap();
    assert!(!woke(&mut pair.gateway, key, Wake::NONE));
}

#[test]
fn bytes_that_cannot_be_given_back_are_taken_whole() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    let much = Bytes::from(vec![7; 200_000]);
    assert!(pair.agent.room(app) < much.len());
    pair.agent.write_all(app, much.clone());
    pair.settle().unwrap();
    let mut read = 0;
    while let Some(bytes) = pair.gateway.read(pair.now, key, usize::MAX) {
        read += bytes.len();
    }
    assert_eq!(read, much.len());
}

// ---- a side that slept ---------------------------------------------------------------------

/// The agent's loop did not turn for `span`; the gateway's did.
fn sleep(pair: &mut Pair, span: Duration) {
    pair.now += span;
    pair.gateway.handle_timeout(pair.now).unwrap();
    pair.emit_gateway();
}

#[test]
fn an_agent_that_slept_begins_nothing_before_its_gateway_was_heard_again() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, None, b"POST");
    sleep(&mut pair, Duration::from_secs(3));
    pair.deliver_to_agent(usize::MAX).unwrap();
    assert_eq!(pair.agent.front(app), Front::Empty);
    pair.emit_agent();
    pair.deliver_to_gateway(usize::MAX).unwrap();
    let seen = pair.agent_events.len();
    pair.emit_gateway();
    pair.deliver_to_agent(usize::MAX).unwrap();
    let woken = pair.agent_events[seen..]
        .iter()
        .any(|e| matches!(e, Event::Stream(k, w) if *k == app && w.has(Wake::READ)));
    assert!(woken);
    assert_eq!(pair.app_takes(app), b"POST");
}

#[test]
fn a_copier_that_runs_first_after_a_sleep_begins_nothing() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, None, b"POST");
    pair.settle().unwrap();
    sleep(&mut pair, Duration::from_secs(3));
    pair.agent.look_at_clock(pair.now);
    assert_eq!(pair.agent.front(app), Front::Empty);
}

#[test]
fn what_was_given_up_while_the_agent_slept_is_never_begun() {
    let mut pair = pair();
    let (fenced, app) = opened(&mut pair);
    pair.begin(fenced, None, b"POST");
    sleep(&mut pair, Duration::from_secs(3));
    // All of it lay in the agent's socket; the copier looks between the two reads.
    pair.deliver_to_agent(usize::MAX).unwrap();
    assert_eq!(pair.app_takes(app), b"");
    pair.gateway.fence(fenced, true);
    pair.settle().unwrap();
    assert_eq!(pair.view(fenced).counted.map(|c| c.written), Some(0));
    assert_eq!(pair.app_takes(app), b"");
}

#[test]
fn bytes_of_an_exchange_that_had_begun_go_on_after_a_sleep() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.begin(key, None, b"POST");
    pair.settle().unwrap();
    pair.app_takes(app);
    let mut more = Bytes::from_static(b" body");
    pair.gateway.write(key, &mut more);
    sleep(&mut pair, Duration::from_secs(3));
    pair.deliver_to_agent(usize::MAX).unwrap();
    assert_eq!(pair.app_takes(app), b" body");
}

#[test]
fn an_answer_to_a_probe_sent_before_the_sleep_does_not_end_the_hold() {
    let mut pair = Pair::new(Settings::default());
    // The agent's first probe is answered while it sleeps.
    pair.settle().unwrap();
    let (key, app) = opened(&mut pair);
    pair.now += Duration::from_secs(2);
    pair.agent.handle_timeout(pair.now).unwrap();
    pair.emit_agent();
    pair.deliver_to_gateway(usize::MAX).unwrap();
    pair.begin(key, None, b"POST");
    sleep(&mut pair, Duration::from_secs(3));
    pair.deliver_to_agent(usize::MAX).unwrap();
    assert_eq!(pair.agent.front(app), Front::Empty);
}
