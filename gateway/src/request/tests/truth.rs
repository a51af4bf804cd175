//! Whatever an app, an agent or a client does, in whatever order and at whatever distance: what the
//! gateway says of a request is compared with what the app's socket really accepted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bridgehead_protocol::io::Outgoing;
use bridgehead_protocol::wire::{FinalCause, RefusedReason};

use crate::ledger::{Source, State};
use crate::request::testing::{Agent, App, Client, HOST, World, pass};

/// Small deterministic numbers: one seed is one world.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }

    fn one_in(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.roll(of.len() as u64)).unwrap()]
    }

    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.pick(&[0, 0, 1, 7, 40, 150, 600, 3000, 20_000]))
    }
}

/// What really became of one request.
#[derive(Clone, Copy, Debug, Default)]
struct Truth {
    /// Bytes that the app's socket accepted, over all tries.
    taken: usize,
    /// Tries in which it accepted any.
    tries: usize,
    /// Bytes that the app wrote in answer.
    said: usize,
    /// The tunnel was lost under it.
    lost: bool,
}

type Truths = Arc<Mutex<BTreeMap<u128, Truth>>>;

fn note(truths: &Truths, request: u128, change: impl FnOnce(&mut Truth)) {
    change(truths.lock().unwrap().entry(request).or_default());
}

/// An agent whose app does as the dice say, until the tunnel is over.
async fn play(agent: Arc<Agent>, truths: Truths, mut dice: Dice) {
    while let Some(app) = agent.accept_or_end().await {
        let (truths, dice) = (Arc::clone(&truths), Dice(dice.roll(u64::MAX) | 1));
        tokio::spawn(connection(app, Arc::clone(&agent), truths, dice));
    }
}

async fn connection(mut app: App, agent: Arc<Agent>, truths: Truths, mut dice: Dice) {
    pass(dice.pause()).await;
    if dice.one_in(5) {
        let reasons = [
            RefusedReason::ConnectRefused,
            RefusedReason::Limit,
            RefusedReason::NoSuchApp,
            RefusedReason::Draining,
        ];
        return app.refuse(dice.pick(&reasons));
    }
    if dice.one_in(12) {
        return app.refuse_when_given_up().await;
    }
    app.open();
    while let Some(begin) = app.next().await {
        if dice.one_in(8) {
            return app.end(dice.pick(&[FinalCause::Stale, FinalCause::Expired]));
        }
        if dice.one_in(10) {
            // It closed before the news of the exchange came.
            return app.end(dice.pick(&[FinalCause::AppClosed, FinalCause::AppReset]));
        }
        app.begun();
        let Some(kept) = exchange(app, &agent, &truths, begin.request, &mut dice).await else {
            return;
        };
        app = kept;
    }
    app.end(FinalCause::Reset);
}

/// One exchange; the connection, if it goes on.
async fn exchange(
    mut app: App,
    agent: &Agent,
    truths: &Truths,
    request: u128,
    dice: &mut Dice,
) -> Option<App> {
    let mut first = true;
    let tell = |bytes: &[u8]| {
        note(truths, request, |truth| {
            truth.taken += bytes.len();
            truth.tries += usize::from(std::mem::take(&mut first));
        });
    };
    let count = dice.pick(&[0, 1, 20, 400, usize::MAX, usize::MAX, usize::MAX]);
    let wanted = app
        .take_some(count, dice.pause() + Duration::from_millis(300), tell)
        .await;
    pass(dice.pause()).await;
    if wanted && dice.one_in(20) {
        note(truths, request, |truth| truth.lost = true);
        for truth in truths.lock().unwrap().values_mut() {
            truth.lost = true;
        }
        if dice.one_in(3) {
            agent.freeze();
        } else {
            agent.cut();
        }
        return None;
    }
    if dice.one_in(30) {
        agent.drain();
    }
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let parts = [answer.len(), answer.len(), answer.len(), 4, 38, 40, 0, 0];
    let said = if wanted { dice.pick(&parts) } else { 0 };
    if said > 0 && taken(truths, request) > 0 {
        note(truths, request, |truth| truth.said += said);
        app.say(&answer[..said]).await;
    }
    match dice.roll(6) {
        0 => app.close(),
        1 => app.reset(),
        2..=4 if said == answer.len() => return Some(app),
        _ => late(app, truths, request, dice).await,
    }
    None
}

fn taken(truths: &Truths, request: u128) -> usize {
    truths
        .lock()
        .unwrap()
        .get(&request)
        .map_or(0, |truth| truth.taken)
}

/// Silence until the gateway gives up; after a fence perhaps a late answer.
async fn late(mut app: App, truths: &Truths, request: u128, dice: &mut Dice) {
    let before = taken(truths, request);
    if app.given_up().await == (Outgoing::Fenced { linger: true }) {
        pass(dice.pause()).await;
        if dice.one_in(2) && before > 0 {
            note(truths, request, |truth| truth.said += 1);
            app.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                .await;
        }
    }
    app.end(FinalCause::Fenced);
}

/// What a client saw of one request.
enum Saw {
    Answer {
        id: Option<String>,
        words: Option<String>,
        whole: bool,
    },
    Nothing,
}

async fn ask(client: &mut Client, dice: &mut Dice) -> Saw {
    let size = usize::try_from(dice.pick(&[0, 5, 1000, 100_000])).unwrap();
    let method = dice.pick(&["GET", "POST", "PUT"]);
    let head = match method {
        "GET" => format!("GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n"),
        _ => format!("{method} / HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {size}\r\n\r\n"),
    };
    let body = if method == "GET" { 0 } else { size };
    if !client.try_send(head.as_bytes()).await {
        return Saw::Nothing;
    }
    let body = vec![b'x'; body];
    for piece in body.chunks(30_000) {
        if dice.one_in(10) {
            pass(dice.pause().min(Duration::from_secs(3))).await;
        }
        if !client.try_send(piece).await {
            break;
        }
    }
    let Some(answer) = client.try_answer().await else {
        return Saw::Nothing;
    };
    let words = answer.field("bridgehead-delivery").map(str::to_owned);
    Saw::Answer {
        id: answer.field("x-request-id").map(str::to_owned),
        words,
        whole: answer.whole,
    }
}

