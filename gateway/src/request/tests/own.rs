//! The gateway's own hosts: the code table, and agents that come by WebSocket.

use std::sync::Arc;
use std::time::Duration;

use crate::request::Bounds;
use crate::request::testing::{World, pass};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn the_code_table_is_served_on_the_gateways_own_host_alone() {
    let world = World::new().await;
    let mut client = world.client();
    let path = "/.well-known/bridgehead/codes.json";
    client
        .send(format!(
            "GET {path} HTTP/1.1\r\nHost: gw.example.com\r\n\r\n"
        ))
        .await;
    let answer = client.answer().await;
    assert_eq!(answer.status, 200);
    let table: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert!(table["codes"].as_array().unwrap().len() >= 16);
    client
        .send("GET /else HTTP/1.1\r\nHost: gw.example.com\r\n\r\n")
        .await;
    assert_eq!(
        client.answer().await.verdict(),
        "APP_NOT_FOUND no_route not_delivered none"
    );
    client
        .send("GET / HTTP/1.1\r\nHost: nobody.example.org\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.status, 404);
    client.leave();
    let outcomes = [
        "answered//",
        "refused/not_delivered/APP_NOT_FOUND",
        "refused/not_delivered/APP_NOT_FOUND",
    ];
    world.end([], &outcomes).await;
}

/// A WebSocket handshake of an agent, as far as the switch.
async fn switched(world: &World) -> crate::request::testing::Client {
    let mut client = world.client();
    client.send(asking() + "\r\n\r\n").await;
    let head = client.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    client
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_leaves_in_its_handshake_leaves_nothing_behind() {
    let world = World::new().await;
    let client = switched(&world).await;
    pass(SECOND).await;
    client.leave();
    world.end([], &["answered//"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_says_nothing_is_sent_away_when_its_handshake_is_over() {
    let world = World::new().await;
    let mut client = switched(&world).await;
    client.rest().await;
    assert_eq!(world.elapsed().as_secs(), 10);
    client.leave();
    world.end([], &["answered//"]).await;
}

/// What is answered to a request for the tunnel: its status and a field.
async fn refused(world: &World, head: &str, field: &str) -> (u16, Option<String>) {
    let mut client = world.client();
    client.send(format!("{head}\r\n\r\n")).await;
    let answer = client.answer().await;
    assert_eq!(answer.error()["code"], "UPGRADE_UNSUPPORTED");
    assert_eq!(answer.error()["delivery"], "not_delivered");
    client.leave();
    (answer.status, answer.field(field).map(str::to_owned))
}

/// A right request for the tunnel, in HTTP/1.1, but for its end.
fn asking() -> String {
    let path = bridgehead_protocol::io::carrier::upgrade::PATH;
    format!(
        "GET {path} HTTP/1.1\r\nHost: gw.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: bh.1"
    )
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_an_agents_upgrade_is_told_by_its_status() {
    let world = World::new().await;
    let cases = [
        (asking().replace("GET", "POST"), 405, "allow", Some("GET")),
        (
            asking().replace("Upgrade: websocket", "Upgrade: other"),
            426,
            "allow",
            None,
        ),
        (
            asking().replace("Version: 13", "Version: 12"),
            426,
            "allow",
            None,
        ),
        (asking().replace("bh.1", "bh.9"), 400, "allow", None),
        (
            asking() + "\r\nAuthorization: Basic eDp5",
            401,
            "www-authenticate",
            Some("Bearer"),
        ),
    ];
    for (head, status, field, value) in &cases {
        let told = refused(&world, head, field).await;
        assert_eq!(told, (*status, value.map(str::to_owned)), "{head}");
    }
    world
        .end([], &["refused/not_delivered/UPGRADE_UNSUPPORTED"; 5])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_comes_over_plain_http_only_where_the_operator_says_so_or_a_trusted_proxy_has_the_tls()
 {
    let world = World::new().await;
    let set = |trusted: &[&str]| {
        let bounds = Bounds {
            plain_tunnels: false,
            trusted_proxies: trusted.iter().map(|net| net.parse().unwrap()).collect(),
            ..Bounds::clone(&world.shared.bounds.load())
        };
        world.shared.bounds.store(Arc::new(bounds));
    };
    let (plain, over_tls) = (asking(), asking() + "\r\nX-Forwarded-Proto: https");
    set(&[]);
    for head in [&plain, &over_tls] {
        assert_eq!(refused(&world, head, "allow").await.0, 426);
    }
    set(&["192.0.2.7"]);
    assert_eq!(refused(&world, &plain, "allow").await.0, 426);
    let mut client = world.client();
    client.send(over_tls + "\r\n\r\n").await;
    let head = client.head().await.unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    client.leave();
    let mut outcomes = vec!["answered//"];
    outcomes.extend(["refused/not_delivered/UPGRADE_UNSUPPORTED"; 3]);
    world.end([], &outcomes).await;
}
