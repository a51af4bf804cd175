//! What an operator is told before clients find out: certificates, open files, reloads, agents; and that
//! a gateway which leaves is given time to be noticed.

use std::process::Command;
use std::time::Duration;

use bridgehead_tests::pki::{Authority, Validity};
use bridgehead_tests::process::{self, Process};
use bridgehead_tests::world::{Places, World, setup};
use bridgehead_tests::{app, binaries, client, metrics, wait};

use crate::support::{One, one};

/// 2021-01-01, when certificates that are over have ended.
const OVER: f64 = 1_609_459_200.0;

/// The end of the public side's certificate, as metrics tell it.
async fn end(world: &World) -> f64 {
    let labels = [("listener", "public")];
    world
        .metrics()
        .await
        .sum("certificate_expiry_seconds", &labels)
}

/// Puts another certificate into the world's files.
fn renew(world: &World, authority: &Authority, name: &str, validity: Validity) {
    let (cert, key) = authority.issue(name, validity);
    for (from, to) in [
        (cert, &world.certificate.cert),
        (key, &world.certificate.key),
    ] {
        std::fs::copy(from, to).expect("the test's folder can be written");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_has_ended_or_fits_no_name_is_told_by_check_log_and_metrics() {
    let world = setup().tls().start().await;
    assert!(end(&world).await > OVER);
    let authority = Authority::new(world.folder.path(), "authority");
    renew(&world, &authority, "other.example", Validity::Over);
    let mut check = Command::new(binaries::gateway());
    check.args(["check", "--config"]).arg(&world.config);
    let checked = process::run_to_end("bh-gateway check", check, wait::SOON);
    assert_eq!(checked.code, Some(0), "a warning is no mistake");
    for said in [
        "expired on 2021-01-01",
        "no certificate of [public].tls is made for gw.localhost, localhost, demo.localhost",
    ] {
        let warned = |line: &str| line.starts_with("  warning") && line.contains(said);
        assert!(checked.stdout.lines().any(warned), "{}", checked.stdout);
        assert!(!world.gateway.logs().contains(said));
    }
    assert_eq!(world.command("/v1/reload").await.status, 200);
    assert_eq!(end(&world).await, OVER);
    for said in ["expired on 2021-01-01", "is made for gw.localhost"] {
        world.gateway.line("what it will run into", |line| {
            line.contains("the configuration needs a look") && line.contains(said)
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_reload_and_the_agents_of_an_app_are_told() {
    let One {
        world,
        agent,
        app: _app,
    } = one(setup(), app::echo).await;
    let all = |name: &'static str, labels: &'static [(&str, &str)]| {
        let world = &world;
        async move { world.metrics().await.sum(name, labels) }
    };
    // Two tunnels of one agent.
    assert!(all("tunnels", &[]).await >= 1.0);
    assert_eq!(all("app_agents", &[("app", "demo")]).await, 1.0);
    let started = all("start_time_seconds", &[]).await;
    assert_eq!(all("reload_timestamp_seconds", &[]).await, started);
    assert_eq!(all("reload_success", &[]).await, 1.0);
    let good = std::fs::read_to_string(&world.config).expect("the configuration");
    std::fs::write(&world.config, "[public\n").expect("written");
    assert_eq!(world.command("/v1/reload").await.status, 422);
    assert_eq!(all("reload_success", &[]).await, 0.0);
    std::fs::write(&world.config, good).expect("written");
    assert_eq!(world.command("/v1/reload").await.status, 200);
    assert_eq!(all("reload_success", &[]).await, 1.0);
    assert!(all("reload_timestamp_seconds", &[]).await >= started);
    agent.stop();
    world.until_tunnels(0).await;
    assert_eq!(all("app_agents", &[("app", "demo")]).await, 0.0);
    assert!(all("descriptors", &[("kind", "open")]).await > 3.0);
}

/// Starts the world's gateway once more, under limits of open files.
fn limited(world: &World, limits: &str) -> (Process, Places) {
    let mut command = Command::new("sh");
    let script = format!("ulimit -Sn 256; ulimit -Hn {limits}; exec \"$0\" serve --config \"$1\"");
    command.args(["-c", &script]);
    command.arg(binaries::gateway()).arg(&world.config);
    let gateway = Process::start("bh-gateway", command);
    let ready = gateway.line("that it is ready", |line| line.starts_with("ready "));
    (gateway, Places::parse(&ready))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_takes_as_many_open_files_as_it_may_and_says_if_these_are_too_few() {
    let world = setup().section("limits", "connections = 500").start().await;
    for (limit, few) in [(1_499, true), (1_500, false)] {
        let (gateway, places) = limited(&world, &limit.to_string());
        let told = metrics::read(places.admin).await;
        assert_eq!(
            told.sum("descriptors", &[("kind", "limit")]),
            f64::from(limit)
        );
        let warns = |line: &str| line.contains("open files are too few for 500 connections");
        match few {
            true => drop(gateway.line("that these are too few", warns)),
            false => assert!(!warns(&gateway.logs()), "{}", gateway.logs()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_leaves_says_so_before_it_stops_to_accept() {
    let One {
        mut world,
        agent: _agent,
        app: _app,
    } = one(
        setup().section("gateway", "drain_delay = \"4s\""),
        app::echo,
    )
    .await;
    world.gateway.signal("TERM");
    let (admin, public) = (world.places.admin, world.places.public);
    let ready = || async {
        let answer = client::ask(admin, "GET", "/readyz", &admin.to_string()).await;
        (answer.status == 503).then(|| answer.text())
    };
    let said = wait::until(wait::SOON, "the gateway saying that it leaves", ready).await;
    assert!(said.contains("draining"), "{said}");
    assert_eq!(
        world.get("/").await.status,
        200,
        "newcomers are still served"
    );
    let closed = || async { tokio::net::TcpStream::connect(public).await.err() };
    wait::until(wait::SOON, "the public port closing", closed).await;
    assert!(world.gateway.wait_exit(Duration::from_secs(40)).success());
}
