//! The test of the test: each planted bug is caught by an invariant, and after how many schedules.
//!
//! Grounds are recorded without a bug. A bug is planted on one thread, hunted there, and dug out.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bridgehead_protocol::planted::Bug;

use super::explore::{Caught, Ground, hunt};

/// Hunts for one bug, with different orders.
const HUNTS: u64 = 2;

/// What became of a bug.
pub(crate) struct Fate {
    pub(crate) bug: Bug,
    /// One for each hunt.
    pub(crate) caught: Vec<Option<Caught>>,
}

impl Fate {
    pub(crate) fn is_caught(&self) -> bool {
        self.caught.iter().any(Option::is_some)
    }

    /// Schedules until it was caught, on average over the hunts that caught it.
    pub(crate) fn mean(&self) -> f64 {
        let after: Vec<usize> = self.caught.iter().flatten().map(|c| c.after).collect();
        after.iter().sum::<usize>() as f64 / after.len().max(1) as f64
    }
}

/// Hunts for all of `bugs` on all cores, at most `most` schedules a hunt.
pub(crate) fn hunt_all(grounds: &[Ground], bugs: &[Bug], most: usize) -> Vec<Fate> {
    let next = AtomicUsize::new(0);
    let fates = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let hunts = (0..HUNTS).map(|seed| hunt(grounds, *bug, most, seed));
                    let caught = hunts.collect();
                    let fate = Fate { bug: *bug, caught };
                    fates.lock().expect("no worker panicked").push(fate);
                }
            });
        }
    });
    let mut fates = fates.into_inner().expect("no worker panicked");
    fates.sort_by_key(|fate| fate.bug);
    fates
}

#[test]
fn each_planted_bug_is_caught_by_an_invariant() {
    let grounds = Ground::all();
    let most = std::env::var("BH_PLANTED_MOST").map_or(600, |m| m.parse().unwrap());
    let fates = hunt_all(&grounds, &Bug::ALL, most);
    for fate in &fates {
        let first = fate.caught.iter().flatten().next();
        eprintln!(
            "{:?}: mean {:.0} {}",
            fate.bug,
            fate.mean(),
            first.map_or("NOT CAUGHT".to_owned(), |c| format!(
                "`{}`: {}",
                c.schedule,
                c.fallen.join("; ")
            ))
        );
    }
    let missed: Vec<Bug> = fates
        .iter()
        .filter(|f| !f.is_caught())
        .map(|f| f.bug)
        .collect();
    assert_eq!(missed, []);
}
