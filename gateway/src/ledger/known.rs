//! What is known of one try, and the one function by which a later fact changes it.
//!
//! Pure. The verdict of counts is `protocol::verdict::judge`'s, as it was for the answer; here it is
//! only decided whether the fact may be believed and whether it says more than is known already.
//! Invariants: `not_delivered` never changes; an answer is never taken back and its status never
//! changes; counts that contradict what is known change nothing; a fact twice is a fact once.

use bridgehead_protocol::verdict::{Delivery, Evidence, Judgement, Stage, Terminal, judge};

/// Where the last word about a try came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody: the exchange is not in the ledger.
    Nothing,
    /// The exchange itself, when it ended.
    Exchange,
    /// The app's answer, which came after the client was told.
    LateAnswer,
    /// The agent's counts, which came after the client was told.
    LateCount,
    /// The agent's report about a tunnel that was lost: its word alone.
    AgentReport,
}

impl Source {
    /// The word in answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "none",
            Self::Exchange => "exchange",
            Self::LateAnswer => "late_answer",
            Self::LateCount => "late_count",
            Self::AgentReport => "agent_report",
        }
    }
}

/// The app began to answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Status of its final head, once that is known.
    pub status: Option<u16>,
    /// The answer came to its end.
    pub complete: bool,
}

/// What is known of one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Offsets and counts, as they were judged first.
    pub evidence: Evidence,
    /// Bytes of the stream that the agent told as taken by the app's socket.
    pub consumed: u64,
    /// Bytes of the stream that came from the app.
    pub received: u64,
    /// Bytes that the app had said on the stream before this exchange, where every later one is of
    /// its answer; nothing where the protocol says other things as well.
    pub read_before: Option<u64>,
    /// What may be said.
    pub judgement: Judgement,
    /// The app began to answer.
    pub reply: Option<Reply>,
    /// Who said so last.
    pub source: Source,
}

/// Something learnt after the client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Bytes of the app's answer came to the gateway.
    Answer(Reply),
    /// How the stream ended, or was counted.
    Ended {
        /// The terminal.
        terminal: Terminal,
        /// Bytes of the stream that the agent read from the app, if it said so.
        read: Option<u64>,
        /// Who said it.
        source: Source,
    },
}

impl Known {
    /// What is known when a try ends. `status`: of the app's final head, if one came.
    #[must_use]
    pub fn of(evidence: Evidence, status: Option<u16>) -> Self {
        let judgement = judge(&evidence);
        let began = judgement.delivery == Delivery::Delivered;
        Self {
            evidence,
            consumed: 0,
            received: 0,
            read_before: None,
            judgement,
            reply: began.then_some(Reply {
                status,
                complete: false,
            }),
            source: Source::Exchange,
        }
    }

    /// Nothing can be proven, and no stream is known of which a fact could come.
    #[must_use]
    pub fn nothing() -> Self {
        Self::of(
            Evidence {
                start: 0,
                emitted: u64::MAX,
                head_len: 0,
                request_len: None,
                terminal: Terminal::LostUnknown,
                answer_bytes: 0,
            },
            None,
        )
    }

    /// What is known once `fact` is.
    #[must_use]
    pub fn with(&self, fact: Fact) -> Self {
        if self.judgement.delivery == Delivery::NotDelivered {
            return *self;
        }
        match fact {
            Fact::Answer(reply) => self.answered(reply),
            Fact::Ended { .. } if self.reply.is_some() => *self,
            Fact::Ended {
                terminal,
                read,
                source,
            } => self.ended(terminal, read, source),
        }
    }

    fn answered(&self, reply: Reply) -> Self {
        let old = self.reply.unwrap_or_default();
        let joined = Reply {
            status: old.status.or(reply.status),
            complete: old.complete || reply.complete,
        };
        if self.reply == Some(joined) {
            return *self;
        }
        Self {
            judgement: Judgement {
                delivery: Delivery::Delivered,
                stage: Stage::AnswerBegun,
            },
            reply: Some(joined),
            source: Source::LateAnswer,
            ..*self
        }
    }

    fn ended(&self, terminal: Terminal, read: Option<u64>, source: Source) -> Self {
        if self.contradicts(terminal, read) {
            return *self;
        }
        let judgement = judge(&Evidence {
            terminal,
            ..self.evidence
        });
        if self.began_to_answer(terminal, read) {
            // No byte of it reached the gateway, so the delivery stays unproven.
            return Self {
                judgement: Judgement {
                    stage: Stage::AnswerBegun,
                    ..self.judgement
                },
                reply: Some(Reply::default()),
                source,
                ..*self
            };
        }
        let proven = judgement.delivery == Delivery::NotDelivered;
        if !proven && rank(judgement.stage) <= rank(self.judgement.stage) {
            return *self;
        }
        Self {
            evidence: Evidence {
                terminal,
                ..self.evidence
            },
            judgement,
            source,
            ..*self
        }
    }

    /// Counts below what was told as taken or has arrived, above what was ever sent, or other than
    /// final ones that are known, are a lie or about something else.
    fn contradicts(&self, terminal: Terminal, read: Option<u64>) -> bool {
        let fewer_read = read.is_some_and(|read| read < self.received);
        let otherwise = match (self.evidence.terminal, terminal) {
            (Terminal::Counted { written: known }, Terminal::Counted { written }) => {
                written != known
            }
            (Terminal::Counted { written: known }, _) => known > self.evidence.start,
            _ => false,
        };
        let impossible = match terminal {
            Terminal::Counted { written } => {
                written < self.consumed || written > self.evidence.emitted
            }
            Terminal::Refused | Terminal::GoAwayBelow | Terminal::NotOpened => {
                self.consumed > self.evidence.start || self.received > 0
            }
            Terminal::LostUnknown | Terminal::Open { .. } => false,
        };
        fewer_read || otherwise || impossible
    }

    /// The agent wrote some of the request, and read more from the app than before it: the same rule
    /// by which bytes that reach the gateway count as an answer, by the agent's count alone.
    fn began_to_answer(&self, terminal: Terminal, read: Option<u64>) -> bool {
        let Terminal::Counted { written } = terminal else {
            return false;
        };
        match (read, self.read_before) {
            (Some(read), Some(before)) => written > self.evidence.start && read > before,
            _ => false,
        }
    }
}

/// How far a stage is; a later fact never puts a request back.
fn rank(stage: Stage) -> usize {
    Stage::ALL
        .iter()
        .position(|known| *known == stage)
        .unwrap_or(0)
}

#[cfg(test)]
#[path = "known_tests.rs"]
mod tests;
