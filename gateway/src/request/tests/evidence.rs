//! What the gateway says of a request that got no answer is exactly what it can prove.

use std::time::Duration;

use bridgehead_protocol::wire::{FinalCause, RefusedReason};

use crate::request::testing::{App, World, pass};

const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(100);

#[tokio::test(start_paused = true)]
async fn every_refusal_of_a_connection_is_not_delivered() {
    for (reason, word) in [
        (RefusedReason::ConnectRefused, "connect_refused"),
        (RefusedReason::ConnectTimeout, "connect_timeout"),
        (RefusedReason::ConnectReset, "connect_reset"),
        (RefusedReason::TlsFailed, "tls_failed"),
        (RefusedReason::NoSuchApp, "no_such_app"),
        (RefusedReason::Draining, "agent_draining"),
        (RefusedReason::Limit, "agent_limit"),
        (RefusedReason::Expired, "expired"),
        (RefusedReason::Unreachable, "unreachable"),
    ] {
        for method in ["GET", "POST"] {
            let world = World::with("hold = \"0s\"").await;
            let agent = world.agent("a");
            let mut client = world.client();
            client
                .send(format!(
                    "{method} / HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 0\r\n\r\n"
                ))
                .await;
            agent.accept().await.refuse(reason);
            let answer = client.answer().await;
            assert_eq!(answer.status, 503);
            assert_eq!(
                answer.verdict(),
                format!("BH_APP_STARTING {word} not_delivered none")
            );
            assert_eq!(answer.field("retry-after"), Some("2"));
            assert_eq!(answer.error()["retry"]["write"], "safe");
            client.leave();
            world
                .end([agent], &["refused/not_delivered/BH_APP_STARTING"])
                .await;
        }
    }
}

/// A POST of five bytes, of which the app takes `head` and `body`, then does as `end` says.
async fn verdict_after(head: Option<usize>, body: usize, end: impl FnOnce(App)) -> String {
    let world = World::with("hold = \"0s\"").await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "hello").await;
    let mut app = agent.app().await;
    match head {
        Some(count) => drop(app.take(count).await),
        None => drop(app.take_head().await),
    }
    app.take(body).await;
    end(app);
    let answer = client.answer().await;
    assert_eq!(answer.status, 503);
    let outcome = format!(
        "{}/{}/BH_APP_STARTING",
        if answer.verdict().contains("not_delivered") {
            "refused"
        } else {
            "failed"
        },
        answer.error()["delivery"].as_str().unwrap()
    );
    client.leave();
    world.end([agent], &[&outcome]).await;
    answer.verdict()
}

