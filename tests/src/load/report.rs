//! What came of a run: counts, latencies, lies; as text for a person and as JSON.
//!
//! Pure. Invariant: every request is in exactly one of `right`, `failed` and `broken`, or was shed.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::histogram::{Histogram, Percentiles};
use super::judge::Lie;
use super::told::Told;

/// Lies that are told in full; the rest are counted.
const SHOWN: usize = 20;

/// Requests of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OfKind {
    /// Asked.
    pub asked: u64,
    /// Whole and right.
    pub right: u64,
    /// From the scheduled time to the end of the answer.
    pub latency_ms: Percentiles,
}

/// Failures with the same verdict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Words {
    /// Code.
    pub code: String,
    /// Verdict.
    pub delivery: String,
    /// Reason.
    pub reason: String,
}

/// Unknowns of one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Regret {
    /// Told `unknown`.
    pub unknown: u64,
    /// Of these, the app saw nothing.
    pub unseen: u64,
}

/// What the gateway counted meanwhile.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Resumed {
    /// Tunnels resumed, by result.
    pub resumes: BTreeMap<String, u64>,
    /// Bytes sent again.
    pub bytes: u64,
}

/// A whole run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Seed.
    pub seed: u64,
    /// Seconds from the first scheduled request to the last answer.
    pub seconds: f64,
    /// Requests sent.
    pub asked: u64,
    /// Whole and right answers.
    pub right: u64,
    /// Answers with a verdict, with the app's own failure or with neither.
    pub failed: u64,
    /// No answer, or one that broke visibly.
    pub broken: u64,
    /// Of `failed` and `broken`, those whose app was asked to fail.
    pub asked_to_fail: u64,
    /// Not sent, because too many were under way: the measurement is not of the rate that was asked.
    pub shed: u64,
    /// By what was told.
    pub told: BTreeMap<&'static str, u64>,
    /// WebSockets that did not come to their end.
    pub websockets_broken: u64,
    /// How broken ones broke.
    pub broken_by: BTreeMap<String, u64>,
    /// By kind.
    pub kinds: BTreeMap<&'static str, OfKind>,
    /// Latency of all that ended right, streams and WebSockets left out: from the scheduled time to the end.
    pub latency_ms: Percentiles,
    /// From the scheduled time to the head, of all that got one.
    pub head_ms: Percentiles,
    /// Verdicts.
    pub verdicts: Vec<(Words, u64)>,
    /// Regret, by reason.
    pub regret: BTreeMap<String, Regret>,
    /// Heads that ended before they named their request; they can be laid to no verdict.
    pub fragments: u64,
    /// Resumption, if the gateway's admin listener was named and knows of it.
    pub resumed: Option<Resumed>,
    /// Number of lies.
    pub lies: u64,
    /// The first of them.
    pub lies_shown: Vec<Lie>,
}

/// Histograms of a run, from which its report takes percentiles.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    pub(super) all: Histogram,
    pub(super) head: Histogram,
    pub(super) kinds: BTreeMap<&'static str, Histogram>,
}

impl Report {
    /// Adds what one request was told.
    pub(super) fn add(&mut self, told: &Told, asked_to_fail: bool) {
        self.asked += 1;
        *self.told.entry(told.as_str()).or_default() += 1;
        match told {
            Told::Right => self.right += 1,
            Told::Refused(_) | Told::AppSays(_) | Told::Foreign(_) | Told::Wrong(_) => {
                self.failed += 1
            }
            Told::Empty(_) | Told::Aborted(_) | Told::Unreachable(_) | Told::Late => {
                self.broken += 1
            }
        }
        self.asked_to_fail += u64::from(asked_to_fail && *told != Told::Right);
        if let Told::Empty(how) | Told::Aborted(how) | Told::Unreachable(how) = told {
            *self
                .broken_by
                .entry(format!("{}: {how}", told.as_str()))
                .or_default() += 1;
        }
    }

    /// Replaces the lies; each judging is of the whole run.
    pub(super) fn set_lies(&mut self, lies: Vec<Lie>) {
        self.lies = lies.len() as u64;
        self.lies_shown = lies.into_iter().take(SHOWN).collect();
    }

    /// Failures and breaks that nobody asked for.
    pub fn unasked(&self) -> u64 {
        (self.failed + self.broken).saturating_sub(self.asked_to_fail)
    }

    /// Tunnels that went on over another connection.
    pub fn resumes(&self) -> u64 {
        let resumes = self.resumed.as_ref().map(|r| &r.resumes);
        resumes.and_then(|r| r.get("resumed").copied()).unwrap_or(0)
    }

    /// As text for a person.
    pub fn render(&self) -> String {
        let rate = self.asked as f64 / self.seconds.max(1e-9);
        let mut text = format!(
            "requests   {} in {:.1} s ({rate:.0}/s), {} right, {} failed, {} broken ({} of them on request)\n",
            self.asked, self.seconds, self.right, self.failed, self.broken, self.asked_to_fail
        );
        if self.shed > 0 {
            let _ = writeln!(
                text,
                "SHED       {} requests were not sent: too many were under way",
                self.shed
            );
        }
        for (name, p) in [("latency", &self.latency_ms), ("head", &self.head_ms)] {
            let _ = writeln!(
                text,
                "{name:<10} p50 {:.1}  p90 {:.1}  p99 {:.1}  p99.9 {:.1}  max {:.1} ms",
                p.p50, p.p90, p.p99, p.p999, p.max
            );
        }
        for (kind, of) in &self.kinds {
            let p = &of.latency_ms;
            let _ = writeln!(
                text,
                "  {kind:<9}{} of {} right, p50 {:.1}  p99 {:.1}  max {:.1} ms",
                of.right, of.asked, p.p50, p.p99, p.max
            );
        }
        for (words, count) in &self.verdicts {
            let _ = writeln!(
                text,
                "verdict    {count} x {} {} {}",
                words.code, words.delivery, words.reason
            );
        }
        for (how, count) in &self.broken_by {
            let _ = writeln!(text, "broken     {count} x {how}");
        }
        for (reason, regret) in &self.regret {
            let _ = writeln!(
                text,
                "regret     {reason}: {} unknown, the app saw nothing of {}",
                regret.unknown, regret.unseen
            );
        }
        if let Some(resumed) = &self.resumed {
            let results: Vec<String> = resumed
                .resumes
                .iter()
                .map(|(k, n)| format!("{n} {k}"))
                .collect();
            let none = "no".to_owned();
            let _ = writeln!(
                text,
                "resumed    {} tunnels, {} bytes sent again",
                if results.is_empty() {
                    none
                } else {
                    results.join(", ")
                },
                resumed.bytes
            );
        }
        if self.fragments > 0 {
            let _ = writeln!(
                text,
                "fragments  {} heads ended before they named their request",
                self.fragments
            );
        }
        let _ = writeln!(text, "lies       {}", self.lies);
        for lie in &self.lies_shown {
            let _ = writeln!(text, "  LIE {lie}");
        }
        text
    }
}
