//! Whole programs in virtual time: the real gateway and the real agent on in-memory links, every
//! event of a fault-free run struck by every fault, the invariants looked at after each.
//!
//! `BH_SIM=full` strikes every event and draws 20,000 pairs, `BH_DEEP=1` draws a million; without
//! either a part of both is run. `BH_SIM_REPLAY='post_one 1 57a:carrier_rst' cargo test -p
//! bridgehead-tests --test sim replay -- --ignored --nocapture` shows one schedule;
//! `BH_SIM_SHAPES=get,post_one` with `strike` runs all single faults of some shapes (`all` of all), or those
//! of `BH_SIM_FAULTS=app_kill,…`,
//! `BH_SIM_BUGS=GoAwayIgnored` with `hunt` looks for some planted bugs.
//!
//! Ways of faults that once broke a promise stand in `tests/regress/seeds.txt` and are always run.

#![allow(unreachable_pub)]

mod app;
mod client;
mod drain;
mod explore;
mod fault;
mod frames;
mod journal;
mod net;
mod oracle;
mod planted;
mod programs;
mod pure;
mod run;
mod shape;

use std::path::Path;
use std::time::{Duration, Instant};

use explore::{Blame, Ground, Schedule, Summary};
use run::Setting;
use shape::SHAPES;

/// Of the single faults of a quick run one in so many; no divisor of the number of faults.
const QUICK: usize = 127;
const QUICK_PAIRS: usize = 150;
const FULL_PAIRS: usize = 20_000;
const DEEP_PAIRS: usize = 1_000_000;
/// Pairs run between two looks at the clock.
const BATCH: usize = 2_000;
/// A run that takes longer says this often how far it is.
const PROGRESS: Duration = Duration::from_secs(60);
/// Printed of schedules that broke something.
const SHOWN: usize = 25;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Quick,
    Full,
    Deep,
}

impl Depth {
    fn asked() -> Self {
        let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|v| v == value);
        match (is("BH_DEEP", "1"), is("BH_SIM", "full")) {
            (true, _) => Self::Deep,
            (false, true) => Self::Full,
            (false, false) => Self::Quick,
        }
    }
}

fn run_all(grounds: &[Ground], depth: Depth) -> Summary {
    let singles = explore::singles(grounds);
    let some = match depth {
        Depth::Quick => singles.into_iter().step_by(QUICK).collect(),
        Depth::Full | Depth::Deep => singles,
    };
    let mut summary = explore::run(grounds, &some);
    let pairs = match depth {
        Depth::Quick => QUICK_PAIRS,
        Depth::Full => FULL_PAIRS,
        Depth::Deep => DEEP_PAIRS,
    };
    let mut told = Instant::now();
    let mut drawn = 0;
    while drawn < pairs {
        let count = BATCH.min(pairs - drawn);
        let batch = explore::pairs(grounds, count, drawn as u64);
        summary.join(explore::run(grounds, &batch));
        drawn += count;
        if told.elapsed() > PROGRESS {
            told = Instant::now();
            eprintln!(
                "sim: {drawn} of {pairs} pairs, lies={} avoidable={} fallen={}",
                summary.lies,
                summary.avoidable,
                summary.fallen.len()
            );
        }
    }
    summary
}

fn show(summary: &Summary) {
    for (schedule, fallen) in summary.fallen.iter().take(SHOWN) {
        eprintln!("sim: fallen at `{schedule}`: {}", fallen.join("; "));
    }
}

fn last_line(summary: &Summary, score: &planted::Score) -> String {
    let regret = |whose: Blame| format!("regret_{}={:.1}", whose.word(), summary.regret(whose));
    let regrets = Blame::ALL.map(regret);
    format!(
        "sim: schedules={} distinct={} lies={} avoidable={} planted={}/{} {} queued={} \
         ledger_known={}/{}",
        summary.schedules,
        summary.distinct.len(),
        summary.lies,
        summary.avoidable,
        score.caught,
        score.of,
        regrets.join(" "),
        summary.queued,
        summary.known,
        summary.lost,
    )
}

/// Most regret that a run may show, in percent. For a full one it is what the last showed, and may only
/// fall; a deep one, of which nearly all are pairs, has the goals.
const fn most_regret(depth: Depth, whose: Blame) -> f64 {
    match (whose, depth) {
        (Blame::App | Blame::AgentAlive | Blame::Resumed, _) => 0.0,
        (Blame::Lost, Depth::Full) => 23.1,
        (Blame::Lost, _) => 25.0,
        (Blame::Silent, Depth::Full) => 60.7,
        (Blame::Silent, _) => 100.0,
    }
}

/// Least share of the requests told `unknown` for a lost tunnel of which the ledger knows better 5 s after
/// the agent is back, in percent.
const LEAST_RESOLVED: f64 = 95.0;

