//! Processes that are killed and frozen while requests are under way.

use std::time::Duration;

use bridgehead_tests::wait;

use crate::stage::{Account, Stage, deep, draw, patient};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_agent_makes_nobody_lie() {
    let mut account = Account::default();
    let mut stage = Stage::start(patient()).await;
    for trial in 0..deep(12, 100) {
        let plan = stage.plan(trial, 120.0, Duration::from_millis(250));
        let moment = Duration::from_millis(20 + draw(trial, 200));
        let (settings, book) = (stage.settings(), std::sync::Arc::clone(stage.oracle.book()));
        let load = tokio::spawn(async move {
            bridgehead_tests::load::run(&plan, &settings, &book, &std::sync::Arc::default()).await
        });
        wait::dawdle(moment).await;
        stage.replace_agent().await;
        let finished = load.await.expect("the load ends");
        account.add(1, &stage.settle(finished));
    }
    account.nobody_was_left_with_nothing("agents killed");
    account.close("agents killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_frozen_agent_makes_nobody_lie() {
    // Up to the moment at which it is given up, and well beyond: what it does when it wakes is the point.
    let spans = [300, 1200, 6500, 9000];
    let rounds = deep(1, 5);
    let lane = |span: u64| async move {
        let mut account = Account::default();
        let stage = Stage::start(patient()).await;
        for round in 0..rounds {
            let plan = stage.plan(span + round, 80.0, Duration::from_millis(500));
            let freeze = async {
                wait::dawdle(Duration::from_millis(100 + draw(round + span, 200))).await;
                stage.agent.process.signal("STOP");
                wait::dawdle(Duration::from_millis(span)).await;
                stage.agent.process.signal("CONT");
            };
            let (finished, ()) = tokio::join!(stage.run(&plan), freeze);
            stage.until_answered().await;
            account.add(1, &stage.settle(finished));
        }
        account
    };
    let lanes: Vec<_> = spans
        .into_iter()
        .map(|span| tokio::spawn(lane(span)))
        .collect();
    let mut account = Account::default();
    for lane in lanes {
        account.merge(lane.await.expect("a lane ends"));
    }
    account.nobody_was_left_with_nothing("agents frozen");
    account.close("agents frozen");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_gateway_doubles_nothing() {
    let mut account = Account::default();
    let mut stage = Stage::start(patient()).await;
    for trial in 0..deep(8, 60) {
        let plan = stage.plan(trial, 120.0, Duration::from_millis(250));
        let (settings, book) = (stage.settings(), std::sync::Arc::clone(stage.oracle.book()));
        let load = tokio::spawn(async move {
            bridgehead_tests::load::run(&plan, &settings, &book, &std::sync::Arc::default()).await
        });
        wait::dawdle(Duration::from_millis(20 + draw(trial, 200))).await;
        tokio::task::block_in_place(|| stage.world.restart_gateway());
        stage
            .carrier
            .point_at(&stage.world.places.tunnel.to_string());
        let finished = load.await.expect("the load ends");
        account.add(1, &stage.settle(finished));
        stage.until_answered().await;
    }
    // Who was connected to the dead gateway has no answer, and is told nothing that could be untrue.
    for word in ["no_envelope", "late", "wrong"] {
        assert_eq!(account.count(word), 0, "{word}");
    }
    account.close("gateways killed");
}
