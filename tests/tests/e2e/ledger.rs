//! What became of requests whose answer could not say it: asked later, through the address in the
//! answer or by the caller's own key.

use std::sync::Arc;

use bridgehead_tests::app::{self, App, Conn};
use bridgehead_tests::client::{Answer, H1};
use bridgehead_tests::wait;
use bridgehead_tests::world::World;
use serde_json::Value;
use tokio::sync::Notify;

use crate::support::{One, one, quick};

const KEY: &str = "ZTJlLWNhbmFyeS1rZXktMTIzNA";

/// The path of an outcome, whose address must be on the gateway's own host.
fn path_of(world: &World, answer: &Answer) -> String {
    let url = answer.error("outcomeUrl");
    let own = format!("http://gw.localhost:{}", world.places.public.port());
    let path = url.strip_prefix(&own).map(str::to_owned);
    path.unwrap_or_else(|| panic!("{url} is not below {own}"))
}

async fn ask(world: &World, path: &str, fields: &[(&str, &str)]) -> Value {
    let mut client = world.h1().await;
    let answer = client.ask("GET", path, "gw.localhost", fields, b"").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    answer.json()
}

/// Asks until the state is another one than `pending`.
async fn settled(world: &World, path: &str, fields: &[(&str, &str)]) -> Value {
    wait::until(wait::SOON, "the outcome", || async {
        let said = ask(world, path, fields).await;
        (said["state"] != "pending").then_some(said)
    })
    .await
}

/// An app that has read a request, and says `answer` once it is told to.
fn told_by(go: &Arc<Notify>, answer: &'static str) -> impl Fn(Conn) -> AppFuture + use<> {
    let go = Arc::clone(go);
    move |mut conn: Conn| {
        let go = Arc::clone(&go);
        Box::pin(async move {
            if conn.read_head().await.is_some() {
                go.notified().await;
                conn.write(answer).await;
                conn.until_closed().await;
            }
        })
    }
}

type AppFuture = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_came_too_late_is_told_by_the_address_in_the_timeout() {
    let go = Arc::new(Notify::new());
    let answer = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok";
    let One {
        world,
        agent: _agent,
        app,
    } = one(quick(), told_by(&go, answer)).await;
    let told = world.ask("POST", "/orders", b"a=1").await;
    assert_eq!(told.error("code"), "BH_APP_TIMEOUT");
    assert_eq!(told.error("delivery"), "unknown");
    let path = path_of(&world, &told);
    let waiting = ask(&world, &path, &[]).await;
    assert_eq!(waiting["state"], "pending");
    assert_eq!(waiting["evidence"]["stage"], "all");
    go.notify_one();
    let said = settled(&world, &path, &[]).await;
    assert_eq!(said["state"], "answered", "{said}");
    assert_eq!(said["status"], 201);
    assert_eq!(said["evidence"]["source"], "late_answer");
    assert_eq!(said["retry"]["write"], "verify_first");
    assert_eq!(app.seen().len(), 1);
    let known = [("state", "answered")];
    assert_eq!(
        world.metrics().await.sum("ledger_resolved_total", &known),
        1.0
    );
    assert_eq!(world.metrics().await.sum("ledger_entries", &known), 1.0);
    let id = told.header("x-request-id").expect("an id");
    let view = world.admin(&format!("/v1/exchanges/{id}")).await;
    assert_eq!(view["delivery"], "unknown", "the line says what was told");
    assert_eq!(
        view["outcome"]["status"], 201,
        "the ledger what became known"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_died_with_its_app_or_its_agent_stays_unknown() {
    let closing = |mut conn: Conn| async move {
        conn.read_head().await;
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick(), closing).await;
    let told = world.ask("POST", "/orders", b"").await;
    assert_eq!(told.error("reason"), "closed_before_head");
    let said = ask(&world, &path_of(&world, &told), &[]).await;
    assert_eq!(said["state"], "unknown");
    assert_eq!(said["evidence"]["reason"], "closed_before_head");
    let app = App::start(app::silent).await;
    let world = quick()
        .defaults("first_frame_window = \"30s\"\nhold = \"0s\"")
        .start()
        .await;
    let mut agent = world.join("a1", &[("demo", &app.target())]).await;
    let mut client = world.h1().await;
    let host = world.host("demo");
    client.request("POST", "/orders", &host, &[], b"a=1").await;
    app.until_text("a=1").await;
    agent.process.kill();
    let told = client.answer("POST").await;
    assert_eq!(told.error("reason"), "tunnel_lost");
    let said = ask(&world, &path_of(&world, &told), &[]).await;
    assert_eq!(said["state"], "unknown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_without_an_answer_asks_by_its_key_and_no_log_has_it() {
    let go = Arc::new(Notify::new());
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
    let One { world, agent, app } = one(
        quick().defaults("first_frame_window = \"30s\"\nhold = \"0s\""),
        told_by(&go, answer),
    )
    .await;
    let fields = [("Bridgehead-Outcome-Key", KEY)];
    let path = "/.well-known/bridgehead/outcomes/by-key/demo.localhost";
    assert_eq!(ask(&world, path, &fields).await["state"], "unknown");
    let mut client = world.h1().await;
    let host = world.host("demo");
    client.request("POST", "/orders", &host, &fields, b"").await;
    app.until_text("POST /orders").await;
    assert_eq!(ask(&world, path, &fields).await["state"], "pending");
    go.notify_one();
    assert_eq!(client.answer("POST").await.status, 200);
    let said = settled(&world, path, &fields).await;
    assert_eq!(
        (&said["state"], &said["status"]),
        (&"answered".into(), &200.into())
    );
    // The next caller goes away in the middle; the app is cut off and nobody knows what it did.
    let mut client = world.h1().await;
    let other = [("Bridgehead-Outcome-Key", "YW5vdGhlci1rZXktMTIzNDU2Nw")];
    client
        .request("POST", "/orders?2", &host, &other, b"")
        .await;
    app.until_text("/orders?2").await;
    drop(client);
    let said = settled(&world, path, &other).await;
    assert_eq!(said["state"], "unknown", "{said}");
    assert_eq!(said["evidence"]["stage"], "all");
    let canaries = [KEY, other[0].1];
    for (place, text) in [
        ("the gateway's log", world.gateway.logs()),
        ("the agent's log", agent.process.logs()),
        ("what the app saw", app.text()),
    ] {
        for canary in canaries {
            assert!(!text.contains(canary), "{place} has {canary}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_knows_is_unknown_and_over_tls_the_address_is_of_tls() {
    let closing = |mut conn: Conn| async move {
        conn.read_head().await;
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(quick().tls(), closing).await;
    let path = "/.well-known/bridgehead/outcomes/0123456789abcdef0123456789abcdef";
    let said = ask(&world, path, &[]).await;
    assert_eq!(said["state"], "unknown");
    assert_eq!(said["at"], Value::Null);
    let place = world.places.public_tls.expect("a TLS listener");
    let roots = &world.certificate.roots;
    let mut client = H1::connect_tls(place, "demo.localhost", roots).await;
    let host = format!("demo.localhost:{}", place.port());
    let told = client.ask("POST", "/", &host, &[], b"").await;
    let url = told.error("outcomeUrl");
    let own = format!("https://gw.localhost:{}/.well-known/", place.port());
    assert!(url.starts_with(&own), "{url}");
    let said = ask(
        &world,
        url.split_at(own.len() - "/.well-known/".len()).1,
        &[],
    )
    .await;
    assert_eq!(said["evidence"]["source"], "exchange");
}