fn regretted_more_than_before(depth: Depth, summary: &Summary) -> Vec<Blame> {
    let more = |whose: &Blame| summary.regret(*whose) > most_regret(depth, *whose);
    Blame::ALL.into_iter().filter(more).collect()
}

#[test]
fn what_is_told_is_true_whatever_goes_wrong() {
    let depth = Depth::asked();
    let grounds = Ground::all();
    let summary = run_all(&grounds, depth);
    eprintln!("{}", summary.table());
    show(&summary);
    if depth != Depth::Quick {
        assert_eq!(
            summary.idle(),
            Vec::<String>::new(),
            "a fault never took effect"
        );
    }
    let score = planted::hunt_asked(&grounds, depth);
    eprintln!("{}", last_line(&summary, &score));
    assert!(
        summary.fallen.is_empty(),
        "{} schedules fell",
        summary.fallen.len()
    );
    assert_eq!(score.missed, [], "planted and not caught");
    // Of a part of the faults a share says nothing.
    if depth != Depth::Quick {
        assert_eq!(regretted_more_than_before(depth, &summary), []);
        let resolved = summary.resolved();
        assert!(resolved >= LEAST_RESOLVED, "{resolved:.1} % resolved");
    }
    assert_eq!(summary.queued, 0, "told unknown with nothing emitted");
}

#[test]
fn every_shape_is_served_when_nothing_goes_wrong() {
    for shape in SHAPES {
        let outcome = Setting::of(shape).run(&[], 1);
        let fallen = oracle::look(shape, &outcome).fallen;
        let told = &outcome.exchange.told;
        assert_eq!(fallen, Vec::<String>::new(), "{}", shape.name);
        assert!(shape.is_served(told), "{}: {told:?}", shape.name);
    }
}

#[test]
fn the_same_schedule_goes_the_same_way_twice() {
    let grounds = Ground::all();
    for schedule in explore::pairs(&grounds, 2 * SHAPES.len(), 7) {
        let setting = Setting::of(&SHAPES[schedule.shape]);
        let [one, other] = [(); 2].map(|()| setting.run(&schedule.plans, schedule.seed));
        if one.hash != other.hash {
            let differs = one
                .entries
                .iter()
                .zip(&other.entries)
                .position(|(a, b)| a != b);
            panic!("`{schedule}` differs from entry {differs:?} on");
        }
    }
}

#[test]
fn schedules_that_once_fell_stand() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("regress/seeds.txt");
    let text = std::fs::read_to_string(&file).expect("the seeds can be read");
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    for line in lines {
        let schedule = Schedule::parse(line).unwrap_or_else(|| panic!("no schedule: {line}"));
        let shape = &SHAPES[schedule.shape];
        let outcome = Setting::of(shape).run(&schedule.plans, schedule.seed);
        let fallen = oracle::look(shape, &outcome).fallen;
        assert_eq!(fallen, Vec::<String>::new(), "{line}");
    }
}

#[test]
#[ignore = "for whoever looks into some shapes"]
fn strike() {
    let names = std::env::var("BH_SIM_SHAPES").expect("names of shapes in BH_SIM_SHAPES");
    let named = |shape: &str| names.split(',').any(|name| name == shape || name == "all");
    let grounds = Ground::all();
    let mut some = explore::singles(&grounds);
    some.retain(|schedule| named(SHAPES[schedule.shape].name));
    if let Ok(words) = std::env::var("BH_SIM_FAULTS") {
        let asked = |plan: &journal::Plan| words.split(',').any(|word| word == plan.fault.word());
        some.retain(|schedule| schedule.plans.iter().all(asked));
    }
    let summary = explore::run(&grounds, &some);
    eprintln!("{}", summary.table());
    show(&summary);
    eprintln!("ledger_known={}/{}", summary.known, summary.lost);
    eprintln!("without effect: {:?}", summary.idle());
    assert!(summary.fallen.is_empty());
}

#[test]
#[ignore = "for whoever looks into some planted bugs"]
fn hunt() {
    let names = std::env::var("BH_SIM_BUGS").expect("names of bugs in BH_SIM_BUGS");
    planted::hunt_named(&Ground::all(), &names);
}

#[test]
#[ignore = "for whoever looks into one schedule"]
fn replay() {
    let line = std::env::var("BH_SIM_REPLAY").expect("a schedule in BH_SIM_REPLAY");
    let schedule = Schedule::parse(&line).expect("a schedule");
    let shape = &SHAPES[schedule.shape];
    let outcome = Setting::of(shape).run(&schedule.plans, schedule.seed);
    let findings = oracle::look(shape, &outcome);
    eprintln!("{}", journal::text(&outcome.entries));
    eprintln!("mark {} end {}", outcome.mark, outcome.end);
    eprintln!("{:?} {:?}", outcome.exchange, outcome.recorded);
    eprintln!("{:?}", outcome.words);
    eprintln!("{findings:?}");
}
