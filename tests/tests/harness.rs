//! Tests of the tests: the doubles and clients, run against each other without anything between.
//!
//! What the other suites say means nothing if an app double forgets a byte or a client takes a
//! truncated answer for a whole one.

use bridgehead_tests::app::{self, App, ClosedPort, Conn, Ending};
use bridgehead_tests::client::{End, H1, NoAnswer};
use bridgehead_tests::relay::Relay;
use tokio::net::TcpStream;

async fn ask(app: &App, target: &str) -> bridgehead_tests::client::Answer {
    H1::connect(app.addr())
        .await
        .ask("GET", target, "direct", &[], b"")
        .await
}

#[tokio::test]
async fn the_double_records_every_byte_and_the_client_reads_every_answer() {
    let app = App::start(app::echo).await;
    let mut client = H1::connect(app.addr()).await;
    let answer = client.ask("POST", "/a", "direct", &[], b"hello").await;
    assert_eq!((answer.status, answer.end), (200, End::Complete));
    assert!(
        answer.text().starts_with("POST /a\nhost: direct\n")
            && answer.text().ends_with("\n\nhello")
    );
    let fields = [("Transfer-Encoding", "chunked")];
    let answer = client
        .ask(
            "POST",
            "/b",
            "direct",
            &fields,
            b"3\r\nabc\r\n0\r\nX: 1\r\n\r\n",
        )
        .await;
    assert!(
        answer.text().ends_with("\n\nabc\ntrailer X: 1"),
        "{}",
        answer.text()
    );
    let seen = app.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].count, seen[0].bytes.len() as u64);
    assert!(
        seen[0].text().starts_with("POST /a HTTP/1.1\r\n") && seen[0].text().contains("POST /b")
    );
    assert_eq!(seen[0].digest(), blake3::hash(&seen[0].bytes));
}

#[tokio::test]
async fn a_connection_on_which_nothing_is_said_is_no_request() {
    let app = App::start(app::echo).await;
    drop(TcpStream::connect(app.addr()).await.expect("it listens"));
    drop(ask(&app, "/").await);
    assert_eq!(app.seen().len(), 1);
    assert_eq!(app.accepted(), 2);
}

#[tokio::test]
async fn the_client_tells_each_ending_from_the_others() {
    let script = |mut conn: Conn| async move {
        let Some(head) = conn.read_head().await else {
            return;
        };
        let answer = match head.target.as_str() {
            "/short" => "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
            "/chunks" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "/close" | "/reset" => "HTTP/1.1 200 OK\r\n\r\nabc",
            "/early" => "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            _ => "HTTP/1.1 200",
        };
        conn.write(answer).await;
        if head.target == "/reset" {
            conn.read_some().await;
            conn.reset();
        }
    };
    let app = App::start(script).await;
    assert_eq!(ask(&app, "/short").await.end, End::Short);
    assert_eq!(ask(&app, "/chunks").await.end, End::Short);
    assert_eq!(ask(&app, "/close").await.end, End::Close);
    assert_eq!(ask(&app, "/early").await.informational, [103]);
    let mut client = H1::connect(app.addr()).await;
    client.request("GET", "/half", "direct", &[], b"").await;
    assert_eq!(client.try_answer("GET").await.err(), Some(NoAnswer::Closed));
    let mut client = H1::connect(app.addr()).await;
    client.request("GET", "/reset", "direct", &[], b"").await;
    client.read_head().await.expect("a head");
    client.send("now").await;
    assert_eq!(client.read_to_end().await.1, End::Reset);
}

#[tokio::test]
async fn the_double_tells_how_its_peer_left() {
    let app = App::start(app::silent).await;
    let mut client = H1::connect(app.addr()).await;
    client.send("bye").await;
    drop(client);
    let seen = app
        .until("the end", |seen| {
            seen.first().is_some_and(|s| s.ended.is_some())
        })
        .await;
    assert_eq!(seen[0].ended.map(|(_, how)| how), Some(Ending::Fin));
}

#[tokio::test]
async fn a_drained_app_ends_its_connections_in_order_and_its_record_outlives_it() {
    let app = App::start(app::echo).await;
    let mut client = H1::connect(app.addr()).await;
    client.ask("GET", "/kept", "direct", &[], b"").await;
    app.close_port();
    let refused = || async { TcpStream::connect(app.addr()).await.err() };
    bridgehead_tests::wait::until(bridgehead_tests::wait::SOON, "the port closing", refused).await;
    assert_eq!(
        client.ask("GET", "/last", "direct", &[], b"").await.status,
        200
    );
    drop(client);
    let record = app.recorder();
    let addr = app.drained().await;
    assert!(record.text().contains("GET /last"));
    let again = App::start_at(addr, app::echo).await;
    assert_eq!(ask(&again, "/again").await.status, 200);
}

#[tokio::test]
async fn a_closed_port_refuses_and_a_relay_can_be_cut() {
    let closed = ClosedPort::take();
    let refused = TcpStream::connect(closed.addr())
        .await
        .expect_err("nobody listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    let app = App::start(app::echo).await;
    let relay = Relay::start(app.addr()).await;
    let mut client = H1::connect(relay.addr()).await;
    assert_eq!(client.ask("GET", "/", "direct", &[], b"").await.status, 200);
    relay.refuse();
    let (rest, _) = client.read_to_end().await;
    assert!(rest.is_empty());
    relay.point_at(app.addr());
    let mut client = H1::connect(relay.addr()).await;
    assert_eq!(client.ask("GET", "/", "direct", &[], b"").await.status, 200);
}
