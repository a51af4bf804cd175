//! Tunnels that outlive their connections: under cuts, black holes and a dead carrier no request fails.
//!
//! The rate is meant for the release profile (`BH_BIN_DIR`): 500 requests a second. Without it the
//! programs are those of this build, and a fifth of that is what two busy cores carry in a debug build.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bridgehead_tests::chaos::FaultKind;
use bridgehead_tests::load::{Mix, Plan, Report};
use bridgehead_tests::process::Process;
use bridgehead_tests::{binaries, wait};

use crate::stage::{Account, MACHINE, Stage, deep, patient};

/// Requests a second, and how long.
fn drill(stage: &Stage, seed: u64) -> Plan {
    let is_release = std::env::var_os("BH_BIN_DIR").is_some();
    let rate = if is_release { 500.0 } else { 100.0 };
    if !is_release {
        eprintln!(
            "debug programs: {rate} requests a second instead of 500; name release ones by BH_BIN_DIR"
        );
    }
    Plan {
        // Streams long enough that each lives through several cuts.
        events: (30, Duration::from_millis(100)),
        messages: (30, Duration::from_millis(100)),
        mix: Mix::parse("get=55,post=25,upload=6,download=6,sse=4,ws=4").expect("a mix"),
        ..stage.plan(seed, rate, Duration::from_secs(deep(10, 60)))
    }
}

/// Nothing failed, nothing broke, and tunnels were resumed for it.
fn nothing_failed(what: &str, report: &Report) {
    let mut account = Account::default();
    account.add(report.resumes(), report);
    account.close(what);
    eprintln!("{}", report.render());
    assert_eq!(
        (report.failed, report.broken),
        (0, 0),
        "{what}: {}",
        report.render()
    );
    assert_eq!(report.websockets_broken, 0, "{what}");
    assert!(report.resumes() > 0, "{what}: nothing was resumed");
    for (kind, of) in &report.kinds {
        assert!(of.asked == of.right && of.asked > 0, "{what}: {kind}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_carrier_cut_every_second_under_load_fails_nothing() {
    let _machine = MACHINE.write().await;
    let stage = Stage::start(patient()).await;
    stage.script("every 1s: cut");
    let report = stage.settle(stage.run(&drill(&stage, 1)).await);
    let cuts = stage.carrier.tally().effects(FaultKind::Cut);
    assert!(cuts >= deep(8, 50), "only {cuts} cuts");
    nothing_failed("cuts every second", &report);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_carrier_reset_at_random_frames_under_load_fails_nothing() {
    let _machine = MACHINE.write().await;
    let stage = Stage::start(patient()).await;
    stage.script("with 0.1% per frame: reset\nalways: delay 3ms jitter 3ms");
    let report = stage.settle(stage.run(&drill(&stage, 2)).await);
    assert!(
        stage.carrier.tally().effects(FaultKind::Reset) > 0,
        "no reset"
    );
    nothing_failed("resets at random frames", &report);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_black_hole_is_noticed_and_left_behind_without_a_failure() {
    let _machine = MACHINE.write().await;
    let mut lanes = Vec::new();
    for way in ["to-agent", "to-gateway", ""] {
        lanes.push(tokio::spawn(async move {
            let stage = Stage::start(patient()).await;
            // Only what stands is swallowed: the next connection gets through.
            stage.script(&format!("at frame 40: blackhole {way}"));
            let plan = Plan {
                duration: Duration::from_secs(3),
                ..drill(&stage, 3)
            };
            let plan = Plan {
                rate: plan.rate / 4.0,
                ..plan
            };
            let report = stage.settle(stage.run(&plan).await);
            assert!(
                stage.carrier.tally().effects(FaultKind::BlackHole) > 0,
                "{way} took no effect"
            );
            // Six seconds until silence is death, one tick for a side that was late, and a redial.
            let worst = report.latency_ms.max;
            assert!(worst < 12_000.0, "{way}: an answer took {worst} ms");
            nothing_failed("black holes", &report);
        }));
    }
    for lane in lanes {
        lane.await.expect("a lane ends");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_carrier_that_is_killed_and_started_again_fails_nothing() {
    let _machine = MACHINE.write().await;
    let stage = Stage::start(patient()).await;
    let tunnel = stage.world.places.tunnel.to_string();
    let start = |listen: &str| {
        let mut command = Command::new(binaries::tool("bh-chaos"));
        command.args([
            "--listen",
            listen,
            "--to",
            &tunnel,
            "--fault",
            "always: delay 1ms",
            "--idle-ok",
        ]);
        let process = Process::start("bh-chaos", command);
        let ready = process.line("that it is ready", |line| line.starts_with("ready "));
        let listen = ready
            .split("listen=")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        (process, listen.expect("an address").to_owned())
    };
    let (mut process, listen) = tokio::task::block_in_place(|| start("127.0.0.1:0"));
    // The stage's own carrier leads to the program, which leads to the gateway.
    stage.carrier.point_at(&listen);
    stage.script("after 0ms: cut");
    stage.until_answered().await;
    let (plan, settings) = (drill(&stage, 4), stage.settings());
    let book = Arc::clone(stage.oracle.book());
    let load = tokio::spawn(async move {
        bridgehead_tests::load::run(&plan, &settings, &book, &Arc::default()).await
    });
    for _ in 0..deep(5, 25) {
        wait::dawdle(Duration::from_millis(1500)).await;
        process = tokio::task::block_in_place(|| {
            process.kill();
            start(&listen).0
        });
    }
    let report = stage.settle(load.await.expect("the load ends"));
    drop(process);
    nothing_failed("a carrier killed and started again", &report);
}
