//! A small part of the search, at every run of this crate's tests.

use super::{Plan, run_seeds, schedule_of, search};

const ONE: Plan = Plan {
    exchanges: 1,
    reuse: false,
    part: 3,
    parts: 0,
    answers: 1,
};

#[test]
fn no_schedule_of_the_first_seeds_breaks_a_promise() {
    match run_seeds(0..400) {
        Ok(ran) => {
            println!("{ran:?}");
            assert!(ran.delivered > 0 && ran.not_delivered > 0 && ran.unknown > 0);
        }
        Err(broken) => panic!("{broken}"),
    }
}

/// `BH_SEEDS=500000` and an optimised build make a night's search.
#[test]
#[ignore = "as many seeds as BH_SEEDS says"]
fn no_schedule_of_many_seeds_breaks_a_promise() {
    let most = std::env::var("BH_SEEDS").map_or(10_000, |text| text.parse().unwrap_or(10_000));
    let mut next = 0;
    while next < most {
        match run_seeds(next..next + 1000) {
            Ok(ran) => println!("{next}: {ran:?}"),
            Err(broken) => panic!("{broken}"),
        }
        next += 1000;
    }
}

/// Whole searches; minutes with an optimised build.
#[test]
#[ignore = "all states within two faults"]
fn two_exchanges_keep_every_promise_with_faults_at_any_point() {
    for (exchanges, reuse, faults) in [(1, false, 1), (1, false, 2), (2, false, 1), (2, true, 1)] {
        let plan = Plan {
            exchanges,
            reuse,
            ..ONE
        };
        match search(plan, faults, 300_000) {
            Ok(found) => println!("{plan:?}, {faults} faults: {found:?}"),
            Err(broken) => panic!("{broken}"),
        }
    }
}

#[test]
fn one_exchange_keeps_every_promise_with_a_fault_at_any_point() {
    match search(ONE, 1, 600) {
        Ok(found) => {
            println!("{found:?}");
            assert!(found.states > 100 && found.faulty > 0);
        }
        Err(broken) => panic!("{broken}"),
    }
}

#[test]
fn the_same_seed_is_the_same_schedule() {
    let run = |seed| schedule_of(seed).map(|(steps, world)| (steps, world.fingerprint()));
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

/// Planted bugs of the core, each caught by a promise that breaks. `BH_PLANTED` names others to try.
#[cfg(feature = "planted")]
#[test]
#[ignore = "minutes without optimisation; run by hand after a change of the core"]
fn planted_bugs_of_the_core_break_a_promise() {
    use crate::planted::{Bug, plant};

    const SEEDS: u64 = 40_000;
    const CAUGHT: [Bug; 6] = [
        Bug::WriteAfterReset,
        Bug::WriteAfterFence,
        Bug::WrittenRaisedLate,
        Bug::RetainedNotForgotten,
        Bug::FinalOvertakesData,
        Bug::TerminalNotRepeated,
    ];
    let others: Vec<_> = std::env::var("BH_PLANTED").map_or_else(
        |_| CAUGHT.to_vec(),
        |_| {
            Bug::ALL
                .into_iter()
                .filter(|bug| !CAUGHT.contains(bug))
                .collect()
        },
    );
    for bug in others {
        let planted = plant(bug);
        let mut panicked = 0;
        let caught =
            (0..SEEDS).find_map(
                |seed| match std::panic::catch_unwind(|| super::run_seed(seed)) {
                    Ok(Ok(_)) => None,
                    Ok(Err(broken)) => Some((seed, broken)),
                    Err(_) => {
                        panicked += 1;
                        None
                    }
                },
            );
        drop(planted);
        match caught {
            Some((seed, broken)) => {
                let what = broken.lines().next().unwrap_or_default();
                println!(
                    "{bug:?}: {} schedules ({panicked} panicked): {:.150}",
                    seed + 1,
                    what
                );
            }
            None if std::env::var_os("BH_PLANTED").is_some() => {
                println!("{bug:?}: not caught, {panicked} panicked");
            }
            None => panic!("{bug:?} breaks nothing in {SEEDS} schedules, {panicked} panicked"),
        }
    }
}
