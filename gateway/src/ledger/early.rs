//! Reports that are here before the exchange they tell of has ended.
//!
//! An agent may give a tunnel up and report before the gateway has noticed, or while the gateway
//! still waits for it to be resumed. Pure. Bounded for the agents of each token, so that none
//! pushes out what others reported; tokens come from the operator.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bridgehead_protocol::handshake::Identity;
use bridgehead_protocol::time::Moment;

use super::known::Fact;
use super::store::StreamName;

/// As long as agents keep what they report.
pub(super) const EARLY: Duration = Duration::from_secs(600);
/// Reports kept for the agents of one token: more than one tunnel's streams.
pub(super) const EARLY_REPORTS: usize = 16_384;

type Name = (StreamName, String);

/// Reports of the agents of one token.
#[derive(Debug, Default)]
struct OfToken {
    facts: BTreeMap<Name, Fact>,
    order: VecDeque<(Moment, Name)>,
}

impl OfToken {
    fn drop_oldest(&mut self) {
        if let Some((_, name)) = self.order.pop_front() {
            self.facts.remove(&name);
        }
    }
}

/// Reports that wait.
#[derive(Debug, Default)]
pub(super) struct Early(BTreeMap<String, OfToken>);

impl Early {
    /// Most reports tell of exchanges that ended well and will never be asked for; the oldest go.
    pub(super) fn keep(&mut self, now: Moment, owner: &Identity, stream: StreamName, fact: Fact) {
        let of_token = self.0.entry(owner.subject.clone()).or_default();
        if of_token.order.len() >= EARLY_REPORTS {
            of_token.drop_oldest();
        }
        let name = (stream, owner.agent.clone());
        of_token.order.push_back((now, name.clone()));
        of_token.facts.insert(name, fact);
    }

    /// What the stream's own agent reported of it.
    pub(super) fn take(&mut self, owner: &Identity, stream: &StreamName) -> Option<Fact> {
        let of_token = self.0.get_mut(&owner.subject)?;
        of_token
            .facts
            .remove(&(stream.clone(), owner.agent.clone()))
    }

    /// The same, left for whoever notes how the exchange ended.
    pub(super) fn look(&self, owner: &Identity, stream: &StreamName) -> Option<Fact> {
        let name = (stream.clone(), owner.agent.clone());
        self.0.get(&owner.subject)?.facts.get(&name).copied()
    }

    pub(super) fn sweep(&mut self, now: Moment) {
        self.0.retain(|_, of_token| {
            while (of_token.order.front()).is_some_and(|(since, _)| now.since(*since) >= EARLY) {
                of_token.drop_oldest();
            }
            !of_token.order.is_empty()
        });
    }

    #[cfg(test)]
    pub(super) fn len(&self, subject: &str) -> usize {
        self.0
            .get(subject)
            .map_or(0, |of_token| of_token.order.len())
    }
}
