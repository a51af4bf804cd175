//! What a chaos carrier has done: counted while it runs, printed and written at its end.
//!
//! Pure. Invariant: a fault counts only where it took effect: a cut that found no connection, a refusal
//! that nobody asked for, a delay that nothing had to wait for are told apart as "without effect".

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::script::{Direction, FaultKind};

/// Frames and bytes of one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// Bytes that came.
    pub bytes: u64,
    /// Of these, bytes that are not known to be frames.
    pub bytes_without_frames: u64,
    /// Frames that came, by type.
    pub frames: BTreeMap<&'static str, u64>,
}

/// What one rule did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleTally {
    /// As it was written.
    pub rule: String,
    /// How often it fired.
    pub fired: u64,
    /// How often its faults took effect.
    pub effects: u64,
}

/// Everything counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Seed of the run.
    pub seed: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Of these, refused by a fault.
    pub refused: u64,
    /// Of these, the gateway was not there.
    pub undialled: u64,
    /// Faults that took effect, by kind. A lasting fault counts each frame or connection it met.
    pub faults: BTreeMap<&'static str, u64>,
    /// The rules.
    pub rules: Vec<RuleTally>,
    /// What came from the gateway.
    pub to_agent: Flow,
    /// What came from the agent.
    pub to_gateway: Flow,
}

impl Tally {
    /// One effect of a rule.
    pub(super) fn effect(&mut self, rule: usize, kind: FaultKind) {
        *self.faults.entry(kind.as_str()).or_default() += 1;
        if let Some(rule) = self.rules.get_mut(rule) {
            rule.effects += 1;
        }
    }

    /// The flow of one way.
    pub fn flow(&self, direction: Direction) -> &Flow {
        match direction {
            Direction::ToAgent => &self.to_agent,
            Direction::ToGateway => &self.to_gateway,
        }
    }

    pub(super) fn flow_mut(&mut self, direction: Direction) -> &mut Flow {
        match direction {
            Direction::ToAgent => &mut self.to_agent,
            Direction::ToGateway => &mut self.to_gateway,
        }
    }

    /// Effects of one kind.
    pub fn effects(&self, kind: FaultKind) -> u64 {
        self.faults.get(kind.as_str()).copied().unwrap_or(0)
    }

    /// Rules of which nothing was felt.
    pub fn idle(&self) -> impl Iterator<Item = &RuleTally> {
        self.rules.iter().filter(|rule| rule.effects == 0)
    }

    /// As text for a person.
    pub fn render(&self) -> String {
        let mut text = format!(
            "seed {}: {} connections ({} refused, {} without a gateway)\n",
            self.seed, self.connections, self.refused, self.undialled
        );
        for way in Direction::ALL {
            let flow = self.flow(way);
            let frames: u64 = flow.frames.values().sum();
            let types: Vec<String> = flow
                .frames
                .iter()
                .map(|(k, n)| format!("{k} {n}"))
                .collect();
            let _ = writeln!(
                text,
                "{:<10} {} bytes ({} not in frames), {frames} frames: {}",
                way.as_str(),
                flow.bytes,
                flow.bytes_without_frames,
                types.join(", ")
            );
        }
        let faults: Vec<String> = self
            .faults
            .iter()
            .map(|(k, n)| format!("{k} {n}"))
            .collect();
        let none = "none".to_owned();
        let _ = writeln!(
            text,
            "faults that took effect: {}",
            if faults.is_empty() {
                none
            } else {
                faults.join(", ")
            }
        );
        for rule in &self.rules {
            let said = match (rule.fired, rule.effects) {
                (0, _) => "NEVER FIRED".to_owned(),
                (fired, 0) => format!("fired {fired} times WITHOUT EFFECT"),
                (fired, effects) => format!("fired {fired} times, {effects} effects"),
            };
            let _ = writeln!(text, "  {}  ->  {said}", rule.rule);
        }
        text
    }
}
