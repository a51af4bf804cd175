//! Large bodies: byte for byte, in bounded memory, and no slow end slows another.

use std::time::Duration;

use bridgehead_tests::app::Conn;
use bridgehead_tests::h2c::{self, H2};
use bridgehead_tests::process::Process;
use bridgehead_tests::wait;
use bridgehead_tests::world::setup;

use crate::support::{One, bulk, one, pattern};

/// Most that gateway or agent may grow while one end stops reading.
const MAY_GROW: u64 = 16 << 20;

pub(crate) fn digest(len: u64) -> blake3::Hash {
    let mut hash = blake3::Hasher::new();
    let mut at = 0;
    while at < len {
        let part = pattern(at, (len - at).min(1 << 16) as usize);
        hash.update(&part);
        at += part.len() as u64;
    }
    hash.finalize()
}

/// Answers a GET with `bulk` bytes, and anything else with the digest of its body.
pub(crate) async fn bulk_app(mut conn: Conn) {
    while let Some(head) = conn.read_head().await {
        let Some(length) = head
            .header("content-length")
            .and_then(|l| l.parse::<u64>().ok())
        else {
            conn.write(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                bulk()
            ))
            .await;
            let mut at = 0;
            while at < bulk() {
                let part = pattern(at, (bulk() - at).min(1 << 16) as usize);
                at += part.len() as u64;
                if !conn.write(part).await {
                    return;
                }
            }
            continue;
        };
        let mut hash = blake3::Hasher::new();
        let mut got = 0;
        while got < length {
            let Some(part) = conn.read_some().await else {
                return;
            };
            got += part.len() as u64;
            hash.update(&part);
        }
        conn.answer(hash.finalize().to_hex().as_str()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_upload_arrives_byte_for_byte() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), bulk_app).await;
    let mut client = world.h1().await;
    let length = bulk().to_string();
    client
        .request(
            "PUT",
            "/up",
            &world.host("demo"),
            &[("Content-Length", &length)],
            b"",
        )
        .await;
    let mut at = 0;
    while at < bulk() {
        let part = pattern(at, (bulk() - at).min(1 << 16) as usize);
        at += part.len() as u64;
        assert!(client.send(part).await, "the connection stands");
    }
    assert_eq!(
        client.answer("PUT").await.text(),
        digest(bulk()).to_hex().as_str()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_download_arrives_byte_for_byte() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), bulk_app).await;
    let mut client = world.h1().await;
    client
        .request("GET", "/down", &world.host("demo"), &[], b"")
        .await;
    let head = client.read_head().await.expect("a head");
    assert_eq!(
        head.header("content-length"),
        Some(bulk().to_string().as_str())
    );
    let mut hash = blake3::Hasher::new();
    let mut got = 0;
    while got < bulk() {
        let part = client.read_some().await.expect("the whole body");
        got += part.len() as u64;
        hash.update(&part);
    }
    assert_eq!(hash.finalize(), digest(bulk()));
}

/// Lowest memory over the readings: what is really held, without the peak of a moment.
fn memory(gateway: &Process, agent: &Process) -> (u64, u64) {
    (gateway.resident(), agent.resident())
}

