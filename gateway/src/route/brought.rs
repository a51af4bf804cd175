//! Names of apps that agents bring: inside a token's pattern, and without an `[[app]]`. Pure.
//!
//! A name counts for the token subject that brought it. It outlives its last offer, so that its clients
//! are told that no agent is there and not that there is no such app; but it is the first to go when its
//! subject brings another and has as many as it may. Invariants: a subject has no more names than it may,
//! unless a reload took their `[[app]]` away or lowered the bound; a name that is offered never goes.

use std::collections::BTreeMap;

use crate::config::{AppKind, AppName};

/// A subject would have more names than it may, all of them offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// What became of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// They are what they were.
    None,
    /// Some came or went.
    Some,
}

#[derive(Clone, Copy, Debug)]
struct Name {
    kind: AppKind,
    /// Tunnels that offer it.
    offers: usize,
    /// When the last of them left, in turns.
    left: u64,
}

/// The names that every subject brought.
#[derive(Debug, Default)]
pub struct Brought {
    subjects: BTreeMap<Box<str>, BTreeMap<AppName, Name>>,
    turns: u64,
}

impl Brought {
    /// A tunnel of `subject` offers `after` instead of `before`. `counts` says of which names there may be
    /// `most`: those without an `[[app]]`. The others are remembered while they are offered.
    ///
    /// # Errors
    /// [`TooMany`]; nothing has changed then. Never if `after` has no name that nobody of the subject
    /// offers.
    pub fn replace(
        &mut self,
        subject: &str,
        before: &[AppName],
        after: &[(AppName, AppKind)],
        most: usize,
        counts: impl Fn(&AppName) -> bool,
    ) -> Result<Change, TooMany> {
        if before.is_empty() && after.is_empty() {
            return Ok(Change::None);
        }
        self.turns += 1;
        let names = self.subjects.entry(subject.into()).or_default();
        check(names, before, after, most, &counts)?;
        let mut change = Change::None;
        for name in before {
            if let Some(known) = names.get_mut(name) {
                known.offers = known.offers.saturating_sub(1);
                known.left = self.turns;
            }
        }
        for (name, kind) in after {
            let known = names.entry(name.clone()).or_insert_with(|| {
                change = Change::Some;
                Name {
                    kind: *kind,
                    offers: 0,
                    left: 0,
                }
            });
            if known.offers == 0 && known.kind != *kind {
                known.kind = *kind;
                change = Change::Some;
            }
            known.offers += 1;
        }
        if forget(names, most, counts) == Change::Some {
            change = Change::Some;
        }
        if names.is_empty() {
            self.subjects.remove(subject);
        }
        Ok(change)
    }

    /// Every name with the protocol of its app, each once for every subject that brought it; the first one
    /// counts.
    pub fn names(&self) -> impl Iterator<Item = (&AppName, AppKind)> {
        let all = self.subjects.values().flatten();
        all.map(|(name, known)| (name, known.kind))
    }
}

/// Whether as many are offered afterwards as may be.
fn check(
    names: &BTreeMap<AppName, Name>,
    before: &[AppName],
    after: &[(AppName, AppKind)],
    most: usize,
    counts: impl Fn(&AppName) -> bool,
) -> Result<(), TooMany> {
    let offered = |name: &AppName| names.get(name).map_or(0, |known| known.offers);
    let fresh = |name: &AppName| offered(name) == 0 && counts(name);
    let come = after.iter().filter(|(name, _)| fresh(name)).count();
    if come == 0 {
        return Ok(());
    }
    let stays = |name: &AppName| after.iter().any(|(other, _)| other == name);
    let goes = |name: &AppName| offered(name) == 1 && counts(name) && !stays(name);
    let go = before.iter().filter(|name| goes(name)).count();
    let now = (names.iter()).filter(|(name, known)| known.offers > 0 && counts(name));
    match now.count() + come - go > most {
        true => Err(TooMany),
        false => Ok(()),
    }
}

/// Of the names that nobody offers, those go that have an `[[app]]`, and of the others the longest idle
/// ones until there are no more than `most`.
fn forget(
    names: &mut BTreeMap<AppName, Name>,
    most: usize,
    counts: impl Fn(&AppName) -> bool,
) -> Change {
    let had = names.len();
    names.retain(|name, known| known.offers > 0 || counts(name));
    let total = names.keys().filter(|name| counts(name)).count();
    let mut idle: Vec<(u64, AppName)> = (names.iter())
        .filter(|(_, known)| known.offers == 0)
        .map(|(name, known)| (known.left, name.clone()))
        .collect();
    idle.sort();
    for (_, name) in idle.iter().take(total.saturating_sub(most)) {
        names.remove(name);
    }
    match names.len() == had {
        true => Change::None,
        false => Change::Some,
    }
}

#[cfg(test)]
#[path = "brought_tests.rs"]
mod tests;
