//! Tunnels that outlive their connections: under cuts and black holes no request fails, and nothing
//! is lost, doubled or reordered.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bridgehead_tests::app::{self, App, Conn};
use bridgehead_tests::client::H1;
use bridgehead_tests::port;
use bridgehead_tests::relay::{Relay, Way};
use bridgehead_tests::world::{Agent, Setup, World, setup};
use bridgehead_tests::ws::{self, Message};
use bridgehead_tests::{binaries, wait};
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::bulk::{bulk_app, digest};
use crate::support::{bulk, pattern};

/// Silence after which a peer is dead, with what a busy machine may add.
const NOTICED: Duration = Duration::from_secs(9);

/// How often a transfer is cut, by the bytes that have passed.
const CUTS: u64 = 6;

/// Fields by name and value, as the clients of this suite take them.
const NONE: &[(&str, &str)] = &[];

/// A world whose agent dials through a relay.
pub(crate) struct Relayed {
    pub(crate) world: World,
    pub(crate) relay: Relay,
    pub(crate) agent: Agent,
}

/// The agent's command, to dial `gateway`.
pub(crate) fn command_to(world: &World, gateway: &str, app: &str) -> Command {
    let mut command = Command::new(binaries::agent());
    let file = world.folder.write("relay.token", &world.token("a1").secret);
    command
        .args(["run", "--gateway", gateway, "--insecure-plain", "--app"])
        .arg(app)
        .arg("--token-file")
        .arg(file);
    command
}

pub(crate) async fn relayed(setup: Setup, app: &App, more: &[&str]) -> Relayed {
    let world = setup.start().await;
    let relay = Relay::start(world.places.tunnel).await;
    let gateway = format!("tcp://{}", relay.addr());
    let mut command = command_to(&world, &gateway, &format!("demo={}", app.target()));
    command.args(more);
    let agent = world.run_agent("a1", command).await;
    Relayed {
        world,
        relay,
        agent,
    }
}

impl Relayed {
    async fn resumes(&self) -> u64 {
        let resumed = [("result", "resumed")];
        self.world.metrics().await.sum("resumes_total", &resumed) as u64
    }

    async fn until_resumes(&self, count: u64, limit: Duration) {
        let reached = || async { (self.resumes().await >= count).then_some(()) };
        wait::until(limit, &format!("{count} resumes"), reached).await;
    }

