//! What no honest peer says around a resume: each ends the tunnel, none the process.

#![allow(clippy::unwrap_used)]

use bytes::BytesMut;

use super::tests::{opened, pair, write};
use super::*;
use crate::conn::*;
use crate::testing::Pair;
use crate::wire::{AppKind, FinalCause, Frame, ReportEntry, encode};

fn feed(conn: &mut Conn, frames: &[Frame]) -> Result<(), ConnError> {
    let mut bytes = BytesMut::new();
    frames.iter().for_each(|frame| encode(frame, &mut bytes));
    conn.handle_bytes(Moment::ZERO, &mut bytes)
}

fn part(highest_open: u32, streams: &[(u32, u64)], more: bool) -> Frame {
    Frame::Resume(Resume {
        highest_open,
        streams: streams
            .iter()
            .map(|(id, at)| (StreamId(*id), *at))
            .collect(),
        more,
    })
}

fn statement(highest_open: u32, streams: &[(u32, u64)]) -> Frame {
    part(highest_open, streams, false)
}

/// Two streams that stand; the first has 8 bytes sent of which the app took 3.
fn world() -> Pair {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    opened(&mut pair);
    write(&mut pair, key, b"question");
    pair.settle().unwrap();
    pair.agent.app_took(pair.now, app, 3);
    pair.advance(std::time::Duration::from_millis(50)).unwrap();
    pair.redial();
    pair
}

fn breach(side: Side, frames: &[Frame]) -> &'static str {
    let mut pair = world();
    let core = match side {
        Side::Gateway => &mut pair.gateway,
        Side::Agent => &mut pair.agent,
    };
    match feed(core, frames) {
        Err(ConnError::Breach(breach)) => {
            assert!(core.store.iter().all(|s| s.ended.is_some() && !s.kept));
            assert!(!core.is_suspended());
            breach
        }
        other => panic!("{other:?} for {frames:?}"),
    }
}

fn accepted(side: Side, frames: &[Frame]) {
    let mut pair = world();
    let core = match side {
        Side::Gateway => &mut pair.gateway,
        Side::Agent => &mut pair.agent,
    };
    assert_eq!(feed(core, frames), Ok(()));
    core.check_invariants();
}

#[test]
fn an_honest_statement_is_taken_in_parts_too() {
    accepted(Side::Gateway, &[statement(3, &[(1, 8), (3, 0)])]);
    accepted(Side::Gateway, &[statement(3, &[(1, 3), (3, 0)])]);
    accepted(
        Side::Gateway,
        &[part(3, &[(3, 0)], true), statement(3, &[(1, 8)])],
    );
    accepted(Side::Gateway, &[statement(3, &[])]);
    accepted(Side::Agent, &[statement(0, &[(1, 0), (3, 0)])]);
    accepted(
        Side::Agent,
        &[statement(0, &[(1, 0), (3, 0), (5, 0), (7, 0)])],
    );
}

#[test]
fn an_agent_states_no_offset_beyond_what_was_sent_and_none_behind_what_it_consumed() {
    for offset in [0, 2, 9, u64::MAX] {
        breach(Side::Gateway, &[statement(3, &[(1, offset), (3, 0)])]);
    }
}

#[test]
fn an_agent_has_seen_no_streams_that_were_never_opened() {
    breach(Side::Gateway, &[statement(5, &[])]);
    breach(Side::Gateway, &[statement(u32::MAX, &[])]);
    breach(Side::Gateway, &[statement(2, &[(1, 8)])]);
    breach(Side::Gateway, &[statement(3, &[(5, 0)])]);
    breach(Side::Gateway, &[statement(3, &[(2, 0)])]);
    breach(Side::Gateway, &[statement(3, &[(0, 0)])]);
}

#[test]
fn an_agent_does_not_forget_streams_it_has_shown_to_know() {
    breach(Side::Gateway, &[statement(1, &[(1, 8)])]);
    breach(Side::Gateway, &[statement(0, &[])]);
    let mut pair = pair();
    pair.open(AppKind::Tcp);
    pair.open(AppKind::Tcp);
    pair.settle().unwrap();
    pair.redial();
    pair.settle().unwrap();
    pair.redial();
    feed(&mut pair.gateway, &[statement(1, &[(1, 0)])]).unwrap_err();
}

#[test]
fn a_statement_contradicts_itself_nowhere() {
    breach(Side::Gateway, &[statement(3, &[(1, 8), (1, 8)])]);
    breach(
        Side::Gateway,
        &[part(3, &[(1, 8)], true), statement(3, &[(1, 8)])],
    );
    breach(
        Side::Gateway,
        &[part(3, &[(1, 8)], true), statement(1, &[])],
    );
}

