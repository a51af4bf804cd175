//! A gateway that has no descriptor left: it waits instead of spinning, serves who is in, and goes on
//! as soon as some are free.

#![cfg(target_os = "linux")]

use std::process::Command;
use std::time::Duration;

use bridgehead_tests::app::{self, App};
use bridgehead_tests::process::Process;
use bridgehead_tests::wait;
use bridgehead_tests::world::setup;
use tokio::net::TcpStream;

use crate::ALONE;

/// From now on the process has no more descriptors than these.
fn limit(process: &Process, descriptors: usize) {
    let mut command = Command::new("prlimit");
    command.args(["--pid", &process.id().to_string()]);
    command.arg(format!("--nofile={descriptors}:{descriptors}"));
    let done = command.status().expect("prlimit of util-linux is there");
    assert!(done.success(), "the limit is set");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_descriptors_the_gateway_waits_and_serves_on_and_lets_newcomers_in_when_some_are_free()
 {
    let _alone = ALONE.lock().await;
    let app = App::start(app::echo).await;
    let mut world = setup().start().await;
    let _agent = world.join("a1", &[("demo", &app.target())]).await;
    let (host, mut inside) = (world.host("demo"), world.h1().await);
    assert_eq!(inside.ask("GET", "/", &host, &[], b"").await.status, 200);
    let room = world.gateway.descriptors() + 8;
    limit(&world.gateway, room);
    // The kernel shakes hands with all of them; the gateway can take eight.
    let mut crowd = Vec::new();
    for _ in 0..40 {
        let stream = TcpStream::connect(world.places.public).await;
        crowd.push(stream.expect("the kernel takes it"));
    }
    let full = || async { (world.gateway.descriptors() >= room).then_some(()) };
    wait::until(wait::SOON, "every descriptor being used", full).await;
    let before = world.gateway.processor();
    wait::dawdle(Duration::from_secs(2)).await;
    let used = world.gateway.processor() - before;
    assert!(
        used < Duration::from_millis(500),
        "it spins: {used:?} in 2 s"
    );
    assert_eq!(inside.ask("GET", "/", &host, &[], b"").await.status, 200);
    assert!(world.gateway.is_running());
    drop(crowd);
    assert_eq!(world.get("/after").await.status, 200);
}
