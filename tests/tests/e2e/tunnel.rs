//! How agents join, and what happens to the world when their connection does not hold.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use bridgehead_tests::app::{self, App, ClosedPort};
use bridgehead_tests::process::Process;
use bridgehead_tests::relay::Relay;
use bridgehead_tests::world::{World, setup};
use bridgehead_tests::{binaries, wait};
use tokio::net::TcpStream;

use crate::support::{One, Verdict, one, quick};

/// An agent that dials `gateway` instead of the world's own address.
fn command_to(world: &World, gateway: &str, app: &str) -> Command {
    let mut command = Command::new(binaries::agent());
    let file = world.folder.write("relay.token", &world.token("a1").secret);
    command
        .args([
            "run",
            "--gateway",
            gateway,
            "--insecure-plain",
            "--app",
            app,
            "--token-file",
        ])
        .arg(file);
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_silent_sockets_delay_no_agent() {
    let app = App::start(app::echo).await;
    let world = setup().start().await;
    let mut silent = Vec::new();
    // Half of the descriptors that a process may have here by default, at least.
    for _ in 0..1000 {
        match TcpStream::connect(world.places.tunnel).await {
            Ok(stream) => silent.push(stream),
            Err(error) => panic!("only {} sockets: {error}", silent.len()),
        }
    }
    let begun = Instant::now();
    let _agent = world.join("a1", &[("demo", &app.target())]).await;
    let took = begun.elapsed();
    eprintln!("joined beside {} silent sockets in {took:?}", silent.len());
    assert!(took < Duration::from_secs(3), "the agent waited {took:?}");
    assert_eq!(world.get("/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_may_have_no_second_tunnel_says_why_and_serves_through_the_first() {
    let app = App::start(app::echo).await;
    let world = setup()
        .section("tunnel", "tunnels_per_agent = 1")
        .start()
        .await;
    let agent = world.join("a1", &[("demo", &app.target())]).await;
    let refused = |line: &str| line.contains("[tunnel].tunnels_per_agent allows (1)");
    let line = agent.process.line("why there is no second tunnel", refused);
    assert!(line.contains("a1 has as many tunnels"), "{line}");
    assert_eq!(world.get("/").await.status, 200);
    assert_eq!(world.tunnels().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_under_tls_serves_and_a_foreign_certificate_is_refused() {
    let app = App::start(app::echo).await;
    let world = setup().tunnel_tls().start().await;
    let agent = world.join("a1", &[("demo", &app.target())]).await;
    assert_eq!(world.get("/").await.status, 200);
    agent.stop();
    world.until_tunnels(0).await;
    let other = bridgehead_tests::pki::make(world.folder.path(), "foreign", &["localhost"]);
    let mut command = Command::new(binaries::agent());
    let token = world.folder.write("a1.token", &world.token("a1").secret);
    let gateway = format!("tls://localhost:{}", world.places.tunnel.port());
    command
        .args([
            "run",
            "--gateway",
            &gateway,
            "--app",
            &format!("demo={}", app.target()),
            "--token-file",
        ])
        .arg(token);
    command.arg("--ca").arg(&other.cert);
    let agent = Process::start("bh-agent with a foreign CA", command);
    agent.line("that the certificate is not trusted", |l| {
        l.to_lowercase().contains("certificate")
    });
    assert_eq!(world.tunnels().await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tunnel_over_websocket_on_the_public_port_serves() {
    let app = App::start(app::echo).await;
    let world = setup().tls().section("gateway", "").start().await;
    let mut command = Command::new(binaries::agent());
    let token = world.folder.write("a1.token", &world.token("a1").secret);
    let port = world.places.public_tls.expect("a TLS listener").port();
    command
        .args([
            "run",
            "--gateway",
            &format!("wss://localhost:{port}"),
            "--token-file",
        ])
        .arg(token);
    command
        .arg("--ca")
        .arg(&world.certificate.cert)
        .args(["--app", &format!("demo={}", app.target())]);
    let _agent = world.run_agent("a1", command).await;
    let body = crate::support::pattern(0, 1 << 20);
    let answer = world.ask("POST", "/", &body).await;
    assert!(answer.body.ends_with(&body));
    assert!(world.metrics().await.sum("carriers", &[("kind", "wss")]) >= 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_token_is_denied_and_the_agent_goes_on_trying() {
    let app = App::start(app::echo).await;
    let world = setup().start().await;
    let foreign = bridgehead_tests::world::Token::make("a1", &["demo"]);
    let mut command = Command::new(binaries::agent());
    let token = world.folder.write("foreign.token", &foreign.secret);
    let gateway = format!("tcp://{}", world.places.tunnel);
    command.args([
        "run",
        "--gateway",
        &gateway,
        "--insecure-plain",
        "--app",
        &format!("demo={}", app.target()),
    ]);
    command.arg("--token-file").arg(token);
    let mut agent = Process::start("bh-agent with a foreign token", command);
    let denied = || async {
        (world
            .metrics()
            .await
            .sum("handshakes_total", &[("result", "denied")])
            >= 1.0)
            .then_some(())
    };
    wait::until(wait::SOON, "the denial", denied).await;
    assert_eq!(world.tunnels().await, 0);
    assert!(agent.is_running(), "an agent never gives up");
    assert!(
        !agent
            .logs()
            .contains(foreign.secret.rsplit_once('_').expect("a token").1)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_outside_the_tokens_scope_is_not_served() {
    let app = App::start(app::echo).await;
    let world = quick()
        .app("other", "")
        .agent("a1", &["other"])
        .start()
        .await;
    let mut command = world.agent_command("a1");
    command.args(["--app", &format!("demo={}", app.target())]);
    let _agent = Process::start("bh-agent", command);
    let tried =
        || async { (world.metrics().await.sum("handshakes_total", &[]) >= 1.0).then_some(()) };
    wait::until(wait::SOON, "an attempt to join", tried).await;
    let answer = world.get("/").await;
    assert_eq!(answer.error("code"), "BH_APP_STARTING", "{}", answer.text());
    assert_eq!(app.total(), 0, "the app was not reached");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_agent_serves_several_apps() {
    let one = App::start(app::echo).await;
    let two = App::start(app::echo).await;
    let world = setup().app("two", "").start().await;
    let _agent = world
        .join("a1", &[("demo", &one.target()), ("two", &two.target())])
        .await;
    assert_eq!(world.get("/first").await.status, 200);
    let answer = world
        .h1()
        .await
        .ask("GET", "/second", &world.host("two"), &[], b"")
        .await;
    assert_eq!(answer.status, 200);
    assert!(one.text().contains("/first") && !one.text().contains("/second"));
    assert!(two.text().contains("/second") && !two.text().contains("/first"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_resume_window_a_cut_ends_the_tunnel_and_the_agent_makes_another() {
    let app = App::start(app::echo).await;
    let world = setup()
        .section("tunnel", "resume_window = \"0s\"")
        .start()
        .await;
    let relay = Relay::start(world.places.tunnel).await;
    let command = command_to(
        &world,
        &format!("tcp://{}", relay.addr()),
        &format!("demo={}", app.target()),
    );
    let _agent = world.run_agent("a1", command).await;
    assert_eq!(world.get("/").await.status, 200);
    relay.refuse();
    world.until_tunnels(0).await;
    relay.point_at(world.places.tunnel);
    let joined = || async { (world.tunnels().await > 0).then_some(()) };
    wait::until(Duration::from_secs(30), "the agent coming back", joined).await;
    assert_eq!(world.get("/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_finds_a_gateway_that_was_restarted() {
    let app = App::start(app::echo).await;
    let mut world = setup().start().await;
    let relay = Relay::start(world.places.tunnel).await;
    let command = command_to(
        &world,
        &format!("tcp://{}", relay.addr()),
        &format!("demo={}", app.target()),
    );
    let _agent = world.run_agent("a1", command).await;
    world.restart_gateway();
    relay.point_at(world.places.tunnel);
    let joined = || async { (world.tunnels().await > 0).then_some(()) };
    wait::until(Duration::from_secs(30), "the agent coming back", joined).await;
    assert_eq!(world.get("/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_request_is_served_when_its_agent_comes() {
    let app = App::start(app::echo).await;
    let world = setup().defaults("hold = \"30s\"").start().await;
    let mut client = world.h1().await;
    client
        .request("POST", "/early", &world.host("demo"), &[], b"a=1")
        .await;
    let held = || async { (world.gateway.descriptors() > 0).then_some(()) };
    wait::until(wait::SOON, "the request being held", held).await;
    let _agent = world.join("a1", &[("demo", &app.target())]).await;
    let answer = client.answer("POST").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(app.text().matches("POST /early").count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_agent_is_noticed_and_the_answer_is_no_lie() {
    let One { world, agent, app } = one(quick(), app::echo).await;
    assert_eq!(world.get("/").await.status, 200);
    agent.process.signal("STOP");
    let answer = world.ask("POST", "/frozen", b"a=1").await;
    assert!(matches!(answer.status, 503 | 504), "{}", answer.text());
    assert_ne!(answer.error("delivery"), "delivered");
    let told = answer.error("delivery");
    agent.process.signal("CONT");
    let gone = || async {
        (world.tunnels().await > 0 && world.get("/").await.status == 200).then_some(())
    };
    wait::until(Duration::from_secs(30), "the agent serving again", gone).await;
    let arrived = app.text().matches("POST /frozen").count();
    assert!(
        arrived <= 1 && (arrived == 0 || told == "unknown"),
        "told {told}, arrived {arrived} times"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_agent_finishes_what_it_has_and_takes_nothing_new() {
    let (go, gate) = tokio::sync::watch::channel(false);
    let script = move |mut conn: app::Conn| {
        let mut gate = gate.clone();
        async move {
            if conn.read_head().await.is_some() && gate.wait_for(|open| *open).await.is_ok() {
                conn.answer("finished").await;
            }
        }
    };
    let One {
        world,
        mut agent,
        app,
    } = one(
        quick().defaults("hold = \"0s\"\nfirst_frame_window = \"20s\""),
        script,
    )
    .await;
    let mut client = world.h1().await;
    client
        .request("GET", "/slow", &world.host("demo"), &[], b"")
        .await;
    app.until_text("/slow").await;
    agent.process.signal("TERM");
    let refused = || async {
        // Until the gateway has heard of it, one may still reach the app, which answers nobody yet.
        let answer = tokio::time::timeout(Duration::from_millis(500), world.get("/early"))
            .await
            .ok()?;
        (answer.error("delivery") == "not_delivered").then_some(())
    };
    wait::until(wait::SOON, "new requests being refused", refused).await;
    let late = world.get("/new").await;
    assert_eq!(late.error("delivery"), "not_delivered", "{}", late.text());
    go.send_replace(true);
    assert_eq!(client.answer("GET").await.text(), "finished");
    assert!(
        agent.process.wait_exit(wait::SOON).success(),
        "an orderly end is a success"
    );
    assert!(!app.text().contains("/new"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_worker_has_a_tunnel_of_its_own_to_an_agent() {
    let app = App::start(app::echo).await;
    let world = quick().section("gateway", "workers = 2").start().await;
    let both = BTreeSet::from([Some("bh-worker-0"), Some("bh-worker-1")]);
    // By chance the two would be on one worker every other time.
    for _ in 0..8 {
        let agent = world.join("a1", &[("demo", &app.target())]).await;
        world.until_tunnels(2).await;
        let told = world.admin("/v1/tunnels").await;
        let tunnels = told["tunnels"].as_array().expect("a list");
        let workers: BTreeSet<_> = tunnels.iter().map(|t| t["worker"].as_str()).collect();
        assert_eq!(workers, both, "{told}");
        agent.stop();
        world.until_tunnels(0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_agent_is_cut_off() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), app::echo).await;
    let answer = world.command("/v1/agents/a1/revoke").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    world.until_tunnels(0).await;
    let denied = || async {
        let denied = [("result", "denied")];
        (world.metrics().await.sum("handshakes_total", &denied) >= 1.0).then_some(())
    };
    let mut again = world.agent_command("a1");
    again.args(["--app", "demo=http://127.0.0.1:1"]);
    let _again = Process::start("bh-agent with a revoked token", again);
    wait::until(wait::SOON, "the agent trying in vain", denied).await;
    Verdict::refused(503, "BH_APP_STARTING", "no_agent")
        .after(2)
        .check(&world.get("/").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_app_of_one_agent_says_so_while_the_tunnel_stands() {
    let closed = ClosedPort::take();
    let world = quick().start().await;
    let _agent = world.join("a1", &[("demo", &closed.target())]).await;
    Verdict::refused(503, "BH_APP_STARTING", "connect_refused")
        .after(2)
        .check(&world.get("/").await);
    assert!(world.tunnels().await > 0);
}