/// One world from one seed; answers who said the last word about what is in the ledger.
async fn world_of(seed: u64) -> Vec<Source> {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let repeats = dice.one_in(3);
    let route = format!(
        "hold = \"{}s\"\nrepeat_reads = {repeats}\ngo = \"{}\"",
        dice.pick(&[0, 3]),
        dice.pick(&["unsafe", "unsafe", "never", "always"])
    );
    let world = World::with(&route).await;
    world.app_was_reached();
    let truths = Truths::default();
    let agents: Vec<Arc<Agent>> = (0..=dice.roll(2))
        .map(|n| {
            let delay = Duration::from_millis(dice.pick(&[0, 1, 30, 200]));
            Arc::new(world.agent_behind(&format!("a{n}"), delay))
        })
        .collect();
    for agent in &agents {
        let dice = Dice(dice.roll(u64::MAX) | 1);
        tokio::spawn(play(Arc::clone(agent), Arc::clone(&truths), dice));
    }
    let mut told = Vec::new();
    for _ in 0..3 {
        let mut client = world.client();
        for _ in 0..=dice.roll(4) {
            let leaves = dice.one_in(8);
            let patience = if leaves {
                dice.pause()
            } else {
                Duration::from_secs(1000)
            };
            match tokio::time::timeout(patience, ask(&mut client, &mut dice)).await {
                Ok(Saw::Answer { id, words, whole }) => {
                    told.push((id, words));
                    if !whole || !client.is_open().await {
                        break;
                    }
                }
                Ok(Saw::Nothing) | Err(_) => break,
            }
        }
        client.leave();
    }
    pass(Duration::from_secs(200)).await;
    judge(seed, &world, &truths, &told, repeats);
    // Agents whose tunnel was lost come back and tell what they counted.
    for agent in &agents {
        let (now, ledger) = (world.shared.clock.now(), &world.shared.ledger);
        ledger.report(now, &agent.live.identity, &agent.fates());
    }
    judge(seed, &world, &truths, &told, repeats);
    let requests: Vec<u128> = truths.lock().unwrap().keys().copied().collect();
    let mut sources = Vec::new();
    for request in requests {
        let id = uuid::Uuid::from_u128(request).to_string();
        sources.extend(world.outcome_of(&id).map(|outcome| outcome.source));
    }
    sources
}

/// Every word against the truth.
fn judge(
    seed: u64,
    world: &World,
    truths: &Truths,
    told: &[(Option<String>, Option<String>)],
    repeats: bool,
) {
    for (request, truth) in truths.lock().unwrap().iter() {
        let id = uuid::Uuid::from_u128(*request).to_string();
        let seen = world.exchange(&id);
        let context = format!("seed {seed}: {truth:?} told as {seen}");
        let delivery = seen["delivery"].as_str().unwrap_or("none");
        assert_eq!(seen["live"], false, "{context}");
        match delivery {
            "not_delivered" => assert_eq!(truth.taken, 0, "{context}"),
            "delivered" => assert!(truth.said > 0, "{context}"),
            "unknown" => assert!(truth.taken > 0 || truth.lost, "{context}"),
            other => panic!("{other}: {context}"),
        }
        let most = if repeats && seen["method"] == "GET" {
            2
        } else {
            1
        };
        assert!(truth.tries <= most, "repeated: {context}");
        assert_outcome(world, &id, truth, &context);
        // A stage says how far it got for certain, so it may stay behind the truth, never run ahead.
        assert!(seen["stage"] == "none" || truth.taken > 0, "{context}");
    }
    for (id, words) in told {
        let (Some(id), Some(words)) = (id, words) else {
            continue;
        };
        assert_eq!(world.exchange(id)["delivery"], **words, "seed {seed}");
    }
    assert_eq!(world.load(), (0, 0), "seed {seed}: permits are left");
    assert!(world.outcomes().len() >= told.len(), "seed {seed}");
}

/// What the ledger says after all is over, against the truth and against what was told.
fn assert_outcome(world: &World, id: &str, truth: &Truth, context: &str) {
    let seen = world.exchange(id);
    let Some(outcome) = world.outcome_of(id) else {
        assert_ne!(seen["delivery"], "unknown", "{context}: not in the ledger");
        return;
    };
    let context = format!("{context}: in the ledger as {outcome:?}");
    match outcome.state {
        State::NotDelivered => assert_eq!(truth.taken, 0, "{context}"),
        State::Answered => assert!(truth.said > 0, "{context}"),
        State::Unknown => assert!(truth.taken > 0 || truth.lost, "{context}"),
        State::Pending => panic!("nobody waits any more: {context}"),
    }
    if seen["delivery"] == "delivered" {
        assert_eq!(outcome.state, State::Answered, "{context}");
    }
}

#[test]
fn no_word_about_a_delivery_is_ever_a_lie() {
    let mut sources = Vec::new();
    for seed in (1..=100).chain([421]) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        sources.extend(runtime.block_on(world_of(seed)));
    }
    let count = |source| sources.iter().filter(|said| **said == source).count();
    for source in [Source::Exchange, Source::LateAnswer, Source::AgentReport] {
        assert!(count(source) > 0, "{source:?} was never the last word");
    }
}
