//! The decisions of a chaos carrier: connections, pieces and the time go in, what happens to them comes out.
//!
//! Owns the state of every rule and the counts. Must not read a clock, draw from ambient randomness or
//! touch a socket: `now` (since the start) and the seed come in. Invariants: a draw depends on the seed,
//! the rule, the connection, the way and the number of the frame, never on how the two ways interleave;
//! one rule holds at most one span of each of its faults for each connection, so nothing piles up.

use std::collections::BTreeMap;
use std::time::Duration;

use super::decision::{Admission, Held, LinkId, Shape, Step};
use super::scan::FrameFacts;
use super::script::{Direction, Effect, End, Fault, Filter, Place, Script, Trigger};
use super::span::{Span, Whom, mix};
use super::tally::{RuleTally, Tally};

#[derive(Debug)]
struct RuleState {
    /// For rules of time: when it fires next.
    next: Option<Duration>,
    /// Fired for good.
    done: bool,
}

#[derive(Debug)]
struct Link {
    /// Frames counted, by rule.
    counts: Vec<u64>,
    /// Frames that came, each way.
    frames: [u64; 2],
    /// Bytes that came, each way.
    bytes: [u64; 2],
    end: Option<End>,
    half_closed: [bool; 2],
    /// Ways on which nothing more will come.
    finished: [bool; 2],
}

/// The state of a run.
#[derive(Debug)]
pub struct Engine {
    script: Script,
    states: Vec<RuleState>,
    seed: u64,
    links: BTreeMap<LinkId, Link>,
    spans: Vec<Span>,
    opened: u64,
    tally: Tally,
}

impl Engine {
    /// A run of `script` that begins at time zero.
    pub fn new(script: Script, seed: u64) -> Self {
        let mut engine = Self {
            script: Script::default(),
            states: Vec::new(),
            seed,
            links: BTreeMap::new(),
            spans: Vec::new(),
            opened: 0,
            tally: Tally {
                seed,
                ..Tally::default()
            },
        };
        engine.load(script, Duration::ZERO);
        engine
    }

    /// Puts another script in the place of this one: its time begins now, counts of frames begin anew,
    /// connections stay as they are. Counts of the old rules are dropped, totals stay.
    pub fn load(&mut self, script: Script, now: Duration) {
        let next = |trigger: &Trigger| match trigger {
            Trigger::After { delay } => Some(now + *delay),
            Trigger::Every { period } => Some(now + *period),
            Trigger::Always => Some(now),
            _ => None,
        };
        self.states = script
            .rules
            .iter()
            .map(|rule| RuleState {
                next: next(&rule.trigger),
                done: false,
            })
            .collect();
        self.tally.rules = script
            .rules
            .iter()
            .map(|rule| RuleTally {
                rule: rule.text.clone(),
                fired: 0,
                effects: 0,
            })
            .collect();
        for link in self.links.values_mut() {
            link.counts = vec![0; script.rules.len()];
        }
        self.spans.clear();
        self.script = script;
        self.tick(now);
    }

    /// Everything counted so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Connections that stand.
    pub fn standing(&self) -> usize {
        self.links.values().filter(|l| l.end.is_none()).count()
    }

    /// When [`Engine::tick`] is due; none if time alone will change nothing.
    pub fn next_tick(&self) -> Option<Duration> {
        let rules = self.states.iter().filter_map(|s| s.next);
        rules.chain(self.spans.iter().filter_map(|s| s.until)).min()
    }

    /// Fires what is due and forgets what is over.
    pub fn tick(&mut self, now: Duration) {
        self.spans
            .retain(|span| span.until.is_none_or(|until| until > now));
        for rule in 0..self.states.len() {
            let Some(due) = self.states[rule].next.filter(|due| *due <= now) else {
                continue;
            };
            self.states[rule].next = match self.script.rules[rule].trigger {
                // A tick that came late fires once, not once for each period it slept through.
                Trigger::Every { period } if due + period > now => Some(due + period),
                Trigger::Every { period } => Some(now + period),
                _ => None,
            };
            self.fire_on_all(rule, now);
        }
    }

    /// True if the port is to be open.
    pub fn listens(&self) -> bool {
        !self.spans.iter().any(|s| s.effect == Effect::Down)
    }

