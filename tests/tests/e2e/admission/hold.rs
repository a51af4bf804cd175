//! How many wait for an app that is away, and whose they are.

use bridgehead_tests::app::{self, App};
use bridgehead_tests::h2c::{self, H2};
use tokio::task::JoinSet;

use super::{admission, demo, until};
use crate::support::{One, neighbour, one};

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_client_of_an_app_that_is_away_has_its_share_held_and_a_neighbour_waits_beside_it() {
    const MANY: usize = 60;
    let limits = "hold = \"30s\"\nin_flight = 200\nqueue = 6\nclient_share = \"50%\"";
    let One {
        world,
        agent: _agent,
        app,
    } = one(demo(limits), app::echo).await;
    assert_eq!(world.get("/before").await.status, 200);
    let addr = app.stop().await;
    let host = world.host("demo");
    let mut greedy = world.h2().await;
    let mut asked = JoinSet::new();
    for n in 0..MANY {
        let request = H2::get(&host, &format!("/greedy{n}"));
        asked.spawn(h2c::answer(greedy.open(request, true).await.0));
    }
    // Three of the six who may wait are its own; everybody else of it learns at once how things are.
    for _ in 3..MANY {
        let told = asked.join_next().await.expect("asked");
        let told = told.expect("no panic").expect("an answer");
        assert_eq!(told.head.status(), 503);
        assert_eq!(told.header("bridgehead-code"), Some("BH_APP_STARTING"));
        assert_eq!(told.header("bridgehead-delivery"), Some("not_delivered"));
    }
    until(&world, "held", 3).await;
    let mut other = neighbour(&world).await;
    other.request("POST", "/other", &host, &[], b"x").await;
    until(&world, "held", 4).await;
    let shown = admission(&world).await;
    assert_eq!(
        (&shown["held"], &shown["queue_limit"]),
        (&4.into(), &6.into())
    );

    let back = App::start_at(addr, app::echo).await;
    assert_eq!(other.answer("POST").await.status, 200);
    while let Some(answer) = asked.join_next().await {
        let answer = answer.expect("no panic").expect("an answer");
        assert_eq!(answer.head.status(), 200);
    }
    assert_eq!(back.text().matches("/greedy").count(), 3);
    until(&world, "held", 0).await;
    let refused = [("app", "demo"), ("result", "refused")];
    let after = world.metrics().await;
    assert_eq!(after.sum("holds_total", &refused), (MANY - 3) as f64);
}
