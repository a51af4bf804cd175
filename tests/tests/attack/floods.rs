//! Floods and slow peers beside a well-behaved client: it notices nothing, and nothing is left behind.
//!
//! The client asks at a fixed rate while an attack runs, and again while the same attacker hits a sink
//! on the same machine. Success must be complete; times are printed as ratios. They are bounded for
//! release programs (`BH_BIN_DIR`) on a machine that does nothing else, and only loosely otherwise.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bridgehead_tests::app::{App, Conn};
use bridgehead_tests::client::H1;
use bridgehead_tests::frames::{self, RawH2, kind};
use bridgehead_tests::h2c::H2;
use bridgehead_tests::wait;
use bridgehead_tests::world::{Setup, World, setup};

use crate::ALONE;
use crate::attackers::{ATTACKS, Attack, sink};

/// Between two requests of the well-behaved client.
const EVERY: Duration = Duration::from_millis(20);

/// What the gateway may take in all, whatever is done to it.
const MEMORY: u64 = 256 << 20;

/// Limits short enough to be reached in seconds. The app takes more at once than the attackers ask for:
/// what a full app does to other clients is admission's business.
pub(crate) fn guarded() -> Setup {
    let limits = "head_time = \"1s\"\nupload_idle = \"1s\"\nwrite_stall = \"1s\"\n\
                  keep_alive_idle = \"2s\"\nh2_ping = \"1s\"\nh2_ping_timeout = \"1s\"";
    setup()
        .section("limits", limits)
        .section("gateway", "memory = \"256MiB\"")
        .app("demo", "in_flight = 1000")
}

fn deep() -> bool {
    std::env::var("BH_DEEP").is_ok_and(|v| v == "1")
}

