//! Black holes: the connection stands, and nothing comes.

use std::time::{Duration, Instant};

use bridgehead_tests::chaos::FaultKind;

use crate::stage::{Account, MACHINE, Stage, deep, patient};

/// One hole of `span` in the middle of some requests.
async fn hole(way: &'static str, span: Duration) -> Account {
    let stage = Stage::start(patient()).await;
    let mut account = Account::default();
    stage.script(&format!(
        "after 200ms for {}ms: blackhole {way}",
        span.as_millis()
    ));
    let plan = stage.plan(span.as_millis() as u64, 60.0, Duration::from_millis(600));
    let begun = Instant::now();
    let report = stage.settle(stage.run(&plan).await);
    assert!(
        stage.carrier.tally().effects(FaultKind::BlackHole) > 0,
        "{way} {span:?} took no effect"
    );
    assert_eq!(report.lies, 0, "{way} {span:?}\n{}", report.render());
    // Six seconds until it is noticed, five of hold, and some for a slow machine.
    assert!(
        begun.elapsed() < Duration::from_secs(25),
        "{way} {span:?} took {:?}",
        begun.elapsed()
    );
    account.add(1, &report);
    // The long ones end before the tunnel is given up: whoever noticed waits for the next connection.
    assert_eq!(report.unasked(), 0, "{way} {span:?}\n{}", report.render());
    stage.script("");
    stage.until_answered().await;
    account
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_black_hole_fails_nothing_whether_it_is_noticed_or_not() {
    let _machine = MACHINE.read().await;
    let spans = deep(2, 6);
    let mut lanes = Vec::new();
    for way in ["to-agent", "to-gateway", ""] {
        for n in 0..spans {
            // Above the six seconds after which silence is death, and below.
            let span = if n % 2 == 0 {
                1500 + n * 300
            } else {
                9000 + n * 500
            };
            lanes.push(tokio::spawn(hole(way, Duration::from_millis(span))));
        }
    }
    let mut account = Account::default();
    for lane in lanes {
        account.merge(lane.await.expect("a lane ends"));
    }
    account.nobody_was_left_with_nothing("black holes");
    account.close("black holes");
}