#[track_caller]
fn bounded(before: (u64, u64), after: (u64, u64)) {
    let grew = |was: u64, is: u64| is.saturating_sub(was);
    let (gateway, agent) = (grew(before.0, after.0), grew(before.1, after.1));
    assert!(
        gateway <= MAY_GROW,
        "the gateway grew by {} KiB",
        gateway >> 10
    );
    assert!(agent <= MAY_GROW, "the agent grew by {} KiB", agent >> 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stops_reading_stops_the_app_and_costs_no_memory() {
    let endless = |mut conn: Conn| async move {
        if conn.read_head().await.is_some() {
            conn.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await;
            let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
            while conn.write(&chunk).await {}
        }
    };
    let One {
        world,
        agent,
        app: _app,
    } = one(setup(), endless).await;
    // One exchange first, so that what is allocated once is not counted.
    let mut warm = world.h1().await;
    warm.request("GET", "/", &world.host("demo"), &[], b"")
        .await;
    warm.read_exact(4 << 20).await;
    let before = memory(&world.gateway, &agent.process);
    let mut client = world.h1().await;
    client
        .request("GET", "/", &world.host("demo"), &[], b"")
        .await;
    client.read_head().await.expect("a head");
    stops_growing(&world.gateway, &agent.process).await;
    bounded(before, memory(&world.gateway, &agent.process));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_stops_reading_stops_the_client_and_costs_no_memory() {
    let deaf = |mut conn: Conn| async move {
        if let Some(head) = conn.read_head().await {
            if head.target == "/warm" {
                conn.skip(4 << 20).await;
                conn.answer("warm").await;
            }
            std::future::pending::<()>().await;
        }
    };
    let One {
        world,
        agent,
        app: _app,
    } = one(
        setup().defaults("hold = \"0s\"\nfirst_frame_window = \"60s\""),
        deaf,
    )
    .await;
    let body = pattern(0, 4 << 20);
    assert_eq!(world.ask("POST", "/warm", &body).await.text(), "warm");
    let before = memory(&world.gateway, &agent.process);
    let mut client = world.h1().await;
    client
        .request(
            "POST",
            "/",
            &world.host("demo"),
            &[("Content-Length", "1000000000")],
            b"",
        )
        .await;
    let mut sent = 0u64;
    let part = vec![b'x'; 1 << 16];
    while let Ok(true) = tokio::time::timeout(Duration::from_secs(2), client.send(&part)).await {
        sent += part.len() as u64;
        assert!(sent < 200 << 20, "nobody stopped the client");
    }
    bounded(before, memory(&world.gateway, &agent.process));
}

/// Waits until two readings in a row, half a second apart, are the same to a few pages.
async fn stops_growing(gateway: &Process, agent: &Process) {
    let mut last = (0, 0);
    let mut calm = 0;
    wait::until(Duration::from_secs(30), "memory coming to rest", || {
        let now = memory(gateway, agent);
        calm = if now.0.abs_diff(last.0) + now.1.abs_diff(last.1) < 64 << 10 {
            calm + 1
        } else {
            0
        };
        last = now;
        let rested = calm >= 50;
        async move { rested.then_some(()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stalled_client_never_slows_another() {
    let script = |mut conn: Conn| async move {
        while let Some(head) = conn.read_head().await {
            if head.target == "/endless" {
                conn.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                    .await;
                let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
                while conn.write(&chunk).await {}
                return;
            }
            conn.answer("quick").await;
        }
    };
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), script).await;
    let mut stalled = Vec::new();
    for _ in 0..20 {
        let mut client = world.h1().await;
        client
            .request("GET", "/endless", &world.host("demo"), &[], b"")
            .await;
        client.read_head().await.expect("a head");
        stalled.push(client);
    }
    for _ in 0..20 {
        let answer = wait::within(
            Duration::from_secs(5),
            "a quick answer",
            world.get("/quick"),
        )
        .await;
        assert_eq!(answer.text(), "quick");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_pass_over_http2_byte_for_byte() {
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup(), bulk_app).await;
    let host = world.host("demo");
    let mut client = world.h2().await;
    let (response, _) = client.open(H2::get(&host, "/down"), true).await;
    let mut body = response.await.expect("a head").into_body();
    let mut hash = blake3::Hasher::new();
    while let Some(part) = body.data().await {
        let part = part.expect("the whole body");
        hash.update(&part);
        drop(body.flow_control().release_capacity(part.len()));
    }
    assert_eq!(hash.finalize(), digest(bulk()));

    let mut request = H2::head("PUT", &host, "/up");
    let length = bulk()
        .to_string()
        .parse()
        .expect("a number is a field value");
    request.headers_mut().insert("content-length", length);
    let (response, mut send) = client.open(request, false).await;
    let upload = async {
        let mut at = 0;
        while at < bulk() {
            let part = pattern(at, (bulk() - at).min(1 << 16) as usize);
            at += part.len() as u64;
            h2c::send_all(&mut send, part.into(), at == bulk()).await;
        }
        h2c::answer(response).await.expect("an answer")
    };
    // Behind a download on the same connections, whose credit must not be taken from the upload's.
    let limit = wait::SOON * u32::try_from(bulk() >> 25).expect("some gibibytes");
    let answer = wait::within(limit, "an upload", upload).await;
    assert_eq!(answer.text(), digest(bulk()).to_hex().as_str());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_to_the_app_that_had_little_room_has_all_of_it_for_the_next_client() {
    // So little that every body has the least.
    let setup = setup().section("limits", "h2_held = \"1KiB\"");
    let One {
        world,
        agent: _agent,
        app: _app,
    } = one(setup, bulk_app).await;
    let host = world.host("demo");
    let mut put = H2::head("PUT", &host, "/up");
    let length = "65536".parse().expect("a number is a field value");
    put.headers_mut().insert("content-length", length);
    let bounded = world.h2().await.ask(put, &pattern(0, 65_536)).await;
    assert_eq!(bounded.expect("an answer").head.status(), 200);
    let body = pattern(0, 16 << 20);
    let mut client = world.h1().await;
    let upload = client.ask("PUT", "/up", &host, &[], &body);
    let answer = wait::within(wait::SOON, "an upload", upload).await;
    assert_eq!(answer.text(), digest(16 << 20).to_hex().as_str());
    let reused = |line: &str| line.contains(r#""app_conn":"reused","bytes_in":16777216"#);
    world
        .gateway
        .line("that both had the same connection", reused);
}
