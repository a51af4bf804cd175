//! Terminals: told until acknowledged, over as many carriers as it takes; after the end of the tunnel
//! what it leaves behind, and how that is reported.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::conn::resume::tests::*;
use crate::conn::*;
use crate::testing::Pair;
use crate::wire::{AppKind, Frame, RefusedReason};

#[test]
fn a_lost_terminal_comes_again_behind_the_bytes_it_stands_for() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    write(&mut pair, key, b"question");
    pair.settle().unwrap();
    pair.app_takes(app);
    say(&mut pair, app, b"answer");
    pair.agent.conclude(app, FinalCause::AppClosed);
    pair.agent.let_go(app);
    pair.emit_agent();
    assert_eq!(pair.agent.live_streams(), 1, "its terminal may be lost");
    pair.redial();
    pair.settle().unwrap();
    assert_eq!(read(&mut pair, key), b"answer");
    let (written, read, cause) = (8, 6, FinalCause::AppClosed);
    let ended = Ended::Final {
        written,
        read,
        cause,
    };
    assert_eq!(pair.view(key).ended, Some(ended));
    pair.gateway.release(key);
    nothing_is_kept(&pair);
}

#[test]
fn bytes_emitted_before_an_agent_let_go_come_again_and_no_others() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    say(&mut pair, app, b"emitted");
    pair.emit_agent();
    say(&mut pair, app, b" never emitted");
    pair.agent.let_go(app);
    pair.redial();
    pair.settle().unwrap();
    assert_eq!(read(&mut pair, key), b"emitted");
    let ended = pair.view(key).ended;
    assert!(
        matches!(ended, Some(Ended::Final { read: 7, .. })),
        "{ended:?}"
    );
}

#[test]
fn a_lost_refusal_comes_again() {
    let mut pair = pair();
    let key = pair.open(AppKind::Tcp);
    pair.settle().unwrap();
    let app = pair.accepted().unwrap();
    pair.agent.refuse(app, RefusedReason::ConnectRefused, 111);
    pair.agent.let_go(app);
    pair.emit_agent();
    pair.redial();
    pair.emit_gateway();
    pair.emit_agent();
    pair.redial();
    pair.settle().unwrap();
    let (reason, errno) = (RefusedReason::ConnectRefused, 111);
    assert_eq!(pair.view(key).ended, Some(Ended::Refused { reason, errno }));
    pair.gateway.release(key);
    nothing_is_kept(&pair);
}

#[test]
fn a_terminal_whose_acknowledgement_was_lost_is_not_repeated() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.agent.conclude(app, FinalCause::AppClosed);
    pair.agent.let_go(app);
    pair.emit_agent();
    pair.deliver_to_gateway(usize::MAX).unwrap();
    pair.emit_gateway();
    assert_eq!(pair.agent.store.len(), 1);
    let (_, sent) = over_the_next_carrier(&mut pair);
    assert!(!sent.iter().any(|f| matches!(f, Frame::Final { .. })));
    pair.gateway.release(key);
    nothing_is_kept(&pair);
}

#[test]
fn a_stream_that_ended_while_there_was_no_carrier_tells_it_over_the_next() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    pair.cut();
    say(&mut pair, app, b"answer");
    pair.agent.conclude(app, FinalCause::AppReset);
    pair.agent.let_go(app);
    pair.redial();
    pair.settle().unwrap();
    assert_eq!(read(&mut pair, key), b"answer");
    let ended = pair.view(key).ended;
    assert!(
        matches!(ended, Some(Ended::Final { read: 6, .. })),
        "{ended:?}"
    );
}

#[test]
fn a_reset_releases_the_bytes_in_front_of_a_kept_terminal() {
    let mut pair = pair();
    let (key, app) = opened(&mut pair);
    say(&mut pair, app, b"answer");
    pair.agent.conclude(app, FinalCause::AppClosed);
    pair.agent.let_go(app);
    pair.emit_agent();
    pair.cut();
    pair.gateway.release(key);
    pair.redial();
    pair.settle().unwrap();
    nothing_is_kept(&pair);
}

