//! What becomes known after the client was told, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use bridgehead_protocol::handshake::Identity;
use bridgehead_protocol::io::Outgoing;
use bridgehead_protocol::verdict::{Advice, Delivery, Operation, Stage};
use bridgehead_protocol::wire::{FinalCause, ReportEntry, StreamId};

use crate::ledger::{Source, State};
use crate::request::testing::{Agent, App, World, pass, tunnel_id};

const SECOND: Duration = Duration::from_secs(1);

/// The gateway's time of a tunnel's end as the agent tells it.
fn reported(written: u64, read: u64) -> Vec<ReportEntry> {
    vec![ReportEntry {
        tunnel: tunnel_id("a"),
        stream: StreamId(1),
        written,
        read,
        cause: FinalCause::Reset,
    }]
}

fn identity(agent: &str) -> Identity {
    Identity {
        subject: "test".into(),
        agent: agent.into(),
    }
}

/// A fenced connection whose app goes on.
async fn fenced(mut app: App) -> App {
    assert_eq!(app.given_up().await, Outgoing::Fenced { linger: true });
    app
}

#[tokio::test(start_paused = true)]
async fn an_answer_after_the_window_reaches_the_ledger() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "order=7").await;
    let mut app = agent.app().await;
    app.request().await;
    let late = tokio::spawn(async move {
        let app = fenced(app).await;
        pass(SECOND * 20).await;
        app.say("HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\ndo")
            .await;
        pass(SECOND * 3).await;
        app.say("ne").await;
        app
    });
    let answer = client.answer().await;
    assert_eq!(answer.verdict(), "BH_APP_TIMEOUT first_frame unknown all");
    let told = world.outcome(&answer);
    assert_eq!(
        (told.state, told.delivery),
        (State::Pending, Delivery::Unknown)
    );
    assert_eq!(told.advice(Operation::Write), Advice::VerifyFirst);
    pass(SECOND * 21).await;
    let began = world.outcome(&answer);
    assert_eq!((began.state, began.status), (State::Answered, Some(201)));
    assert_eq!(
        (began.source, began.complete),
        (Source::LateAnswer, Some(false))
    );
    assert_eq!(began.delivery, Delivery::Delivered);
    pass(SECOND * 3).await;
    let whole = world.outcome(&answer);
    assert_eq!((whole.complete, whole.at), (Some(true), began.at));
    // The answer is complete, so its connection ends in order.
    let mut app = late.await.unwrap();
    assert_eq!(app.given_up().await, Outgoing::Closed { idle: true });
    app.end(FinalCause::Reset);
    client.leave();
    world.end([agent], &["failed/unknown/BH_APP_TIMEOUT"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_stays_silent_stays_unknown_and_is_awaited_for_a_minute() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    let silent = tokio::spawn(async move {
        let mut app = fenced(app).await;
        app.closed().await;
        app.end(FinalCause::Reset);
    });
    let answer = client.answer().await;
    pass(SECOND * 60).await;
    assert_eq!(world.outcome(&answer).state, State::Pending);
    pass(SECOND * 10).await;
    let told = world.outcome(&answer);
    assert_eq!((told.state, told.stage), (State::Unknown, Stage::All));
    assert_eq!(told.status, None);
    silent.await.unwrap();
    client.leave();
    world.end([agent], &["failed/unknown/BH_APP_TIMEOUT"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_dies_after_the_window_stays_unknown_at_once() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    let dying = tokio::spawn(async move {
        let app = fenced(app).await;
        pass(SECOND * 5).await;
        app.reset();
    });
    let answer = client.answer().await;
    dying.await.unwrap();
    pass(SECOND).await;
    assert_eq!(world.outcome(&answer).state, State::Unknown);
    client.leave();
    world.end([agent], &["failed/unknown/BH_APP_TIMEOUT"]).await;
}

#[tokio::test(start_paused = true)]
async fn counts_that_come_too_late_for_the_answer_still_prove_it() {
    let world = World::new().await;
    // A round trip of 0.8 s; the answer waits for half a second.
    let agent = world.agent_behind("a", Duration::from_millis(400));
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    let untouched = tokio::spawn(async move {
        app.given_up().await;
        app.end(FinalCause::Fenced);
    });
    let answer = client.answer().await;
    assert_eq!(answer.verdict(), "BH_APP_TIMEOUT first_frame unknown none");
    assert_eq!(world.outcome(&answer).state, State::Pending);
    pass(SECOND).await;
    let told = world.outcome(&answer);
    assert_eq!(
        (told.state, told.source),
        (State::NotDelivered, Source::LateCount)
    );
    assert_eq!(told.advice(Operation::Write), Advice::Safe);
    untouched.await.unwrap();
    client.leave();
    world.end([agent], &["failed/unknown/BH_APP_TIMEOUT"]).await;
}

/// A POST whose app took `taken` bytes of it when the tunnel was lost.
async fn lost(world: &World, agent: &Agent, taken: usize) -> crate::request::testing::Answer {
    let mut client = world.client();
    client.post("", "hello").await;
    let mut app = agent.app().await;
    app.begin().await;
    app.begun();
    app.take(taken).await;
    agent.cut();
    let answer = client.answer().await;
    assert_eq!(answer.error()["reason"], "tunnel_lost");
    assert_eq!(answer.error()["delivery"], "unknown");
    client.leave();
    answer
}

#[tokio::test(start_paused = true)]
async fn the_report_of_a_lost_tunnel_decides_what_its_counts_can() {
    for (taken, written, read, state) in [
        (0, 0, 0, State::NotDelivered),
        (0, 30, 0, State::Unknown),
        (30, 30, 0, State::Unknown),
        (30, 30, 500, State::Answered),
        // More than was ever sent, or less than was told: not this stream's counts.
        (0, 1_000_000, 500, State::Unknown),
    ] {
        let world = World::with("hold = \"0s\"").await;
        let agent = world.agent("a");
        let answer = lost(&world, &agent, taken).await;
        pass(SECOND).await;
        assert_eq!(world.outcome(&answer).state, State::Unknown);
        let report = |owner: &str, entries: Vec<ReportEntry>| {
            let now = world.shared.clock.now();
            world.shared.ledger.report(now, &identity(owner), &entries);
        };
        report("b", reported(0, 0));
        assert_eq!(
            world.outcome(&answer).state,
            State::Unknown,
            "a foreign agent"
        );
        report("a", reported(written, read));
        let told = world.outcome(&answer);
        assert_eq!(told.state, state, "{taken} {written} {read}");
        assert_eq!(told.status, None);
        if state != State::Unknown {
            assert_eq!(told.source, Source::AgentReport);
        }
        report("a", reported(0, 0));
        report("a", reported(30, 500));
        if state != State::Unknown {
            assert_eq!(world.outcome(&answer).state, state, "never changes");
        }
        world.end([], &["failed/unknown/BH_APP_STARTING"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_report_of_an_agent_that_is_back_at_once_is_waited_for_and_no_longer() {
    let late = Duration::from_millis(600);
    let in_time = Duration::from_millis(400);
    for (owner, after, delivery) in [
        ("a", in_time, "not_delivered"),
        ("a", late, "unknown"),
        ("b", in_time, "unknown"),
    ] {
        let world = World::with("hold = \"0s\"").await;
        let agent = world.agent("a");
        let mut client = world.client();
        client.post("", "hello").await;
        let mut app = agent.app().await;
        app.begin().await;
        let ledger = Arc::clone(&world.shared.ledger);
        let clock = world.shared.clock;
        let reports = tokio::spawn(async move {
            pass(after).await;
            ledger.report(clock.now(), &identity(owner), &reported(0, 0));
        });
        agent.cut();
        let before = world.elapsed();
        let answer = client.answer().await;
        assert_eq!(answer.error()["reason"], "tunnel_lost");
        assert_eq!(answer.error()["delivery"], delivery, "{owner} {after:?}");
        let waited = world.elapsed().saturating_sub(before);
        assert!(waited <= Duration::from_millis(510), "{waited:?}");
        reports.await.unwrap();
        client.leave();
        let word = if delivery == "unknown" {
            "failed"
        } else {
            "refused"
        };
        let ended = format!("{word}/{delivery}/BH_APP_STARTING");
        world.end([], &[ended.as_str()]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_fell_silent_is_answered_and_completed_later() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    app.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        .await;
    let late = tokio::spawn(async move {
        let app = fenced(app).await;
        pass(SECOND * 5).await;
        app.say("hello").await;
        app
    });
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_TIMEOUT stall delivered answer_begun"
    );
    let told = world.outcome(&answer);
    assert_eq!((told.state, told.status), (State::Answered, Some(200)));
    assert_eq!(told.complete, Some(false));
    pass(SECOND * 6).await;
    assert_eq!(world.outcome(&answer).complete, Some(true));
    late.await.unwrap().end(FinalCause::Reset);
    client.leave();
    world
        .end([agent], &["failed/delivered/BH_APP_TIMEOUT"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_broken_answer_and_one_that_was_cut_are_in_the_ledger() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    app.say("no http at all").await;
    app.cut().await;
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_BROKEN bad_http delivered answer_begun"
    );
    let told = world.outcome(&answer);
    assert_eq!((told.state, told.status), (State::Answered, None));
    client.get("/x").await;
    let mut app = agent.app().await;
    let request = app.request().await;
    app.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun")
        .await;
    let answer = client.head().await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    app.reset();
    client.rest().await;
    let told = world.outcome_of(&request.id()).unwrap();
    assert_eq!((told.state, told.status), (State::Answered, Some(200)));
    assert_eq!(told.complete, Some(false));
    client.leave();
    let outcomes = [
        "aborted/delivered/BH_APP_BROKEN",
        "failed/delivered/BH_APP_BROKEN",
    ];
    world.end([agent], &outcomes).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_left_an_app_at_work_is_in_the_ledger() {
    let world = World::new().await;
    let agent = world.agent_behind("a", Duration::from_millis(400));
    let mut client = world.client();
    client.post("", "hello").await;
    let mut app = agent.app().await;
    let request = app.request().await;
    client.leave();
    app.closed().await;
    pass(SECOND / 5).await;
    assert_eq!(
        world.outcome_of(&request.id()).unwrap().state,
        State::Pending
    );
    app.end(FinalCause::Reset);
    pass(SECOND * 2).await;
    let told = world.outcome_of(&request.id()).unwrap();
    assert_eq!((told.state, told.stage), (State::Unknown, Stage::All));
    assert_eq!(told.failed, None);
    world.end([agent], &["client_left/unknown/"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_answered_or_proven_undelivered_is_not_in_the_ledger() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    let request = app.request().await;
    app.answer("hello").await;
    client.answer().await;
    assert_eq!(world.outcome_of(&request.id()), None);
    agent.cut();
    pass(SECOND * 2).await;
    client.get("/x").await;
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_STARTING no_agent not_delivered none"
    );
    assert_eq!(answer.error()["outcomeUrl"], serde_json::Value::Null);
    assert_eq!(
        world.outcome_of(answer.field("x-request-id").unwrap()),
        None
    );
    client.leave();
    drop(app);
    let outcomes = [
        "answered/delivered/",
        "refused/not_delivered/BH_APP_STARTING",
    ];
    world.end([], &outcomes).await;
}
