//! Asking for outcomes: by address, by the caller's own key, from a browser.

use std::time::Duration;

use serde_json::Value;

use crate::request::testing::{Answer, Client, HOST, World, pass};

const SECOND: Duration = Duration::from_secs(1);
const KEY: &str = "c2VjcmV0LWNhbmFyeS0xMjM0NQ";

/// A request to the gateway's own host.
async fn own(client: &mut Client, method: &str, path: &str, fields: &str) -> Answer {
    client
        .send(format!(
            "{method} {path} HTTP/1.1\r\nHost: gw.example.com\r\n{fields}\r\n"
        ))
        .await;
    client.answer().await
}

/// What is said of the key that came with a request for `host`.
async fn by_key(client: &mut Client, host: &str, key: &str) -> Value {
    let path = format!("/.well-known/bridgehead/outcomes/by-key/{host}");
    let answer = own(
        client,
        "GET",
        &path,
        &format!("Bridgehead-Outcome-Key: {key}\r\n"),
    )
    .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    serde_json::from_slice(&answer.body).unwrap()
}

fn keyed() -> String {
    format!("Bridgehead-Outcome-Key: {KEY}\r\n")
}

#[tokio::test(start_paused = true)]
async fn the_address_in_the_answer_tells_what_became_of_the_request() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client
        .send(format!("GET /x HTTP/1.1\r\nHost: {HOST}:8080\r\n\r\n"))
        .await;
    let mut app = agent.app().await;
    app.request().await;
    app.close();
    let answer = client.answer().await;
    let url = answer.error()["outcomeUrl"].as_str().unwrap().to_owned();
    let path = url.strip_prefix("http://gw.example.com:8080").unwrap();
    let asked = own(&mut client, "GET", path, "Origin: https://shop.example\r\n").await;
    assert_eq!(asked.status, 200);
    for (name, value) in [
        ("cache-control", "no-store"),
        ("access-control-allow-origin", "*"),
        ("content-type", "application/json"),
    ] {
        assert_eq!(asked.field(name), Some(value));
    }
    let said: Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(said["state"], "unknown");
    assert_eq!(said["evidence"]["code"], "BH_APP_STARTING");
    assert_eq!(said["evidence"]["reason"], "closed_before_head");
    assert_eq!(said["evidence"]["stage"], "all");
    assert_eq!(said["retry"]["write"], "verify_first");
    assert!(said["at"].as_str().unwrap().ends_with('Z') && said.get("status").is_none());
    // The address is a permission, so it is not in the log.
    let asked = own(&mut client, "GET", &format!("{path}0"), "").await;
    assert_eq!(asked.status, 400);
    let line = world.exchange(asked.field("x-request-id").unwrap());
    assert_eq!(line["path"], "/.well-known/bridgehead/outcomes/*");
    client.leave();
    drop(agent);
}

#[tokio::test(start_paused = true)]
async fn what_never_was_is_unknown_and_what_cannot_be_is_refused() {
    let world = World::new().await;
    let mut client = world.client();
    let start = "/.well-known/bridgehead/outcomes/";
    let known = format!("{start}0123456789abcdef0123456789abcdef");
    let answer = own(&mut client, "GET", &known, "").await;
    let said: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(
        (answer.status, &said["state"]),
        (200, &Value::from("unknown"))
    );
    assert_eq!(said["retry"]["write"], "verify_first");
    let preflight = "Origin: https://shop.example\r\nAccess-Control-Request-Method: GET\r\n";
    let answer = own(&mut client, "OPTIONS", &known, preflight).await;
    assert_eq!(answer.status, 204);
    let allowed = answer.field("access-control-allow-headers");
    assert_eq!(allowed, Some("Bridgehead-Outcome-Key"));
    for bad in [
        "",
        "x",
        "0123456789ABCDEF0123456789ABCDEF",
        "by-key",
        "by-key/",
        "by-key/a,b",
    ] {
        let answer = own(&mut client, "GET", &format!("{start}{bad}"), &keyed()).await;
        assert_eq!(answer.status, 400, "{bad}: {}", answer.text());
    }
    let by_key = format!("{start}by-key/demo.example.com");
    for fields in [
        String::new(),
        "Bridgehead-Outcome-Key: short\r\n".to_owned(),
        keyed() + &keyed(),
    ] {
        let answer = own(&mut client, "GET", &by_key, &fields).await;
        assert_eq!(answer.status, 400, "{fields}");
        assert!(!answer.text().contains("short") && !answer.text().contains(KEY));
    }
    let answer = own(&mut client, "DELETE", &known, "").await;
    assert_eq!(answer.status, 404);
    client.leave();
}

