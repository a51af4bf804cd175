//! Exchanges whose tunnel is between two carriers, in virtual time.

use std::time::Duration;

use bridgehead_protocol::conn::Settings;
use bridgehead_protocol::wire::{FinalCause, ReportEntry, StreamId};

use crate::request::testing::{Agent, World, pass, tunnel_id};

const SECOND: Duration = Duration::from_secs(1);

/// An agent for whose next carrier the gateway waits that long.
fn lasting(world: &World, window: Duration) -> Agent {
    let settings = Settings {
        resume_window: window,
        ..Settings::default()
    };
    world.agent_with("a", settings)
}

#[tokio::test(start_paused = true)]
async fn the_stall_window_stands_still_while_there_is_no_carrier() {
    let world = World::new().await;
    let agent = lasting(&world, SECOND * 60);
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    app.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
        .await;
    pass(SECOND * 10).await;
    agent.suspend();
    pass(SECOND * 30).await;
    agent.resume();
    // Four of the fifteen seconds are left.
    pass(SECOND * 4).await;
    app.say("world").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "helloworld"));
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stall_goes_on_where_it_stood_when_the_carrier_is_back() {
    let world = World::new().await;
    let agent = lasting(&world, SECOND * 60);
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    app.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        .await;
    pass(SECOND * 10).await;
    agent.suspend();
    pass(SECOND * 30).await;
    agent.resume();
    let answer = client.answer().await;
    let elapsed = world.elapsed();
    assert!(
        elapsed >= SECOND * 45 && elapsed <= SECOND * 46,
        "{elapsed:?}"
    );
    assert_eq!(
        answer.verdict(),
        "BH_APP_TIMEOUT stall delivered answer_begun"
    );
    client.leave();
    drop(app);
    world
        .end([agent], &["failed/delivered/BH_APP_TIMEOUT"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_first_window_runs_on_and_is_answered_in_time_without_counts() {
    let world = World::new().await;
    let agent = lasting(&world, SECOND * 60);
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    pass(SECOND * 15).await;
    agent.suspend();
    let answer = client.answer().await;
    let elapsed = world.elapsed();
    assert!(
        elapsed >= SECOND * 30 && elapsed <= SECOND * 31,
        "{elapsed:?}"
    );
    assert_eq!(answer.verdict(), "BH_APP_TIMEOUT first_frame unknown all");
    client.leave();
    drop(app);
    agent.resume();
    world.end([agent], &["failed/unknown/BH_APP_TIMEOUT"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_waits_for_the_carrier_although_its_hold_is_over() {
    let world = World::new().await;
    let agent = lasting(&world, SECOND * 60);
    agent.suspend();
    let mut client = world.client();
    client.post("", "hello").await;
    // The hold is ten seconds.
    pass(SECOND * 25).await;
    agent.resume();
    let mut app = agent.app().await;
    app.request().await;
    app.answer("served").await;
    assert_eq!(client.answer().await.text(), "served");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_is_told_the_truth_once_the_tunnel_has_lapsed() {
    let world = World::new().await;
    let agent = lasting(&world, SECOND * 20);
    agent.suspend();
    let mut client = world.client();
    client.post("", "hello").await;
    let answer = client.answer().await;
    let elapsed = world.elapsed();
    assert!(
        elapsed >= SECOND * 20 && elapsed <= SECOND * 21,
        "{elapsed:?}"
    );
    assert_eq!(
        answer.verdict(),
        "BH_APP_STARTING no_agent not_delivered none"
    );
    client.leave();
    world
        .end([agent], &["refused/not_delivered/BH_APP_STARTING"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_exchange_of_which_nothing_was_handed_over_leaves_a_tunnel_without_a_carrier() {
    let world = World::new().await;
    let waiting = lasting(&world, SECOND * 60);
    let mut client = world.client();
    client.post("", "hello").await;
    let unopened = waiting.accept().await;
    let standing = world.agent("b");
    waiting.suspend();
    let mut app = standing.app().await;
    app.request().await;
    app.answer("here").await;
    assert_eq!(client.answer().await.text(), "here");
    assert!(world.elapsed() < SECOND, "{:?}", world.elapsed());
    client.leave();
    drop((app, unopened));
    waiting.resume();
    world
        .end([waiting, standing], &["answered/delivered/"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_exchange_that_was_handed_over_waits_for_its_own_carrier() {
    let world = World::new().await;
    let waiting = lasting(&world, SECOND * 60);
    let mut client = world.client();
    client.post("", "hello").await;
    let mut app = waiting.app().await;
    app.request().await;
    let standing = world.agent("b");
    waiting.suspend();
    assert!(standing.is_left_alone(SECOND * 5).await);
    waiting.resume();
    app.answer("served").await;
    assert_eq!(client.answer().await.text(), "served");
    client.leave();
    drop(app);
    world
        .end([waiting, standing], &["answered/delivered/"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_takes_another_agent_and_waits_for_nobody() {
    let world = World::new().await;
    let waiting = lasting(&world, SECOND * 60);
    let standing = world.agent("b");
    waiting.suspend();
    for _ in 0..4 {
        let mut client = world.client();
        client.get("/x").await;
        let mut app = standing.app().await;
        app.request().await;
        app.answer("here").await;
        assert_eq!(client.answer().await.text(), "here");
        client.leave();
        drop(app);
    }
    assert!(world.elapsed() < SECOND);
    waiting.resume();
    let ended = ["answered/delivered/"; 4];
    world.end([waiting, standing], &ended).await;
}

/// What the agent reports before the gateway has given the tunnel up, it reports once and for all.
#[tokio::test(start_paused = true)]
async fn a_report_that_is_here_is_looked_at_although_the_tunnel_could_be_resumed() {
    for (window, told, outcome) in [
        (
            20,
            "BH_APP_STARTING tunnel_lost not_delivered none",
            "BH_APP_STARTING",
        ),
        (
            60,
            "BH_APP_TIMEOUT first_frame not_delivered none",
            "BH_APP_TIMEOUT",
        ),
    ] {
        let world = World::new().await;
        let agent = lasting(&world, SECOND * window);
        let mut client = world.client();
        client.post("", "hello").await;
        let mut app = agent.app().await;
        app.begin().await;
        agent.suspend();
        let entry = ReportEntry {
            tunnel: tunnel_id("a"),
            stream: StreamId(1),
            written: 0,
            read: 0,
            cause: FinalCause::Reset,
        };
        let shared = &world.shared;
        let (now, owner) = (shared.clock.now(), agent.live.identity.clone());
        shared.ledger.report(now, &owner, &[entry]);
        let answer = client.answer().await;
        assert_eq!(answer.verdict(), told, "{window}");
        assert!(world.elapsed() <= SECOND * 31, "{:?}", world.elapsed());
        client.leave();
        drop((app, agent));
        let outcome = format!("refused/not_delivered/{outcome}");
        world.end([], &[&outcome]).await;
    }
}
