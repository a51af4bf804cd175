//! Connections of bytes: how they end, and who is blamed for it.

use std::pin::pin;

use bridgehead_protocol::wire::FinalCause;

use crate::request::testing::World;

#[tokio::test(start_paused = true)]
async fn a_connection_whose_sides_both_say_all_ends_in_order() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.tcp();
    let mut app = agent.app().await;
    client.send("all of it").await;
    assert_eq!(app.take(9).await, b"all of it");
    client.half_close().await;
    app.fin().await;
    app.say("and back").await;
    app.finish();
    app.close();
    assert_eq!(client.rest().await, b"and back");
    assert!(!client.was_reset());
    world.end([agent], &["answered//"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_dropped_in_the_middle_ends_by_a_reset() {
    let world = World::new().await;
    let agent = world.agent("a");
    let (mut client, serve) = world.tcp_served(1024);
    let mut serve = Box::pin(serve);
    let mut app = {
        let opened = async {
            let app = agent.app().await;
            app.say("half of").await;
            assert_eq!(client.bytes(7).await, b"half of");
            app
        };
        tokio::select! {
            biased;
            () = &mut serve => panic!("it ended"),
            app = opened => app,
        }
    };
    drop(serve);
    assert!(client.rest().await.is_empty());
    assert!(client.was_reset());
    app.closed().await;
    app.end(FinalCause::Reset);
    world.end([agent], &["client_left//"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_breaks_is_not_taken_for_its_app() {
    let world = World::new().await;
    let agent = world.agent("a");
    let client = world.tcp();
    let mut app = agent.app().await;
    client.leave();
    let ends = async {
        app.say("to nobody").await;
        app.closed().await;
        app.end(FinalCause::Reset);
    };
    pin!(ends).await;
    world.end([agent], &["client_left/delivered/"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_app_that_breaks_is_blamed() {
    let world = World::new().await;
    let agent = world.agent("a");
    let mut client = world.tcp();
    let app = agent.app().await;
    app.say("half").await;
    assert_eq!(client.bytes(4).await, b"half");
    app.reset();
    assert!(client.rest().await.is_empty());
    assert!(client.was_reset());
    world
        .end([agent], &["aborted/delivered/BH_APP_BROKEN"])
        .await;
}