#[tokio::test(start_paused = true)]
async fn a_key_is_pending_from_the_start_and_tells_the_answer_afterwards() {
    let world = World::new().await;
    let agent = world.agent("a");
    let (mut client, mut asking) = (world.client(), world.client());
    assert_eq!(by_key(&mut asking, HOST, KEY).await["state"], "unknown");
    client.post(&keyed(), "hello").await;
    let app = agent.accept().await;
    assert_eq!(by_key(&mut asking, HOST, KEY).await["state"], "pending");
    app.open();
    let mut app = app;
    let request = app.request().await;
    // The key is the gateway's and the caller's; the app could put it into its log.
    assert_eq!(request.field("bridgehead-outcome-key"), None);
    assert_eq!(by_key(&mut asking, HOST, KEY).await["state"], "pending");
    app.say("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.status, 201);
    let said = by_key(&mut asking, HOST, KEY).await;
    assert_eq!(
        (&said["state"], &said["status"]),
        (&"answered".into(), &201.into())
    );
    assert_eq!(said["evidence"]["complete"], true);
    let port = format!("{HOST}:8080");
    assert_eq!(by_key(&mut asking, &port, KEY).await["state"], "answered");
    assert_eq!(
        by_key(&mut asking, "other.example.com", KEY).await["state"],
        "unknown"
    );
    let other = "YW5vdGhlci1jYW5hcnktMTIzNDU";
    assert_eq!(by_key(&mut asking, HOST, other).await["state"], "unknown");
    let log = world.exchange(&request.id()).to_string();
    assert!(!log.contains(KEY), "{log}");
    client.leave();
    asking.leave();
    drop(app);
    let outcomes = ["answered//"; 7].into_iter().chain(["answered/delivered/"]);
    world.end([agent], &outcomes.collect::<Vec<_>>()).await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_lost_its_connection_asks_by_its_key() {
    let world = World::new().await;
    let agent = world.agent("a");
    let (mut client, mut asking) = (world.client(), world.client());
    client.post(&keyed(), "hello").await;
    let mut app = agent.app().await;
    app.request().await;
    client.leave();
    app.closed().await;
    app.end(bridgehead_protocol::wire::FinalCause::Reset);
    pass(SECOND).await;
    let said = by_key(&mut asking, HOST, KEY).await;
    assert_eq!(said["state"], "unknown");
    assert_eq!(
        (&said["evidence"]["stage"], &said["evidence"]["code"]),
        (&"all".into(), &Value::Null)
    );
    // It repeats what it has verified, under the same key, and is refused before the app.
    let mut client = world.client();
    client
        .send(format!(
            "POST / HTTP/1.1\r\nHost: {HOST}\r\n{}Expect: nonsense\r\nContent-Length: 0\r\n\r\n",
            keyed()
        ))
        .await;
    assert_eq!(client.answer().await.status, 417);
    assert_eq!(by_key(&mut asking, HOST, KEY).await["state"], "unknown");
    client.leave();
    asking.leave();
    drop(agent);
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_refused_request_proves_that_it_was_not_delivered() {
    let world = World::with("max_body = \"3B\"\nhold = \"0s\"").await;
    let (mut client, mut asking) = (world.client(), world.client());
    client.post(&keyed(), "hello").await;
    assert_eq!(client.answer().await.status, 413);
    let said = by_key(&mut asking, HOST, KEY).await;
    assert_eq!(said["state"], "not_delivered");
    assert_eq!(said["evidence"]["code"], "BODY_TOO_LARGE");
    assert_eq!(said["retry"]["write"], "never_automatic");
    client.leave();
    asking.leave();
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_none_is_refused_before_the_app() {
    let world = World::new().await;
    let agent = world.agent("a");
    for fields in [
        "Bridgehead-Outcome-Key: 42\r\n".to_owned(),
        keyed() + &keyed(),
    ] {
        let mut client = world.client();
        client.post(&fields, "hello").await;
        let answer = client.answer().await;
        assert_eq!(
            answer.verdict(),
            "BAD_REQUEST bad_request not_delivered none"
        );
        assert!(
            answer.text().contains("Bridgehead-Outcome-Key"),
            "{}",
            answer.text()
        );
        client.leave();
    }
    assert!(agent.is_left_alone(SECOND).await);
    world
        .end([agent], &["refused/not_delivered/BAD_REQUEST"; 2])
        .await;
}

#[tokio::test(start_paused = true)]
async fn addresses_follow_the_hosts_that_the_gateway_has_now() {
    let world = World::new().await;
    let agent = world.agent("a");
    for (hosts, start) in [
        (
            "\"new.example.com\", \"gw.example.com\"",
            Some("http://new.example.com/"),
        ),
        ("", None),
    ] {
        world.own_hosts(hosts);
        let mut client = world.client();
        client.get("/x").await;
        let mut app = agent.app().await;
        app.request().await;
        app.close();
        let url = client.answer().await.error()["outcomeUrl"].clone();
        assert_eq!(url.as_str().map(|url| &url[..23]), start, "{url}");
        client.leave();
    }
    world
        .end([agent], &["failed/unknown/BH_APP_STARTING"; 2])
        .await;
}