#[test]
fn acknowledgements_stand_before_the_opens_that_take_the_freed_places() {
    let settings = Settings {
        max_streams: 4,
        resume_window: WINDOW,
        ..Settings::default()
    };
    let mut pair = Pair::new(settings);
    for _ in 0..200 {
        for _ in 0..4 {
            let key = pair.open(AppKind::Tcp);
            pair.emit_gateway();
            pair.deliver_to_agent(usize::MAX).unwrap();
            let app = pair.accepted().unwrap();
            pair.agent.opened(app);
            pair.agent.conclude(app, FinalCause::AppClosed);
            pair.agent.let_go(app);
            pair.emit_agent();
            pair.deliver_to_gateway(usize::MAX).unwrap();
            let ended = pair.view(key).ended;
            assert!(matches!(ended, Some(Ended::Final { .. })), "{ended:?}");
            pair.gateway.release(key);
        }
        assert!(pair.agent.store.len() <= 4);
    }
}

// ---- after the end ------------------------------------------------------------------------

#[test]
fn a_lost_tunnel_leaves_the_fate_of_every_stream_that_was_not_acknowledged() {
    let mut pair = pair();
    let (acknowledged, app) = opened(&mut pair);
    pair.agent.conclude(app, FinalCause::AppClosed);
    pair.settle().unwrap();
    let (alive, app) = opened(&mut pair);
    write(&mut pair, alive, b"question");
    pair.settle().unwrap();
    pair.app_takes(app);
    say(&mut pair, app, b"ans");
    let (ended, app) = opened(&mut pair);
    pair.agent.conclude(app, FinalCause::AppReset);
    pair.agent.let_go(app);
    pair.emit_agent();
    let refused = pair.open(AppKind::Tcp);
    pair.emit_gateway();
    pair.deliver_to_agent(usize::MAX).unwrap();
    let app = pair.accepted().unwrap();
    pair.agent.refuse(app, RefusedReason::NoSuchApp, 0);
    assert!(pair.agent.take_fates().is_empty(), "it is not lost yet");
    pair.cut();
    pair.agent.lose();
    let fates: Vec<_> = pair
        .agent
        .take_fates()
        .iter()
        .map(|f| (f.stream.0, f.written, f.read, f.cause))
        .collect();
    assert_eq!(
        fates,
        [
            (3, 8, 3, FinalCause::Reset),
            (5, 0, 0, FinalCause::AppReset),
            (7, 0, 0, FinalCause::Reset),
        ]
    );
    assert!(pair.agent.take_fates().is_empty(), "told once");
    let all = [acknowledged, alive, ended, refused];
    assert_eq!(all.len(), 4);
}

fn entries(count: u32) -> Vec<ReportEntry> {
    (0..count)
        .map(|n| ReportEntry {
            tunnel: 7,
            stream: StreamId(2 * n + 1),
            written: 1,
            read: 2,
            cause: FinalCause::Reset,
        })
        .collect()
}

fn reported(pair: &Pair) -> Vec<ReportEntry> {
    pair.gateway_events
        .iter()
        .filter_map(|event| match event {
            Event::Report(entries) => Some(entries.clone()),
            _ => None,
        })
        .flatten()
        .collect()
}

#[test]
fn a_report_arrives_whole_in_frames_of_a_turn() {
    let mut pair = pair();
    pair.agent.report(entries(3000));
    pair.settle().unwrap();
    assert_eq!(reported(&pair), entries(3000));
    let sent = frames(&pair.agent_sent, 0);
    let reports = sent.iter().filter(|f| matches!(f, Frame::Report(_)));
    assert!(reports.count() > 5);
    pair.redial();
    pair.settle().unwrap();
    assert_eq!(reported(&pair).len(), 3000, "heard once is enough");
}

#[test]
fn a_report_lost_with_its_carrier_is_sent_again() {
    let mut pair = pair();
    pair.agent.report(entries(3));
    pair.emit_agent();
    pair.redial();
    pair.settle().unwrap();
    assert_eq!(reported(&pair), entries(3));
}

#[test]
fn an_agent_reports_no_more_than_a_gateway_takes() {
    let mut pair = pair();
    pair.agent.report(entries(60_000));
    pair.agent.report(entries(60_000));
    pair.settle().unwrap();
    assert_eq!(reported(&pair).len(), MAX_REPORTED);
}
