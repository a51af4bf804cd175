//! What a lost tunnel leaves behind, and how it is reported.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::conn::resume::tests::*;
use crate::testing::Pair;
use crate::wire::{AppKind, Frame, RefusedReason};

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
