//! Exchanges while memory is short: refused before, given up underway, told what the evidence allows.

use bridgehead_protocol::wire::FinalCause;

use crate::pressure::Level;
use crate::request::testing::{World, soon};

#[tokio::test(start_paused = true)]
async fn a_full_gateway_begins_nothing_and_goes_on_once_it_is_not() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    assert!(world.shared.pressure.set(Level::Full));
    client.get("/refused").await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.status, answer.field("retry-after")),
        (503, Some("5"))
    );
    assert_eq!(
        answer.verdict(),
        "SERVICE_UNAVAILABLE overload not_delivered none"
    );
    assert_eq!(answer.field("connection"), Some("close"), "none is kept");
    assert!(world.shared.pressure.set(Level::Calm));
    let mut client = world.client();
    client.get("/served").await;
    let mut app = agent.app().await;
    app.request().await;
    app.answer("ok").await;
    assert_eq!(client.answer().await.text(), "ok");
    client.leave();
    drop(app);
    let outcomes = [
        "answered/delivered/",
        "refused/not_delivered/SERVICE_UNAVAILABLE",
    ];
    world.end([agent], &outcomes).await;
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_is_given_up_is_unknown_as_soon_as_the_app_took_a_byte() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.client();
    client
        .send("POST / HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 500000\r\n\r\n")
        .await;
    client.send(vec![b'x'; 100_000]).await;
    let mut app = agent.app().await;
    app.take_head().await;
    let shared = &world.shared;
    let held = async {
        while shared.loads.held() < 50_000 {
            tokio::task::yield_now().await;
        }
    };
    soon(held).await;
    assert_eq!(world.shared.loads.give_up(1), 1, "the largest is enough");
    assert_eq!(world.shared.loads.give_up(1), 0, "only once");
    app.closed().await;
    app.end(FinalCause::Reset);
    let answer = client.answer().await;
    assert_eq!(answer.status, 503);
    assert_eq!(
        answer.verdict(),
        "SERVICE_UNAVAILABLE overload unknown head"
    );
    client.leave();
    let outcome = "failed/unknown/SERVICE_UNAVAILABLE";
    world.end([agent], &[outcome]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_its_tunnel_gives_up_is_the_gateways_doing_and_not_the_agents() {
    let world = World::new().await;
    let agent = world.agent_held("a", 100_000);
    let mut client = world.client();
    client
        .send("POST / HTTP/1.1\r\nHost: demo.example.com\r\nContent-Length: 500000\r\n\r\n")
        .await;
    client.send(vec![b'x'; 200_000]).await;
    let mut app = agent.app().await;
    app.take_head().await;
    app.closed().await;
    app.end(FinalCause::Reset);
    let answer = client.answer().await;
    assert_eq!(
        answer.verdict(),
        "SERVICE_UNAVAILABLE overload unknown head"
    );
    client.leave();
    let outcome = "failed/unknown/SERVICE_UNAVAILABLE";
    world.end([agent], &[outcome]).await;
}

#[tokio::test(start_paused = true)]
async fn bytes_that_a_tunnel_gave_up_unread_end_in_a_reset_although_the_app_had_said_all() {
    let world = World::new().await;
    let agent = world.agent_held("a", 100_000);
    let mut client = world.tcp_with_room(16);
    let mut app = agent.app().await;
    app.say(vec![b'x'; 200_000]).await;
    app.finish();
    app.closed().await;
    app.end(FinalCause::Reset);
    let got = client.rest().await.len();
    assert!(got < 200_000, "{got}");
    assert!(client.was_reset(), "{got} bytes look like the whole");
    let outcome = "aborted/delivered/SERVICE_UNAVAILABLE";
    world.end([agent], &[outcome]).await;
}
