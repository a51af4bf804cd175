//! A second opinion on slow peers: Debian's `slowhttptest` beside a well-behaved client.
//!
//! The program runs far longer than the gateway's limits, which are short here: they have to be what ends its
//! connections. The gateway's own count is what says so, since a reader that slow is long in noticing.

use std::process::Command;
use std::time::{Duration, Instant};

use bridgehead_tests::app::App;
use bridgehead_tests::process::Process;
use bridgehead_tests::wait;
use bridgehead_tests::world::World;

use crate::ALONE;
use crate::floods::{Door, guarded, left_behind, live, victim};
use crate::setup::{program, skip};

/// Connections of each attack, opened within a second.
const CONNECTIONS: u32 = 100;

/// Connections that are no attacker's: the well-behaved client's, and those by which the program looks
/// whether anybody still answers.
const OTHERS: f64 = 5.0;

/// Within this they are gone, however slow the machine.
const LIMIT: Duration = Duration::from_secs(30);

/// One way of being slow.
struct Mode {
    name: &'static str,
    path: &'static str,
    /// Pauses are three seconds: every limit is one.
    args: &'static [&'static str],
}

const MODES: [Mode; 3] = [
    Mode {
        name: "slow head",
        path: "/fine",
        args: &["-H", "-i", "3"],
    },
    Mode {
        name: "slow body",
        path: "/fine",
        args: &["-B", "-i", "3", "-s", "8192"],
    },
    Mode {
        name: "slow read",
        path: "/bulk",
        args: &["-X", "-n", "3", "-z", "5"],
    },
];

impl Mode {
    /// `slowhttptest` of this kind; it names its host by address alone, so that is a host of the app here.
    fn command(&self, program: &std::path::Path, port: u16) -> Command {
        let mut command = Command::new(program);
        command
            .args(self.args)
            .args([
                "-c",
                &CONNECTIONS.to_string(),
                "-r",
                &CONNECTIONS.to_string(),
            ])
            .args(["-l", "120", "-v", "1"])
            .args(["-u", &format!("http://127.0.0.1:{port}{}", self.path)]);
        command
    }
}

/// Client connections that the gateway counts.
async fn connections(world: &World) -> f64 {
    let now = world.metrics().await;
    let kinds = ["pending", "http1"];
    kinds
        .iter()
        .map(|kind| now.sum("connections", &[("kind", kind)]))
        .sum()
}

/// Waits until most attackers stand, then until none does.
async fn come_and_gone(world: &World) {
    let most = f64::from(CONNECTIONS / 2);
    let come = || async { (connections(world).await >= most).then_some(()) };
    wait::until(LIMIT, "the attackers' coming", come).await;
    let gone = || async { (connections(world).await <= OTHERS).then_some(()) };
    wait::until(LIMIT, "the attackers' end", gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slowhttptest_s_connections_end_by_our_limits_and_trouble_nobody() {
    let program = match program("slowhttptest") {
        Ok(program) => program,
        Err(missing) => return skip("slowhttptest", &missing),
    };
    let _alone = ALONE.lock().await;
    let app = App::start(victim).await;
    let setup = guarded().app("demo", "in_flight = 1000\nhosts = [\"127.0.0.1\"]");
    let world = setup.start().await;
    let _agent = world.join("a1", &[("demo", &app.target())]).await;
    let mut faults = Vec::new();
    for mode in MODES {
        let port = world.places.public.port();
        let attack = Process::start("slowhttptest", mode.command(&program, port));
        let begun = Instant::now();
        let (mut good, mut bad) = (0, Vec::new());
        let beside = async {
            loop {
                let lived = live(&world, Door::Plain, Duration::from_millis(300)).await;
                good += lived.good;
                bad.extend(lived.bad);
            }
        };
        tokio::select! {
            biased;
            () = come_and_gone(&world) => {}
            () = beside => {}
        }
        let (name, took) = (mode.name, begun.elapsed());
        assert!(good > 0, "{name}: nobody was served beside it");
        println!("{name}: gone after {took:.1?}, {good} good answers beside it");
        faults.extend(bad.iter().map(|what| format!("{name}: {what}")));
        drop(attack);
        left_behind(&world, &mut faults, name).await;
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
