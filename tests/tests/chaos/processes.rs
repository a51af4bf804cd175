//! Processes that are killed and frozen while requests are under way.

use std::sync::Arc;
use std::time::Duration;

use bridgehead_tests::load::run;
use bridgehead_tests::wait;

use crate::stage::{Account, MACHINE, Stage, Tunnels, deep, draw, patient};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_killed_agent_makes_nobody_lie() {
    let _machine = MACHINE.read().await;
    let mut account = Account::default();
    let mut stage = Stage::start(patient()).await;
    let mut loads = Vec::new();
    for trial in 0..deep(12, 100) {
        let plan = stage.plan(trial, 120.0, Duration::from_millis(250));
        let (settings, book) = (stage.settings(), Arc::clone(stage.oracle.book()));
        // What was under way waits for the dead agent's return as long as the gateway does; so the
        // next trial does not wait for it.
        loads.push(tokio::spawn(async move {
            run(&plan, &settings, &book, &Arc::default()).await
        }));
        wait::dawdle(Duration::from_millis(20 + draw(trial, 200))).await;
        stage.replace_agent().await;
    }
    for load in loads {
        let finished = load.await.expect("a load ends");
        account.add(1, &stage.settle(finished));
    }
    account.nobody_was_left_with_nothing("agents killed");
    account.close("agents killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_frozen_agent_makes_nobody_lie_and_fails_nothing_if_resumed() {
    let _machine = MACHINE.read().await;
    // Up to the moment at which it is given up, and well beyond: what it does when it wakes is the point.
    // A resumed tunnel goes on where it was, since it is not given up before it wakes.
    let spans = [
        (300, Tunnels::Resume),
        (6500, Tunnels::Resume),
        (9000, Tunnels::Resume),
        (6500, Tunnels::Die),
        (9000, Tunnels::Die),
    ];
    let rounds = deep(1, 5);
    let lane = |(span, tunnels): (u64, Tunnels)| async move {
        let mut account = Account::default();
        let stage = Stage::start(tunnels.setup()).await;
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
            let report = stage.settle(finished);
            tunnels.check(&format!("{span} ms"), &report);
            account.add(1, &report);
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
    let _machine = MACHINE.read().await;
    let mut account = Account::default();
    let mut stage = Stage::start(patient()).await;
    for trial in 0..deep(8, 60) {
        let plan = stage.plan(trial, 120.0, Duration::from_millis(250));
        let (settings, book) = (stage.settings(), Arc::clone(stage.oracle.book()));
        let load = tokio::spawn(async move { run(&plan, &settings, &book, &Arc::default()).await });
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
