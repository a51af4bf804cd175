//! The pure layer: two protocol cores and the decision function, an app that keeps the truth, a
//! carrier that is cut at every point. All interleavings breadth first within a number of faults, and
//! random schedules from seeds.
//!
//! `BH_SIM=full` runs seeds for a minute, `BH_DEEP=1` for twenty; without either a few seconds.

use std::time::{Duration, Instant};

use bridgehead_protocol::testing::pure::{Plan, run_seeds, search};

/// Seeds run between two looks at the clock.
const BATCH: u64 = 250;

const ONE: Plan = Plan {
    exchanges: 1,
    reuse: false,
    part: 3,
    parts: 0,
    answers: 1,
};

/// How long seeds are run, and how many states a search looks at.
fn effort() -> (Duration, usize) {
    if std::env::var_os("BH_DEEP").is_some() {
        (Duration::from_secs(20 * 60), 2_000_000)
    } else if std::env::var("BH_SIM").is_ok_and(|what| what == "full") {
        (Duration::from_secs(60), 20_000)
    } else {
        (Duration::from_secs(5), 300)
    }
}

#[test]
fn no_random_schedule_of_two_cores_breaks_a_promise() {
    let (span, _) = effort();
    let start = Instant::now();
    let (mut schedules, mut distinct, mut steps, mut faults) = (0, 0, 0, 0);
    let mut told = [0; 3];
    let mut next = 0;
    while start.elapsed() < span {
        let ran = match run_seeds(next..next + BATCH) {
            Ok(ran) => ran,
            Err(broken) => panic!("{broken}"),
        };
        next += BATCH;
        schedules += ran.schedules;
        distinct += ran.distinct;
        steps += ran.steps;
        faults += ran.faults;
        told[0] += ran.delivered;
        told[1] += ran.not_delivered;
        told[2] += ran.unknown;
    }
    println!(
        "pure, seeds 0..{next}: {schedules} schedules, {distinct} distinct, {steps} steps, {faults} faults; \
         told delivered {}, not delivered {}, unknown {}",
        told[0], told[1], told[2]
    );
    assert!(told.iter().all(|count| *count > 0), "a verdict never fell");
}

#[test]
fn one_and_two_exchanges_keep_every_promise_with_faults_at_every_point() {
    let (_, states) = effort();
    let two = |reuse| Plan {
        exchanges: 2,
        reuse,
        ..ONE
    };
    let plans = [
        ("one exchange, one fault", ONE, 1),
        ("one exchange, two faults", ONE, 2),
        ("two exchanges on two streams, one fault", two(false), 1),
        ("two exchanges on one stream, one fault", two(true), 1),
    ];
    for (name, plan, most_faults) in plans {
        match search(plan, most_faults, states) {
            Ok(found) => println!("pure, {name}: {found:?}"),
            Err(broken) => panic!("{name}: {broken}"),
        }
    }
}
