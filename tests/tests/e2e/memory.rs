//! The memory budget: what is refused and what is given up when it runs short. The cause is real: a
//! budget that the process exceeds, or answers that nobody reads.

use std::time::Duration;

use bridgehead_protocol::wire::{Frame, RefuseCode};
use bridgehead_tests::app::{self, App, Conn};
use bridgehead_tests::client::{self, H1};
use bridgehead_tests::peer::{self, Peer};
use bridgehead_tests::wait;
use bridgehead_tests::world::{World, setup};
use tokio::net::TcpSocket;

use crate::support::{One, Verdict, one};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn above_its_budget_a_gateway_refuses_what_is_new_and_says_that_nothing_was_delivered() {
    let setup = setup().section("gateway", "memory = \"8GiB\"");
    let One {
        world,
        agent: _agent,
        app,
    } = one(setup, app::echo).await;
    // The agent came while there was room: a gateway that is full lets none in.
    let text = std::fs::read_to_string(&world.config).expect("the configuration");
    let tight = text.replace("memory = \"8GiB\"", "memory = \"1MiB\"");
    std::fs::write(&world.config, tight).expect("a configuration");
    assert_eq!(world.command("/v1/reload").await.status, 200);
    let noticed = |line: &str| line.contains("memory pressure changed");
    world.gateway.line("that memory is short", noticed);
    let admin = world.places.admin;
    let ready = client::ask(admin, "GET", "/readyz", &admin.to_string()).await;
    assert_eq!(ready.status, 503);
    assert_eq!(ready.json()["reasons"], serde_json::json!(["memory"]));
    let refused = world.ask("POST", "/refused", b"x").await;
    Verdict::refused(503, "SERVICE_UNAVAILABLE", "overload")
        .after(5)
        .check(&refused);
    assert_eq!(refused.json()["error"]["retry"]["write"], "safe");
    let token = &world.token("a1").secret;
    let mut late = Peer::dial(world.places.tunnel).await;
    late.say(&Frame::Hello(peer::hello(token, "late", &["demo"])))
        .await;
    match wait::within(wait::SOON, "an answer to HELLO", late.hear()).await {
        Some(Frame::Refuse(refuse)) => assert_eq!(refuse.code, RefuseCode::Busy),
        other => panic!("let in without memory: {other:?}"),
    }
    // What the gateway itself answers goes on: operators need it now.
    let host = format!("gw.localhost:{}", world.places.public.port());
    let codes = "/.well-known/bridgehead/codes.json";
    let table = world.h1().await.ask("GET", codes, &host, &[], b"").await;
    assert_eq!(table.status, 200);
    assert_eq!(table.header("connection"), Some("close"), "nothing is kept");
    assert_eq!(app.total(), 0);
    let after = world.metrics().await;
    let labels = [("code", "SERVICE_UNAVAILABLE"), ("reason", "overload")];
    assert_eq!(after.sum("refusals_total", &labels), 1.0);
    assert!(after.sum("memory_bytes", &[("kind", "resident")]) > 1e6);
}

/// Answers with as much as anybody takes, in short pieces and so slowly that little comes between two
/// looks of the gateway at its memory: what passes the budget then is memory that nobody counts.
async fn flood(mut conn: Conn) {
    if conn.read_head().await.is_none() {
        return;
    }
    let length = u64::from(u32::MAX);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    let piece = vec![b'x'; 4 * 1024];
    if conn.write(head).await {
        while conn.write(&piece).await {
            wait::dawdle(Duration::from_millis(20)).await;
        }
    }
}

/// A client that asks and takes nothing of the answer.
async fn reluctant(world: &World) -> H1 {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a small buffer");
    let stream = socket.connect(world.places.public).await;
    let mut client = H1::over(stream.expect("the gateway accepts"));
    let host = world.host("demo");
    client.request("GET", "/flood", &host, &[], b"").await;
    client
}

/// What all of them may hold together, connections included; less than they would.
const ROOM: u64 = 10 << 20;
const CLIENTS: usize = 120;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_answers_pile_up_those_that_hold_most_are_cut_visibly_and_the_gateway_lives() {
    let app = App::start(flood).await;
    let mut world = setup()
        .app("demo", "in_flight = 1000")
        .section("gateway", "memory = \"100%\"")
        .start()
        .await;
    let budget = world.gateway.resident() + ROOM;
    let text = std::fs::read_to_string(&world.config).expect("the configuration");
    let text = text.replace("memory = \"100%\"", &format!("memory = \"{budget}B\""));
    std::fs::write(&world.config, text).expect("the test's folder can be written");
    world.restart_gateway();
    let _agent = world.join("a1", &[("demo", &app.target())]).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(reluctant(&world).await);
    }
    let cut = || async {
        let labels = [
            ("code", "SERVICE_UNAVAILABLE"),
            ("outcome", "aborted"),
            ("delivery", "delivered"),
        ];
        let now = world.metrics().await;
        let count = now.sum("exchanges_total", &labels);
        (count > 0.0).then_some(count)
    };
    let count = wait::until(wait::SOON, "streams being given up", cut).await;
    eprintln!("{count} of {CLIENTS} answers were cut");
    let held = world.gateway.resident();
    eprintln!("{held} of {budget} bytes");
    assert!(held < budget + budget / 4, "{held} of {budget} bytes");
    assert_eq!(world.admin("/v1/status").await["draining"], false);
    // Nobody who was cut takes what came for a whole answer.
    drop(clients);
    let idle = || async { (world.metrics().await.sum("in_flight", &[]) == 0.0).then_some(()) };
    wait::until(wait::SOON, "every exchange ending", idle).await;
}
