//! One connection over real sockets, where the kernel's resets and closes matter.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::accept::Limits;
use crate::accept::testing::{Scripted, info};
use crate::shutdown::Signal;

/// A real socket, served until it ends.
async fn over_tcp() -> (TcpStream, Scripted, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let client = TcpStream::connect(address).await.expect("a connection");
    let (io, _) = listener.accept().await.expect("a connection");
    let corridor = Scripted::default();
    let serving = corridor.clone();
    let server = tokio::spawn(async move {
        let limits = Arc::new(Limits::default());
        super::serve(
            io,
            BytesMut::new(),
            &info(),
            &serving,
            &limits,
            Signal::never(),
        )
        .await;
    });
    (client, corridor, server)
}

#[tokio::test]
async fn over_tcp_a_closed_client_is_told_from_one_that_waits() {
    for path in ["/late", "/events"] {
        let (mut client, corridor, server) = over_tcp().await;
        let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        client.write_all(text.as_bytes()).await.expect("a write");
        if path == "/events" {
            let mut bytes = vec![0; 1024];
            while !bytes.windows(5).any(|w| w == b"event") {
                assert_ne!(client.read(&mut bytes).await.expect("a read"), 0);
            }
        }
        drop(client);
        let ended = timeout(Duration::from_secs(1), server).await;
        assert!(ended.is_ok(), "{path}: gone within a second");
        assert!(corridor.seen()[0].left, "{path}");
    }
    let (mut client, _, _) = over_tcp().await;
    let text = "GET /late HTTP/1.1\r\nHost: a\r\n\r\n";
    client.write_all(text.as_bytes()).await.expect("a write");
    client.shutdown().await.expect("a shutdown");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.ends_with("late"), "{answer}");
}

#[tokio::test]
async fn over_tcp_a_broken_answer_without_length_ends_in_a_reset() {
    let (mut client, _, _) = over_tcp().await;
    let text = "GET /broken-stream HTTP/1.0\r\n\r\n";
    client.write_all(text.as_bytes()).await.expect("a write");
    let mut answer = Vec::new();
    let ended = client.read_to_end(&mut answer).await;
    let kind = ended.expect_err("no clean end").kind();
    assert_eq!(kind, std::io::ErrorKind::ConnectionReset);
}

/// Reads until `word` stands there.
async fn until(client: &mut TcpStream, word: &str) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(word) {
        assert_ne!(client.read_buf(&mut seen).await.expect("a read"), 0);
    }
}

#[tokio::test]
async fn over_tcp_a_connection_that_is_dropped_never_ends_an_answer_cleanly() {
    for (target, word) in [("/events HTTP/1.0", "event"), ("/tunnel HTTP/1.1", "hello")] {
        let (mut client, _, server) = over_tcp().await;
        let text =
            format!("GET {target}\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: test\r\n\r\n");
        client.write_all(text.as_bytes()).await.expect("a write");
        until(&mut client, word).await;
        server.abort();
        let ended = client.read_to_end(&mut Vec::new()).await;
        let kind = ended.expect_err("no clean end").kind();
        assert_eq!(kind, std::io::ErrorKind::ConnectionReset, "{target}");
    }
    // Where the framing shows the end itself, what is on its way may arrive.
    let (mut client, _, server) = over_tcp().await;
    let text = "GET /events HTTP/1.1\r\nHost: a\r\n\r\n";
    client.write_all(text.as_bytes()).await.expect("a write");
    until(&mut client, "event\r\n").await;
    server.abort();
    let left = client.read_to_end(&mut Vec::new()).await;
    assert_eq!(left.expect("a close"), 0, "without a last chunk");
}
