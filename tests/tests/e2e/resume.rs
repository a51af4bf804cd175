//! Tunnels that outlive their connections: under cuts and black holes no request fails, and nothing
//! is lost, doubled or reordered.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bridgehead_tests::app::{self, App};
use bridgehead_tests::relay::{Relay, Way};
use bridgehead_tests::world::{Agent, Setup, World, setup};
use bridgehead_tests::{binaries, wait};
use tokio::task::JoinSet;

use crate::support::pattern;

/// Fields by name and value, as the clients of this suite take them.
const NONE: &[(&str, &str)] = &[];

/// A world whose agent dials through a relay.
pub(crate) struct Relayed {
    pub(crate) world: World,
    pub(crate) relay: Relay,
    pub(crate) agent: Agent,
}

/// The agent's command, to dial `gateway`.
pub(crate) fn command_to(world: &World, gateway: &str, app: &str) -> Command {
    let mut command = Command::new(binaries::agent());
    let file = world.folder.write("relay.token", &world.token("a1").secret);
    command
        .args(["run", "--gateway", gateway, "--insecure-plain", "--app"])
        .arg(app)
        .arg("--token-file")
        .arg(file);
    command
}

pub(crate) async fn relayed(setup: Setup, app: &App, more: &[&str]) -> Relayed {
    let world = setup.start().await;
    let relay = Relay::start(world.places.tunnel).await;
    let gateway = format!("tcp://{}", relay.addr());
    let mut command = command_to(&world, &gateway, &format!("demo={}", app.target()));
    command.args(more);
    let agent = world.run_agent("a1", command).await;
    Relayed {
        world,
        relay,
        agent,
    }
}

impl Relayed {
    async fn resumes(&self) -> u64 {
        let resumed = [("result", "resumed")];
        self.world.metrics().await.sum("resumes_total", &resumed) as u64
    }

    async fn until_resumes(&self, count: u64, limit: Duration) {
        let reached = || async { (self.resumes().await >= count).then_some(()) };
        wait::until(limit, &format!("{count} resumes"), reached).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_under_load_fail_no_request() {
    let app = App::start(app::echo).await;
    let relayed = Arc::new(relayed(setup(), &app, &[]).await);
    let until = Instant::now() + Duration::from_secs(6);
    let asked = Arc::new(AtomicU64::new(0));
    let mut clients = JoinSet::new();
    for client in 0..8u64 {
        let (relayed, asked) = (Arc::clone(&relayed), Arc::clone(&asked));
        clients.spawn(async move {
            let host = relayed.world.host("demo");
            let mut conn = relayed.world.h1().await;
            let mut number = 0;
            while Instant::now() < until {
                let body = pattern(client << 32 | number, 3000);
                let method = if number % 2 == 0 { "POST" } else { "PUT" };
                let path = format!("/{client}/{number}");
                let answer = conn.ask(method, &path, &host, NONE, &body).await;
                assert_eq!(answer.status, 200, "{path}: {}", answer.text());
                assert!(answer.body.ends_with(&body), "{path}: another body");
                number += 1;
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let mut cuts = 0;
    while Instant::now() < until {
        wait::dawdle(Duration::from_millis(450)).await;
        relayed.relay.cut();
        cuts += 1;
    }
    while let Some(client) = clients.join_next().await {
        client.expect("no request failed");
    }
    let (asked, resumes) = (asked.load(Ordering::Relaxed), relayed.resumes().await);
    eprintln!("{asked} requests over {cuts} cuts, {resumes} resumes");
    assert!(resumes > 0, "nothing was resumed");
    // Each request came exactly once.
    let seen = app.text();
    let heads = seen.matches(" HTTP/1.1\r\n").count() as u64;
    assert_eq!(heads, asked);
}
