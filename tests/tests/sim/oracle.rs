//! What must hold after every schedule, read from the journal and from the programs themselves.
//!
//! The oracle knows the wires, never the gateway's mind: what the gateway could know is what it read
//! from a carrier before it answered, and that is put into the decision function a second time.

mod ledger;
mod left;
mod rules;
mod view;

use std::collections::BTreeMap;

use bridgehead_protocol::verdict::Delivery;
use bridgehead_protocol::wire::Kind;

use self::view::{allowed, tunnels, view};
use crate::fault::Fault;
use crate::frames::Whose;
use crate::journal::{Class, Entry, Op, When};
use crate::run::Outcome;
use crate::shape::{Back, Shape};

pub(crate) use self::ledger::{Word, word};
pub(crate) use self::left::{left, lingers, recorded, unsettled};

/// How long the gateway waits for counts.
const COUNTS: u64 = 500_000;

/// What the oracle found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// One line for each invariant that fell.
    pub(crate) fallen: Vec<String>,
    /// The app saw a byte of the measured exchange.
    pub(crate) saw: bool,
    /// `unknown` was said although it saw nothing.
    pub(crate) regret: bool,
    /// The proof was on its way and would have come in time.
    pub(crate) avoidable: bool,
    /// `unknown` was said although no carrier took a byte of it: it was lost in the tunnel's queue.
    pub(crate) queued: bool,
    /// `not_delivered` was said although it saw something.
    pub(crate) lie: bool,
    /// Of a request told `unknown` because its tunnel was lost while its agent lived: whether the
    /// ledger knew better soon after the agent was back.
    pub(crate) known: Option<bool>,
}

/// Looks at a schedule.
pub(crate) fn look(shape: &Shape, outcome: &Outcome) -> Findings {
    let mut findings = Findings::default();
    let case = Case::of(shape, outcome);
    findings.saw = case.saw > 0;
    case.verdicts(&mut findings);
    case.outcome(&mut findings.fallen);
    case.once(&mut findings.fallen);
    case.bytes(&mut findings.fallen);
    case.late(&mut findings.fallen);
    case.farewell(&mut findings.fallen);
    case.head(&mut findings.fallen);
    case.ledger(&mut findings);
    if outcome.is_failed_by_cuts(shape) {
        findings.fallen.push("a cut failed the request".to_owned());
    }
    let left = outcome.left.iter().map(|what| format!("I7 left: {what}"));
    findings.fallen.extend(left);
    findings
}

struct Case<'a> {
    shape: &'a Shape,
    outcome: &'a Outcome,
    /// Bytes of the measured exchange that the app's kernel took.
    saw: u64,
    /// When the first came.
    first_at: Option<u64>,
    /// Connections that took any.
    connections: usize,
}

impl<'a> Case<'a> {
    fn of(shape: &'a Shape, outcome: &'a Outcome) -> Self {
        let mut links: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
        let whole = view(&outcome.entries, outcome.mark, outcome.entries.len());
        // What an h2c connection says before its first request: preface and settings. All it ever said,
        // if no request began; if connections differ, the longest, for no request is that short.
        let greeting = match shape.back {
            Back::Http1 | Back::Tcp => 0,
            Back::H2c => {
                let fresh = whole.values().filter_map(|stream| stream.begun);
                fresh.max().unwrap_or(u64::MAX)
            }
        };
        let linked: Vec<u16> = outcome.entries[outcome.mark..]
            .iter()
            .filter(|e| e.op == Op::Linked && e.class == Class::App)
            .map(|e| e.link)
            .collect();
        let mut whose: BTreeMap<u16, Whose> = BTreeMap::new();
        let (mut saw, mut first_at) = (0, None);
        for entry in &outcome.entries[outcome.mark..] {
            if entry.class != Class::App || entry.side != 0 || entry.op != Op::Wrote {
                continue;
            }
            let who = whose.entry(entry.link).or_insert(Whose::Measured);
            *who = entry.note.begins().unwrap_or(*who);
            if *who == Whose::Other {
                continue;
            }
            let (before, after) = links.entry(entry.link).or_default();
            let free = if linked.contains(&entry.link) {
                greeting
            } else {
                0
            };
            *before += u64::from(entry.len);
            let counted = before.saturating_sub(free);
            if counted > *after {
                first_at.get_or_insert(entry.at);
                saw += counted - *after;
                *after = counted;
            }
        }
        Self {
            shape,
            outcome,
            saw,
            first_at,
            connections: links.values().filter(|(_, counted)| *counted > 0).count(),
        }
    }

    fn struck(&self, which: impl Fn(Fault) -> bool) -> bool {
        self.outcome.plans.iter().any(|plan| which(plan.fault))
    }

