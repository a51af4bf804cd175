//! Rolling restarts and takeovers: orderly ones fail nothing, and what hangs is noticed.

use std::time::Duration;

use bridgehead_tests::app::{self, App, Conn};
use bridgehead_tests::client::{End, H1};
use bridgehead_tests::port;
use bridgehead_tests::process::{Process, Stream};
use bridgehead_tests::wait;
use bridgehead_tests::world::{World, setup};
use tokio::sync::watch;

use crate::restart::{Load, arrivals, judge, serving};
use crate::support::{One, Verdict, one, quick};

/// Answers only when told to.
fn gated(
    gate: &watch::Sender<bool>,
) -> impl Fn(Conn) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + use<> {
    let gate = gate.subscribe();
    move |mut conn: Conn| {
        let mut gate = gate.clone();
        Box::pin(async move {
            while conn.read_head().await.is_some() && gate.wait_for(|open| *open).await.is_ok() {
                conn.answer("finished").await;
            }
        })
    }
}

/// Starts agent `a1` under a fixed id, so that a second one takes its place.
async fn join_as(world: &World, id: &str, app: &App) -> Process {
    let mut command = world.agent_command("a1");
    command.args(["--agent", id, "--app", &format!("demo={}", app.target())]);
    // Not by the agent's word: it is welcomed a moment before the gateway sends it anything.
    world.run_agent(id, command).await.process
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_are_replaced_one_after_the_other_fail_no_request() {
    let app = App::start(serving(std::sync::Arc::default())).await;
    let world = setup().start().await;
    let mut agent = world.join("a1", &[("demo", &app.target())]).await;
    let load = Load::start(4, world.places.public, &world.host("demo"));
    for _ in 0..3 {
        load.served(50).await;
        let next = world.join("a1", &[("demo", &app.target())]).await;
        agent.process.signal("TERM");
        load.served(20).await;
        assert!(agent.process.wait_exit(wait::SOON).success());
        agent = next;
    }
    load.served(50).await;
    let told = load.finish().await;
    let arrived = arrivals(&[&app.text()]);
    for one in &told {
        let answer = one
            .answer
            .as_ref()
            .unwrap_or_else(|why| panic!("{} got {why:?}", one.id));
        assert_eq!(answer.status, 200, "{}: {}", one.id, answer.text());
        assert_eq!(arrived.get(&one.id), Some(&1), "{} arrived once", one.id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_alone_that_restarts_in_order_fails_no_request() {
    let app = App::start(serving(std::sync::Arc::default())).await;
    let world = setup().defaults("hold = \"20s\"").start().await;
    let mut agent = world.join("a1", &[("demo", &app.target())]).await;
    let load = Load::start(4, world.places.public, &world.host("demo"));
    for _ in 0..2 {
        load.served(50).await;
        agent.process.signal("TERM");
        assert!(agent.process.wait_exit(wait::SOON).success());
        agent = world.join("a1", &[("demo", &app.target())]).await;
    }
    load.served(50).await;
    let told = load.finish().await;
    judge(&told, &arrivals(&[&app.text()]));
    let failed = told
        .iter()
        .filter(|t| t.answer.as_ref().is_ok_and(|a| a.status != 200))
        .count();
    assert_eq!(failed, 0, "held while nobody was there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_agent_of_the_same_id_takes_over_and_the_older_finishes() {
    let gate = watch::Sender::new(false);
    let old_app = App::start(gated(&gate)).await;
    let new_app = App::start(app::echo).await;
    let world = setup().start().await;
    let _old = join_as(&world, "edge", &old_app).await;
    let mut waiting = world.h1().await;
    waiting
        .request("GET", "/old", &world.host("demo"), &[], b"")
        .await;
    old_app.until_text("/old").await;
    let _new = join_as(&world, "edge", &new_app).await;
    let served = || async {
        let asked = tokio::time::timeout(Duration::from_secs(1), world.get("/new"))
            .await
            .ok()?;
        asked.text().starts_with("GET /new").then_some(())
    };
    wait::until(Duration::from_secs(5), "the newer agent serving", served).await;
    gate.send_replace(true);
    assert_eq!(
        waiting.answer("GET").await.text(),
        "finished",
        "what the older had, it finishes"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_hangs_gets_nothing_new_and_is_back_once_it_wakes() {
    let One {
        world,
        agent,
        app: _app,
    } = one(quick(), app::echo).await;
    agent.process.signal("STOP");
    let begun = std::time::Instant::now();
    world.until_all("suspended", Duration::from_secs(20)).await;
    eprintln!("noticed after {:?}", begun.elapsed());
    // Waited for as long as the window allows, and not given to the one that hangs.
    let answer = world.get("/").await;
    assert_eq!(answer.error("reason"), "no_agent");
    assert_eq!(answer.error("delivery"), "not_delivered");
    agent.process.signal("CONT");
    let back = || async { (world.get("/").await.status == 200).then_some(()) };
    wait::until(
        Duration::from_secs(30),
        "the agent coming back by itself",
        back,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_terminated_finishes_what_it_has() {
    let gate = watch::Sender::new(false);
    let One {
        mut world,
        agent: _agent,
        app,
    } = one(setup(), gated(&gate)).await;
    let mut client = world.h1().await;
    client
        .request("GET", "/slow", &world.host("demo"), &[], b"")
        .await;
    app.until_text("/slow").await;
    world.gateway.signal("TERM");
    let addr = world.places.public;
    let closed = || async { tokio::net::TcpStream::connect(addr).await.err() };
    wait::until(wait::SOON, "the public port closing", closed).await;
    gate.send_replace(true);
    assert_eq!(client.answer("GET").await.text(), "finished");
    drop(client);
    assert!(world.gateway.wait_exit(Duration::from_secs(40)).success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_whose_grace_is_over_counts_and_nobody_waits_for_its_return() {
    let app = App::start(app::silent).await;
    let world = setup().start().await;
    let mut command = world.agent_command("a1");
    let offered = format!("demo={}", app.target());
    command.args(["--grace", "300ms", "--app", &offered]);
    let mut agent = world.run_agent("a1", command).await;
    let mut client = world.h1().await;
    client
        .request("POST", "/silent", &world.host("demo"), &[], b"order")
        .await;
    app.until_text("order").await;
    let begun = std::time::Instant::now();
    agent.process.signal("TERM");
    let told = client.answer("POST").await;
    // The gateway would wait 20 s for an agent that went without a word.
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    Verdict::refused(503, "BH_APP_STARTING", "agent_draining")
        .unknown("all")
        .after(2)
        .check(&told);
    assert!(agent.process.wait_exit(wait::SOON).success());
}

/// Takes a connection of bytes or a request, begins to answer as its path wants, and never ends.
async fn endless(mut conn: Conn) {
    let Some(first) = conn.read_some().await else {
        return;
    };
    let asked = String::from_utf8_lossy(&first).into_owned();
    if asked.starts_with("bytes") {
        conn.write("half of").await;
    } else if asked.starts_with("GET /stream") {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        conn.write(format!("{head}7\r\nhalf of\r\n")).await;
    }
    conn.until_closed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_whose_grace_is_over_tells_who_waits_and_ends_nothing_cleanly() {
    let port = port::free();
    let app = App::start(endless).await;
    let setup = setup().section("gateway", "grace = \"500ms\"");
    let raw = format!("protocol = \"tcp\"\nport = {port}");
    let mut world = setup.app("raw", &raw).start().await;
    let offered = format!("tcp://{}", app.addr());
    let _agent = world
        .join("a1", &[("demo", &app.target()), ("raw", &offered)])
        .await;
    let host = world.host("demo");
    let mut silent = world.h1().await;
    silent
        .request("POST", "/silent", &host, &[], b"order")
        .await;
    app.until_text("/silent").await;
    let mut stream = world.h1().await;
    stream
        .send(format!("GET /stream HTTP/1.0\r\nHost: {host}\r\n\r\n"))
        .await;
    let mut bytes = H1::connect(([127, 0, 0, 1], port).into()).await;
    bytes.send("bytes").await;
    let head = stream.read_head().await.expect("a head");
    assert_eq!((head.status, head.header("content-length")), (200, None));
    for client in [&mut stream, &mut bytes] {
        let half = wait::within(wait::SOON, "half", client.read_exact(7)).await;
        assert_eq!(half.as_deref(), Some(&b"half of"[..]));
    }
    world.gateway.signal("TERM");
    let told = silent.answer("POST").await;
    Verdict::refused(503, "SERVICE_UNAVAILABLE", "draining")
        .unknown("all")
        .after(5)
        .check(&told);
    for client in [&mut stream, &mut bytes] {
        let (rest, end) = wait::within(wait::SOON, "the end", client.read_to_end()).await;
        assert_eq!((rest.len(), end), (0, End::Reset));
    }
    assert!(world.gateway.wait_exit(wait::SOON).success());
    let log = world.gateway.text(Stream::Out);
    let ends: Vec<&str> = log.lines().filter(|l| l.contains("\"draining\"")).collect();
    assert_eq!(ends.len(), 3, "{log}");
    assert!(!log.contains("\"aborted\":\"client\""), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_started_first_says_not_ready_until_its_gateway_comes() {
    let app = App::start(app::echo).await;
    let mut world = setup().start().await;
    let relay = bridgehead_tests::relay::Relay::start(world.places.tunnel).await;
    relay.refuse();
    let health = port::free();
    let (gateway, health_addr) = (
        format!("tcp://{}", relay.addr()),
        format!("127.0.0.1:{health}"),
    );
    let app_flag = format!("demo={}", app.target());
    let mut plain = std::process::Command::new(bridgehead_tests::binaries::agent());
    let token = world.folder.write("first.token", &world.token("a1").secret);
    plain.args([
        "run",
        "--gateway",
        &gateway,
        "--insecure-plain",
        "--app",
        &app_flag,
        "--health",
        &health_addr,
    ]);
    plain.arg("--token-file").arg(token);
    let mut agent = Process::start("bh-agent", plain);
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], health));
    let ready = |wanted: u16| async move {
        let answer = tokio::net::TcpStream::connect(addr).await.ok()?;
        let status = H1::over(answer)
            .ask("GET", "/readyz", "agent", &[], b"")
            .await
            .status;
        (status == wanted).then_some(())
    };
    wait::until(wait::SOON, "the agent saying that it is not ready", || {
        ready(503)
    })
    .await;
    relay.point_at(world.places.tunnel);
    wait::until(
        Duration::from_secs(30),
        "the agent saying that it is ready",
        || ready(200),
    )
    .await;
    assert_eq!(world.get("/").await.status, 200);
    assert!(agent.is_running() && world.gateway.is_running());
}
