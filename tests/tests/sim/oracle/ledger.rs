//! What the ledger says of the measured exchange after it, against what the app saw and said.

use bridgehead_gateway::ledger::State;
use bridgehead_protocol::wire::Kind;
use uuid::Uuid;

use super::{Case, Findings};
use crate::fault::Fault;
use crate::frames::Whose;
use crate::journal::{Class, Entry, Op};
use crate::programs::Programs;
use crate::shape::Back;

/// So many virtual microseconds after an agent is back the ledger shall know what it reported.
const SOON: u64 = 5_000_000;

/// What the ledger says of one exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    state: State,
    status: Option<u16>,
    /// Virtual microseconds at which it came to say so.
    at: u64,
}

/// What the gateway's ledger says of a request by its number; nothing if it is not kept there.
pub(crate) fn word(programs: &Programs, id: Option<&str>) -> Option<Word> {
    let shared = programs.gateway()?;
    let shared = shared.shared();
    let id = Uuid::parse_str(id?).ok()?;
    let outcome = shared.ledger.by_request(shared.clock.now(), id)?;
    Some(Word {
        state: outcome.state,
        status: outcome.status,
        at: outcome.at?.as_micros(),
    })
}

impl Case<'_> {
    /// The ledger never says what is not so, and never takes back what it said.
    pub(super) fn ledger(&self, findings: &mut Findings) {
        let [early, late] = self.outcome.words;
        let told = &self.outcome.exchange.told;
        for word in [early, late].into_iter().flatten() {
            if word.state == State::NotDelivered && self.saw > 0 {
                findings.lie = true;
                let lie = format!("I1 a lie of the ledger: {} bytes seen", self.saw);
                findings.fallen.push(lie);
            }
            if word.state == State::Answered && !self.app_spoke() {
                let early = "I2 the ledger says answered, and the app said nothing".to_owned();
                findings.fallen.push(early);
            }
            if word
                .status
                .is_some_and(|status| status != self.shape.status())
            {
                let status = format!("I3 the ledger says status {:?}", word.status);
                findings.fallen.push(status);
            }
            let nothing = told.verdict.as_ref().is_some_and(|v| v.says_nothing());
            if nothing && word.state != State::NotDelivered {
                let weaker = format!("I3 told not_delivered, the ledger says {:?}", word.state);
                findings.fallen.push(weaker);
            }
        }
        if let (Some(early), Some(late)) = (early, late) {
            let certain = matches!(early.state, State::NotDelivered | State::Answered);
            if certain && early.state != late.state {
                let back = format!("I3 the ledger took back {:?}", early.state);
                findings.fallen.push(back);
            }
        }
        findings.known = self.became_known();
    }

    /// The app said something behind the first byte that it saw.
    fn app_spoke(&self) -> bool {
        if self.shape.back == Back::H2c {
            let mut seen = self.outcome.seen.iter();
            return seen.any(|r| r.path == "/x" && r.answered);
        }
        let entries = &self.outcome.entries[self.outcome.mark..];
        let asked = entries.iter().position(|e| {
            e.class == Class::App
                && e.side == 0
                && e.op == Op::Wrote
                && e.note.begins() == Some(Whose::Measured)
        });
        let Some(asked) = asked else {
            return false;
        };
        let link = entries[asked].link;
        let said = |e: &Entry| e.link == link && e.side == 1 && e.op == Op::Wrote;
        entries[asked..].iter().any(said)
    }

    /// Of a request told `unknown` where nothing went wrong but the way to an agent that lived: whether
    /// the ledger knew better in time. One that the app saw and never answered stays unknown in truth.
    fn became_known(&self) -> Option<bool> {
        let told = self.outcome.exchange.told.verdict.as_ref()?;
        let mut faults = self.outcome.plans.iter().map(|plan| plan.fault);
        let comes_back = |fault: Fault| fault.cuts_the_carrier() && fault != Fault::AgentKill;
        // A body over its limit is stopped whatever became of the way.
        let stopped = told.code == "BODY_TOO_LARGE";
        let open = self.saw > 0 && !self.app_spoke();
        if told.delivery != "unknown" || stopped || open || !faults.all(comes_back) {
            return None;
        }
        // An agent whose way back is struck as well is not back.
        let answered = self.told_at();
        if self.outcome.plans.iter().any(|plan| plan.at > answered) {
            return None;
        }
        let entries = &self.outcome.entries;
        let told_at = entries[answered.min(entries.len() - 1)].at;
        let welcome = |e: &&Entry| {
            e.side == 1 && e.op == Op::Read && e.note.is(Kind::Welcome) && e.at >= told_at
        };
        let back = entries.iter().find(welcome).map_or(told_at, |e| e.at);
        let known = |word: &Word| {
            let certain = matches!(word.state, State::NotDelivered | State::Answered);
            certain && word.at <= back + SOON
        };
        Some(self.outcome.words[1].as_ref().is_some_and(known))
    }
}
