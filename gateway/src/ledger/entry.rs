//! One exchange with those of its tries that may have reached the app. Pure.
//!
//! Invariant: `not_delivered` is said only if it is proven for every try.

use std::sync::Arc;

use bridgehead_protocol::handshake::Identity;
use bridgehead_protocol::time::Moment;
use bridgehead_protocol::verdict::{
    Advice, Code, Delivery, Operation, Reason, Stage, advise, classify,
};
use uuid::Uuid;

use super::State;
use super::id::{KeyDigest, OutcomeId};
use super::known::{Known, Source};
use super::shelf::Place;

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The app's answer went out whole.
    Answered {
        /// Its status.
        status: Option<u16>,
    },
    /// The gateway answered in the app's place, or cut the app's answer.
    Failed {
        /// Code of the failure.
        code: Code,
        /// Its reason.
        reason: Reason,
    },
    /// Nobody was told: the client was gone.
    Left,
}

/// A try as the corridor knows it when it ends.
#[derive(Clone, Debug)]
pub struct TryRecord {
    /// What is known.
    pub known: Known,
    /// Id of the tunnel.
    pub tunnel: Arc<str>,
    /// Number of the stream in it, if its OPEN left the gateway.
    pub stream: Option<u32>,
    /// Whose tunnel it was; nobody else's report about it counts.
    pub owner: Identity,
}

#[derive(Debug)]
pub(super) struct Traced {
    pub(super) record: TryRecord,
    /// Somebody waits for more.
    pub(super) watched: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: OutcomeId,
    pub(super) request: Uuid,
    pub(super) app: Arc<str>,
    pub(super) key: Option<KeyDigest>,
    pub(super) tries: Vec<Traced>,
    pub(super) closed: Option<(Moment, Closing)>,
    /// When its state was reached.
    pub(super) at: Moment,
    pub(super) place: Place,
}

/// What is said of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What became of it.
    pub state: State,
    /// Status of the app's answer, if it is known.
    pub status: Option<u16>,
    /// Since when it is so; nothing for an exchange that is not known.
    pub at: Option<Moment>,
    /// The verdict that the evidence gives now.
    pub delivery: Delivery,
    /// How far the request is known to have got.
    pub stage: Stage,
    /// Who said the last word.
    pub source: Source,
    /// Code and reason that the client was told, if it was told a failure.
    pub failed: Option<(Code, Reason)>,
    /// Of an answer: whether its end is known to have come.
    pub complete: Option<bool>,
}

impl Outcome {
    /// What is said of an exchange of which nothing is known (any more).
    pub const NOTHING: Self = Self {
        state: State::Unknown,
        status: None,
        at: None,
        delivery: Delivery::Unknown,
        stage: Stage::None,
        source: Source::Nothing,
        failed: None,
        complete: None,
    };

    /// What may be done with the same request. As for an answer: proof lifts `verify_first`, and
    /// nothing else changes.
    #[must_use]
    pub fn advice(&self, operation: Operation) -> Advice {
        match (self.failed, self.delivery) {
            (Some((code, _)), delivery) => advise(code, delivery, operation),
            (None, Delivery::NotDelivered) => Advice::Safe,
            (None, Delivery::Unknown | Delivery::Delivered) => classify(None, operation),
        }
    }
}

impl Entry {
    pub(super) fn state(&self) -> State {
        match self.closed {
            None => State::Pending,
            Some((_, Closing::Answered { .. })) => State::Answered,
            Some((_, Closing::Failed { .. } | Closing::Left)) => self.state_of_tries(),
        }
    }

    fn state_of_tries(&self) -> State {
        let Some(telling) = self.telling() else {
            return State::NotDelivered;
        };
        if telling.record.known.reply.is_some() {
            return State::Answered;
        }
        let unproven = |t: &&Traced| t.record.known.judgement.delivery != Delivery::NotDelivered;
        let mut unproven = self.tries.iter().filter(unproven).peekable();
        if unproven.peek().is_none() {
            State::NotDelivered
        } else if unproven.any(|t| t.watched) {
            State::Pending
        } else {
            State::Unknown
        }
    }

    /// The try that decides: one with an answer, else one without a proof, else any.
    fn telling(&self) -> Option<&Traced> {
        let weight = |t: &&Traced| match (t.record.known.reply, t.record.known.judgement.delivery) {
            (Some(_), _) => 2,
            (None, Delivery::Unknown | Delivery::Delivered) => 1,
            (None, Delivery::NotDelivered) => 0,
        };
        self.tries.iter().max_by_key(weight)
    }

    pub(super) fn outcome(&self) -> Outcome {
        let state = self.state();
        let told = Outcome {
            state,
            at: Some(self.at),
            source: Source::Exchange,
            failed: match self.closed {
                Some((_, Closing::Failed { code, reason })) => Some((code, reason)),
                _ => None,
            },
            ..Outcome::NOTHING
        };
        if let Some((_, Closing::Answered { status })) = self.closed {
            return Outcome {
                status,
                delivery: Delivery::Delivered,
                stage: Stage::AnswerBegun,
                complete: Some(true),
                ..told
            };
        }
        match self.telling() {
            Some(Traced { record, .. }) => Outcome {
                status: record.known.reply.and_then(|reply| reply.status),
                delivery: record.known.judgement.delivery,
                stage: record.known.judgement.stage,
                source: record.known.source,
                complete: record.known.reply.map(|reply| reply.complete),
                ..told
            },
            None if state == State::NotDelivered => Outcome {
                delivery: Delivery::NotDelivered,
                ..told
            },
            None => told,
        }
    }
}