    /// Cuts again and again while `work` goes on; each time only after the last cut was survived.
    async fn cut_during<F: Future>(&self, every: Duration, work: F) -> F::Output {
        let cutting = async {
            loop {
                wait::dawdle(every).await;
                self.relay.cut();
            }
        };
        tokio::select! {
            biased;
            output = work => output,
            () = cutting => unreachable!("it cuts for ever"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_under_load_fail_no_request() {
    // Counted as they come: what an app double records of a connection is bounded.
    let heads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&heads);
    let app = App::start(move |mut conn: Conn| {
        let heads = Arc::clone(&counted);
        async move {
            while let Some(head) = conn.read_head().await {
                heads.fetch_add(1, Ordering::Relaxed);
                let Some((body, _)) = conn.read_body(&head).await else {
                    return;
                };
                let mut out = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())
                    .into_bytes();
                out.extend(body);
                if !conn.write(out).await {
                    return;
                }
            }
        }
    })
    .await;
    let relayed = Arc::new(relayed(setup(), &app, &[]).await);
    let until = Instant::now() + Duration::from_secs(6);
    let asked = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for client in 0..8u64 {
        let (relayed, asked) = (Arc::clone(&relayed), Arc::clone(&asked));
        clients.spawn(async move {
            let host = relayed.world.host("demo");
            let mut conn = relayed.world.h1().await;
            let mut number = 0;
            while Instant::now() < until {
                let body = pattern(client << 32 | number, 3000);
                let method = if number % 2 == 0 { "POST" } else { "PUT" };
                let path = format!("/{client}/{number}");
                let answer = conn.ask(method, &path, &host, NONE, &body).await;
                assert_eq!(answer.status, 200, "{path}: {}", answer.text());
                assert!(answer.body.ends_with(&body), "{path}: another body");
                number += 1;
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let all = async {
        while let Some(client) = clients.join_next().await {
            client.expect("no request failed");
        }
    };
    relayed.cut_during(Duration::from_millis(450), all).await;
    let (asked, resumes) = (asked.load(Ordering::Relaxed), relayed.resumes().await);
    eprintln!("{asked} requests, {resumes} resumes");
    assert!(resumes > 0, "nothing was resumed");
    // Each request came exactly once.
    assert_eq!(heads.load(Ordering::Relaxed), asked);
}

/// An app that answers a request only once the gate is open.
fn gated(gate: &tokio::sync::watch::Sender<bool>) -> impl Fn(Conn) -> Fut + use<> {
    let gate = gate.subscribe();
    move |mut conn: Conn| {
        let mut gate = gate.clone();
        Box::pin(async move {
            while let Some(head) = conn.read_head().await {
                if conn.read_body(&head).await.is_none()
                    || gate.wait_for(|open| *open).await.is_err()
                    || !conn.answer("late").await
                {
                    return;
                }
            }
        })
    }
}

type Fut = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_comes_after_the_cut_is_the_clients() {
    let gate = tokio::sync::watch::Sender::new(false);
    let app = App::start(gated(&gate)).await;
    let relayed = relayed(setup(), &app, &[]).await;
    let host = relayed.world.host("demo");
    let mut client = relayed.world.h1().await;
    client.request("POST", "/order", &host, NONE, b"a=1").await;
    app.until_text("a=1").await;
    relayed.relay.cut();
    relayed.until_resumes(1, wait::SOON).await;
    gate.send_replace(true);
    let answer = client.answer("POST").await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "late"));
    assert_eq!(app.text().matches("POST /order").count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_written_while_there_is_no_connection_is_kept() {
    let gate = tokio::sync::watch::Sender::new(false);
    let app = App::start(gated(&gate)).await;
    let relayed = relayed(setup(), &app, &[]).await;
    let host = relayed.world.host("demo");
    let mut client = relayed.world.h1().await;
    client.request("POST", "/order", &host, NONE, b"a=1").await;
    app.until_text("a=1").await;
    relayed.relay.refuse();
    relayed.world.until_all("suspended", wait::SOON).await;
    gate.send_replace(true);
    // A newcomer waits for the tunnel, whatever the hold (none in this world).
    let mut newcomer = relayed.world.h1().await;
    newcomer.request("POST", "/new", &host, NONE, b"b=2").await;
    assert!(wait::nothing_for(Duration::from_secs(1), newcomer.read_some()).await);
    relayed.relay.point_at(relayed.world.places.tunnel);
    assert_eq!(client.answer("POST").await.text(), "late");
    assert_eq!(newcomer.answer("POST").await.text(), "late");
    assert_eq!(app.text().matches("POST /").count(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_across_cuts_arrives_byte_for_byte() {
    let app = App::start(bulk_app).await;
    let relayed = relayed(setup(), &app, &[]).await;
    let host = relayed.world.host("demo");
    let mut client = relayed.world.h1().await;
    let length = bulk().to_string();
    relayed.relay.cut_each(bulk() / CUTS);
    let fields = [("Content-Length", length.as_str())];
    client.request("PUT", "/up", &host, &fields, b"").await;
    let mut at = 0;
    while at < bulk() {
        let part = pattern(at, (bulk() - at).min(1 << 16) as usize);
        at += part.len() as u64;
        assert!(client.send(part).await, "the connection stands");
    }
    let answer = client.answer("PUT").await;
    assert_eq!(answer.text(), digest(bulk()).to_hex().as_str());
    assert_eq!(app.seen().len(), 1, "it went up once");
    relayed.until_resumes(CUTS - 1, wait::SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_across_cuts_arrives_byte_for_byte() {
    let app = App::start(bulk_app).await;
    let relayed = relayed(setup(), &app, &[]).await;
    let host = relayed.world.host("demo");
    let mut client = relayed.world.h1().await;
    relayed.relay.cut_each(bulk() / CUTS);
    let answer = client.ask("GET", "/down", &host, NONE, b"").await;
    assert_eq!(answer.body.len() as u64, bulk());
    assert_eq!(blake3::hash(&answer.body), digest(bulk()));
    relayed.until_resumes(CUTS - 1, wait::SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_stream_goes_on_over_the_next_connection() {
    let (ask, asked) = tokio::sync::watch::channel(0);
    let script = move |mut conn: Conn| {
        let mut asked = asked.clone();
        async move {
            if conn.read_head().await.is_none() {
                return;
            }
            conn.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
                .await;
            for n in 10..=19 {
                if asked.wait_for(|wanted| *wanted >= n).await.is_err() {
                    return;
                }
                conn.write(format!("data: {n}\n\n")).await;
            }
        }
    };
    let app = App::start(script).await;
    let relayed = relayed(setup(), &app, &[]).await;
    let host = relayed.world.host("demo");
    let mut client = relayed.world.h1().await;
    client.request("GET", "/events", &host, NONE, b"").await;
    client.read_head().await.expect("a head");
    for n in 10..=19 {
        relayed.relay.cut();
        ask.send_replace(n);
        let event = wait::within(wait::SOON, "an event", client.read_chunk()).await;
        let event = event.expect("a chunk");
        assert_eq!(String::from_utf8_lossy(&event), format!("data: {n}\n\n"));
    }
    assert_eq!(app.seen().len(), 1, "one connection for the whole stream");
}

/// An app that says every WebSocket message back.
async fn websocket_app() -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let addr = listener.local_addr().expect("an address");
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else {
                    return;
                };
                while let Some(Ok(message)) = socket.next().await {
                    if message.is_binary() && socket.send(message).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (addr, task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_goes_on_over_the_next_connection() {
    let (addr, serving) = websocket_app().await;
    let world = setup().start().await;
    let relay = Relay::start(world.places.tunnel).await;
    let gateway = format!("tcp://{}", relay.addr());
    let command = command_to(&world, &gateway, &format!("demo=http://{addr}"));
    let agent = world.run_agent("a1", command).await;
    let (mut socket, _) = ws::connect(world.places.public, &world.host("demo"), "/")
        .await
        .expect("an upgrade");
    let relayed = Relayed {
        world,
        relay,
        agent,
    };
    let talk = async {
        for n in 0..200u64 {
            let said = pattern(n * 5000, 5000);
            let message = Message::Binary(said.clone().into());
            socket.send(message).await.expect("the socket stands");
            let heard = wait::within(wait::SOON, "an echo", socket.next()).await;
            let heard = heard.expect("a message").expect("no error");
            assert_eq!(heard.into_data(), said, "message {n}");
            wait::dawdle(Duration::from_millis(5)).await;
        }
    };
    relayed.cut_during(Duration::from_millis(150), talk).await;
    eprintln!("{} resumes", relayed.resumes().await);
    assert!(relayed.resumes().await > 0);
    serving.abort();
}

/// Requests of one client, one after the other, until `until`. Answers how many, and how long the
/// longest took.
async fn keep_asking(world: &World, until: Instant) -> (u64, Duration) {
    let host = world.host("demo");
    let mut conn = world.h1().await;
    let (mut count, mut longest) = (0, Duration::ZERO);
    while Instant::now() < until {
        let body = pattern(count, 500);
        let begun = Instant::now();
        let answer = conn.ask("POST", "/x", &host, NONE, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.body.ends_with(&body));
        longest = longest.max(begun.elapsed());
        count += 1;
        wait::dawdle(Duration::from_millis(2)).await;
    }
    (count, longest)
}

async fn black_hole(ways: &[Way]) {
    let app = App::start(app::echo).await;
    let relayed = relayed(setup(), &app, &["--tunnels", "1"]).await;
    let until = Instant::now() + Duration::from_secs(12);
    let fault = async {
        wait::dawdle(Duration::from_millis(300)).await;
        ways.iter().for_each(|way| relayed.relay.silence(*way));
        let begun = Instant::now();
        relayed.until_resumes(1, Duration::from_secs(15)).await;
        begun.elapsed()
    };
    let (took, (asked, longest)) = tokio::join!(fault, keep_asking(&relayed.world, until));
    eprintln!("{ways:?}: resumed after {took:?}; {asked} requests, the longest took {longest:?}");
    assert!(took < NOTICED, "noticed after {took:?}");
    assert_eq!(app.heads(), asked, "each came once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_swallows_everything_is_replaced_and_no_request_fails() {
    black_hole(&[Way::Up, Way::Down]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_swallows_what_the_agent_says_is_replaced_and_no_request_fails() {
    black_hole(&[Way::Up]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_swallows_what_the_gateway_says_is_replaced_and_no_request_fails() {
    black_hole(&[Way::Down]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_stopped_for_five_seconds_fails_no_request() {
    let app = App::start(app::echo).await;
    let relayed = relayed(setup(), &app, &[]).await;
    let until = Instant::now() + Duration::from_secs(7);
    let fault = async {
        wait::dawdle(Duration::from_millis(200)).await;
        relayed.agent.process.signal("STOP");
        wait::dawdle(Duration::from_secs(5)).await;
        relayed.agent.process.signal("CONT");
    };
    let ((), (asked, longest)) = tokio::join!(fault, keep_asking(&relayed.world, until));
    eprintln!("{asked} requests, the longest took {longest:?}");
    assert_eq!(app.heads(), asked, "each came once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_sleeps_past_the_window_executes_nothing_late_and_is_back_at_once() {
    let app = App::start(app::echo).await;
    // Dead after 6 s, lapsed 11 s later; the agent sleeps for longer than both.
    let setup = setup().section("tunnel", "resume_window = \"11s\"");
    let relayed = relayed(setup, &app, &[]).await;
    assert_eq!(relayed.world.get("/").await.status, 200);
    relayed.agent.process.signal("STOP");
    let slept = Instant::now();
    let host = relayed.world.host("demo");
    let mut waiting = Vec::new();
    for number in 0..3 {
        let mut client = relayed.world.h1().await;
        let path = format!("/asleep/{number}");
        client.request("POST", &path, &host, NONE, b"a=1").await;
        waiting.push(client);
    }
    relayed.world.until_all("suspended", NOTICED).await;
    let mut late = relayed.world.h1().await;
    late.request("POST", "/asleep/late", &host, NONE, b"a=1")
        .await;
    waiting.push(late);
    let mut told = Vec::new();
    for client in &mut waiting {
        let answer = wait::within(Duration::from_secs(30), "an answer", client.answer("POST"));
        let answer = answer.await;
        eprintln!("{:?}: {} {}", slept.elapsed(), answer.status, answer.text());
        assert_eq!(answer.error("code"), "BH_APP_STARTING");
        assert_ne!(answer.error("delivery"), "delivered");
        told.push(answer.error("delivery"));
    }
    assert_eq!(told[3], "not_delivered", "nothing of it left the gateway");
    wait::dawdle(Duration::from_secs(20).saturating_sub(slept.elapsed())).await;
    relayed.agent.process.signal("CONT");
    let woke = Instant::now();
    let back = || async { (relayed.world.tunnels_in("live").await > 0).then_some(()) };
    wait::until(wait::SOON, "the agent coming back", back).await;
    let took = woke.elapsed();
    eprintln!("back after {took:?}");
    assert!(took < Duration::from_secs(4), "back after {took:?}");
    assert_eq!(relayed.world.get("/after").await.status, 200);
    assert!(
        !app.text().contains("/asleep/"),
        "what was told to have failed came late: {}",
        app.text()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_of_the_gateway_the_agent_starts_anew_at_once() {
    let app = App::start(app::echo).await;
    let mut relayed = relayed(setup(), &app, &[]).await;
    relayed.relay.refuse();
    relayed.world.restart_gateway();
    let begun = Instant::now();
    relayed.relay.point_at(relayed.world.places.tunnel);
    let live = || async { (relayed.world.tunnels_in("live").await > 0).then_some(()) };
    wait::until(wait::SOON, "the agent coming back", live).await;
    eprintln!("back after {:?}", begun.elapsed());
    assert_eq!(relayed.world.get("/").await.status, 200);
    let gone = [("result", "gone")];
    assert!(relayed.world.metrics().await.sum("resumes_total", &gone) >= 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_whose_agent_was_killed_lapses_and_the_truth_is_told() {
    let app = App::start(app::silent).await;
    let setup = setup().section("tunnel", "resume_window = \"11s\"");
    let mut relayed = relayed(setup, &app, &[]).await;
    let host = relayed.world.host("demo");
    let mut client = relayed.world.h1().await;
    client.request("POST", "/order", &host, NONE, b"a=1").await;
    app.until_text("a=1").await;
    relayed.agent.process.kill();
    relayed.world.until_all("suspended", wait::SOON).await;
    let answer = wait::within(Duration::from_secs(20), "the end", client.answer("POST")).await;
    assert_eq!(answer.error("reason"), "tunnel_lost", "{}", answer.text());
    assert_eq!(answer.error("delivery"), "unknown");
    relayed.world.until_tunnels(0).await;
    let lapsed = [("result", "lapsed")];
    assert!(relayed.world.metrics().await.sum("resumes_total", &lapsed) >= 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tcp_app_keeps_its_connection_across_cuts() {
    let script = |mut conn: Conn| async move {
        while let Some(part) = conn.read_some().await {
            if !conn.write(part).await {
                return;
            }
        }
    };
    let app = App::start(script).await;
    let port = port::free();
    let setup = setup().app("demo", &format!("protocol = \"tcp\"\nport = {port}"));
    let world = setup.start().await;
    let relay = Relay::start(world.places.tunnel).await;
    let gateway = format!("tcp://{}", relay.addr());
    let command = command_to(&world, &gateway, &format!("demo=tcp://{}", app.addr()));
    let agent = world.run_agent("a1", command).await;
    let relayed = Relayed {
        world,
        relay,
        agent,
    };
    let stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("a connection");
    let mut client = H1::over(stream);
    let talk = async {
        for n in 0..100u64 {
            let said = pattern(n * 3000, 3000);
            assert!(client.send(&said).await, "the connection stands");
            let heard = wait::within(wait::SOON, "an echo", client.read_exact(3000)).await;
            assert_eq!(heard.expect("bytes"), said, "piece {n}");
            wait::dawdle(Duration::from_millis(5)).await;
        }
    };
    relayed.cut_during(Duration::from_millis(150), talk).await;
    assert!(relayed.resumes().await > 0);
    // A newcomer waits for the tunnel.
    relayed.relay.refuse();
    relayed.world.until_all("suspended", wait::SOON).await;
    let stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("a connection");
    let mut newcomer = H1::over(stream);
    assert!(newcomer.send(b"hello").await);
    assert!(wait::nothing_for(Duration::from_millis(500), newcomer.read_some()).await);
    relayed.relay.point_at(relayed.world.places.tunnel);
    let heard = wait::within(wait::SOON, "an echo", newcomer.read_exact(5)).await;
    assert_eq!(heard.expect("bytes"), b"hello");
}

/// Requests over a carrier of another kind, which is cut again and again.
async fn cut_kind(world: World, target: std::net::SocketAddr, scheme: &str, app: &App) {
    let relay = Relay::start(target).await;
    let mut command = Command::new(binaries::agent());
    let token = world.folder.write("a1.token", &world.token("a1").secret);
    let gateway = format!("{scheme}://localhost:{}", relay.addr().port());
    command.args(["run", "--gateway", &gateway, "--token-file"]);
    command.arg(token).arg("--ca").arg(&world.certificate.cert);
    command.args(["--app", &format!("demo={}", app.target())]);
    let agent = world.run_agent("a1", command).await;
    let relayed = Relayed {
        world,
        relay,
        agent,
    };
    let until = Instant::now() + Duration::from_secs(4);
    let asking = keep_asking(&relayed.world, until);
    let (asked, longest) = relayed.cut_during(Duration::from_millis(700), asking).await;
    relayed.until_resumes(1, wait::SOON).await;
    let resumes = relayed.resumes().await;
    eprintln!("{scheme}: {asked} requests, {resumes} resumes, the longest took {longest:?}");
    assert_eq!(app.heads(), asked, "each came once");
    let carriers = || async {
        let metrics = relayed.world.metrics().await;
        (metrics.sum("carriers", &[("kind", scheme)]) == metrics.sum("tunnels", &[])).then_some(())
    };
    wait::until(wait::SOON, "one carrier for each tunnel", carriers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_under_tls_is_resumed_as_well() {
    let app = App::start(app::echo).await;
    let world = setup().tunnel_tls().start().await;
    let target = world.places.tunnel;
    cut_kind(world, target, "tls", &app).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_over_websocket_is_resumed_as_well() {
    let app = App::start(app::echo).await;
    let world = setup().tls().start().await;
    let target = world.places.public_tls.expect("a TLS listener");
    cut_kind(world, target, "wss", &app).await;
}
