//! When the first byte leaves: the GO rule, and how the app's connection is asked for.

use std::time::Duration;

use crate::request::testing::{World, pass};

const SECOND: Duration = Duration::from_secs(1);

/// True if `method` hands something over before the app's connection stands.
async fn goes_at_once(route: &str, method: &str) -> bool {
    let world = World::with(route).await;
    let agent = world.agent("a");
    let mut client = world.client();
    client
        .send(format!(
            "{method} / HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 0\r\n\r\n"
        ))
        .await;
    let mut app = agent.accept().await;
    let waits = app.is_left_alone(SECOND).await;
    app.open();
    app.request().await;
    app.answer("").await;
    assert_eq!(client.head().await.unwrap()[9..12], *"200");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
    !waits
}

#[tokio::test(start_paused = true)]
async fn safe_methods_go_at_once_and_unsafe_ones_wait_for_the_connection() {
    for (method, at_once) in [
        ("GET", true),
        ("HEAD", true),
        ("OPTIONS", true),
        ("POST", false),
        ("PUT", false),
        ("DELETE", false),
        ("PATCH", false),
        ("PROPFIND", false),
    ] {
        assert_eq!(goes_at_once("", method).await, at_once, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_route_says_who_waits() {
    assert!(!goes_at_once("go = \"always\"", "GET").await);
    assert!(goes_at_once("go = \"never\"", "POST").await);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_asked_for_within_five_seconds() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let app = agent.accept().await;
    assert_eq!(app.open.remaining, SECOND * 5);
    assert_eq!(app.open.client.unwrap().ip().to_string(), "192.0.2.7");
    drop(app);
    drop(client);
    pass(SECOND).await;
}