#[tokio::test(start_paused = true)]
async fn an_app_that_closes_without_a_word_is_judged_by_what_it_took() {
    for (head, body, words) in [
        (Some(0), 0, "not_delivered none"),
        (Some(7), 0, "unknown part_of_head"),
        (None, 0, "unknown head"),
        (None, 3, "unknown body"),
        (None, 5, "unknown all"),
    ] {
        let expected = format!("BH_APP_STARTING closed_before_head {words}");
        assert_eq!(verdict_after(head, body, App::close).await, expected);
        assert_eq!(verdict_after(head, body, App::reset).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_stops_is_judged_by_what_the_app_took() {
    let taken = verdict_after(None, 5, |app| app.end(FinalCause::Stopping)).await;
    assert_eq!(taken, "BH_APP_STARTING agent_draining unknown all");
    let untouched = verdict_after(Some(0), 0, |app| app.end(FinalCause::Expired)).await;
    assert_eq!(untouched, "BH_APP_STARTING expired not_delivered none");
}

#[tokio::test(start_paused = true)]
async fn a_lost_tunnel_leaves_open_what_the_app_saw_and_says_how_far_it_got() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "hello").await;
    let mut app = agent.app().await;
    app.request().await;
    pass(MOMENT).await;
    agent.lose();
    let answer = client.answer().await;
    assert_eq!(answer.verdict(), "BH_APP_STARTING tunnel_lost unknown all");
    client.leave();
    world.end([], &["failed/unknown/BH_APP_STARTING"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_lost_before_the_first_byte_left_proves_that_nothing_was_delivered() {
    let world = World::with("hold = \"0s\"").await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "hello").await;
    drop(agent.accept().await);
    agent.lose();
    let answer = client.answer().await;
    let words = answer.verdict();
    assert!(words.ends_with("not_delivered none"), "{words}");
    client.leave();
    world
        .end([], &["refused/not_delivered/BH_APP_STARTING"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_fell_silent_is_noticed_in_six_seconds() {
    let world = World::with("hold = \"0s\"").await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    pass(MOMENT).await;
    agent.freeze();
    let answer = client.answer().await;
    assert_eq!(answer.verdict(), "BH_APP_STARTING tunnel_lost unknown all");
    assert!(world.elapsed() <= SECOND * 7, "{:?}", world.elapsed());
    client.leave();
    agent.lose();
    world.end([], &["failed/unknown/BH_APP_STARTING"]).await;
}

#[tokio::test(start_paused = true)]
async fn half_an_answer_is_delivered_and_told_as_broken() {
    for said in [
        "H",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 103 Early Hints\r\n\r\n",
    ] {
        let world = World::new().await;
        let agent = world.agent("a");
        let mut client = world.client();
        client.post("", "hello").await;
        let mut app = agent.app().await;
        app.request().await;
        app.say(said).await;
        app.close();
        let answer = client.answer().await;
        assert_eq!(answer.status, 502);
        assert_eq!(
            answer.verdict(),
            "BH_APP_BROKEN app_closed delivered answer_begun"
        );
        assert!(answer.field("retry-after").is_none());
        assert!(agent.is_left_alone(SECOND).await, "nothing is repeated");
        client.leave();
        world
            .end([agent], &["failed/delivered/BH_APP_BROKEN"])
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_lost_in_an_answer_that_was_held_is_told_as_broken() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    app.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        .await;
    pass(MOMENT).await;
    agent.lose();
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_BROKEN tunnel_lost delivered answer_begun"
    );
    client.leave();
    world.end([], &["failed/delivered/BH_APP_BROKEN"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_lost_in_an_answer_that_is_out_cuts_it() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let mut app = agent.app().await;
    app.request().await;
    app.say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
        .await;
    pass(MOMENT).await;
    agent.lose();
    let answer = client.answer().await;
    assert_eq!((answer.text().as_str(), answer.whole), ("he", false));
    client.leave();
    world.end([], &["aborted/delivered/BH_APP_BROKEN"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_declared_read_that_may_have_been_delivered_once_is_never_told_as_undelivered() {
    let world = World::with("repeat_reads = true\nhold = \"0s\"").await;
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/1").await;
    let mut app = agent.app().await;
    app.request().await;
    app.answer("one").await;
    client.answer().await;
    client.get("/2").await;
    app.request().await;
    app.close();
    agent.accept().await.refuse(RefusedReason::ConnectRefused);
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_STARTING connect_refused unknown all"
    );
    client.leave();
    let outcomes = ["answered/delivered/", "failed/unknown/BH_APP_STARTING"];
    world.end([agent], &outcomes).await;
}

#[tokio::test(start_paused = true)]
async fn leftovers_of_a_connection_are_never_an_answer() {
    let world = World::new().await;
    let agent = world.agent_behind("a", MOMENT);
    let mut client = world.client();
    client.get("/1").await;
    let mut app = agent.app().await;
    app.request().await;
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none";
    app.say(answer).await;
    client.answer().await;
    // It writes what nobody asked for just when the next exchange is on its way.
    client.get("/2").await;
    pass(MOMENT / 2).await;
    app.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        .await;
    let begin = app.begin().await;
    assert_eq!(begin.expect_read, Some(answer.len() as u64));
    app.end(FinalCause::Stale);
    let mut fresh = agent.app().await;
    fresh.request().await;
    fresh.answer("two").await;
    assert_eq!(client.answer().await.text(), "two");
    client.leave();
    drop(fresh);
    let outcomes = ["answered/delivered/"; 2];
    world.end([agent], &outcomes).await;
}
