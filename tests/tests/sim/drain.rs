//! A drain may take as long as the gateway's grace says: nobody in between ends it sooner.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::journal::Journal;
use crate::net::{End, Net};
use crate::programs::{Programs, config};
use crate::shape::SHAPES;

/// Ten times what an agent would grant of its own accord.
const GRACE: Duration = Duration::from_secs(300);
/// Time for agents to join, and for an echo.
const SOON: Duration = Duration::from_secs(5);

/// Sends a text through the app and back.
async fn echo(client: &mut End, text: &[u8]) {
    client.write_all(text).await.expect("it is taken");
    let mut back = vec![0; text.len()];
    let read = timeout(SOON, client.read_exact(&mut back)).await;
    read.expect("an echo in time").expect("an echo");
    assert_eq!(back, text);
}

#[test]
fn a_connection_outlives_the_beginning_of_a_drain_by_as_much_as_the_grace_allows() {
    let shape = SHAPES.iter().find(|shape| shape.name == "tcp");
    let shape = shape.expect("a shape with connections that do not end");
    let mut config = config(shape);
    config.gateway.grace = GRACE;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let net = Net::new(Journal::new(&[]));
        let programs = Programs::start(net, *shape, Arc::new(config), 1);
        sleep(SOON).await;
        let mut client = programs.client().expect("a gateway");
        echo(&mut client, b"before").await;
        programs.gateway().expect("a gateway").drain();
        sleep(GRACE - SOON).await;
        echo(&mut client, b"long after").await;
    });
}
