//! Carriers that are cut, reset, half-closed and refused at any frame and any byte. Gateway and agent live,
//! and another connection is there in time: so nothing may fail where tunnels are resumed, and nothing may be
//! told wrongly where they are not.

use std::time::Duration;

use bridgehead_tests::chaos::FaultKind;

use crate::stage::{Account, MACHINE, Stage, Tunnels, deep, draw};

/// A rule for one trial; every kind of moment and of end comes up.
fn rule(seed: u64) -> String {
    let frame = 1 + draw(seed, 60);
    let end = ["cut", "reset"][draw(seed ^ 1, 2) as usize];
    let way = ["to-agent", "to-gateway"][draw(seed ^ 2, 2) as usize];
    let kinds = ["OPEN", "OPENED", "BEGIN", "DATA", "CREDIT"];
    let kind = kinds[draw(seed ^ 3, kinds.len() as u64) as usize];
    match seed % 8 {
        0 => format!("at frame {frame}: {end}"),
        1 => format!("after frame {frame}: {end}"),
        2 => format!("at frame {} of type {kind}: {end}", 1 + draw(seed ^ 4, 6)),
        3 => format!(
            "after frame {} of type {kind}: {end}",
            1 + draw(seed ^ 4, 6)
        ),
        4 => format!("at byte {} {way}: {end}", draw(seed ^ 5, 60_000)),
        5 => format!("at frame {frame}: half-close {way}"),
        6 => format!(
            "at frame {frame}: {end}, refuse for 150ms\nalways: slice {}",
            1 + draw(seed, 40)
        ),
        _ => format!("at frame {frame}: {end}, down for 150ms\nalways: delay 2ms jitter 2ms"),
    }
}

async fn trials(lane: u64, count: u64, tunnels: Tunnels) -> (Account, Vec<(FaultKind, u64)>) {
    let stage = Stage::start(tunnels.setup()).await;
    let mut account = Account::default();
    let mut fired = vec![0; FaultKind::ALL.len()];
    for trial in 0..count {
        let rule = rule(lane * 8 + trial * 5);
        let mut before = stage.carrier.tally();
        stage.script(&rule);
        let plan = stage.plan(lane * 1000 + trial, 250.0, Duration::from_millis(60));
        let report = stage.settle(stage.run(&plan).await);
        let after = stage.carrier.tally();
        for (sum, kind) in fired.iter_mut().zip(FaultKind::ALL) {
            *sum += after.effects(kind)
                - std::mem::take(before.faults.entry(kind.as_str()).or_default());
        }
        let took_effect = after.rules.first().is_some_and(|rule| rule.effects > 0);
        assert_eq!(report.lies, 0, "{rule}\n{}", report.render());
        tunnels.check(&rule, &report);
        account.add(u64::from(took_effect), &report);
        stage.script("");
        stage.until_answered().await;
    }
    (account, FaultKind::ALL.into_iter().zip(fired).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_carrier_that_ends_anywhere_makes_nobody_lie_and_fails_nothing_if_resumed() {
    let _machine = MACHINE.read().await;
    const LANES: u64 = 6;
    let each = deep(19, 190);
    let kind = |lane| {
        if lane % 3 == 2 {
            Tunnels::Die
        } else {
            Tunnels::Resume
        }
    };
    let lanes: Vec<_> = (0..LANES)
        .map(|lane| tokio::spawn(trials(lane, each, kind(lane))))
        .collect();
    let mut account = Account::default();
    let mut fired = std::collections::BTreeMap::new();
    for lane in lanes {
        let (part, kinds) = lane.await.expect("a lane ends");
        account.merge(part);
        for (kind, count) in kinds {
            *fired.entry(kind).or_insert(0) += count;
        }
    }
    let ends = [
        FaultKind::Cut,
        FaultKind::Reset,
        FaultKind::HalfClose,
        FaultKind::Refuse,
        FaultKind::Down,
        FaultKind::Slice,
        FaultKind::Delay,
    ];
    for kind in ends {
        assert!(fired[&kind] > 0, "no {kind} took effect: {fired:?}");
    }
    account.nobody_was_left_with_nothing("carriers that end");
    account.close("carriers that end");
}
