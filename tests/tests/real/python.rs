//! Python's servers: uvicorn and hypercorn with FastAPI, gunicorn's sync worker, and `http.server`.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use bridgehead_tests::client::H1;
use bridgehead_tests::port;
use bridgehead_tests::process;
use bridgehead_tests::wait;
use bridgehead_tests::world::{Folder, setup};
use bridgehead_tests::ws::{self, Message};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;

use crate::node::script;
use crate::setup::{Missing, Real, behind, listening, needs, node, python, source};

pub(crate) fn module(python: &std::path::Path, args: &[&str]) -> Command {
    let mut command = Command::new(python);
    command
        .args(args)
        .current_dir(source(""))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PYTHONUNBUFFERED", "1");
    command
}

async fn fastapi(python: &std::path::Path) -> Real {
    let port = port::free();
    let args = [
        "-m",
        "uvicorn",
        "fastapi_app:app",
        "--port",
        &port.to_string(),
        "--log-level",
        "warning",
    ];
    behind(setup(), module(python, &args), port, "http").await
}

/// The same app by HTTP/2 without TLS.
async fn fastapi_h2c(python: &std::path::Path) -> Real {
    let port = port::free();
    let bind = format!("127.0.0.1:{port}");
    // No workers: they would be processes of their own and outlive the one that is killed here.
    let args = [
        "-m",
        "hypercorn",
        "fastapi_app:app",
        "--workers",
        "0",
        "--bind",
        &bind,
    ];
    let setup = setup().app("demo", "protocol = \"h2c\"");
    behind(setup, module(python, &args), port, "h2c").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fastapi_takes_an_upload() {
    let python = needs!(python());
    takes_an_upload(&fastapi(&python).await).await;
}

async fn takes_an_upload(real: &Real) {
    let content = vec![b'z'; 3_000_000];
    let mut body =
        b"--edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.bin\"\r\n\r\n"
            .to_vec();
    body.extend(&content);
    body.extend(b"\r\n--edge--\r\n");
    let fields = [("Content-Type", "multipart/form-data; boundary=edge")];
    let answer = real
        .world
        .h1()
        .await
        .ask("POST", "/upload", &real.world.host("demo"), &fields, &body)
        .await;
    let json = answer.json();
    assert_eq!(
        (json["name"].as_str(), json["size"].as_u64()),
        (Some("a.bin"), Some(3_000_000)),
        "{json}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fastapi_streams_each_piece_before_the_next_is_asked_for() {
    let python = needs!(python());
    let real = fastapi(&python).await;
    let host = real.world.host("demo");
    let mut client = real.world.h1().await;
    // An ordinary head waits for its first body byte, so that a stall can still be told as one.
    client.request("GET", "/stream", &host, &[], b"").await;
    for n in 0..5 {
        let mut other = real.world.h1().await;
        other.ask("POST", "/next", &host, &[], b"").await;
        if n == 0 {
            assert_eq!(client.read_head().await.expect("a head").status, 200);
        }
        let piece = wait::within(wait::SOON, "a piece", client.read_chunk()).await;
        let piece = String::from_utf8_lossy(&piece.expect("a chunk")).into_owned();
        assert_eq!(piece, format!("piece {n}\n"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fastapi_speaks_websocket() {
    let python = needs!(python());
    speaks_websocket(&fastapi(&python).await).await;
}

async fn speaks_websocket(real: &Real) {
    let connected = ws::connect(real.world.places.public, &real.world.host("demo"), "/ws").await;
    let (mut socket, _) = connected.expect("the handshake passes");
    for message in [Message::text("hello"), Message::binary(vec![0, 1, 255])] {
        socket.send(message.clone()).await.expect("it is sent");
        let next = wait::within(wait::SOON, "an echo", socket.next()).await;
        assert_eq!(next.expect("a message").expect("no error"), message);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fastapi_over_http2_without_tls_takes_uploads_and_websockets() {
    let python = needs!(python());
    let real = fastapi_h2c(&python).await;
    takes_an_upload(&real).await;
    // Asked for with an HTTP/1.1 upgrade, passed on by extended CONNECT.
    speaks_websocket(&real).await;
    let answer = real.world.get("/teapot").await;
    assert_eq!((answer.status, answer.made_by_gateway()), (418, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fastapi_s_own_errors_pass_untouched() {
    let python = needs!(python());
    let real = fastapi(&python).await;
    let answer = real.world.get("/teapot").await;
    assert_eq!(
        (answer.status, answer.json()["detail"].as_str()),
        (418, Some("short and stout"))
    );
    let answer = real.world.get("/crash").await;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (500, "Internal Server Error")
    );
    assert!(!answer.made_by_gateway());
}

/// Servers that serve one connection at a time: no kept or lingering connection may lock others out.
/// Every client asks again as soon as it is answered.
async fn many_clients(real: &Real, clients: usize) {
    let mut asks = tokio::task::JoinSet::new();
    for n in 0..clients {
        let (addr, host) = (real.world.places.public, real.world.host("demo"));
        asks.spawn(async move {
            let mut client = H1::connect(addr).await;
            for round in 0..10 {
                let body = format!("client {n}, {round}");
                let answer = client
                    .ask("POST", "/echo", &host, &[], body.as_bytes())
                    .await;
                assert_eq!((answer.status, answer.text()), (200, body));
                let answer = client.ask("HEAD", "/echo", &host, &[], b"").await;
                assert!(!answer.made_by_gateway(), "{answer:?}");
            }
        });
    }
    let all = wait::within(wait::SOON * 4, "every client being served", asks.join_all()).await;
    assert_eq!(all.len(), clients);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gunicorns_sync_worker_serves_many_clients_one_at_a_time() {
    let python = needs!(python());
    let port = port::free();
    let bind = format!("127.0.0.1:{port}");
    let args = [
        "-m",
        "gunicorn",
        "--workers",
        "1",
        "--worker-class",
        "sync",
        "--bind",
        &bind,
        "wsgi_app:app",
    ];
    let real = behind(setup(), module(&python, &args), port, "http").await;
    many_clients(&real, 16).await;
    let answer = real.world.get("/large").await;
    assert_eq!(answer.body.len(), 2_000_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_server_serves_many_clients_one_at_a_time() {
    let python = needs!(python());
    let port = port::free();
    let real = behind(
        setup(),
        module(&python, &["plain_server.py", &port.to_string()]),
        port,
        "http",
    )
    .await;
    many_clients(&real, 16).await;
    let answer = real.world.get("/wsgi_app.py").await;
    let file = std::fs::read(source("wsgi_app.py")).expect("the file is there");
    assert_eq!((answer.status, answer.body == file), (200, true));
    assert_eq!(real.world.get("/absent").await.status, 404);
    let head = real.world.ask("HEAD", "/wsgi_app.py", b"").await;
    assert_eq!(
        head.header("content-length"),
        Some(file.len().to_string().as_str())
    );
}

/// Such a server serves nobody else while it waits for the next request of an idle connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_server_that_keeps_its_one_connection_still_serves_every_client() {
    let python = needs!(python());
    let port = port::free();
    let args = ["plain_server.py", &port.to_string(), "keep"];
    // Its backlog has five places, so that most connections do not even stand at first.
    let setup = setup().defaults("hold = \"10s\"");
    let real = behind(setup, module(&python, &args), port, "http").await;
    many_clients(&real, 16).await;
}

/// Which of Autobahn's WebSocket cases.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chapters {
    /// All 517: `BH_DEEP=1`.
    All,
    /// Without bulk and compression: those are between the two ends, and the tunnel carries their bytes
    /// unread.
    Quick,
}

impl Chapters {
    fn wanted() -> Self {
        match std::env::var("BH_DEEP") {
            Ok(deep) if deep == "1" => Self::All,
            _ => Self::Quick,
        }
    }

    fn without(self) -> &'static [&'static str] {
        match self {
            Self::All => &[],
            Self::Quick => &["-x", "9.*", "-x", "12.*", "-x", "13.*"],
        }
    }

    /// Time for a run on a slow machine; only a hang reaches it.
    fn limit(self) -> Duration {
        match self {
            Self::All => Duration::from_secs(2 * 3600),
            Self::Quick => Duration::from_secs(600),
        }
    }

    fn cases(self) -> usize {
        match self {
            Self::All => 517,
            Self::Quick => 247,
        }
    }
}

/// Runs the cases against `addr` and tells how each ended.
fn autobahn(
    python: &std::path::Path,
    chapters: Chapters,
    addr: &str,
    out: &std::path::Path,
) -> BTreeMap<String, String> {
    let mut command = Command::new(python.with_file_name("kosoku"));
    command
        .args(["-m", "fuzzingclient", "-p", "4"])
        .args(chapters.without())
        .arg("-o")
        .arg(out)
        .arg(addr);
    // It exits with 1 if any case failed; which ones is in its report.
    process::run_to_end("kosoku", command, chapters.limit());
    let text = std::fs::read_to_string(out.join("index.json")).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let agents = report.as_object().expect("servers by name");
    let cases = agents
        .values()
        .flat_map(|cases| cases.as_object().expect("cases by number"));
    cases
        .map(|(case, told)| {
            (
                case.clone(),
                told["behavior"].as_str().unwrap_or_default().to_owned(),
            )
        })
        .collect()
}

/// A server that echoes what it is sent by WebSocket.
fn echo(chapters: Chapters, python: &std::path::Path, port: u16) -> Result<Command, Missing> {
    let port = port.to_string();
    match chapters {
        Chapters::Quick => Ok(module(python, &["ws_echo.py", &port])),
        // In Python a case of compression takes minutes, and how it ends depends on what else runs.
        Chapters::All => script(&node()?, "ws_echo.mjs", &[&port]),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn autobahns_websocket_cases_end_as_they_do_without_a_tunnel() {
    let python = needs!(python());
    let (alone, port, chapters) = (port::free(), port::free(), Chapters::wanted());
    let server = needs!(echo(chapters, &python, alone));
    let _alone = listening(server, alone).await;
    let server = needs!(echo(chapters, &python, port));
    // The suite names its server by address alone, so that is a host of the app here.
    let setup = setup().app("demo", "hosts = [\"127.0.0.1\"]");
    let real = behind(setup, server, port, "http").await;
    let folder = Folder::new();
    // At once, before a server each: one run leaves a core idle, and all of the cases take half an hour.
    let run = |addr: String, out: &str| {
        let (python, out) = (python.clone(), folder.path().join(out));
        tokio::task::spawn_blocking(move || autobahn(&python, chapters, &addr, &out))
    };
    let direct = run(format!("127.0.0.1:{alone}"), "direct");
    let tunnelled = run(real.world.places.public.to_string(), "tunnelled");
    let direct = direct.await.expect("the run without a tunnel ends");
    let tunnelled = tunnelled.await.expect("the run through the tunnel ends");
    let counts = (direct.len(), tunnelled.len());
    assert_eq!(counts, (chapters.cases(), chapters.cases()));
    let good = |told: &str| matches!(told, "OK" | "NON-STRICT" | "INFORMATIONAL");
    let differs = |case: &&String| good(&direct[*case]) != good(&tunnelled[*case]);
    let differ: Vec<_> = direct.keys().filter(differs).collect();
    let well = tunnelled.values().filter(|told| good(told)).count();
    eprintln!(
        "Autobahn: {} cases, {well} well, {} differ",
        counts.0,
        differ.len()
    );
    assert!(differ.is_empty(), "other than without a tunnel: {differ:?}");
}
