//! Rules about one schedule that need no verdict: times, numbers of outcomes and hand-overs, bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bridgehead_protocol::wire::Kind;

use super::Case;
use super::view::tunnels;
use crate::fault::Fault;
use crate::journal::{Class, Entry, Op};
use crate::programs::{STALL, first_window};
use crate::shape::{Front, answer};

/// A silent peer is dead after this, and one tick more if the loop was late.
const DEAD: Duration = Duration::from_secs(8);
/// How long a tunnel waits for its next carrier.
const RESUME: Duration = Duration::from_secs(20);
/// How long a place in the queue is kept.
const QUEUE: Duration = Duration::from_secs(3);
const SECOND: Duration = Duration::from_secs(1);

impl Case<'_> {
    /// I4.
    pub(super) fn outcome(&self, fallen: &mut Vec<String>) {
        let exchange = &self.outcome.exchange;
        let told = &exchange.told;
        if told.heads > 1 {
            fallen.push(format!("I4 {} outcomes", told.heads));
        }
        if self.struck(Fault::takes_the_client) || self.shape.front == Front::Tcp {
            return;
        }
        // A connection that is idle, as far as the gateway can see, may end with a drain.
        let others = usize::from(self.shape.reused) + usize::from(self.shape.queued);
        let never_read = self.saw == 0 && self.outcome.recorded.len() <= others;
        let drains = |fault| matches!(fault, Fault::GatewayDrain | Fault::GatewayEnds);
        if told.status == 0 && self.struck(drains) && never_read {
            return;
        }
        if told.status == 0 && !told.refused {
            fallen.push(format!("I4 nothing was told, gave up: {}", told.gave_up));
            return;
        }
        // Behind these heads no window runs.
        if self.shape.is_endless() && !told.own && told.status != 0 {
            return;
        }
        let took = exchange.took;
        let windows = first_window(self.shape).max(STALL) + SECOND;
        let allowed = self.last_progress() + windows + self.suspended() + self.waited();
        if took > allowed {
            fallen.push(format!("I4 told after {took:?}, later than {allowed:?}"));
        }
    }

    /// A queue's wait is no window's, and the one before it has its own windows.
    fn waited(&self) -> Duration {
        match self.shape.queued {
            true => first_window(self.shape) + STALL + QUEUE,
            false => Duration::ZERO,
        }
    }

    /// Windows stand still while a tunnel waits for its next carrier.
    fn suspended(&self) -> Duration {
        match self.struck(Fault::cuts_the_carrier) {
            true => RESUME,
            false => Duration::ZERO,
        }
    }

    /// From the mark to the last news of the app that the gateway read before it told.
    fn last_progress(&self) -> Duration {
        let entries = &self.outcome.entries[self.outcome.mark..self.outcome.end];
        let began = entries.first().map_or(0, |e| e.at);
        let news = |e: &&Entry| {
            e.class == Class::Carrier
                && e.side == 0
                && e.op == Op::Read
                && e.note.stream != 0
                && (e.note.is(Kind::Data) || e.note.is(Kind::Credit))
        };
        let last = entries.iter().rev().find(news).map_or(began, |e| e.at);
        Duration::from_micros(last - began)
    }

    /// I5.
    pub(super) fn once(&self, fallen: &mut Vec<String>) {
        if self.connections > 1 {
            fallen.push(format!("I5 seen on {} connections", self.connections));
        }
        let begun = self.outcome.seen.iter().filter(|r| r.path == "/x").count();
        if begun > 1 {
            fallen.push(format!("I5 the app began it {begun} times"));
        }
        let opens = self.opens();
        let dialled = self.dialled();
        if dialled > opens {
            fallen.push(format!(
                "I5 the app was dialled {dialled} times for {opens} streams"
            ));
        }
    }

    /// Connections to the app that were made for a stream: used, or kept for a while. What is made to
    /// see whether the app is there is closed at once, unless its process stands still just then.
    fn dialled(&self) -> usize {
        let stands_still = |fault: Fault| {
            use Fault::{AgentFreezes, AgentKill, AgentSleeps, AgentStops};
            matches!(fault, AgentStops | AgentSleeps | AgentFreezes | AgentKill)
        };
        let held = self.struck(stands_still);
        let entries = &self.outcome.entries;
        let of_app = |e: &&Entry| e.class == Class::App && e.side == 0;
        let linked = entries.iter().filter(of_app).filter(|e| e.op == Op::Linked);
        let is_used = |linked: &&Entry| {
            let mut own = entries
                .iter()
                .filter(of_app)
                .filter(|e| e.link == linked.link);
            let closed = own.clone().find(|e| e.op == Op::Closed).map(|e| e.at);
            own.any(|e| e.op == Op::Wrote) || (!held && closed != Some(linked.at))
        };
        linked.filter(is_used).count()
    }

    /// Streams that agents were asked to open; one that is asked for again is the same.
    fn opens(&self) -> usize {
        let entries = &self.outcome.entries;
        let tunnels = tunnels(entries);
        let asked = entries
            .iter()
            .filter(|e| e.side == 1 && e.op == Op::Read && e.note.is(Kind::Open));
        let ids = asked.map(|e| (tunnels.get(&e.link), e.note.stream));
        ids.collect::<BTreeSet<_>>().len()
    }

    /// No exchange begins on a kept connection whose agent has said that it goes away. The first of a
    /// connection that was accepted before still does, and so does what stood in the tunnel's queue
    /// when the word came.
    pub(super) fn farewell(&self, fallen: &mut Vec<String>) {
        let entries = &self.outcome.entries;
        let tunnels = tunnels(entries);
        let mut gone = BTreeMap::new();
        // Of each stream what the last BEGIN expected; one that is sent again expects the same.
        let mut begun = BTreeMap::new();
        let of_gateway = |e: &&Entry| e.class == Class::Carrier && e.side == 0;
        for entry in entries.iter().filter(of_gateway) {
            let Some(tunnel) = tunnels.get(&entry.link) else {
                continue;
            };
            let note = entry.note;
            if entry.op == Op::Read && note.is(Kind::GoAway) {
                gone.entry(tunnel).or_insert(entry.at);
            }
            if entry.op == Op::Wrote && note.is(Kind::Begin) {
                let before = begun.insert((tunnel, note.stream), note.other);
                let another = before.is_some_and(|before| before != note.other);
                if another && gone.get(tunnel).is_some_and(|at| *at < entry.at) {
                    fallen.push("I4 an exchange began after its agent said goodbye".to_owned());
                }
            }
        }
    }

    /// While no byte of the answer's body has come, a failure is still an answer of the gateway's.
    pub(super) fn head(&self, fallen: &mut Vec<String>) {
        let told = &self.outcome.exchange.told;
        let begun = told.status >= 200 && !told.own && !told.whole && told.body.is_empty();
        let at_once = self.shape.is_pipe() || self.shape.streams();
        if begun && !at_once && !self.struck(Fault::takes_the_client) {
            fallen.push("I4 the head went out alone, and the answer broke behind it".to_owned());
        }
    }

    /// I6.
    pub(super) fn bytes(&self, fallen: &mut Vec<String>) {
        let sent = self.shape.sent();
        let seen = self.outcome.seen.iter().filter(|r| r.path == "/x");
        for request in seen {
            if !sent.starts_with(&request.body) {
                fallen.push("I6 the app read other bytes than were sent".to_owned());
            }
            if request.whole && request.body.len() != sent.len() && !self.shape.is_pipe() {
                fallen.push(format!(
                    "I6 a body of {} bytes looked whole at {}",
                    sent.len(),
                    request.body.len()
                ));
            }
        }
        let told = &self.outcome.exchange.told;
        if told.own || told.status == 0 {
            return;
        }
        let said = match self.shape.is_pipe() {
            true => sent,
            false => answer(),
        };
        if !said.starts_with(&told.body) {
            fallen.push("I6 the client read other bytes than were said".to_owned());
        } else if told.whole && told.body.len() != said.len() && !self.ended_in_order() {
            fallen.push(format!(
                "I6 an answer of {} bytes looked whole at {}",
                said.len(),
                told.body.len()
            ));
        }
    }

    /// What follows no protocol ends as its app's connection ended, or with a gateway that was killed
    /// as the kernel has it.
    fn ended_in_order(&self) -> bool {
        let ends = |fault| matches!(fault, Fault::AppStops | Fault::GatewayKill);
        self.shape.front == Front::Tcp && self.struck(ends)
    }

    /// I8.
    pub(super) fn late(&self, fallen: &mut Vec<String>) {
        // No window runs over the bytes of a TCP app.
        let Some(first) = self.first_at.filter(|_| self.shape.front != Front::Tcp) else {
            return;
        };
        let began = self.outcome.entries[self.outcome.mark].at;
        let allowed = first_window(self.shape) + DEAD + SECOND + self.waited();
        let late = Duration::from_micros(first - began);
        if late > allowed {
            fallen.push(format!("I8 the first byte came after {late:?}"));
        }
        if let Some(due) = self.due().filter(|due| *due < first) {
            let late = Duration::from_micros(first - due);
            fallen.push(format!("I8 the first byte came {late:?} after its time"));
        }
    }

    /// When the time of the last BEGIN that an agent read was over.
    fn due(&self) -> Option<u64> {
        let read = |e: &&Entry| e.side == 1 && e.op == Op::Read && e.note.is(Kind::Begin);
        let entries = self.outcome.entries[self.outcome.mark..].iter();
        entries.filter(read).map(|e| e.at + e.note.value).max()
    }
}
