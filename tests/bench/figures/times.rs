//! How long things take.

use std::time::{Duration, Instant};

use bridgehead_tests::app::{self, Conn};
use bridgehead_tests::client::{Answer, H1};
use bridgehead_tests::h2c::H2;
use bridgehead_tests::process::Process;
use bridgehead_tests::wait;
use bridgehead_tests::world::{Setup, World, setup};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::table::{Figure, Table};
use crate::{Stand, stand};

/// The windows of the worlds here; the defaults are 30 s and 15 s.
const WINDOW: f64 = 2.0;
/// How often a quick thing is measured; the worst of them counts.
const TIMES: usize = 10;
/// Events of one stream.
const EVENTS: usize = 200;
/// Seconds until what the gateway noticed shows in its metrics and they are read.
const COUNTED: f64 = 0.25;
/// Connections that say nothing.
const SILENT: usize = 1000;

pub(crate) async fn measure(table: &mut Table) {
    leaving(table).await;
    silence(table).await;
    joining(table).await;
    events(table).await;
    dying(table).await;
}

fn windows() -> Setup {
    setup().defaults("hold = \"0s\"\nfirst_frame_window = \"2s\"\nstall_window = \"2s\"")
}

/// From the moment the client's socket closes to the moment the app sees its own end.
async fn leaving(table: &mut Table) {
    for version in ["h1", "h2"] {
        let Stand {
            world,
            agent: _agent,
            app,
        } = stand(setup(), app::silent).await;
        let (host, mut worst) = (world.host("demo"), Duration::ZERO);
        for n in 0..TIMES {
            let target = format!("/{version}/{n}/");
            let left = if version == "h1" {
                let mut client = world.h1().await;
                client.request("GET", &target, &host, &[], b"").await;
                app.until_text(&target).await;
                let left = Instant::now();
                drop(client);
                left
            } else {
                let mut client = world.h2().await;
                let asked = client.open(H2::get(&host, &target), true).await;
                app.until_text(&target).await;
                let left = Instant::now();
                drop((client, asked));
                left
            };
            let seen = app
                .until("the app's socket closing", |seen| {
                    seen.iter()
                        .any(|s| s.text().contains(&target) && s.ended.is_some())
                })
                .await;
            let of_it = seen.iter().find(|s| s.text().contains(&target));
            let ended = of_it.and_then(|s| s.ended).map_or(left, |(at, _)| at);
            worst = worst.max(ended.saturating_duration_since(left));
        }
        let name = format!("{version} client leaves, the app's socket closes, worst of {TIMES}");
        table.add(Figure::upto(name, worst.as_secs_f64(), 1.0, "s"));
    }
}

async fn silence(table: &mut Table) {
    let said = "BH_APP_TIMEOUT by the first-frame window of 2 s (default 30 s)";
    told(table, said, stand(windows(), app::silent).await).await;
    let half = |mut conn: Conn| async move {
        if conn.read_head().await.is_some() {
            conn.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
                .await;
            conn.until_closed().await;
        }
    };
    let said = "BH_APP_TIMEOUT by the stall window of 2 s (default 15 s)";
    told(table, said, stand(windows(), half).await).await;
}

/// One request that its window ends.
async fn told(table: &mut Table, name: &str, stand: Stand) {
    let begun = Instant::now();
    let answer = stand.world.get("/silent").await;
    let took = begun.elapsed().as_secs_f64();
    assert_eq!(
        (answer.status, answer.error("code").as_str()),
        (504, "BH_APP_TIMEOUT")
    );
    table.add(Figure {
        name: name.into(),
        measured: took,
        bounds: (WINDOW, WINDOW + 1.0),
        unit: "s",
    });
    let pauses = f64::from(pauses(&answer));
    let name = "Retry-After in it, as a field or in its JSON";
    table.add(Figure::upto(name, pauses, 0.0, ""));
}

/// Places of an answer that tell a pause.
fn pauses(answer: &Answer) -> u8 {
    let json = answer.json();
    let places = [
        answer.header("retry-after").is_some(),
        !json["retryAfter"].is_null(),
        !json["error"]["retryAfter"].is_null(),
    ];
    places.into_iter().map(u8::from).sum()
}

/// From the start of the agent's process to the gateway's word that its tunnel is up.
async fn joining(table: &mut Table) {
    let app = app::App::start(app::echo).await;
    let world = setup().start().await;
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        let socket = TcpStream::connect(world.places.tunnel).await;
        silent.push(socket.unwrap_or_else(|error| panic!("a silent socket: {error}")));
    }
    let mut command = world.agent_command("a1");
    command.args(["--app", &format!("demo={}", app.target())]);
    let begun = Instant::now();
    let _agent = Process::start("bh-agent", command);
    tokio::task::block_in_place(|| {
        world
            .gateway
            .line("that the tunnel is up", |line| line.contains("tunnel up"))
    });
    let took = begun.elapsed().as_secs_f64() * 1e3;
    let name = format!("an agent joins beside {SILENT} silent sockets, from its start");
    table.add(Figure::upto(name, took, 100.0, "ms"));
}

/// From the app's write of an event to the client's read of it.
async fn events(table: &mut Table) {
    let (ask, asked) = watch::channel(0);
    let script = move |mut conn: Conn| {
        let mut asked = asked.clone();
        async move {
            if conn.read_head().await.is_none() {
                return;
            }
            conn.write("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            for n in 1..=EVENTS {
                if asked.wait_for(|wanted| *wanted >= n).await.is_err() {
                    return;
                }
                conn.write("8\r\ndata: 1\n\r\n").await;
            }
            conn.until_closed().await;
        }
    };
    let stand = stand(setup(), script).await;
    let mut client: H1 = stand.world.h1().await;
    let host = stand.world.host("demo");
    client.request("GET", "/events", &host, &[], b"").await;
    assert!(client.read_head().await.is_ok(), "a head");
    let mut worst = Duration::ZERO;
    for n in 1..=EVENTS {
        let begun = Instant::now();
        ask.send_replace(n);
        let event = wait::within(wait::SOON, "an event", client.read_chunk()).await;
        assert!(event.is_some_and(|event| !event.is_empty()), "an event");
        worst = worst.max(begun.elapsed());
    }
    let name = format!("a server-sent event, app to client, worst of {EVENTS}");
    table.add(Figure::upto(name, worst.as_secs_f64() * 1e3, 50.0, "ms"));
}

/// From the moment the agent's machine stops to the moment its tunnels are not counted any more.
async fn dying(table: &mut Table) {
    let stand = stand(setup(), app::echo).await;
    both_tunnels(&stand.world).await;
    let begun = Instant::now();
    stand.agent.process.signal("STOP");
    let gone = || async {
        let metrics = stand.world.metrics().await;
        let live = metrics.sum("tunnels", &[("state", "live")]);
        (live == 0.0).then_some(())
    };
    wait::until(wait::SOON, "the dead agent being noticed", gone).await;
    let took = begun.elapsed().as_secs_f64();
    stand.agent.process.signal("CONT");
    let name = "a dead agent is noticed, both tunnels (6 s of silence)";
    table.add(Figure::upto(name, took, 6.0 + COUNTED, "s"));
}

async fn both_tunnels(world: &World) {
    world.until_tunnels(2).await;
}