    /// Entry with which the client was told.
    fn told_at(&self) -> usize {
        let before = &self.outcome.entries[..self.outcome.end];
        let said = |e: &Entry| e.class == Class::Client && e.side == 1 && e.op == Op::Wrote;
        before.iter().rposition(said).unwrap_or(self.outcome.end)
    }

    /// I1, I2, I3 and regret.
    fn verdicts(&self, findings: &mut Findings) {
        let told = &self.outcome.exchange.told;
        let fallen = &mut findings.fallen;
        let words = told.verdict.as_ref().map(|v| v.delivery.as_str());
        let recorded = |word: &str| {
            // Its lines are those of other clients as well.
            if self.shape.queued || self.struck(|f| f == Fault::QueueFull) {
                return false;
            }
            let is = |line: &&String| line.split('/').nth(1) == Some(word);
            self.outcome.recorded.iter().any(|line| is(&line))
        };
        let nothing = words == Some("not_delivered") || told.refused || recorded("not_delivered");
        if nothing && self.saw > 0 {
            findings.lie = true;
            fallen.push(format!(
                "I1 a lie: not_delivered, and {} bytes seen",
                self.saw
            ));
        }
        let Some(delivery) = words.and_then(Delivery::parse) else {
            if let Some(word) = words {
                fallen.push(format!("I3 no such word: {word}"));
            }
            return;
        };
        let entries = &self.outcome.entries;
        let told_at = self.told_at();
        let time = entries[told_at.min(entries.len() - 1)].at;
        let same = entries.partition_point(|e| e.at < time);
        let (mark, points) = (self.outcome.mark, [told_at, same, self.outcome.end]);
        let may: Vec<Delivery> = points
            .iter()
            .flat_map(|until| allowed(self.shape, entries, mark, *until))
            .collect();
        let proven = may.iter().all(|may| *may == Delivery::NotDelivered);
        let cut = self.struck(Fault::loses_the_carrier);
        if delivery == Delivery::Unknown && cut && proven {
            // "Given to a carrier" begins with the carrier's queue, whose content dies with it.
            // Of a frame that was cut the carrier took half, and no wire shows whose it was; as little of
            // what a carrier took behind its end.
            let whole = self.outcome.plans.iter().all(|p| p.when != When::Amid);
            let is_lost = |e: &Entry| e.side == 0 && e.class == Class::Carrier && e.note.is_lost();
            findings.queued = whole && !entries[mark..told_at].iter().any(is_lost);
        } else if !may.contains(&delivery) {
            fallen.push(format!("I3 told {delivery}, the wire allows {may:?}"));
        }
        if delivery == Delivery::Delivered {
            let streams = view(entries, mark, self.outcome.end);
            let h2c = self.shape.back == Back::H2c;
            let answered = self
                .outcome
                .seen
                .iter()
                .any(|r| r.path == "/x" && r.answered);
            let none = streams.values().all(|stream| stream.answer_bytes() == 0);
            if none || (h2c && !answered) {
                fallen.push("I2 delivered without a byte of the answer".to_owned());
            }
        }
        let stage = told.verdict.as_ref().map_or("", |v| v.stage.as_str());
        if delivery != Delivery::NotDelivered && stage != "none" && self.saw == 0 {
            fallen.push(format!("I3 stage {stage}, and nothing was seen"));
        }
        if delivery == Delivery::Unknown && self.saw == 0 {
            findings.regret = true;
            findings.avoidable = self.was_avoidable(told_at, time);
        }
    }

    /// A terminal that says "nothing" reached the gateway after it had spoken, and yet in time.
    fn was_avoidable(&self, told_at: usize, told: u64) -> bool {
        let entries = &self.outcome.entries;
        let used = view(entries, self.outcome.mark, told_at);
        let tunnels = tunnels(entries);
        let key = |e: &Entry| tunnels.get(&e.link).map(|t| (*t, e.note.stream));
        let gives_up = |e: &&Entry| {
            let note = e.note;
            e.side == 0
                && e.op == Op::Wrote
                && (note.is(Kind::Fence) || note.is(Kind::Reset))
                && key(e).is_some_and(|key| used.contains_key(&key))
        };
        let mut before = entries[self.outcome.mark..told_at].iter().rev();
        let gave_up = match before.find(gives_up) {
            Some(entry) => entry.at,
            // It waited for a carrier, and so did the counts.
            None if entries[told_at..].iter().any(|e| gives_up(&e)) => return false,
            None => told,
        };
        entries[told_at..].iter().any(|e| {
            let Some(stream) = key(e).and_then(|key| used.get(&key)) else {
                return false;
            };
            let terminal = match Kind::from_number(e.note.kind) {
                Some(Kind::Refused) => true,
                Some(Kind::Final | Kind::Count) => e.note.value <= stream.start(),
                _ => false,
            };
            terminal
                && e.class == Class::Carrier
                && e.side == 0
                && e.op == Op::Read
                && e.at < gave_up + COUNTS
        })
    }
}
