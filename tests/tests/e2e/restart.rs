//! Restarts under load: an orderly one fails nothing, a kill tells no lie.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bridgehead_tests::app::{App, Conn};
use bridgehead_tests::client::{Answer, H1, NoAnswer};
use bridgehead_tests::relay::Relay;
use bridgehead_tests::wait;
use bridgehead_tests::world::setup;

use crate::support::pattern;

/// Answers every request; once `draining`, each answer says that it is the connection's last.
pub(crate) fn serving(
    draining: Arc<AtomicBool>,
) -> impl Fn(Conn) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
    move |mut conn: Conn| {
        let draining = Arc::clone(&draining);
        Box::pin(async move {
            while let Some(head) = conn.read_head().await {
                if conn.read_body(&head).await.is_none() {
                    return;
                }
                if draining.load(Ordering::SeqCst) {
                    conn.write(
                        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nlast",
                    )
                    .await;
                    return;
                }
                conn.answer("served").await;
            }
        })
    }
}

/// One request of the load and what came of it.
pub(crate) struct Told {
    pub(crate) id: String,
    pub(crate) answer: Result<Answer, NoAnswer>,
}

/// Clients that send one request after the other, POST and GET in turn, until told to stop.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    clients: tokio::task::JoinSet<Vec<Told>>,
}

impl Load {
    pub(crate) fn start(clients: usize, addr: SocketAddr, host: &str) -> Self {
        let (stop, done) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let mut set = tokio::task::JoinSet::new();
        for client in 0..clients {
            let (stop, done, host) = (Arc::clone(&stop), Arc::clone(&done), host.to_owned());
            set.spawn(async move {
                let mut told = Vec::new();
                for n in 0.. {
                    if stop.load(Ordering::SeqCst) {
                        break;
                    }
                    let id = format!("order-{client}-{n};");
                    let mut connection = H1::connect(addr).await;
                    let method = if n % 2 == 0 { "POST" } else { "GET" };
                    let body = if method == "POST" { id.as_bytes() } else { b"" };
                    connection
                        .request(method, &format!("/{id}"), &host, &[], body)
                        .await;
                    let asked = connection.try_answer(method);
                    let answer =
                        wait::within(Duration::from_secs(40), "an answer under load", asked).await;
                    done.fetch_add(1, Ordering::SeqCst);
                    told.push(Told { id, answer });
                }
                told
            });
        }
        Self {
            stop,
            done,
            clients: set,
        }
    }

    /// Waits until this many more requests have ended.
    pub(crate) async fn served(&self, more: u64) {
        let from = self.done.load(Ordering::SeqCst);
        let reached = || async { (self.done.load(Ordering::SeqCst) >= from + more).then_some(()) };
        wait::until(Duration::from_secs(40), "the load going on", reached).await;
    }

    pub(crate) async fn finish(self) -> Vec<Told> {
        self.stop.store(true, Ordering::SeqCst);
        self.clients
            .join_all()
            .await
            .into_iter()
            .flatten()
            .collect()
    }
}

