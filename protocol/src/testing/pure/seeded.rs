//! Random schedules from seeds: the same seed is the same schedule, for ever.
//!
//! Each seed draws a subset of the actions and weights for them, so that rare ones are common
//! somewhere; every fourth keeps all.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use crate::verdict::Delivery;

use super::super::dice::Dice;
use super::{Action, Broken, Plan, World};

/// What a range of seeds looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seeds {
    /// Schedules run.
    pub schedules: usize,
    /// Distinct ones.
    pub distinct: usize,
    /// Steps of all.
    pub steps: usize,
    /// Faults that struck.
    pub faults: usize,
    /// Exchanges told delivered.
    pub delivered: usize,
    /// Exchanges told not delivered.
    pub not_delivered: usize,
    /// Exchanges told unknown.
    pub unknown: usize,
}

/// Weights of the kinds of actions; which stream or exchange does not matter.
struct Weights {
    of_kind: [u64; 64],
    /// Faults are rare beside the steps of a good world, or nothing would ever come to pass; how
    /// rare differs.
    good: u64,
}

impl Weights {
    fn draw(seed: u64, dice: &mut Dice) -> Self {
        let of_kind = std::array::from_fn(|_| {
            let weight = 1 + dice.below(8);
            let keeps = seed.is_multiple_of(4) || dice.below(4) > 0;
            if keeps { weight } else { 0 }
        });
        let good = [6, 40, 200][dice.index(3)];
        Self { of_kind, good }
    }

    fn of(&self, action: Action) -> u64 {
        let mut hash = DefaultHasher::new();
        std::mem::discriminant(&action).hash(&mut hash);
        let weight = self.of_kind[usize::try_from(hash.finish() % 64).unwrap_or(0)];
        match action {
            // The end of a world: rarer still.
            Action::Lose => weight,
            _ if action.is_fault() => 4 * weight,
            _ => 4 * self.good * weight,
        }
    }

    fn pick(&self, can: &[Action], dice: &mut Dice) -> Option<Action> {
        let total: u64 = can.iter().map(|action| self.of(*action)).sum();
        let mut left = dice.below(total.max(1));
        can.iter().copied().find(|action| {
            let weight = self.of(*action);
            let here = left < weight;
            left = left.saturating_sub(weight);
            here
        })
    }
}

/// The steps of a seed's schedule, and where they lead.
///
/// # Errors
/// The promise broken, with the steps.
pub fn schedule_of(seed: u64) -> Result<(Vec<Action>, World), Broken> {
    let mut dice = Dice::new(seed);
    let plan = Plan {
        exchanges: 1 + usize::from(dice.below(3) > 0),
        reuse: dice.below(2) == 0,
        part: [3, 900, 7000][dice.index(3)],
        parts: dice.index(4),
        answers: 4,
    };
    let weights = Weights::draw(seed, &mut dice);
    let length = 20 + dice.below(120);
    let mut world = World::new(plan);
    let mut steps = Vec::new();
    for _ in 0..length {
        let Some(action) = weights.pick(&world.enabled(), &mut dice) else {
            break;
        };
        steps.push(action);
        world
            .step(action)
            .map_err(|what| format!("seed {seed}: {what}\n{plan:?} {steps:?}"))?;
    }
    Ok((steps, world))
}

/// Runs one seed to its end.
///
/// # Errors
/// The promise broken, with its seed and steps.
pub fn run_seed(seed: u64) -> Result<(Vec<Action>, World), Broken> {
    let (steps, world) = schedule_of(seed)?;
    world
        .clone()
        .finish()
        .map_err(|what| format!("seed {seed}, at its end: {what}\n{steps:?}"))?;
    Ok((steps, world))
}

/// Runs every seed of a range to its end.
///
/// # Errors
/// The first promise broken, with its seed and steps.
pub fn run_seeds(seeds: Range<u64>) -> Result<Seeds, Broken> {
    let mut ran = Seeds::default();
    let mut seen = BTreeSet::new();
    for seed in seeds {
        let (steps, world) = run_seed(seed)?;
        let mut hash = DefaultHasher::new();
        (world.plan_of(), &steps).hash(&mut hash);
        seen.insert(hash.finish());
        ran.schedules += 1;
        ran.steps += steps.len();
        ran.faults += world.faults();
        for told in world.told().into_iter().flatten() {
            match told {
                Delivery::Delivered => ran.delivered += 1,
                Delivery::NotDelivered => ran.not_delivered += 1,
                Delivery::Unknown => ran.unknown += 1,
            }
        }
    }
    ran.distinct = seen.len();
    Ok(ran)
}
