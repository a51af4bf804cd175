//! What gateway and agent grow by while the other end stops reading for ten seconds.

use std::time::{Duration, Instant};

use bridgehead_tests::app::Conn;
use bridgehead_tests::client::H1;
use bridgehead_tests::h2c::H2;
use bridgehead_tests::wait;
use bridgehead_tests::world::setup;
use bytes::Bytes;

use crate::table::{Figure, Table};
use crate::{Stand, stand};

/// How long nobody reads.
const DEAF: Duration = Duration::from_secs(10);
/// Bytes by which a process may grow.
const MOST: f64 = 16.0;
/// Between two readings of the memory.
const STEP: Duration = Duration::from_millis(100);

const MIB: f64 = (1 << 20) as f64;

pub(crate) async fn measure(table: &mut Table) {
    for version in ["h1", "h2"] {
        let deaf = stand(setup(), app).await;
        warm(&deaf).await;
        let grown = match version {
            "h1" => growth(&deaf, upload_h1(&deaf)).await,
            _ => growth(&deaf, upload_h2(&deaf)).await,
        };
        tell(table, "upload", version, grown);
        let deaf = stand(setup(), app).await;
        warm(&deaf).await;
        let grown = match version {
            "h1" => growth(&deaf, download_h1(&deaf)).await,
            _ => growth(&deaf, download_h2(&deaf)).await,
        };
        tell(table, "download", version, grown);
    }
}

fn tell(table: &mut Table, what: &str, version: &str, grown: (f64, f64)) {
    for (process, grown) in [("gateway", grown.0), ("agent", grown.1)] {
        let name = format!("{process} grows, {what} over {version}, nobody reads for 10 s");
        table.add(Figure::upto(name, grown, MOST, "MiB"));
    }
}

/// Answers `/warm` with a few MiB in each direction; else writes without end and reads nothing.
async fn app(mut conn: Conn) {
    while let Some(head) = conn.read_head().await {
        if head.target == "/warm" {
            let length = head.header("content-length").and_then(|l| l.parse().ok());
            conn.skip(length.unwrap_or(0)).await;
            conn.answer(&"w".repeat(4 << 20)).await;
            continue;
        }
        if head.method == "GET" {
            conn.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
            while conn.write(&chunk).await {}
        }
        std::future::pending::<()>().await;
    }
}

/// What is allocated once is not growth.
async fn warm(stand: &Stand) {
    let body = vec![b'w'; 4 << 20];
    let answer = stand.world.ask("POST", "/warm", &body).await;
    assert_eq!(answer.body.len(), 4 << 20);
}

/// The most by which each process was above its beginning while `transfer` runs.
async fn growth(stand: &Stand, transfer: impl Future<Output = ()>) -> (f64, f64) {
    let read = || {
        (
            stand.world.gateway.resident() as f64 / MIB,
            stand.agent.process.resident() as f64 / MIB,
        )
    };
    let before = read();
    let mut most = before;
    let watch = async {
        let begun = Instant::now();
        while begun.elapsed() < DEAF {
            wait::dawdle(STEP).await;
            let now = read();
            most = (most.0.max(now.0), most.1.max(now.1));
        }
    };
    tokio::select! {
        () = watch => {}
        () = async { transfer.await; std::future::pending::<()>().await } => {}
    }
    (most.0 - before.0, most.1 - before.1)
}

async fn upload_h1(stand: &Stand) {
    let mut client = H1::connect(stand.world.places.public).await;
    let host = stand.world.host("demo");
    let length = [("Content-Length", "1000000000")];
    client.request("POST", "/up", &host, &length, b"").await;
    let part = vec![b'x'; 1 << 16];
    while client.send(&part).await {}
}

async fn upload_h2(stand: &Stand) {
    let mut client = H2::connect(stand.world.places.public).await;
    let host = stand.world.host("demo");
    let (_answer, mut body) = client.open(H2::head("POST", &host, "/up"), false).await;
    loop {
        body.reserve_capacity(1 << 16);
        let room = std::future::poll_fn(|cx| body.poll_capacity(cx)).await;
        let Some(Ok(room)) = room else { return };
        if body
            .send_data(Bytes::from(vec![b'x'; room]), false)
            .is_err()
        {
            return;
        }
    }
}

async fn download_h1(stand: &Stand) {
    let mut client = stand.world.h1().await;
    let host = stand.world.host("demo");
    client.request("GET", "/down", &host, &[], b"").await;
    assert!(client.read_head().await.is_ok(), "a head");
    std::future::pending().await
}

async fn download_h2(stand: &Stand) {
    let mut client = stand.world.h2().await;
    let host = stand.world.host("demo");
    let (answer, _) = client.open(H2::get(&host, "/down"), true).await;
    let answer = answer.await;
    assert!(answer.is_ok(), "a head");
    std::future::pending().await
}
