//! The configuration read again under a running gateway: what changes at once, what is told to need a
//! restart, and that a mistake changes nothing.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bridgehead_gateway::clock::rfc3339;
use bridgehead_tests::app::{self, App};
use bridgehead_tests::client::{Answer, H1};
use bridgehead_tests::process::Process;
use bridgehead_tests::world::{Token, World, setup};
use bridgehead_tests::{pki, wait};
use serde_json::json;

use crate::support::{One, Verdict, neighbour, one};

/// Puts another text into the configuration's file.
fn edit(world: &World, change: impl FnOnce(String) -> String) {
    let text = std::fs::read_to_string(&world.config).expect("the configuration");
    std::fs::write(&world.config, change(text)).expect("the test's folder can be written");
}

async fn reload(world: &World) -> Answer {
    world.command("/v1/reload").await
}

async fn ask(world: &World, app: &str) -> Answer {
    let host = world.host(app);
    world.h1().await.ask("GET", "/", &host, &[], b"").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_is_added_and_another_changed_without_a_restart() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), app::echo).await;
    let shop = App::start(app::echo).await;
    let unchanged = reload(&world).await;
    assert_eq!(
        unchanged.json(),
        json!({ "changed": [], "needs_restart": [] })
    );
    edit(&world, |text| {
        let text = text.replace("name = \"demo\"", "name = \"demo\"\ndeny = [\"127.0.0.1\"]");
        let text = text.replace("[gateway]", "[gateway]\nworkers = 3");
        text + "[[app]]\nname = \"shop\"\nhosts = [\"shop.example\"]\n"
    });
    let told = reload(&world).await;
    assert_eq!(
        told.json(),
        json!({ "changed": ["[[app]] demo", "[[app]] shop"], "needs_restart": ["[gateway].workers"] })
    );
    Verdict::refused(403, "APP_NOT_FOUND", "denied").check(&world.get("/").await);
    let _second = world.join("a1", &[("shop", &shop.target())]).await;
    let answer = world
        .h1()
        .await
        .ask("GET", "/", "shop.example", &[], b"")
        .await;
    assert_eq!(answer.status, 200);
    // What waits for a restart is named until it got one.
    let again = reload(&world).await.json();
    assert_eq!(
        again,
        json!({ "changed": [], "needs_restart": ["[gateway].workers"] })
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hangup_reloads_too() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), app::echo).await;
    edit(&world, |text| {
        text.replace("name = \"demo\"", "name = \"demo\"\ndeny = [\"127.0.0.1\"]")
    });
    assert_eq!(world.get("/").await.status, 200);
    world.gateway.signal("HUP");
    world
        .gateway
        .line("that it reloaded", |l| l.contains("configuration reloaded"));
    assert_eq!(world.get("/").await.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistake_anywhere_changes_nothing_and_is_told_line_by_line() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), app::echo).await;
    edit(&world, |text| {
        let text = text.replace("name = \"demo\"", "name = \"demo\"\ndeny = [\"127.0.0.1\"]");
        text + "[[app]]\nname = \"Shop\"\nhodl = \"1s\"\n"
    });
    let told = reload(&world).await;
    assert_eq!(told.status, 422);
    let errors = told.json()["errors"].clone();
    let errors: Vec<&str> = errors
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|line| line.as_str())
        .collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(
        errors[0].contains("\"Shop\" is not an app name"),
        "{errors:?}"
    );
    assert!(errors[1].contains("did you mean hold?"), "{errors:?}");
    assert_eq!(world.get("/").await.status, 200);
    world.gateway.signal("HUP");
    world.gateway.line("what is wrong", |l| {
        l.contains("configuration not reloaded")
    });
    assert_eq!(world.get("/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_that_runs_keeps_the_settings_it_began_with() {
    let setup = setup().app("demo", "first_frame_window = \"2s\"");
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup, app::silent).await;
    let (public, host) = (world.places.public, world.host("demo"));
    let begun = Instant::now();
    let running = tokio::spawn(async move {
        let mut client = H1::connect(public).await;
        client.ask("GET", "/old", &host, &[], b"").await
    });
    app.until_text("/old").await;
    edit(&world, |text| {
        text.replace("window = \"2s\"", "window = \"50s\"")
    });
    assert_eq!(
        reload(&world).await.json()["changed"],
        json!(["[[app]] demo"])
    );
    let answer = running.await.expect("answered");
    assert_eq!(answer.error("window"), "first_frame");
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_token_is_rotated_both_are_valid_and_without_its_key_a_tunnel_is_cut() {
    let app = App::start(app::echo).await;
    let world = setup().start().await;
    let _old = world.join("a1", &[("demo", &app.target())]).await;
    let old_tunnels = world.tunnels().await;
    let (old, new) = (world.token("a1").clone(), Token::make("a1", &["*"]));
    edit(&world, |text| {
        let entry = |token: &Token| format!("{{ id = {:?}, hash = {:?} }}", token.key, token.hash);
        text.replace(&entry(&old), &format!("{}, {}", entry(&old), entry(&new)))
    });
    assert_eq!(
        reload(&world).await.json()["changed"],
        json!(["[[agent]] a1"])
    );
    let mut command = world.agent_command_with("a1-new", &new);
    let target = format!("demo={}", app.target());
    command.args(["--app", &target, "--agent", "second"]);
    let _new = world.run_agent("a1-new", command).await;
    world.until_tunnels(old_tunnels * 2).await;
    assert_eq!(world.get("/").await.status, 200);

    edit(&world, |text| {
        text.replace(
            &format!("{{ id = {:?}, hash = {:?} }}, ", old.key, old.hash),
            "",
        )
    });
    let begun = Instant::now();
    assert_eq!(
        reload(&world).await.json()["changed"],
        json!(["[[agent]] a1"])
    );
    world.until_tunnels(old_tunnels).await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "cut after {took:?}");
    let mut command = world.agent_command("a1");
    command.args(["--app", &target]);
    let _knocks = Process::start("bh-agent with the old token", command);
    let denied = || async {
        let denied = [("result", "denied")];
        (world.metrics().await.sum("handshakes_total", &denied) >= 1.0).then_some(())
    };
    wait::until(wait::SOON, "the old token being refused", denied).await;
    assert_eq!(world.get("/").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_taken_out_or_may_no_longer_serve_its_app_is_cut() {
    let app = App::start(app::echo).await;
    let world = setup().agent("a2", &["*"]).start().await;
    let _one = world.join("a1", &[("demo", &app.target())]).await;
    let _two = world.join("a2", &[("demo", &app.target())]).await;
    let both = world.tunnels().await;
    edit(&world, |text| {
        text.replacen("apps = [\"*\"]", "apps = [\"shop-*\"]", 1)
    });
    let begun = Instant::now();
    assert_eq!(
        reload(&world).await.json()["changed"],
        json!(["[[agent]] a1"])
    );
    world.until_tunnels(both / 2).await;
    edit(&world, |text| {
        let (before, rest) = text
            .split_once("[[agent]]\nid = \"a2\"")
            .expect("the agent");
        let (_, after) = rest.split_once("[[app]]").expect("the app behind it");
        format!("{before}[[app]]{after}")
    });
    assert_eq!(
        reload(&world).await.json()["changed"],
        json!(["[[agent]] a2"])
    );
    world.until_tunnels(0).await;
    assert!(
        begun.elapsed() < Duration::from_secs(4),
        "{:?}",
        begun.elapsed()
    );
    Verdict::refused(503, "BH_APP_STARTING", "no_agent")
        .after(2)
        .check(&ask(&world, "demo").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_used_for_new_connections_only() {
    let app = App::start(app::echo).await;
    let world = setup().tls().start().await;
    let _agent = world.join("a1", &[("demo", &app.target())]).await;
    let (addr, host) = (world.places.public_tls.expect("TLS"), "demo.localhost");
    let mut old = H1::connect_tls(addr, host, &world.certificate.roots).await;
    assert_eq!(old.ask("GET", "/1", host, &[], b"").await.status, 200);
    let renewed = pki::make(world.folder.path(), "gateway", &["demo.localhost"]);
    assert_eq!(renewed.cert, world.certificate.cert, "the same files");
    assert_eq!(
        reload(&world).await.json()["changed"],
        json!(["[public].tls"])
    );
    let mut new = H1::connect_tls(addr, host, &renewed.roots).await;
    assert_eq!(new.ask("GET", "/2", host, &[], b"").await.status, 200);
    assert_eq!(old.ask("GET", "/3", host, &[], b"").await.status, 200);
    // A file that is none takes nothing away.
    std::fs::write(&renewed.cert, "no certificate").expect("written");
    assert_eq!(reload(&world).await.status, 422);
    let mut still = H1::connect_tls(addr, host, &renewed.roots).await;
    assert_eq!(still.ask("GET", "/4", host, &[], b"").await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_expires_cuts_the_tunnel_that_stands_on_it_within_two_seconds() {
    let One {
        world,
        agent,
        app: _app,
    } = one(setup(), app::echo).await;
    // Whole seconds, as the configuration writes them.
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock");
    let expires = UNIX_EPOCH + Duration::from_secs(now.as_secs() + 4);
    edit(&world, |text| {
        let stamp = rfc3339(expires);
        let stamp = stamp
            .split('.')
            .next()
            .unwrap_or_default()
            .trim_end_matches('Z');
        text.replace("\" }]\napps", &format!("\", expires = {stamp}Z }}]\napps"))
    });
    assert_eq!(
        reload(&world).await.json()["changed"],
        json!(["[[agent]] a1"])
    );
    assert_eq!(world.get("/").await.status, 200);
    assert!(SystemTime::now() < expires, "it was still valid");
    world
        .gateway
        .line("the cut", |line| line.contains("token has expired"));
    world.until_tunnels(0).await;
    let late = SystemTime::now()
        .duration_since(expires)
        .expect("not before it expired");
    assert!(late < Duration::from_secs(2), "{late:?}");
    drop(agent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bounds_are_in_effect_for_what_begins_after_the_reload() {
    let setup = setup().app("demo", "deny = [\"203.0.113.0/24\"]");
    let One {
        world,
        agent,
        app: _app,
    } = one(setup, app::echo).await;
    let (host, long) = (world.host("demo"), "x".repeat(20 * 1024));
    let told = [
        ("X-Forwarded-For", "203.0.113.7"),
        ("X-Long", long.as_str()),
    ];
    let mut before = world.h1().await;
    assert_eq!(before.ask("GET", "/", &host, &told, b"").await.status, 200);
    edit(&world, |text| {
        let text = text.replace(
            "[limits]",
            "[limits]\nhead_size = \"16KiB\"\nconnections_per_ip = 3",
        );
        let text = text.replace("[tunnel]", "[tunnel]\nresume_window = \"0s\"");
        let text = text.replace("[public]", "[public]\ntrusted_proxies = [\"127.0.0.2\"]");
        text.replace("[gateway]", "[gateway]\nmemory = \"7GiB\"")
    });
    let keys = [
        "[gateway].memory",
        "[public].trusted_proxies",
        "[tunnel].resume_window",
        "[limits].head_size",
        "[limits].connections_per_ip",
    ];
    assert_eq!(
        reload(&world).await.json(),
        json!({ "changed": keys, "needs_restart": [] })
    );
    let budget = world
        .metrics()
        .await
        .sum("memory_bytes", &[("kind", "budget")]);
    assert_eq!(budget, f64::from(7u32) * f64::from(1u32 << 30));

    let refused = world.h1().await.ask("GET", "/", &host, &told, b"").await;
    Verdict::refused(431, "HEAD_TOO_LARGE", "head_limit").check(&refused);
    let forwarded = [("X-Forwarded-For", "203.0.113.7")];
    let believed = neighbour(&world)
        .await
        .ask("GET", "/", &host, &forwarded, b"")
        .await;
    Verdict::refused(403, "APP_NOT_FOUND", "denied").check(&believed);
    // The one refused above may still be leaving, so a newcomer has a place only if it is served.
    let mut inside = vec![before];
    let refused = loop {
        let mut next = world.h1().await;
        let answer = next.ask("GET", "/", &host, &[], b"").await;
        if answer.status != 200 {
            break answer;
        }
        inside.push(next);
        assert!(inside.len() <= 3, "a fourth connection was let in");
    };
    assert_eq!(
        (refused.status, refused.error("reason").as_str()),
        (503, "overload")
    );
    drop(inside);

    // A tunnel keeps what it was promised; the next one is gone with its carrier.
    agent.stop();
    world.until_tunnels(0).await;
    let next = App::start(app::echo).await;
    let mut killed = world.join("a1", &[("demo", &next.target())]).await;
    killed.process.kill();
    let begun = Instant::now();
    world.until_tunnels(0).await;
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "it waited for nobody"
    );
}
