//! All interleavings, breadth first: every state that can be reached with so many faults, and from
//! each of them the end.

use std::collections::{BTreeSet, VecDeque};

use super::{Action, Broken, Plan, World};

/// What a search looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Steps taken.
    pub steps: usize,
    /// Distinct states, each followed to its end.
    pub states: usize,
    /// Of these, behind a fault.
    pub faulty: usize,
    /// False if it stopped before it had seen all.
    pub is_complete: bool,
}

/// The search leaves out the small variants; the seeded runs have them.
const fn is_coarse(action: Action) -> bool {
    !matches!(
        action,
        Action::EmitGatewaySome
            | Action::EmitAgentSome
            | Action::CarrySomeToAgent
            | Action::CarrySomeToGateway
            | Action::TakeByte(_)
            | Action::Flood
    )
}

/// Looks at every state within `faults` faults, at most about `most`.
///
/// # Errors
/// The first promise broken, with the steps that led to it (a shortest way there).
pub fn search(plan: Plan, faults: usize, most: usize) -> Result<Search, Broken> {
    let mut seen = BTreeSet::new();
    let mut found = Search::default();
    let mut ways: Vec<(usize, Option<Action>)> = vec![(0, None)];
    let mut queue = VecDeque::from([(World::new(plan), 0)]);
    while let Some((world, at)) = queue.pop_front() {
        for action in world.enabled() {
            if !is_coarse(action) || world.faults() + usize::from(action.is_fault()) > faults {
                continue;
            }
            found.steps += 1;
            let mut next = world.clone();
            let broken = |what: Broken| format!("{what}\n{:?}", way(&ways, at, action));
            next.step(action).map_err(broken)?;
            if !seen.insert(next.fingerprint()) {
                continue;
            }
            next.clone().finish().map_err(broken)?;
            found.states += 1;
            found.faulty += usize::from(next.faults() > 0);
            ways.push((at, Some(action)));
            queue.push_back((next, ways.len() - 1));
        }
        if found.states >= most {
            return Ok(found);
        }
    }
    found.is_complete = true;
    Ok(found)
}

fn way(ways: &[(usize, Option<Action>)], mut at: usize, last: Action) -> Vec<Action> {
    let mut steps = vec![last];
    while let (before, Some(action)) = ways[at] {
        steps.push(action);
        at = before;
    }
    steps.reverse();
    steps
}
