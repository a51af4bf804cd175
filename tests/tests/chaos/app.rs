//! Apps that break: they close, stop in the middle, are silent, speak no HTTP, or do not listen.

use std::time::Duration;

use bridgehead_tests::load::{Mix, Plan};
use bridgehead_tests::oracle::Port;
use bridgehead_tests::wait;
use bridgehead_tests::world::setup;

use crate::stage::{Account, MACHINE, Stage, deep};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_app_that_breaks_is_told_of_truthfully() {
    let _machine = MACHINE.read().await;
    let quick =
        setup().defaults("hold = \"0s\"\nfirst_frame_window = \"1s\"\nstall_window = \"1s\"");
    let stage = Stage::start(quick).await;
    let plan = Plan {
        app_faults: 700_000,
        mix: Mix::parse("get=1,post=1,download=1").expect("a mix"),
        ..stage.plan(1, 40.0, Duration::from_secs(deep(2, 20)))
    };
    let report = stage.settle(stage.run(&plan).await);
    let mut account = Account::default();
    account.add(report.asked_to_fail, &report);
    account.nobody_was_left_with_nothing("apps that break");
    assert!(
        report.asked_to_fail >= 40,
        "only {} faults took effect",
        report.asked_to_fail
    );
    assert_eq!(
        report.unasked(),
        0,
        "those who were to be served were: {}",
        report.render()
    );
    for reason in [
        "closed_before_head",
        "app_closed",
        "bad_http",
        "first_frame",
    ] {
        assert!(
            report
                .verdicts
                .iter()
                .any(|(words, _)| words.reason == reason),
            "{reason}: {}",
            report.render()
        );
    }
    let unseen: u64 = report.regret.values().map(|regret| regret.unseen).sum();
    assert_eq!(
        unseen,
        0,
        "no unknown where the app saw nothing: {}",
        report.render()
    );
    account.close("apps that break");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_app_that_does_not_listen_is_waited_for_or_told_not_delivered() {
    let _machine = MACHINE.read().await;
    let stage = Stage::start(setup().defaults("hold = \"1s\"")).await;
    let mut account = Account::default();
    for trial in 0..deep(6, 40) {
        let plan = stage.plan(trial, 60.0, Duration::from_millis(700));
        let fault = async {
            wait::dawdle(Duration::from_millis(100)).await;
            stage.oracle.set_port(Port::Closed).await;
            // Every third time longer than the gateway holds.
            let span = if trial % 3 == 0 { 1700 } else { 300 };
            wait::dawdle(Duration::from_millis(span)).await;
            stage.oracle.set_port(Port::Open).await;
        };
        let (finished, ()) = tokio::join!(stage.run(&plan), fault);
        account.add(1, &stage.settle(finished));
    }
    account.nobody_was_left_with_nothing("an app that does not listen");
    account.close("an app that does not listen");
}
