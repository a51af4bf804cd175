//! Requests whose tunnel was lost under them while their agent lived: what the agent counted is told
//! when it is back, and the ledger knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bridgehead_tests::app::{App, Conn};
use bridgehead_tests::client::Answer;
use bridgehead_tests::relay::Way;
use bridgehead_tests::wait;
use bridgehead_tests::world::{World, setup};
use tokio::task::JoinSet;

use crate::resume::{Relayed, relayed};

/// What a caller may wait for the truth once the agent is back.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);

/// An app that works on each request for a moment.
async fn working(mut conn: Conn) {
    while let Some(head) = conn.read_head().await {
        if conn.read_body(&head).await.is_none() {
            return;
        }
        wait::dawdle(Duration::from_millis(10)).await;
        if !conn.answer("done").await {
            return;
        }
    }
}

/// Each of `clients` posts again and again until `until`; answers what was told `unknown`, by the
/// request's path, which occurs once.
async fn post(relayed: &Arc<Relayed>, clients: u32, until: Instant) -> BTreeMap<String, Answer> {
    let mut running = JoinSet::new();
    for client in 0..clients {
        let relayed = Arc::clone(relayed);
        running.spawn(async move {
            let (host, mut uncertain) = (relayed.world.host("demo"), Vec::new());
            let mut conn = relayed.world.h1().await;
            for number in 0.. {
                if Instant::now() >= until {
                    break;
                }
                let path = format!("/c{client}n{number}x");
                let answer = conn.ask("POST", &path, &host, &[], b"order").await;
                if answer.made_by_gateway() {
                    // With a body that nobody read it was the last of its connection.
                    conn = relayed.world.h1().await;
                }
                if answer.header("bridgehead-delivery") == Some("unknown") {
                    uncertain.push((path, answer));
                }
            }
            uncertain
        });
    }
    let mut uncertain = BTreeMap::new();
    while let Some(told) = running.join_next().await {
        uncertain.extend(told.expect("every request is answered"));
    }
    uncertain
}

/// What the ledger says of an exchange.
async fn state_of(world: &World, answer: &Answer) -> String {
    let url = answer.error("outcomeUrl");
    let at = url
        .find("/.well-known/")
        .unwrap_or_else(|| panic!("no address: {url}"));
    let mut client = world.h1().await;
    let said = client
        .ask("GET", &url[at..], "gw.localhost", &[], b"")
        .await;
    said.json()["state"].as_str().expect("a state").to_owned()
}

/// Waits for what becomes known, holds it against what the app saw, and answers the share.
async fn known(world: &World, app: &App, uncertain: &BTreeMap<String, Answer>) -> f64 {
    let until = Instant::now() + KNOWN_WITHIN;
    let mut states = BTreeMap::new();
    for (path, answer) in uncertain {
        loop {
            let state = state_of(world, answer).await;
            let settled = matches!(state.as_str(), "answered" | "not_delivered");
            if settled || Instant::now() >= until {
                let seen = app.text().contains(&format!("{path} HTTP"));
                assert!(state != "not_delivered" || !seen, "{path} was seen");
                assert!(state != "answered" || seen, "{path} was not seen");
                *states.entry(state).or_insert(0) += 1;
                break;
            }
            wait::dawdle(Duration::from_millis(50)).await;
        }
    }
    let all: u32 = states.values().sum();
    let open = states.get("unknown").copied().unwrap_or(0) + states.get("pending").unwrap_or(&0);
    eprintln!("{all} were told unknown, then {states:?}");
    f64::from(all - open) / f64::from(all.max(1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_of_the_tunnel_is_told_by_the_agent_when_it_is_back() {
    let app = App::start(working).await;
    let setup = setup().section("tunnel", "resume_window = \"11s\"");
    let relayed = Arc::new(relayed(setup, &app, &[]).await);
    let cut = async {
        wait::dawdle(Duration::from_millis(500)).await;
        // Nothing arrives any more, then nobody can dial until the tunnels have lapsed.
        relayed.relay.silence(Way::Up);
        relayed.relay.silence(Way::Down);
        wait::dawdle(Duration::from_millis(100)).await;
        relayed.relay.refuse();
        relayed.world.until_tunnels(0).await;
        relayed.relay.point_at(relayed.world.places.tunnel);
        let live = || async { (relayed.world.tunnels_in("live").await > 0).then_some(()) };
        wait::until(Duration::from_secs(30), "the agent coming back", live).await;
    };
    let until = Instant::now() + Duration::from_secs(1);
    let (uncertain, ()) = tokio::join!(post(&relayed, 64, until), cut);
    assert!(uncertain.len() >= 10, "only {}", uncertain.len());
    let share = known(&relayed.world, &app, &uncertain).await;
    assert!(share >= 0.95, "known: {share}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_resumption_the_agent_tells_what_it_counted_and_what_was_answered_after() {
    let app = App::start(working).await;
    let setup = setup().section("tunnel", "resume_window = \"0s\"");
    let relayed = Arc::new(relayed(setup, &app, &[]).await);
    let until = Instant::now() + Duration::from_secs(5);
    let cuts = async {
        while Instant::now() < until {
            wait::dawdle(Duration::from_millis(700)).await;
            relayed.relay.cut();
        }
    };
    let (uncertain, ()) = tokio::join!(post(&relayed, 16, until), cuts);
    assert!(!uncertain.is_empty(), "nothing was uncertain");
    let share = known(&relayed.world, &app, &uncertain).await;
    assert!(share >= 0.95, "known: {share}");
}
