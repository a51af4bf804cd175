//! What can be seen from outside: metrics by exactly one, one log line per exchange, and no secret anywhere.

use bridgehead_tests::app::{self, Conn};
use bridgehead_tests::client;
use bridgehead_tests::wait;
use bridgehead_tests::world::{World, setup};
use serde_json::Value;

use crate::support::{One, one, quick};

/// The access line of a request, once it is written.
async fn line(world: &World, id: &str) -> Value {
    let found = || async {
        let logs = world.gateway.logs();
        let line = logs
            .lines()
            .find(|l| l.contains(id) && l.contains("\"status\""))?;
        serde_json::from_str(line).ok()
    };
    wait::until(wait::SOON, "the access line", found).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_exchange_per_outcome_moves_the_metrics_by_exactly_one() {
    let script = |mut conn: Conn| async move {
        while let Some(head) = conn.read_head().await {
            match head.target.as_str() {
                "/silent" => return conn.until_closed().await,
                "/close" => return,
                "/garbage" => {
                    conn.write("nonsense\r\n\r\n").await;
                    return;
                }
                _ => drop(conn.answer("ok").await),
            }
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), script).await;
    let cases = [
        ("/ok", "answered", "delivered", ""),
        ("/silent", "failed", "unknown", "BH_APP_TIMEOUT"),
        ("/close", "failed", "unknown", "BH_APP_STARTING"),
        ("/garbage", "failed", "delivered", "BH_APP_BROKEN"),
    ];
    for (target, outcome, delivery, code) in cases {
        let before = world.metrics().await;
        world.get(target).await;
        let after = settled(&world, &before, 1.0).await;
        let labels = [
            ("app", "demo"),
            ("outcome", outcome),
            ("delivery", delivery),
            ("code", code),
        ];
        let by = after.sum("exchanges_total", &labels) - before.sum("exchanges_total", &labels);
        let moved = after.moved(&before, |s| s.starts_with("bridgehead_exchanges_total"));
        assert_eq!(by, 1.0, "{target} moved {moved:?}");
        assert_eq!(moved.len(), 1, "{target} moved nothing else: {moved:?}");
        let fired = after.sum("windows_fired_total", &[]) - before.sum("windows_fired_total", &[]);
        assert_eq!(fired, if target == "/silent" { 1.0 } else { 0.0 });
    }
    let before = world.metrics().await;
    world
        .h1()
        .await
        .ask("GET", "/", "nobody.localhost", &[], b"")
        .await;
    let after = settled(&world, &before, 1.0).await;
    let labels = [("code", "APP_NOT_FOUND"), ("reason", "no_route")];
    assert_eq!(
        after.sum("refusals_total", &labels) - before.sum("refusals_total", &labels),
        1.0
    );
    for gauge in ["in_flight", "long_lived"] {
        assert_eq!(after.sum(gauge, &[]), 0.0, "{gauge} is back to zero");
    }
}

/// Metrics once the exchange's end has been counted: that is after the client has its answer.
async fn settled(
    world: &World,
    before: &bridgehead_tests::metrics::Snapshot,
    by: f64,
) -> bridgehead_tests::metrics::Snapshot {
    let counted = || async {
        let now = world.metrics().await;
        let moved = now.sum("exchanges_total", &[]) - before.sum("exchanges_total", &[]);
        let quiet = now.sum("in_flight", &[]) == 0.0;
        (moved >= by && quiet).then_some(now)
    };
    wait::until(wait::SOON, "the exchange being counted", counted).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_is_counted_once_as_such() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::silent).await;
    let before = world.metrics().await;
    let mut client = world.h1().await;
    client
        .request("GET", "/slow", &world.host("demo"), &[], b"")
        .await;
    app.until_text("/slow").await;
    drop(client);
    let after = settled(&world, &before, 1.0).await;
    let moved = after.moved(&before, |s| s.starts_with("bridgehead_exchanges_total"));
    assert_eq!(moved.len(), 1, "{moved:?}");
    assert!(
        moved
            .keys()
            .all(|series| series.contains("outcome=\"client_left\"")),
        "{moved:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_exchange_has_one_line_found_by_its_id() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), app::echo).await;
    let mut client = world.h1().await;
    let host = world.host("demo");
    let answer = client
        .ask("POST", "/orders?secret=1", &host, &[], b"hello")
        .await;
    let text = answer.text();
    let id = text
        .lines()
        .find_map(|l| l.strip_prefix("x-request-id: "))
        .expect("the app was given the id");
    assert_eq!(
        answer.header("x-request-id"),
        None,
        "an app's answer is not touched"
    );
    let line = line(&world, id).await;
    assert_eq!(
        (line["method"].as_str(), line["path"].as_str()),
        (Some("POST"), Some("/orders"))
    );
    assert_eq!(
        (line["status"].as_u64(), line["app"].as_str()),
        (Some(200), Some("demo"))
    );
    assert_eq!(line["bytes_in"].as_u64(), Some(5));
    assert_eq!(line["bytes_out"].as_u64(), Some(answer.body.len() as u64));
    assert_eq!(line["app_conn"].as_str(), Some("fresh"));
    let known = world.admin(&format!("/v1/exchanges/{id}")).await;
    assert_eq!(known["path"].as_str(), Some("/orders"));
    assert_eq!(
        world
            .gateway
            .logs()
            .lines()
            .filter(|l| l.contains(id) && l.contains("\"status\""))
            .count(),
        1
    );

    let refused = client.ask("GET", "/", "nobody.localhost", &[], b"").await;
    let line = self::line(&world, refused.header("x-request-id").expect("an id")).await;
    assert_eq!(line["code"].as_str(), Some("APP_NOT_FOUND"));
    assert_eq!(line["delivery"].as_str(), Some("not_delivered"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_appears_in_any_output() {
    let One {
        world,
        agent,
        app: _app,
    } = one(quick(), app::silent).await;
    let canaries = [
        "canary-cookie-7f3a",
        "canary-auth-91bc",
        "canary-query-55de",
        "canary-field-12aa",
    ];
    let fields = [
        ("Cookie", "s=canary-cookie-7f3a"),
        ("Authorization", "Bearer canary-auth-91bc"),
        ("X-Api-Key", canaries[3]),
    ];
    let target = "/pay?token=canary-query-55de";
    let host = world.host("demo");
    let answer = world
        .h1()
        .await
        .ask("POST", target, &host, &fields, b"a=1")
        .await;
    let bad = world
        .h1()
        .await
        .ask("GET", target, "nobody.localhost", &fields, b"")
        .await;
    let id = answer.header("x-request-id").expect("an id").to_owned();
    line(&world, &id).await;
    let mut outputs = vec![
        ("the answer", answer.text()),
        ("the refusal", bad.text()),
        ("the gateway's output", world.gateway.logs()),
        ("the agent's output", agent.process.logs()),
    ];
    let admin = world.places.admin;
    for path in [
        "/metrics",
        "/v1/status",
        "/v1/apps",
        "/v1/apps/demo",
        "/v1/tunnels",
        &format!("/v1/exchanges/{id}"),
    ] {
        outputs.push((
            "an admin answer",
            client::ask(admin, "GET", path, &admin.to_string())
                .await
                .text(),
        ));
    }
    let token = world.token("a1");
    let secret = token
        .secret
        .rsplit_once('_')
        .map_or(token.secret.as_str(), |(_, s)| s);
    for (place, text) in outputs {
        for canary in canaries.iter().copied().chain([secret]) {
            assert!(!text.contains(canary), "{canary} is in {place}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_readiness_and_status_answer() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), app::echo).await;
    let admin = world.places.admin;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(
            client::ask(admin, "GET", path, &admin.to_string())
                .await
                .status,
            200,
            "{path}"
        );
    }
    let apps = world.admin("/v1/apps").await.to_string();
    assert!(apps.contains("demo"), "{apps}");
    let tunnels = world.admin("/v1/tunnels").await;
    let first = &tunnels["tunnels"][0];
    assert_eq!(first["subject"].as_str(), Some("a1"), "{first}");
    assert_eq!(
        (first["apps"][0].as_str(), first["state"].as_str()),
        (Some("demo"), Some("live"))
    );
    let elsewhere = world
        .h1()
        .await
        .ask("GET", "/metrics", &world.host("demo"), &[], b"")
        .await;
    assert!(
        !elsewhere.text().contains("bridgehead_"),
        "metrics are not for the public"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_code_table_is_served_on_the_gateways_own_hosts_only() {
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup(), app::echo).await;
    let path = "/.well-known/bridgehead/codes.json";
    let own = world
        .h1()
        .await
        .ask("GET", path, "gw.localhost", &[], b"")
        .await;
    assert_eq!(own.status, 200);
    let codes = own.json()["codes"].as_array().expect("a list").len();
    assert!(codes >= 16, "{codes} codes");
    let apps = world.get(path).await;
    assert!(
        apps.text()
            .starts_with("GET /.well-known/bridgehead/codes.json\n"),
        "the app's paths are the app's"
    );
    assert_eq!(app.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_gets_a_page_and_foreign_scripts_can_read_the_verdict() {
    let world = quick().start().await;
    let host = world.host("demo");
    let fields = [
        ("Accept", "text/html,application/xhtml+xml"),
        ("Accept-Language", "ru-RU,ru;q=0.9"),
    ];
    let page = world.h1().await.ask("GET", "/", &host, &fields, b"").await;
    assert_eq!(page.status, 503);
    assert!(
        page.header("content-type")
            .is_some_and(|t| t.starts_with("text/html")),
        "{page:?}"
    );
    assert!(
        page.text().contains("BH_APP_STARTING") && page.text().contains("lang=\"ru\""),
        "{}",
        page.text()
    );
    let origin = [("Origin", "https://shop.example")];
    let answer = world
        .h1()
        .await
        .ask("POST", "/", &host, &origin, b"a")
        .await;
    assert_eq!(
        answer.header("access-control-allow-origin"),
        Some("https://shop.example")
    );
    let exposed = answer
        .header("access-control-expose-headers")
        .unwrap_or_default()
        .to_ascii_lowercase();
    assert!(
        exposed.contains("bridgehead-code") && exposed.contains("retry-after"),
        "{exposed}"
    );
    assert!(
        answer
            .header("vary")
            .is_some_and(|v| v.to_ascii_lowercase().contains("origin"))
    );
    let fields = [
        ("Origin", "https://shop.example"),
        ("Access-Control-Request-Method", "POST"),
    ];
    let preflight = world
        .h1()
        .await
        .ask("OPTIONS", "/", &host, &fields, b"")
        .await;
    assert!(
        (200..300).contains(&preflight.status),
        "only the gateway can answer it: {preflight:?}"
    );
    assert_eq!(
        preflight.header("access-control-allow-origin"),
        Some("https://shop.example")
    );
}
