//! Tests of what connecting teaches, with real sockets.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};

use super::*;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn table(target: &str) -> Arc<AppTable> {
    let spec = AppSpec::new("demo", Target::parse(target).expect(target));
    Arc::new(AppTable::build(&[spec], AppHealth::Unknown).expect("table"))
}

/// Binds without listening: a port that refuses until `listen` is called.
fn bound() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().expect("socket");
    socket
        .bind("127.0.0.1:0".parse().expect("address"))
        .expect("bind");
    let port = socket.local_addr().expect("address").port();
    (socket, port)
}

#[tokio::test]
async fn a_stream_to_an_unknown_app_or_of_the_wrong_kind_is_refused() {
    let table = table("3000");
    for (name, kind) in [("other", AppKind::Http1), ("demo", AppKind::Tcp)] {
        let error = table
            .connect(name, kind, soon())
            .await
            .expect_err("no such app");
        assert_eq!(error.reason, RefusedReason::NoSuchApp);
    }
    assert_eq!(*table.changes().borrow(), 1, "nothing to announce");
}

#[tokio::test]
async fn a_refused_connection_makes_the_app_failing_and_announces_it_once() {
    let (_kept, port) = bound();
    let table = table(&port.to_string());
    assert_eq!(table.offers()[0].health, AppHealth::Unknown);
    for _ in 0..3 {
        table
            .connect("demo", AppKind::Http1, soon())
            .await
            .expect_err("refused");
    }
    assert_eq!(table.offers()[0].health, AppHealth::Failing);
    assert_eq!(*table.changes().borrow(), 2);
}

#[tokio::test]
async fn an_app_that_comes_is_announced_and_then_left_alone() {
    let (socket, port) = bound();
    let table = table(&port.to_string());
    let mut changes = table.changes();
    let probe = tokio::spawn(super::super::probe::watch(Arc::clone(&table)));
    changes.changed().await.expect("failing");
    assert_eq!(table.offers()[0].health, AppHealth::Failing);
    let opened = Instant::now();
    let listener: TcpListener = socket.listen(16).expect("listen");
    changes.changed().await.expect("ready");
    assert_eq!(table.offers()[0].health, AppHealth::Ready);
    // Generous against a busy machine; the pause itself is asserted by the pure tests.
    assert!(opened.elapsed() < Duration::from_secs(2));
    let (_, _) = listener.accept().await.expect("the probe's connection");
    assert_eq!(table.iter().next().and_then(App::next_probe), None);
    probe.abort();
}
