//! What must hold after every schedule, read from the journal and from the programs themselves.
//!
//! The oracle knows the wires, never the gateway's mind: what the gateway could know is what it read
//! from a carrier before it answered, and that is put into the decision function a second time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::verdict::{Delivery, Evidence, Terminal, judge};
use bridgehead_protocol::wire::Kind;
use tokio::time::sleep;

use crate::fault::Fault;
use crate::frames::Whose;
use crate::journal::{Class, Entry, Op};
use crate::programs::{FIRST, Programs, STALL};
use crate::run::Outcome;
use crate::shape::{Back, Shape, answer};

/// A silent peer is dead after this, and one tick more if the loop was late.
const DEAD: Duration = Duration::from_secs(8);
/// How long a tunnel waits for its next carrier.
const RESUME: Duration = Duration::from_secs(20);
/// How long a place in the queue is kept.
const QUEUE: Duration = Duration::from_secs(3);
const SECOND: Duration = Duration::from_secs(1);
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
}

/// One stream that the measured exchange used, as it stood on the wire.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    used: bool,
    whose: Whose,
    sent: u64,
    /// Highest offset ever sent; a resume may begin again below it.
    emitted: u64,
    begun: Option<u64>,
    received: u64,
    received_at_begin: u64,
    consumed: u64,
    refused: bool,
    counted: Option<u64>,
    away: bool,
}

impl Stream {
    fn start(&self) -> u64 {
        self.begun.unwrap_or(u64::MAX)
    }

    fn answer_bytes(&self) -> u64 {
        match self.begun {
            Some(_) => self.received - self.received_at_begin,
            None => 0,
        }
    }

    /// The decision, with `emitted` as the wire shows it or at its most.
    fn judged(&self, emitted: u64, answer_bytes: u64) -> Delivery {
        let terminal = match (self.refused, self.counted, self.away) {
            (true, _, _) => Terminal::Refused,
            (_, Some(written), _) => Terminal::Counted { written },
            (_, None, true) => Terminal::GoAwayBelow,
            (false, None, false) => Terminal::Open {
                consumed: self.consumed,
            },
        };
        judge(&Evidence {
            // Given to the carrier's queue counts as emitted, with a BEGIN that no wire shows.
            start: self
                .begun
                .unwrap_or(if emitted == u64::MAX { 0 } else { u64::MAX }),
            emitted,
            head_len: u64::MAX,
            request_len: None,
            terminal,
            answer_bytes,
        })
        .delivery
    }
}

/// A stream by its tunnel and number.
type Key = (u64, u32);

/// The tunnel that each carrier carries.
fn tunnels(entries: &[Entry]) -> BTreeMap<u16, u64> {
    let welcome = |e: &&Entry| e.op == Op::Wrote && e.side == 0 && e.note.is(Kind::Welcome);
    let all = entries.iter().filter(welcome);
    all.map(|e| (e.link, e.note.value)).collect()
}

/// The gateway's view of every stream, from what it wrote to and read from carriers.
fn view(entries: &[Entry], mark: usize, until: usize) -> BTreeMap<Key, Stream> {
    let tunnels = tunnels(entries);
    let mut streams: BTreeMap<Key, Stream> = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate().take(until) {
        if entry.class != Class::Carrier || entry.side != 0 {
            continue;
        }
        let note = entry.note;
        let Some(tunnel) = tunnels.get(&entry.link) else {
            continue;
        };
        if note.is(Kind::GoAway) && entry.op == Op::Read {
            for ((theirs, id), stream) in &mut streams {
                stream.away |= theirs == tunnel && u64::from(*id) > note.value;
            }
        }
        if note.stream == 0 {
            continue;
        }
        let stream = streams.entry((*tunnel, note.stream)).or_default();
        match (entry.op, Kind::from_number(note.kind)) {
            (Op::Wrote, Some(Kind::Open)) => stream.used |= index >= mark,
            (Op::Wrote, Some(Kind::Begin)) if index >= mark => {
                stream.used = true;
                // What is sent again after a resume began where it began.
                if stream.begun.is_none() {
                    stream.begun = Some(stream.sent);
                    stream.received_at_begin = stream.received;
                }
            }
            (Op::Wrote, Some(Kind::Data)) => {
                stream.whose = note.begins().unwrap_or(stream.whose);
                stream.sent += note.value;
                stream.emitted = stream.emitted.max(stream.sent);
            }
            (Op::Wrote, Some(Kind::Resume)) => stream.received = note.value,
            (Op::Read, Some(Kind::Resume)) => stream.sent = note.value,
            (Op::Read, Some(Kind::Data)) => stream.received += note.value,
            (Op::Read, Some(Kind::Refused)) => stream.refused = true,
            (Op::Read, Some(Kind::Final | Kind::Count)) => stream.counted = Some(note.value),
            (Op::Read, Some(Kind::Credit)) => stream.consumed = stream.consumed.max(note.value),
            _ => {}
        }
    }
    streams.retain(|_, stream| stream.used && stream.whose == Whose::Measured);
    streams
}

