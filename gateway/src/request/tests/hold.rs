//! Who is held while the app is away, and how many.

use std::time::Duration;

use crate::request::testing::{Client, World, pass};

const SECOND: Duration = Duration::from_secs(1);

/// What somebody is told who may not wait: what the miss itself would have said.
const NO_AGENT: &str = "BH_APP_STARTING no_agent not_delivered none";

#[tokio::test(start_paused = true)]
async fn a_client_has_its_share_of_the_line_held_and_the_next_one_is_told_at_once() {
    let world = World::with("queue = 4\nclient_share = \"50%\"").await;
    world.app_was_reached();
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = world.client();
        client.post("", "hello").await;
        held.push(client);
    }
    pass(SECOND).await;
    let mut more = world.client();
    for _ in 0..3 {
        more.get("/x").await;
        let answer = more.answer().await;
        assert_eq!((answer.status, answer.verdict().as_str()), (503, NO_AGENT));
        assert_eq!(answer.field("retry-after"), Some("2"));
    }
    assert_eq!(world.elapsed(), SECOND, "nobody waits to be told");
    more.leave();
    // In between two tries they are as many as they were.
    let shown = || world.metrics.render().unwrap();
    for (series, value) in [
        ("held{app=\"demo\"}", 2),
        ("in_flight{app=\"demo\"}", 0),
        ("queue_depth{app=\"demo\"}", 0),
        ("holds_total{app=\"demo\",result=\"refused\"}", 3),
        ("client_share_total{app=\"demo\",places=\"queue\"}", 3),
    ] {
        let line = format!("bridgehead_{series} {value}\n");
        assert!(shown().contains(&line), "no {line} in {}", shown());
    }
    let agent = world.agent("a");
    for client in &mut held {
        let mut app = agent.app().await;
        app.request().await;
        app.answer("back").await;
        assert_eq!(client.answer().await.text(), "back");
    }
    assert!(shown().contains("bridgehead_held{app=\"demo\"} 0\n"));
    held.into_iter().for_each(Client::leave);
    let answered = ["answered/delivered/"; 2].into_iter();
    let refused = ["refused/not_delivered/BH_APP_STARTING"; 3];
    let outcomes: Vec<_> = answered.chain(refused).collect();
    world.end([agent], &outcomes).await;
}

#[tokio::test(start_paused = true)]
async fn who_leaves_while_it_is_held_makes_room_for_the_next_one() {
    let world = World::with("queue = 1").await;
    world.app_was_reached();
    let (mut first, mut second) = (world.client(), world.client());
    first.post("", "hello").await;
    pass(SECOND).await;
    second.get("/x").await;
    assert_eq!(second.answer().await.verdict(), NO_AGENT);
    first.leave();
    pass(SECOND).await;
    second.get("/x").await;
    assert_eq!(second.answer().await.verdict(), NO_AGENT);
    assert_eq!(
        world.elapsed().as_secs(),
        12,
        "it was held, and for how long"
    );
    second.leave();
    let refused = ["refused/not_delivered/BH_APP_STARTING"; 2].into_iter();
    let outcomes: Vec<_> = ["client_left/not_delivered/"]
        .into_iter()
        .chain(refused)
        .collect();
    world.end([], &outcomes).await;
}