#[test]
fn nothing_comes_before_a_statement_and_no_second_after_it() {
    breach(Side::Gateway, &[Frame::Ping([0; 8])]);
    breach(Side::Gateway, &[part(3, &[], true), Frame::Ping([0; 8])]);
    let honest = statement(3, &[(1, 8), (3, 0)]);
    breach(Side::Gateway, &[honest.clone(), honest]);
    let honest = statement(0, &[(1, 0), (3, 0)]);
    breach(Side::Agent, &[honest.clone(), honest]);
    breach(Side::Agent, &[Frame::Pong([0; 8])]);
}

#[test]
fn a_statement_on_a_first_carrier_is_out_of_place() {
    let mut pair = pair();
    feed(&mut pair.gateway, &[statement(0, &[])]).unwrap_err();
    feed(&mut pair.agent, &[statement(0, &[])]).unwrap_err();
}

#[test]
fn a_statement_lists_no_more_streams_than_there_can_be() {
    let streams: Vec<_> = (0..20_000).map(|n| (2 * n + 1, 0)).collect();
    breach(Side::Agent, &[statement(0, &streams)]);
}

#[test]
fn a_gateway_states_no_offset_beyond_what_was_sent() {
    breach(Side::Agent, &[statement(0, &[(1, 1), (3, 0)])]);
    breach(Side::Agent, &[statement(0, &[(1, 0), (3, 0), (5, 1)])]);
    breach(Side::Agent, &[statement(1, &[(1, 0), (3, 0)])]);
}

#[test]
fn a_gateway_does_not_forget_a_stream_without_its_terminal() {
    breach(Side::Agent, &[statement(0, &[(1, 0)])]);
}

#[test]
fn a_gateway_does_not_list_a_stream_whose_terminal_it_acknowledged() {
    let mut pair = pair();
    let (_, app) = opened(&mut pair);
    pair.agent.conclude(app, FinalCause::AppClosed);
    pair.settle().unwrap();
    pair.redial();
    feed(&mut pair.agent, &[statement(0, &[(1, 0)])]).unwrap_err();
}

#[test]
fn only_a_terminal_that_was_told_is_acknowledged_and_once() {
    for id in [1, 5, 0, 2, u32::MAX] {
        let mut world = pair();
        opened(&mut world);
        feed(&mut world.agent, &[Frame::Done(vec![StreamId(id)])]).unwrap_err();
    }
    for (is_emitted, times) in [(false, 1), (true, 2)] {
        let mut world = pair();
        let (_, app) = opened(&mut world);
        world.agent.conclude(app, FinalCause::AppClosed);
        if is_emitted {
            world.emit_agent();
        }
        let done = Frame::Done(vec![StreamId(1); times]);
        feed(&mut world.agent, &[done]).unwrap_err();
    }
}

#[test]
fn terminals_of_ended_streams_are_acknowledged_within_bounds() {
    let settings = Settings {
        max_streams: 10_000,
        ..Settings::default()
    };
    let mut pair = Pair::new(settings);
    for _ in 0..6000 {
        let keys: Vec<_> = (0..3).map(|_| pair.open(AppKind::Tcp)).collect();
        pair.emit_gateway();
        keys.into_iter().for_each(|key| pair.gateway.release(key));
        pair.emit_gateway();
        let highest = pair.gateway.highest_open;
        for id in [highest - 4, highest - 2, highest] {
            let last = Frame::Final {
                stream: StreamId(id),
                written: 0,
                read: 0,
                cause: FinalCause::Reset,
            };
            feed(&mut pair.gateway, &[last]).unwrap();
        }
    }
    pair.emit_gateway();
    let mut result = Ok(());
    for n in 0..18_000 {
        let again = Frame::Final {
            stream: StreamId(2 * n + 1),
            written: 0,
            read: 0,
            cause: FinalCause::Reset,
        };
        result = feed(&mut pair.gateway, &[again]);
        if result.is_err() {
            break;
        }
    }
    assert!(matches!(result, Err(ConnError::Breach(_))), "{result:?}");
}

#[test]
fn an_agent_that_reports_without_end_is_cut_off() {
    let mut pair = pair();
    let entry = ReportEntry {
        tunnel: 1,
        stream: StreamId(1),
        written: 0,
        read: 0,
        cause: FinalCause::Reset,
    };
    let report = Frame::Report(vec![entry; 1000]);
    for _ in 0..MAX_REPORTED / 1000 {
        feed(&mut pair.gateway, std::slice::from_ref(&report)).unwrap();
        while pair.gateway.poll_event().is_some() {}
    }
    feed(&mut pair.gateway, &[report]).unwrap_err();
    feed(&mut pair.agent, &[Frame::Report(vec![entry])]).unwrap_err();
}

#[test]
fn what_may_come_twice_after_a_resume_comes_twice_only_once() {
    let honest = statement(3, &[(1, 8), (3, 0)]);
    let stream = StreamId(1);
    let stands = Frame::Opened { stream, credit: 1 };
    accepted(Side::Gateway, &[honest.clone(), stands.clone()]);
    breach(Side::Gateway, &[honest, stands.clone(), stands]);
}
