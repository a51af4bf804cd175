//! What is tried again, where, when, and what never is.

use std::time::Duration;

use bridgehead_protocol::wire::{FinalCause, RefusedReason};

use crate::request::testing::{Agent, App, Client, World, pass};

const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(10);

/// A client and the connection on which its first exchange went well.
async fn kept(world: &World, agent: &Agent) -> (Client, App) {
    let mut client = world.client();
    client.get("/first").await;
    let mut app = agent.app().await;
    app.request().await;
    app.answer("first").await;
    client.answer().await;
    (client, app)
}

#[tokio::test(start_paused = true)]
async fn a_kept_connection_serves_the_next_exchange() {
    let world = World::new().await;
    let agent = world.agent("a");
    let (mut client, mut app) = kept(&world, &agent).await;
    for _ in 0..2 {
        client.post("", "hello").await;
        let request = app.request().await;
        assert_eq!(request.body, b"hello");
        app.answer("again").await;
        assert_eq!(client.answer().await.text(), "again");
        assert_eq!(world.exchange(&request.id())["app_conn"], "reused");
    }
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"; 3]).await;
}

#[tokio::test(start_paused = true)]
async fn an_unsafe_method_does_not_use_a_connection_that_was_idle_for_over_a_second() {
    let world = World::new().await;
    let agent = world.agent("a");
    let (mut client, mut old) = kept(&world, &agent).await;
    pass(SECOND + MOMENT).await;
    client.post("", "x").await;
    let mut app = agent.app().await;
    app.request().await;
    app.answer("fresh").await;
    client.answer().await;
    // It would only stand in the way of an app that serves one connection at a time.
    old.closed().await;
    drop(old);
    pass(SECOND * 2).await;
    client.get("/safe").await;
    app.request().await;
    app.answer("kept").await;
    assert_eq!(client.answer().await.text(), "kept");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"; 3]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stale_connection_is_replaced_at_once_for_every_method() {
    // Closed by its FIN, by a reset, and found by the freshness check.
    for cause in [
        FinalCause::AppClosed,
        FinalCause::AppReset,
        FinalCause::Stale,
    ] {
        let world = World::with("hold = \"0s\"").await;
        let agent = world.agent_behind("a", MOMENT);
        let (mut client, mut app) = kept(&world, &agent).await;
        let since = world.elapsed();
        client.post("", "hello").await;
        app.begin().await;
        app.end(cause);
        let mut fresh = agent.app().await;
        let request = fresh.request().await;
        assert_eq!(request.body, b"hello");
        fresh.answer("second").await;
        assert_eq!(client.answer().await.text(), "second");
        let spent = world.elapsed() - since;
        assert!(spent <= MOMENT * 8, "{spent:?}: a pause was made");
        let seen = world.exchange(&request.id());
        assert_eq!(
            (&seen["retries"], &seen["bytes_in"]),
            (&1.into(), &5.into())
        );
        client.leave();
        drop(fresh);
        world.end([agent], &["answered/delivered/"; 2]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_was_read_in_part_comes_again_from_its_beginning() {
    let world = World::new().await;
    let agent = world.agent_behind("a", MOMENT);
    let (mut client, mut app) = kept(&world, &agent).await;
    let head = "POST / HTTP/1.1\r\nHost: demo.example.com\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(format!("{head}3\r\nabc\r\n")).await;
    app.begin().await;
    // The gateway waits for the client when it hears of the end.
    pass(SECOND).await;
    app.end(FinalCause::Stale);
    let mut fresh = agent.accept().await;
    assert!(
        fresh.open.remaining > SECOND * 4,
        "{:?}",
        fresh.open.remaining
    );
    pass(MOMENT * 10).await;
    fresh.open();
    client.send("4\r\ndefg\r\n0\r\nX-Sum: 1\r\n\r\n").await;
    let begin = fresh.begin().await;
    assert!(begin.remaining > SECOND * 20, "{:?}", begin.remaining);
    let request = fresh.request().await;
    assert_eq!(request.body, b"abcdefg");
    assert_eq!(request.trailers, "x-sum: 1\r\n");
    fresh.answer("second").await;
    assert_eq!(client.answer().await.text(), "second");
    client.leave();
    drop(fresh);
    world.end([agent], &["answered/delivered/"; 2]).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_of_64_kib_is_kept_and_one_byte_more_is_not() {
    let body: String = (0..65_536u32)
        .map(|i| char::from(b'a' + (i * 7 % 26) as u8))
        .collect();
    let world = World::with("hold = \"0s\"").await;
    let agent = world.agent_behind("a", MOMENT);
    let (mut client, mut app) = kept(&world, &agent).await;
    client.post("", &body).await;
    app.begin().await;
    pass(SECOND / 2).await;
    app.end(FinalCause::Stale);
    let mut fresh = agent.app().await;
    assert!(fresh.request().await.body == body.as_bytes());
    fresh.answer("second").await;
    client.answer().await;
    client.post("", &(body + "!")).await;
    fresh.begin().await;
    pass(SECOND / 2).await;
    fresh.end(FinalCause::Stale);
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_STARTING stale_connection not_delivered none"
    );
    client.leave();
    let outcomes = [
        "answered/delivered/",
        "answered/delivered/",
        "refused/not_delivered/BH_APP_STARTING",
    ];
    world.end([agent], &outcomes).await;
}

#[tokio::test(start_paused = true)]
async fn another_agent_is_tried_at_once() {
    let world = World::with("hold = \"0s\"").await;
    let (a, b) = (world.agent("a"), world.agent("b"));
    let mut client = world.client();
    client.post("", "hello").await;
    let (first, second) = tokio::select! {
        app = a.accept() => (app, &b),
        app = b.accept() => (app, &a),
    };
    first.refuse(RefusedReason::ConnectRefused);
    let mut app = second.app().await;
    assert_eq!(app.request().await.body, b"hello");
    app.answer("done").await;
    assert_eq!(client.answer().await.text(), "done");
    assert!(world.elapsed() < MOMENT, "{:?}", world.elapsed());
    client.leave();
    drop(app);
    world.end([a, b], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_that_is_lost_before_the_first_byte_is_replaced_by_another() {
    let world = World::with("hold = \"0s\"").await;
    let (a, b) = (world.agent("a"), world.agent("b"));
    let mut client = world.client();
    client.post("", "hello").await;
    let (lost, other) = tokio::select! {
        app = a.accept() => { drop(app); (a, b) },
        app = b.accept() => { drop(app); (b, a) },
    };
    lost.lose();
    let mut app = other.app().await;
    app.request().await;
    app.answer("done").await;
    assert_eq!(client.answer().await.text(), "done");
    client.leave();
    drop(app);
    world.end([other], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_may_have_been_delivered_is_never_repeated() {
    let world = World::new().await;
    let (a, b) = (world.agent("a"), world.agent("b"));
    let mut client = world.client();
    client.get("/x").await;
    let mut app = tokio::select! {
        app = a.app() => app,
        app = b.app() => app,
    };
    app.take(1).await;
    app.close();
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_STARTING closed_before_head unknown part_of_head"
    );
    assert!(a.is_left_alone(SECOND * 20).await && b.is_left_alone(SECOND).await);
    client.leave();
    world.end([a, b], &["failed/unknown/BH_APP_STARTING"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_declared_read_is_repeated_once_on_a_fresh_connection() {
    let world = World::with("repeat_reads = true").await;
    let agent = world.agent("a");
    let (mut client, mut app) = kept(&world, &agent).await;
    client.get("/read").await;
    app.request().await;
    app.close();
    let mut fresh = agent.app().await;
    fresh.request().await;
    fresh.close();
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_STARTING closed_before_head unknown all"
    );
    assert!(agent.is_left_alone(SECOND * 20).await);
    client.leave();
    let outcomes = ["answered/delivered/", "failed/unknown/BH_APP_STARTING"];
    world.end([agent], &outcomes).await;
}

#[tokio::test(start_paused = true)]
async fn a_post_is_no_declared_read() {
    let world = World::with("repeat_reads = true").await;
    let agent = world.agent("a");
    let (mut client, mut app) = kept(&world, &agent).await;
    client.post("", "x").await;
    app.request().await;
    app.close();
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_STARTING closed_before_head unknown all"
    );
    client.leave();
    let outcomes = ["answered/delivered/", "failed/unknown/BH_APP_STARTING"];
    world.end([agent], &outcomes).await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_was_never_reached_is_not_waited_for() {
    let world = World::new().await;
    let mut client = world.client();
    client.get("/x").await;
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_STARTING no_agent not_delivered none"
    );
    assert_eq!(world.elapsed(), Duration::ZERO);
    client.leave();
    world
        .end([], &["refused/not_delivered/BH_APP_STARTING"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_is_away_is_waited_for_until_the_hold_is_over() {
    let world = World::new().await;
    world.app_was_reached();
    let mut client = world.client();
    client.get("/x").await;
    pass(SECOND).await;
    assert_eq!(world.load(), (0, 0), "a held exchange is not in flight");
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_STARTING no_agent not_delivered none"
    );
    assert_eq!(world.elapsed().as_secs(), 10);
    assert!(answer.text().contains("without an agent since "));
    client.leave();
    world
        .end([], &["refused/not_delivered/BH_APP_STARTING"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_comes_back_gets_what_was_held_for_it() {
    let world = World::new().await;
    world.app_was_reached();
    let mut client = world.client();
    client.post("", "hello").await;
    pass(SECOND * 3).await;
    let agent = world.agent("a");
    let mut app = agent.app().await;
    let request = app.request().await;
    assert_eq!(request.body, b"hello");
    pass(SECOND * 5).await;
    app.answer("done").await;
    assert_eq!(client.answer().await.text(), "done");
    let held = world.exchange(&request.id())["held"].as_f64().unwrap();
    assert!((3000.0..3600.0).contains(&held), "{held}");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn right_after_a_start_every_configured_app_counts_as_seen() {
    let world = World::starting_with("");
    let mut client = world.client();
    client.get("/x").await;
    pass(SECOND * 5).await;
    let agent = world.agent("a");
    let mut app = agent.app().await;
    app.request().await;
    app.answer("done").await;
    assert_eq!(client.answer().await.text(), "done");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_refuses_while_it_starts_is_tried_until_it_listens() {
    let world = World::new().await;
    world.app_was_reached();
    let agent = world.agent("a");
    let mut client = world.client();
    client.post("", "hello").await;
    for _ in 0..4 {
        agent.accept().await.refuse(RefusedReason::ConnectRefused);
    }
    let mut app = agent.app().await;
    app.request().await;
    app.answer("done").await;
    assert_eq!(client.answer().await.text(), "done");
    assert!(world.elapsed() < SECOND, "{:?}", world.elapsed());
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_keeps_refusing_is_told_with_how_often_and_since_when() {
    let world = World::new().await;
    world.app_was_reached();
    let agent = world.agent("a");
    let mut client = world.client();
    client.get("/x").await;
    let refusing = async {
        loop {
            agent.accept().await.refuse(RefusedReason::ConnectRefused);
        }
    };
    let answer = tokio::select! {
        answer = client.answer() => answer,
        () = refusing => unreachable!(),
    };
    assert_eq!(
        answer.verdict(),
        "BH_APP_STARTING connect_refused not_delivered none"
    );
    assert_eq!(world.elapsed().as_secs(), 10);
    assert!(answer.text().contains(" times since "), "{}", answer.text());
    client.leave();
    world
        .end([agent], &["refused/not_delivered/BH_APP_STARTING"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_held_body_stays_with_its_client() {
    let world = World::new().await;
    world.app_was_reached();
    let mut client = world.client_with_room(1024);
    let uploading = tokio::spawn(async move {
        client.post("", &"x".repeat(100_000)).await;
        client
    });
    pass(SECOND * 3).await;
    assert!(!uploading.is_finished());
    let agent = world.agent("a");
    let mut app = agent.app().await;
    let request = app.request().await;
    assert_eq!(request.body.len(), 100_000);
    app.answer("done").await;
    let mut client = uploading.await.unwrap();
    assert_eq!(client.answer().await.text(), "done");
    client.leave();
    drop(app);
    world.end([agent], &["answered/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_during_the_hold_is_forgotten() {
    let world = World::new().await;
    world.app_was_reached();
    let mut client = world.client();
    client.post("", "hello").await;
    pass(SECOND).await;
    client.leave();
    pass(SECOND).await;
    let agent = world.agent("a");
    assert!(agent.is_left_alone(SECOND * 20).await);
    world.end([agent], &["client_left/not_delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_repeated_after_the_first_window() {
    let world = World::with("hold = \"60s\"\nfirst_frame_window = \"3s\"").await;
    world.app_was_reached();
    let mut client = world.client();
    client.get("/x").await;
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "BH_APP_STARTING no_agent not_delivered none"
    );
    assert_eq!(world.elapsed().as_secs(), 3);
    client.leave();
    world
        .end([], &["refused/not_delivered/BH_APP_STARTING"])
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_draining_agent_finishes_and_gets_nothing_new() {
    let world = World::new().await;
    let (a, b) = (world.agent("a"), world.agent("b"));
    let mut client = world.client();
    client.get("/1").await;
    let (mut app, draining, other) = tokio::select! {
        app = a.app() => (app, &a, &b),
        app = b.app() => (app, &b, &a),
    };
    app.request().await;
    draining.drain();
    pass(MOMENT).await;
    app.answer("finished").await;
    assert_eq!(client.answer().await.text(), "finished");
    drop(app);
    client.get("/2").await;
    let mut app = other.app().await;
    app.request().await;
    app.answer("elsewhere").await;
    assert_eq!(client.answer().await.text(), "elsewhere");
    client.leave();
    drop(app);
    world.end([a, b], &["answered/delivered/"; 2]).await;
}

#[tokio::test(start_paused = true)]
async fn a_crowd_that_is_held_asks_in_turns_and_is_released_in_turns() {
    // All of the crowd has one address.
    let world = World::with("client_share = \"100%\"").await;
    world.app_was_reached();
    let agent = world.agent("a");
    let mut clients = Vec::new();
    for _ in 0..200 {
        let mut client = world.client();
        client.get("/x").await;
        clients.push(client);
    }
    let mut asked = 0;
    while world.elapsed() < SECOND * 4 {
        agent.accept().await.refuse(RefusedReason::ConnectRefused);
        asked += 1;
    }
    assert!(
        (300..=200 + 50 * 5).contains(&asked),
        "{asked} connections asked for"
    );
    // The next one finds the app back.
    let back = world.elapsed();
    for _ in 0..200 {
        let mut app = agent.app().await;
        tokio::spawn(async move {
            app.request().await;
            app.say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
                .await;
            app.close();
        });
    }
    for client in &mut clients {
        assert_eq!(client.answer().await.text(), "ok");
    }
    let spread = world.elapsed() - back;
    assert!(spread < SECOND, "{spread:?}");
    clients.into_iter().for_each(Client::leave);
    world.end([agent], &["answered/delivered/"; 200]).await;
}
