//! The test of the tests: a bug that is planted in the programs makes an invariant fall, and after
//! how many schedules.
//!
//! Each is hunted in the pure layer first, then in whole programs. A schedule counts only if it
//! stands without the bug. A panic is no catch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bridgehead_protocol::planted::{Bug, plant};
use bridgehead_protocol::testing::pure::run_seed;

use super::Depth;
use super::explore::{Caught, Ground, hunt};

/// Hunts for one bug, each in another order.
const HUNTS: u64 = 3;

/// Bugs that fall within a few dozen schedules; a quick run hunts for these.
const QUICK: &[Bug] = &[
    Bug::ClaimAfterHandOver,
    Bug::WriteAfterReset,
    Bug::WrittenRaisedLate,
    Bug::AgentRepeats,
    Bug::TerminalNotRepeated,
    Bug::CancelNotPassedOn,
    Bug::LeftoverKept,
];

/// Where to look for how long.
#[derive(Clone, Copy)]
struct Effort {
    pure: u64,
    whole: usize,
}

const WIDE: Effort = Effort {
    pure: 5_000,
    whole: 3_000,
};
const NARROW: Effort = Effort {
    pure: 150,
    whole: 200,
};

/// What became of a bug.
struct Fate {
    bug: Bug,
    caught: Vec<Caught>,
}

impl Fate {
    /// Schedules until it was caught, on average over the hunts that caught it.
    fn mean(&self) -> usize {
        let after: usize = self.caught.iter().map(|c| c.after).sum();
        after / self.caught.len().max(1)
    }
}

/// Runs seeds of the pure layer from `first` on.
fn hunt_pure(bug: Bug, most: u64, first: u64) -> Option<Caught> {
    let broken = |seed| {
        catch_unwind(AssertUnwindSafe(|| run_seed(seed).err()))
            .ok()
            .flatten()
    };
    for after in 0..most {
        let seed = first + after;
        let planted = plant(bug);
        let with = broken(seed);
        drop(planted);
        if let Some(what) = with
            && run_seed(seed).is_ok()
        {
            return Some(Caught {
                after: usize::try_from(after).unwrap_or(usize::MAX) + 1,
                schedule: format!("pure {seed}"),
                fallen: vec![what],
            });
        }
    }
    None
}

/// One bug, hunted in both layers.
fn hunt_one(grounds: &[Ground], bug: Bug, effort: Effort) -> Fate {
    let pure = (0..HUNTS).filter_map(|hunt| hunt_pure(bug, effort.pure, hunt * effort.pure));
    let mut caught: Vec<Caught> = pure.collect();
    if caught.is_empty() {
        let whole = (0..HUNTS).filter_map(|seed| hunt(grounds, bug, effort.whole, seed));
        caught = whole.collect();
    }
    Fate { bug, caught }
}

/// Hunts for all of `bugs` on all cores.
fn hunt_all(grounds: &[Ground], bugs: &[Bug], effort: Effort) -> Vec<Fate> {
    let next = AtomicUsize::new(0);
    let fates = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let fate = hunt_one(grounds, *bug, effort);
                    fates.lock().expect("no worker panicked").push(fate);
                }
            });
        }
    });
    let mut fates = fates.into_inner().expect("no worker panicked");
    fates.sort_by_key(|fate| fate.bug);
    fates
}

/// Hunts as far as was asked for, and says what became of each bug.
pub(crate) fn hunt_asked(grounds: &[Ground], depth: Depth) -> Score {
    let (bugs, effort) = match depth {
        Depth::Quick => (QUICK.to_vec(), NARROW),
        Depth::Full | Depth::Deep => (Bug::ALL.to_vec(), WIDE),
    };
    let fates = hunt_all(grounds, &bugs, effort);
    show(&fates);
    let (caught, missed): (Vec<_>, Vec<_>) = fates.iter().partition(|f| !f.caught.is_empty());
    Score {
        of: bugs.len(),
        caught: caught.len(),
        missed: missed.iter().map(|fate| fate.bug).collect(),
    }
}

/// Hunts for the bugs of these names and says what became of each.
pub(crate) fn hunt_named(grounds: &[Ground], names: &str) {
    let named = |bug: &Bug| names.split(',').any(|name| name == format!("{bug:?}"));
    let bugs: Vec<Bug> = Bug::ALL.into_iter().filter(named).collect();
    show(&hunt_all(grounds, &bugs, WIDE));
}

fn show(fates: &[Fate]) {
    for fate in fates {
        match fate.caught.first() {
            Some(first) => eprintln!(
                "planted {:?}: after {} schedules (mean of {}), `{}`: {}",
                fate.bug,
                fate.mean(),
                fate.caught.len(),
                first.schedule,
                first.fallen.join("; ").lines().next().unwrap_or_default()
            ),
            None => eprintln!("planted {:?}: not caught", fate.bug),
        }
    }
}

/// How the bugs fared.
pub(crate) struct Score {
    pub(crate) caught: usize,
    /// Of so many that were planted.
    pub(crate) of: usize,
    /// Not caught.
    pub(crate) missed: Vec<Bug>,
}
