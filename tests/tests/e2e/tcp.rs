//! TCP apps on a port of their own: bytes both ways, half-close kept, failures visible.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::AsyncReadExt;

use bridgehead_tests::app::{App, Conn};
use bridgehead_tests::client::{End, H1};
use bridgehead_tests::port;
use bridgehead_tests::wait;
use bridgehead_tests::world::{World, setup};

async fn world(port: u16) -> World {
    setup()
        .app("raw", &format!("protocol = \"tcp\"\nport = {port}"))
        .start()
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_pass_both_ways_and_an_end_of_one_side_ends_only_that_side() {
    let script = |mut conn: Conn| async move {
        conn.write("220 ready\n").await;
        let mut total = 0;
        while let Some(part) = conn.read_some().await {
            total += part.len();
        }
        conn.write(format!("got {total}\n")).await;
    };
    let app = App::start(script).await;
    let port = port::free();
    let world = world(port).await;
    let _agent = world
        .join("a1", &[("raw", &format!("tcp://{}", app.addr()))])
        .await;
    let mut client = H1::connect(SocketAddr::from(([127, 0, 0, 1], port))).await;
    let greeting = wait::within(wait::SOON, "the greeting", client.read_exact(10)).await;
    assert_eq!(greeting.expect("the server speaks first"), b"220 ready\n");
    client.send(vec![b'x'; 1_000_000]).await;
    client.half_close().await;
    let (rest, end) = wait::within(wait::SOON, "the last words", client.read_to_end()).await;
    assert_eq!(
        (String::from_utf8_lossy(&rest).as_ref(), end),
        ("got 1000000\n", End::Close)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_and_an_app_that_breaks_are_passed_on() {
    let script = |mut conn: Conn| async move {
        match conn.read_some().await.as_deref() {
            Some(b"break") => conn.reset(),
            _ => conn.until_closed().await,
        }
    };
    let app = App::start(script).await;
    let port = port::free();
    let world = world(port).await;
    let _agent = world
        .join("a1", &[("raw", &format!("tcp://{}", app.addr()))])
        .await;
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    let mut client = H1::connect(addr).await;
    client.send("break").await;
    let (_, end) = wait::within(wait::SOON, "the end", client.read_to_end()).await;
    assert_eq!(end, End::Reset, "an app's RST is no clean end");
    let mut client = H1::connect(addr).await;
    client.send("stay").await;
    app.until_text("stay").await;
    drop(client);
    app.until("the app's socket closing", |seen| {
        seen.iter().all(|s| s.ended.is_some())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_a_tcp_app_that_restarts_is_held_until_it_is_back() {
    let echo = |mut conn: Conn| async move {
        while let Some(part) = conn.read_some().await {
            conn.write(part).await;
        }
    };
    let app = App::start(echo).await;
    let port = port::free();
    let world = setup()
        .app(
            "raw",
            &format!("protocol = \"tcp\"\nport = {port}\nhold = \"10s\""),
        )
        .start()
        .await;
    let _agent = world
        .join("a1", &[("raw", &format!("tcp://{}", app.addr()))])
        .await;
    let at = app.stop().await;
    let mut client = H1::connect(SocketAddr::from(([127, 0, 0, 1], port))).await;
    client.send("patience").await;
    let held = || async {
        let held = world
            .metrics()
            .await
            .sum("retries_total", &[("app", "raw")]);
        (held > 0.0).then_some(())
    };
    wait::until(wait::SOON, "the connection being held", held).await;
    let _app = App::start_at(at, echo).await;
    let back = wait::within(wait::SOON, "an echo", client.read_exact(8)).await;
    assert_eq!(back.as_deref(), Some(&b"patience"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tcp_app_without_an_agent_is_closed_and_told_in_the_metrics() {
    let port = port::free();
    let world = world(port).await;
    let before = world.metrics().await;
    // The reset may beat the handshake's end, so a refused connection is the same answer.
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    if let Ok(mut client) = tokio::net::TcpStream::connect(address).await {
        let mut rest = Vec::new();
        let end = client.read_to_end(&mut rest);
        let _reset_or_end = wait::within(Duration::from_secs(15), "the end", end).await;
        assert!(rest.is_empty());
    }
    let counted = || async {
        let labels = [("app", "raw"), ("delivery", "not_delivered")];
        let counted = world.metrics().await.sum("exchanges_total", &labels)
            - before.sum("exchanges_total", &labels);
        (counted == 1.0).then_some(())
    };
    wait::until(wait::SOON, "the refusal being counted", counted).await;
}