/// Answers `/bulk` without end, speaks a deaf WebSocket, and echoes the rest.
pub(crate) async fn victim(mut conn: Conn) {
    while let Some(head) = conn.read_head().await {
        if head.header("upgrade").is_some() {
            let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                          Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
            conn.write(answer).await;
            return conn.until_closed().await;
        }
        let Some(_) = conn.read_body(&head).await else {
            return;
        };
        if head.target == "/bulk" {
            conn.write("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
                .await;
            let piece = vec![b'x'; 64 * 1024];
            while conn.write(&piece).await {}
            return;
        }
        if !conn.answer("fine").await {
            return;
        }
    }
}

/// What a client lived through.
#[derive(Default)]
pub(crate) struct Lived {
    pub(crate) good: u64,
    pub(crate) bad: Vec<String>,
    times: Vec<Duration>,
}

impl Lived {
    /// The time that one in a hundred exceeds.
    fn p99(&mut self) -> Duration {
        self.times.sort();
        let at = self.times.len().saturating_sub(1) * 99 / 100;
        self.times.get(at).copied().unwrap_or_default()
    }
}

/// The listener at which the client and the attacker meet.
#[derive(Clone, Copy)]
pub(crate) enum Door {
    Plain,
    /// With a handshake for each HTTP/1 request, since that is what is attacked there.
    Tls,
}

impl Door {
    fn addr(self, world: &World) -> SocketAddr {
        match self {
            Self::Plain => world.places.public,
            Self::Tls => world.places.public_tls.expect("a TLS listener"),
        }
    }

    async fn h1(self, world: &World) -> H1 {
        let roots = &world.certificate.roots;
        match self {
            Self::Plain => H1::connect(self.addr(world)).await,
            Self::Tls => H1::connect_tls(self.addr(world), "demo.localhost", roots).await,
        }
    }

    async fn h2(self, world: &World) -> H2 {
        let roots = &world.certificate.roots;
        match self {
            Self::Plain => H2::connect(self.addr(world)).await,
            Self::Tls => H2::connect_tls(self.addr(world), "demo.localhost", roots).await,
        }
    }

    /// A request of HTTP/2.
    fn get(self, host: &str) -> http::Request<()> {
        let mut request = H2::get(host, "/fine");
        if matches!(self, Self::Tls) {
            let uri = format!("https://{host}/fine");
            *request.uri_mut() = uri.parse().expect("a URI");
        }
        request
    }
}

/// Asks every [`EVERY`] for `span`, by HTTP/1 and HTTP/2 in turn; a late answer delays nobody's count.
pub(crate) async fn live(world: &World, door: Door, span: Duration) -> Lived {
    let host = match door {
        Door::Plain => world.host("demo"),
        Door::Tls => "demo.localhost".to_owned(),
    };
    let (mut h1, mut h2) = (door.h1(world).await, door.h2(world).await);
    let (begun, mut lived, mut asked) = (Instant::now(), Lived::default(), 0_u32);
    while begun.elapsed() < span {
        let due = begun + EVERY * asked;
        wait::dawdle(due.saturating_duration_since(Instant::now())).await;
        asked += 1;
        let start = Instant::now();
        let told = match asked % 2 {
            0 => {
                if matches!(door, Door::Tls) {
                    h1 = door.h1(world).await;
                }
                let answer = h1.ask("GET", "/fine", &host, &[], b"").await;
                (answer.status, answer.text())
            }
            _ => match h2.ask(door.get(&host), b"").await {
                Ok(answer) => (answer.head.status().as_u16(), answer.text()),
                Err(end) => (0, format!("{end:?}")),
            },
        };
        lived.times.push(start.elapsed());
        match told {
            (200, text) if text == "fine" => lived.good += 1,
            other => lived.bad.push(format!("{other:?}")),
        }
    }
    lived
}

/// The client's life while `attack` runs against `addr`.
async fn under(
    world: &World,
    door: Door,
    attack: Attack,
    addr: SocketAddr,
    span: Duration,
) -> Lived {
    let attacker = attack.run(addr, world.host("demo"));
    tokio::select! {
        biased;
        lived = live(world, door, span) => lived,
        () = attacker => unreachable!("an attacker never ends by itself"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_well_behaved_client_notices_no_attack() {
    beside(guarded(), Door::Plain, ATTACKS).await;
}

/// Lives beside each of `attacks` at `door`, and beside the same attacker at a sink.
pub(crate) async fn beside(setup: Setup, door: Door, attacks: &[Attack]) {
    let _alone = ALONE.lock().await;
    let app = App::start(victim).await;
    let world = setup.start().await;
    let _agent = world.join("a1", &[("demo", &app.target())]).await;
    let (quiet, _tasks) = sink().await;
    let (span, control) = match deep() {
        true => (Duration::from_secs(60), Duration::from_secs(20)),
        false => (Duration::from_secs(5), Duration::from_millis(700)),
    };
    drop(live(&world, door, control).await);
    let mut faults = Vec::new();
    for attack in attacks {
        let mut calm = under(&world, door, *attack, quiet, control).await;
        let used = world.gateway.processor();
        let mut hit = under(&world, door, *attack, door.addr(&world), span).await;
        let used = world.gateway.processor() - used;
        let (before, during) = (calm.p99(), hit.p99());
        let resident = world.gateway.resident();
        println!(
            "{:>42}: {:>4} of {:>4}, p99 {during:>8.1?} against {before:>8.1?} ({:.1}x), {} MiB, {:.0} % of a core",
            attack.name,
            hit.good,
            hit.times.len(),
            during.as_secs_f64() / before.as_secs_f64(),
            resident >> 20,
            100.0 * used.as_secs_f64() / span.as_secs_f64()
        );
        let name = attack.name;
        faults.extend(hit.bad.iter().map(|what| format!("{name}: {what}")));
        if during > most_wait(before) {
            faults.push(format!("{name}: the client waited {during:?}"));
        }
        if resident > MEMORY / 10 * 11 {
            faults.push(format!("{name}: {} MiB are resident", resident >> 20));
        }
        left_behind(&world, &mut faults, name).await;
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// How long one in a hundred answers may take, if it takes `calm` beside an attacker of somebody else.
fn most_wait(calm: Duration) -> Duration {
    /// Below it the ratio says how the kernel dealt out two cores, not what the gateway did.
    const GRAIN: Duration = Duration::from_millis(5);
    match std::env::var_os("BH_BIN_DIR") {
        Some(_) => (calm * 2).max(GRAIN),
        // Other work shares the machine, and this is a debug build.
        None => (calm * 20).max(Duration::from_secs(5)),
    }
}

/// Streams and exchanges of an attacker end soon after it is gone.
pub(crate) async fn left_behind(world: &World, faults: &mut Vec<String>, name: &str) {
    let begun = Instant::now();
    let limit = Duration::from_secs(30);
    let gone = || async {
        let now = world.metrics().await;
        let left = now.sum("in_flight", &[]) + now.sum("long_lived", &[]);
        (left == 0.0 || begun.elapsed() > limit).then_some(left)
    };
    let left = wait::until(limit * 2, "the gauges being read", gone).await;
    if left > 0.0 {
        faults.push(format!("{name}: {left} exchanges are left after {limit:?}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_were_given_up_in_one_breath_trouble_nobody() {
    let app = App::start(victim).await;
    let world = setup().start().await;
    let _agent = world.join("a1", &[("demo", &app.target())]).await;
    let host = world.host("demo");
    let mut client = RawH2::connect(world.places.public, &[]).await;
    let mut burst = Vec::new();
    for id in (1..40).step_by(2) {
        burst.extend(frames::get(id, &host, "/given-up"));
        burst.extend(frames::reset(id, 8));
    }
    for id in (41..60).step_by(2) {
        burst.extend(frames::get(id, &host, "/provoked"));
        burst.extend(frames::window_update(id, 0));
    }
    burst.extend(frames::frame(kind::PING, 0, 0, &[9; 8]));
    client.send(&burst).await;
    let mut ended = false;
    while !ended {
        // Pinged back, or cut off for what it did: both come behind the streams.
        ended = match wait::within(wait::SOON, "an end", client.next()).await {
            Some(frame) => frame.kind == kind::GOAWAY || frame.payload == [9; 8],
            None => true,
        };
    }
    let answer = world.get("/fine").await;
    assert_eq!(answer.status, 200);
    assert!(!app.text().contains("/given-up"), "{}", app.text());
    assert!(!app.text().contains("/provoked"), "{}", app.text());
}
