//! The answer to whoever asks what became of a request. Owns the shape; pure.

use bridgehead_protocol::verdict::Operation;
use serde::Serialize;

use super::entry::Outcome;
use crate::clock::Clock;

/// An outcome in words, in the order in which they are written.
#[derive(Serialize)]
pub struct Said {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    at: Option<String>,
    evidence: SaidEvidence,
    retry: Retry,
}

#[derive(Serialize)]
struct SaidEvidence {
    source: &'static str,
    delivery: &'static str,
    stage: &'static str,
    code: Option<&'static str>,
    reason: Option<&'static str>,
    complete: Option<bool>,
}

#[derive(Serialize)]
struct Retry {
    read: &'static str,
    write: &'static str,
}

/// What is said of an outcome; `clock` gives the calendar time.
#[must_use]
pub fn said(outcome: &Outcome, clock: Clock) -> Said {
    Said {
        state: outcome.state.as_str(),
        status: outcome.status,
        at: outcome.at.map(|at| clock.stamp(at)),
        evidence: SaidEvidence {
            source: outcome.source.as_str(),
            delivery: outcome.delivery.as_str(),
            stage: outcome.stage.as_str(),
            code: outcome.failed.map(|(code, _)| code.as_str()),
            reason: outcome.failed.map(|(_, reason)| reason.as_str()),
            complete: outcome.complete,
        },
        retry: Retry {
            read: outcome.advice(Operation::Read).as_str(),
            write: outcome.advice(Operation::Write).as_str(),
        },
    }
}