/// What may have been told at this point of the journal.
fn allowed(shape: &Shape, entries: &[Entry], mark: usize, until: usize) -> Vec<Delivery> {
    let streams = view(entries, mark, until);
    // What an h2c app says beside its answers (settings, pings) is no answer; the wire shows bytes.
    let nothing_said: &[bool] = match shape.back {
        Back::Http1 => &[false],
        Back::H2c => &[false, true],
    };
    // The exchange goes on to another stream only after a proof, so the worst is the last.
    let mut allowed = Vec::new();
    let ways = nothing_said.iter().flat_map(|n| [(true, *n), (false, *n)]);
    for (exact, nothing) in ways {
        let judged = streams.values().map(|stream| {
            let answer = if nothing { 0 } else { stream.answer_bytes() };
            stream.judged(if exact { stream.emitted } else { u64::MAX }, answer)
        });
        let worst = judged.max_by_key(|delivery| match delivery {
            Delivery::NotDelivered => 0,
            Delivery::Unknown => 1,
            Delivery::Delivered => 2,
        });
        allowed.push(worst.unwrap_or(Delivery::NotDelivered));
    }
    allowed
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
    if outcome.is_failed_by_cuts() {
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
        // What an h2c connection says before its first request: preface and settings.
        let greeting = match shape.back {
            Back::Http1 => 0,
            Back::H2c => {
                let fresh = whole.values().filter_map(|stream| stream.begun);
                fresh.min().unwrap_or(0)
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
            findings.queued = true;
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

    /// I4.
    fn outcome(&self, fallen: &mut Vec<String>) {
        let exchange = &self.outcome.exchange;
        let told = &exchange.told;
        if told.heads > 1 {
            fallen.push(format!("I4 {} outcomes", told.heads));
        }
        if self.struck(Fault::takes_the_client) {
            return;
        }
        // A connection that is idle, as far as the gateway can see, may end with a drain.
        let others = usize::from(self.shape.reused) + usize::from(self.shape.queued);
        let never_read = self.saw == 0 && self.outcome.recorded.len() <= others;
        if told.status == 0 && self.struck(|f| f == Fault::GatewayDrain) && never_read {
            return;
        }
        if told.status == 0 && !told.refused {
            fallen.push(format!("I4 nothing was told, gave up: {}", told.gave_up));
            return;
        }
        if self.shape.is_pipe() && told.status == 101 {
            return;
        }
        let took = exchange.took;
        let windows = FIRST.max(STALL) + SECOND;
        let allowed = self.last_progress() + windows + self.suspended() + self.waited();
        if took > allowed {
            fallen.push(format!("I4 told after {took:?}, later than {allowed:?}"));
        }
    }

    /// A queue's wait is no window's, and the one before it has its own windows.
    fn waited(&self) -> Duration {
        match self.shape.queued {
            true => FIRST + STALL + QUEUE,
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
    fn once(&self, fallen: &mut Vec<String>) {
        if self.connections > 1 {
            fallen.push(format!("I5 seen on {} connections", self.connections));
        }
        let begun = self.outcome.seen.iter().filter(|r| r.path == "/x").count();
        if begun > 1 {
            fallen.push(format!("I5 the app began it {begun} times"));
        }
    }

    /// I6.
    fn bytes(&self, fallen: &mut Vec<String>) {
        let sent = self.shape.body.bytes();
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
        } else if told.whole && told.body.len() != said.len() {
            fallen.push(format!(
                "I6 an answer of {} bytes looked whole at {}",
                said.len(),
                told.body.len()
            ));
        }
    }

    /// I8.
    fn late(&self, fallen: &mut Vec<String>) {
        let began = self.outcome.entries[self.outcome.mark].at;
        let allowed = FIRST + DEAD + SECOND + self.suspended() + self.waited();
        let late = self.first_at.map(|at| Duration::from_micros(at - began));
        if let Some(late) = late.filter(|late| *late > allowed) {
            fallen.push(format!("I8 the first byte came after {late:?}"));
        }
    }
}

/// What the gateway wrote into its metrics: `outcome/delivery/code`, once per exchange.
pub(crate) fn recorded(programs: &Programs) -> Vec<String> {
    let Some(gateway) = programs.gateway() else {
        return Vec::new();
    };
    let text = gateway
        .shared()
        .sinks
        .metrics()
        .render()
        .unwrap_or_default();
    let label = |line: &str, name: &str| {
        let start = line
            .find(&format!("{name}=\""))
            .map(|at| at + name.len() + 2);
        let rest = start.map_or("", |start| &line[start..]);
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    let mut all = Vec::new();
    for line in text.lines().filter(|l| l.contains("exchanges_total{")) {
        let count: f64 = line
            .rsplit(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0.0);
        let kind = ["outcome", "delivery", "code"]
            .map(|name| label(line, name))
            .join("/");
        for _ in 0..count as u64 {
            all.push(kind.clone());
        }
    }
    all
}

/// True while a process stands still, a tunnel waits for its next carrier, or finishes what it has.
pub(crate) fn unsettled(programs: &Programs) -> bool {
    let waits = programs
        .net
        .with(|world| world.is_somebody_held() || world.ends_of(Class::App, 0) > 0);
    let Some(gateway) = programs.gateway().filter(|_| !waits) else {
        return true;
    };
    let tunnels = gateway.shared().tunnels.snapshot();
    tunnels.tunnels().any(|(_, live)| {
        live.tunnel.is_suspended()
            || !live.is_accepting()
            || live.tunnel.stats().streams.total() > 0
    })
}

/// True while an exchange waits for its late answer.
pub(crate) fn lingers(programs: &Programs) -> bool {
    let gateway = programs.gateway();
    gateway.is_some_and(|gateway| gateway.shared().lingering.total() > 0)
}

/// What is left of the exchange once everything has ended: nothing, or it is named.
pub(crate) async fn left(programs: &Programs) -> Vec<String> {
    let mut left = Vec::new();
    let Some(gateway) = programs.gateway() else {
        return left;
    };
    let shared = Arc::clone(gateway.shared());
    for (_, live) in shared.tunnels.snapshot().tunnels() {
        if live.in_flight() > 0 {
            left.push(format!("{} places on a tunnel", live.in_flight()));
        }
        live.pool.close_tunnel(live.number);
    }
    sleep(SECOND).await;
    for (_, live) in shared.tunnels.snapshot().tunnels() {
        let streams = live.tunnel.stats().streams.total();
        if streams > 0 {
            left.push(format!("{streams} streams at the gateway"));
        }
    }
    let app = shared.apps.state("demo");
    let permits = app.metrics.in_flight_now() + app.metrics.long_lived_now();
    if permits > 0 {
        left.push(format!("{permits} permits"));
    }
    let lingering = shared.lingering.total();
    if lingering > 0 {
        left.push(format!("{lingering} lingering exchanges"));
    }
    let tasks = shared.tasks.live();
    if !tasks.is_empty() {
        left.push(format!("tasks {tasks:?}"));
    }
    let sockets = programs.net.with(|world| world.ends_of(Class::App, 0));
    if sockets > 0 {
        left.push(format!("{sockets} app sockets at the agent"));
    }
    left
}
