//! What happened, in order, and which fault waits for which entry.
//!
//! The hash covers what happened and when, not the faults themselves: two schedules are distinct
//! only if the world went two ways. Contents of bytes are no part of it, only their number.

use std::fmt::Write as _;

use tokio::time::Instant;

use crate::fault::Fault;
use crate::frames::Note;

/// What a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Client and gateway.
    Client,
    /// Gateway and agent.
    Carrier,
    /// Agent and app.
    App,
}

/// What happened on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Linked,
    Wrote,
    Read,
    Ended,
    Closed,
    /// A mark of the script: the measured exchange begins, or its end was seen.
    Mark,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Virtual microseconds since the world began.
    pub(crate) at: u64,
    pub(crate) link: u16,
    pub(crate) class: Class,
    /// 0: the end nearer to the client acted.
    pub(crate) side: u8,
    pub(crate) op: Op,
    pub(crate) note: Note,
    pub(crate) len: u32,
}

/// Around which side of an entry a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum When {
    Before,
    /// Half of a frame's bytes were taken by its carrier.
    Amid,
    After,
}

/// One fault of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) at: usize,
    pub(crate) when: When,
    pub(crate) fault: Fault,
}

pub(crate) struct Journal {
    began: Instant,
    pub(crate) entries: Vec<Entry>,
    plans: Vec<(Plan, bool)>,
    hasher: blake3::Hasher,
    /// Sealed: the exchange and all that follows it is over; what is torn down is no event.
    sealed: bool,
    /// Faults strike.
    armed: bool,
}

impl Journal {
    pub(crate) fn new(plans: &[Plan]) -> Self {
        Self {
            began: Instant::now(),
            entries: Vec::new(),
            plans: plans.iter().map(|plan| (*plan, false)).collect(),
            hasher: blake3::Hasher::new(),
            sealed: false,
            armed: true,
        }
    }

    /// Virtual microseconds.
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Adds an entry; answers the faults that strike behind it.
    pub(crate) fn push(&mut self, entry: Entry) -> Vec<Fault> {
        if self.sealed {
            return Vec::new();
        }
        self.hasher.update(&entry.at.to_le_bytes());
        let facts = [
            entry.link.to_le_bytes()[0],
            entry.class as u8,
            entry.side,
            entry.op as u8,
            entry.note.kind,
        ];
        self.hasher.update(&facts);
        self.hasher.update(&entry.note.stream.to_le_bytes());
        self.hasher.update(&entry.len.to_le_bytes());
        self.entries.push(entry);
        self.due(When::After)
    }

    /// Adds an entry at which no fault strikes.
    pub(crate) fn mark(&mut self, entry: Entry) {
        if !self.sealed {
            self.entries.push(entry);
        }
    }

    /// The faults that strike now, before or behind the entry that is next or was last.
    pub(crate) fn due(&mut self, when: When) -> Vec<Fault> {
        let len = self.entries.len();
        let mut due = Vec::new();
        for (plan, struck) in &mut self.plans {
            let is_due = match plan.when {
                When::Before => plan.at <= len && when == When::Before,
                When::Amid => plan.at <= len && when == When::Amid,
                When::After => plan.at < len && when == When::After,
            };
            if is_due && !*struck && self.armed {
                *struck = true;
                due.push(plan.fault);
            }
        }
        due
    }

    /// True if a fault waits for the middle of the next frame.
    pub(crate) fn cuts_the_next(&self) -> bool {
        let len = self.entries.len();
        let waits =
            |(plan, struck): &(Plan, bool)| plan.when == When::Amid && plan.at <= len && !struck;
        self.armed && self.plans.iter().any(waits)
    }

    /// No fault strikes any more.
    pub(crate) fn disarm(&mut self) {
        self.armed = false;
    }

    /// Nothing more is recorded, and no fault strikes.
    pub(crate) fn seal(&mut self) {
        self.disarm();
        self.sealed = true;
    }

    /// How many of the faults struck.
    pub(crate) fn struck(&self) -> usize {
        self.plans.iter().filter(|(_, struck)| *struck).count()
    }

    /// Hash of everything so far.
    pub(crate) fn hash(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(first)
    }
}

/// Entries as text, for whoever looks into a schedule.
pub(crate) fn text(entries: &[Entry]) -> String {
    let mut text = String::new();
    for (index, entry) in entries.iter().enumerate() {
        let direction = if entry.side == 0 { ">" } else { "<" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{index:4} {:>11.6} {:?}{}{direction} {:?} {:?} {}",
            entry.at as f64 / 1e6,
            entry.class,
            entry.link,
            entry.op,
            entry.note,
            entry.len,
        );
    }
    text
}
