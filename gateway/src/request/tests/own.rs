//! The gateway's own hosts: the code table, and agents that come by WebSocket.

use std::time::Duration;

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
    let path = bridgehead_protocol::io::carrier::upgrade::PATH;
    client
        .send(format!(
            "GET {path} HTTP/1.1\r\nHost: gw.example.com\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: bh.1\r\n\r\n"
        ))
        .await;
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