/// How often each id reached one of the apps, by request line.
pub(crate) fn arrivals(apps: &[&str]) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    for text in apps {
        for line in text.lines().filter(|l| l.ends_with(" HTTP/1.1")) {
            if let Some(id) = line.split(' ').nth(1) {
                *count
                    .entry(id.trim_start_matches('/').to_owned())
                    .or_default() += 1;
            }
        }
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orderly_restart_of_the_app_fails_no_request_and_doubles_none() {
    let draining = Arc::new(AtomicBool::new(false));
    let first = App::start(serving(Arc::clone(&draining))).await;
    let world = setup().defaults("hold = \"20s\"").start().await;
    let _agent = world.join("a1", &[("demo", &first.target())]).await;
    let load = Load::start(4, world.places.public, &world.host("demo"));
    load.served(100).await;
    draining.store(true, Ordering::SeqCst);
    first.close_port();
    let record = first.recorder();
    let addr = first.drained().await;
    wait::dawdle(Duration::from_secs(2)).await;
    let second = App::start_at(addr, serving(Arc::new(AtomicBool::new(false)))).await;
    load.served(100).await;
    let told = load.finish().await;
    let arrived = arrivals(&[&record.text(), &second.text()]);
    for one in &told {
        let answer = one
            .answer
            .as_ref()
            .unwrap_or_else(|why| panic!("{} got {why:?}", one.id));
        assert_eq!(answer.status, 200, "{}: {}", one.id, answer.text());
        assert_eq!(arrived.get(&one.id), Some(&1), "{} arrived once", one.id);
    }
    assert!(told.len() >= 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_app_makes_the_gateway_tell_no_lie() {
    let first = App::start(serving(Arc::default())).await;
    let world = setup().start().await;
    let _agent = world.join("a1", &[("demo", &first.target())]).await;
    let load = Load::start(4, world.places.public, &world.host("demo"));
    let mut texts = Vec::new();
    let mut app = first;
    for _ in 0..5 {
        load.served(50).await;
        let log = app.recorder();
        let addr = app.stop().await;
        load.served(10).await;
        texts.push(log.text());
        app = App::start_at(addr, serving(Arc::default())).await;
    }
    load.served(50).await;
    let told = load.finish().await;
    texts.push(app.text());
    judge(
        &told,
        &arrivals(&texts.iter().map(String::as_str).collect::<Vec<_>>()),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agent_makes_the_gateway_tell_no_lie() {
    let app = App::start(serving(Arc::default())).await;
    let world = setup().start().await;
    let mut agent = world.join("a1", &[("demo", &app.target())]).await;
    let load = Load::start(4, world.places.public, &world.host("demo"));
    for _ in 0..3 {
        load.served(50).await;
        agent.process.kill();
        load.served(5).await;
        world.until_tunnels(0).await;
        agent = world.join("a1", &[("demo", &app.target())]).await;
    }
    load.served(50).await;
    let told = load.finish().await;
    judge(&told, &arrivals(&[&app.text()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_carrier_makes_the_gateway_tell_no_lie() {
    let app = App::start(serving(Arc::default())).await;
    let world = setup().start().await;
    let relay = Relay::start(world.places.tunnel).await;
    let mut command = std::process::Command::new(bridgehead_tests::binaries::agent());
    let token = world.folder.write("cut.token", &world.token("a1").secret);
    let gateway = format!("tcp://{}", relay.addr());
    let target = format!("demo={}", app.target());
    command.args([
        "run",
        "--gateway",
        &gateway,
        "--insecure-plain",
        "--app",
        &target,
    ]);
    command.arg("--token-file").arg(token);
    let _agent = world.run_agent("a1", command).await;
    let load = Load::start(4, world.places.public, &world.host("demo"));
    for _ in 0..5 {
        load.served(50).await;
        relay.point_at(world.places.tunnel);
    }
    load.served(50).await;
    let told = load.finish().await;
    judge(&told, &arrivals(&[&app.text()]));
}

/// The three words, held against what the app saw; nobody is left with nothing.
pub(crate) fn judge(told: &[Told], arrived: &BTreeMap<String, usize>) {
    let mut words = BTreeMap::new();
    for one in told {
        let count = arrived.get(&one.id).copied().unwrap_or(0);
        assert!(count <= 1, "{} arrived {count} times", one.id);
        let answer = one
            .answer
            .as_ref()
            .unwrap_or_else(|why| panic!("{} got no answer: {why:?}", one.id));
        let word = if answer.status == 200 {
            "answered".into()
        } else {
            answer.error("delivery")
        };
        match word.as_str() {
            "answered" | "delivered" => assert_eq!(count, 1, "{} was told as {word}", one.id),
            "not_delivered" => assert_eq!(count, 0, "{} was told as not delivered", one.id),
            "unknown" => {}
            other => panic!("{} was told {other:?}: {}", one.id, answer.text()),
        }
        *words.entry(word).or_insert(0) += 1;
    }
    eprintln!("told: {words:?}");
    assert!(words.get("answered").is_some_and(|n| *n > 50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_body_stays_in_the_clients_socket() {
    const LENGTH: usize = 48 << 20;
    let app = App::start(|mut conn: Conn| async move {
        if conn.read_head().await.is_some() && conn.skip(LENGTH as u64).await {
            conn.answer("all of it").await;
        }
    })
    .await;
    let world = setup().defaults("hold = \"30s\"").start().await;
    let before = world.gateway.resident();
    let mut client = world.h1().await;
    client
        .request(
            "POST",
            "/large",
            &world.host("demo"),
            &[("Content-Length", &LENGTH.to_string())],
            b"",
        )
        .await;
    let mut sent = 0;
    loop {
        let part = pattern(sent as u64, 1 << 16);
        match tokio::time::timeout(Duration::from_secs(2), client.send(&part)).await {
            Ok(true) => sent += part.len(),
            Ok(false) => panic!("the connection broke after {sent} bytes"),
            Err(_) => break,
        }
        assert!(
            sent < 24 << 20,
            "the gateway read the body while it held the request"
        );
    }
    let grew = world.gateway.resident().saturating_sub(before);
    assert!(grew < 8 << 20, "the gateway grew by {} KiB", grew >> 10);
    let _agent = world.join("a1", &[("demo", &app.target())]).await;
    // The timed-out send may have written a part of its piece; what matters here is the amount.
    let mut left = LENGTH - sent;
    while left > 0 {
        let part = vec![b'x'; left.min(1 << 16)];
        if !client.send(&part).await {
            break;
        }
        left -= part.len();
    }
    assert_eq!(client.answer("POST").await.text(), "all of it");
}