    /// A connection was accepted.
    pub fn open(&mut self, now: Duration) -> Admission {
        self.tick(now);
        self.opened += 1;
        self.tally.connections += 1;
        let id = self.opened;
        let link = Link {
            counts: vec![0; self.script.rules.len()],
            frames: [0; 2],
            bytes: [0; 2],
            end: None,
            half_closed: [false; 2],
            finished: [false; 2],
        };
        self.links.insert(id, link);
        for rule in 0..self.states.len() {
            let fires = match self.script.rules[rule].trigger {
                Trigger::Connection { number } => number == id,
                Trigger::PerConnection { chance } => self.draw([rule as u64, id, 2, 0], chance),
                _ => false,
            };
            if fires {
                self.fire_on_one(rule, id, [0; 2], now);
            }
        }
        let refusal = self.spans.iter().find(|span| {
            span.effect == Effect::Refuse && (span.whom == Whom::All || span.whom == Whom::One(id))
        });
        match refusal.copied() {
            Some(span) => {
                self.felt(span.rule, span.fault);
                self.tally.refused += 1;
                self.close(id);
                Admission::Refuse
            }
            None => Admission::Carry(id),
        }
    }

    /// A connection could not be dialled onward.
    pub fn undialled(&mut self, id: LinkId) {
        self.tally.undialled += 1;
        self.close(id);
    }

    /// A connection is over.
    pub fn close(&mut self, id: LinkId) {
        self.links.remove(&id);
        self.spans.retain(|span| span.whom != Whom::One(id));
    }

    /// Nothing more will come one way. True if nothing will come either way any more.
    pub fn finished(&mut self, id: LinkId, way: Direction) -> bool {
        let Some(link) = self.links.get_mut(&id) else {
            return true;
        };
        link.finished[way.index()] = true;
        link.finished == [true; 2]
    }

    /// How a connection is to be ended, if a fault says so.
    pub fn ending(&self, id: LinkId) -> Option<End> {
        self.links.get(&id).and_then(|link| link.end)
    }

    /// Ends a connection.
    pub fn end(&mut self, id: LinkId, end: End) {
        if let Some(link) = self.links.get_mut(&id) {
            link.end.get_or_insert(end);
        }
    }

    /// True if one way was half-closed by a rule of time.
    pub fn is_half_closed(&self, id: LinkId, way: Direction) -> bool {
        self.links
            .get(&id)
            .is_some_and(|link| link.half_closed[way.index()])
    }

    /// True while nothing can be dialled: a black hole swallows either part of a handshake.
    pub fn held_off(&self, id: LinkId, now: Duration) -> Option<Held> {
        let held = |way| self.held(id, way, 0, now);
        held(Direction::ToAgent).or(held(Direction::ToGateway))
    }

    /// Whether bytes at `offset` of one way are kept back by a black hole.
    pub fn held(&self, id: LinkId, way: Direction, offset: u64, now: Duration) -> Option<Held> {
        let gone = self
            .links
            .get(&id)
            .is_some_and(|link| link.finished == [true; 2]);
        if gone {
            return None;
        }
        let mut latest: Option<Held> = None;
        for span in &self.spans {
            if span.effect != Effect::BlackHole || span.spares(id, way, offset, now) {
                continue;
            }
            latest = match (latest, span.until) {
                (Some(Held::ForGood), _) | (_, None) => Some(Held::ForGood),
                (Some(Held::Until(a)), Some(b)) => Some(Held::Until(a.max(b))),
                (None, Some(b)) => Some(Held::Until(b)),
            };
        }
        latest
    }

    /// A piece came. Steps are to be taken in order; after an end or a half-close none follow.
    pub fn piece(
        &mut self,
        id: LinkId,
        way: Direction,
        frame: Option<FrameFacts>,
        length: usize,
        now: Duration,
    ) -> Vec<Step> {
        self.tick(now);
        self.count(way, frame, length);
        let Some(link) = self.links.get_mut(&id) else {
            return Vec::new();
        };
        let begin = link.bytes[way.index()];
        link.bytes[way.index()] += length as u64;
        link.frames[way.index()] += u64::from(frame.is_some());
        let other = link.bytes;
        // Positions in the piece at which something happens, in order; rules in the script's order at each.
        let mut fired: Vec<(usize, usize)> = Vec::new();
        for rule in 0..self.states.len() {
            if let Some(at) = self.fires_at(rule, id, way, frame, begin, length) {
                fired.push((at, rule));
            }
        }
        fired.sort_by_key(|(at, _)| *at);
        let mut steps = Vec::new();
        let mut passed = 0;
        for (at, rule) in fired {
            self.pass(&mut steps, id, way, passed..at, begin, now);
            passed = passed.max(at);
            let mut from = other;
            from[way.index()] = begin + at as u64;
            if let Some(stop) = self.fire_in_order(rule, id, way, from, now) {
                steps.push(stop);
                return steps;
            }
        }
        self.pass(&mut steps, id, way, passed..length, begin, now);
        steps
    }

    fn count(&mut self, way: Direction, frame: Option<FrameFacts>, length: usize) {
        let flow = self.tally.flow_mut(way);
        flow.bytes += length as u64;
        match frame {
            Some(facts) => *flow.frames.entry(facts.kind.as_str()).or_default() += 1,
            None => flow.bytes_without_frames += length as u64,
        }
    }

    fn pass(
        &mut self,
        steps: &mut Vec<Step>,
        id: LinkId,
        way: Direction,
        part: std::ops::Range<usize>,
        begin: u64,
        now: Duration,
    ) {
        if part.is_empty() {
            return;
        }
        let offset = begin + part.start as u64;
        let shape = self.shape(id, way, offset, now);
        steps.push(Step::Pass {
            from: part.start,
            to: part.end,
            offset,
            shape,
        });
    }

    fn shape(&mut self, id: LinkId, way: Direction, offset: u64, now: Duration) -> Shape {
        let mut shape = Shape::default();
        for n in 0..self.spans.len() {
            let span = self.spans[n];
            if span.spares(id, way, offset, now) {
                continue;
            }
            match span.effect {
                Effect::Delay { by, jitter } => {
                    shape.late += self.lateness(&span, id, way, by, jitter)
                }
                Effect::Rate(rate) => shape.rate = Some(shape.rate.unwrap_or(rate).min(rate)),
                Effect::Slice(size) => shape.slice = Some(shape.slice.unwrap_or(size).min(size)),
                // A black hole is asked for when the bytes are about to leave; that it met some counts here.
                Effect::BlackHole => {}
                Effect::Refuse | Effect::Down => continue,
            }
            self.felt(span.rule, span.fault);
        }
        shape
    }

    fn lateness(
        &self,
        span: &Span,
        id: LinkId,
        way: Direction,
        by: Duration,
        jitter: Duration,
    ) -> Duration {
        if jitter.is_zero() {
            return by;
        }
        let frame = self
            .links
            .get(&id)
            .map_or(0, |l| l.frames[way.index()] + l.bytes[way.index()]);
        let part =
            self.hash([span.rule as u64, id, way.index() as u64, frame]) as f64 / u64::MAX as f64;
        (by + jitter.mul_f64(part * 2.0)).saturating_sub(jitter)
    }

    /// Position in the piece at which the rule fires.
    fn fires_at(
        &mut self,
        rule: usize,
        id: LinkId,
        way: Direction,
        frame: Option<FrameFacts>,
        begin: u64,
        length: usize,
    ) -> Option<usize> {
        if self.states[rule].done {
            return None;
        }
        let trigger = self.script.rules[rule].trigger;
        if let Trigger::Byte {
            offset, direction, ..
        } = trigger
        {
            let inside = (begin..=begin + length as u64).contains(&offset);
            let first = inside && (offset > begin || offset == 0 && begin == 0);
            if !first || direction.is_some_and(|d| d != way) {
                return None;
            }
            return usize::try_from(offset - begin).ok();
        }
        let frame = frame?;
        let (Trigger::Frame { filter, .. }
        | Trigger::EveryFrames { filter, .. }
        | Trigger::PerFrame { filter, .. }) = trigger
        else {
            return None;
        };
        if !accepts(&filter, way, frame) {
            return None;
        }
        let link = self.links.get_mut(&id)?;
        link.counts[rule] += 1;
        let (count, nth) = (link.counts[rule], link.frames[way.index()]);
        match trigger {
            Trigger::Frame { number, place, .. } if count == number => {
                Some(if place == Place::Before { 0 } else { length })
            }
            Trigger::EveryFrames { step, .. } if count % step == 0 => Some(0),
            Trigger::PerFrame { chance, .. } => self
                .draw([rule as u64, id, way.index() as u64, nth], chance)
                .then_some(0),
            _ => None,
        }
    }

    /// A rule of time fires.
    fn fire_on_all(&mut self, rule: usize, now: Duration) {
        self.tally.rules[rule].fired += 1;
        for fault in 0..self.script.rules[rule].faults.len() {
            match self.script.rules[rule].faults[fault] {
                Fault::Last {
                    effect,
                    direction,
                    span,
                } => {
                    let span = Span {
                        rule,
                        fault,
                        whom: Whom::All,
                        effect,
                        direction,
                        until: span.map(|s| now + s),
                        from: [0; 2],
                    };
                    self.begin(span);
                    if effect == Effect::Down {
                        self.felt(rule, fault);
                    }
                }
                Fault::End(_) | Fault::HalfClose(_) => {
                    let ids: Vec<LinkId> = self.links.keys().copied().collect();
                    for id in ids {
                        self.stop(rule, fault, id);
                    }
                }
            }
        }
    }

    /// A rule fires on a connection as a whole.
    fn fire_on_one(&mut self, rule: usize, id: LinkId, from: [u64; 2], now: Duration) {
        self.tally.rules[rule].fired += 1;
        for fault in 0..self.script.rules[rule].faults.len() {
            match self.script.rules[rule].faults[fault] {
                Fault::Last { .. } => self.last(rule, fault, id, from, now),
                Fault::End(_) | Fault::HalfClose(_) => self.stop(rule, fault, id),
            }
        }
    }

    /// A rule fires between two bytes of one way; gives what has to wait until the first has been written.
    fn fire_in_order(
        &mut self,
        rule: usize,
        id: LinkId,
        way: Direction,
        from: [u64; 2],
        now: Duration,
    ) -> Option<Step> {
        self.tally.rules[rule].fired += 1;
        // Only now: a rule that lost to an end earlier in the piece has not had its turn.
        self.states[rule].done = !self.script.rules[rule].trigger.repeats();
        let mut step = None;
        for fault in 0..self.script.rules[rule].faults.len() {
            match self.script.rules[rule].faults[fault] {
                Fault::Last { .. } => self.last(rule, fault, id, from, now),
                Fault::End(end) => {
                    self.felt(rule, fault);
                    step = step.or(Some(Step::End(end)));
                }
                Fault::HalfClose(closed) if closed == way => {
                    self.felt(rule, fault);
                    step = step.or(Some(Step::HalfClose));
                }
                Fault::HalfClose(_) => self.stop(rule, fault, id),
            }
        }
        step
    }

    fn last(&mut self, rule: usize, fault: usize, id: LinkId, from: [u64; 2], now: Duration) {
        let Fault::Last {
            effect,
            direction,
            span,
        } = self.script.rules[rule].faults[fault]
        else {
            return;
        };
        // Listening is not a matter of one connection, unless the rule is about admitting that one.
        let admits = matches!(
            self.script.rules[rule].trigger,
            Trigger::Connection { .. } | Trigger::PerConnection { .. }
        );
        let whom = match effect {
            Effect::Down => Whom::All,
            Effect::Refuse if span.is_some() || !admits => Whom::All,
            _ => Whom::One(id),
        };
        self.begin(Span {
            rule,
            fault,
            whom,
            effect,
            direction,
            until: span.map(|s| now + s),
            from,
        });
        if effect == Effect::Down {
            self.felt(rule, fault);
        }
    }

    fn begin(&mut self, span: Span) {
        let same =
            |s: &&mut Span| s.rule == span.rule && s.fault == span.fault && s.whom == span.whom;
        match self.spans.iter_mut().find(same) {
            Some(running) => running.until = span.until,
            None => self.spans.push(span),
        }
    }

    fn stop(&mut self, rule: usize, fault: usize, id: LinkId) {
        let Some(link) = self.links.get_mut(&id).filter(|l| l.end.is_none()) else {
            return;
        };
        match self.script.rules[rule].faults[fault] {
            Fault::End(end) => link.end = Some(end),
            Fault::HalfClose(way) if !link.half_closed[way.index()] => {
                link.half_closed[way.index()] = true
            }
            Fault::HalfClose(_) | Fault::Last { .. } => return,
        }
        self.felt(rule, fault);
    }

    fn felt(&mut self, rule: usize, fault: usize) {
        let kind = self.script.rules[rule].faults[fault].kind();
        self.tally.effect(rule, kind);
    }

    fn draw(&self, what: [u64; 4], chance: u32) -> bool {
        self.hash(what) % 1_000_000 < u64::from(chance)
    }

    /// A number that depends on the seed and `what` alone.
    fn hash(&self, what: [u64; 4]) -> u64 {
        what.iter().fold(mix(self.seed), |sum, n| {
            mix(sum ^ n.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        })
    }
}

fn accepts(filter: &Filter, way: Direction, frame: FrameFacts) -> bool {
    filter.kind.is_none_or(|k| k == frame.kind)
        && filter.stream.is_none_or(|s| s == frame.stream)
        && filter.direction.is_none_or(|d| d == way)
}
