//! Any requests, however divided into writes and however their bodies are framed, are answered one
//! by one, in order, with their own bytes.

use std::sync::Arc;

use bytes::BytesMut;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

use crate::accept::Limits;
use crate::accept::testing::{Scripted, info};
use crate::shutdown::Signal;

#[derive(Clone, Debug)]
struct Sent {
    body: Vec<u8>,
    /// Sizes of the chunks; a length is declared if there are none.
    chunks: Vec<usize>,
}

fn sent() -> impl Strategy<Value = Sent> {
    let body = proptest::collection::vec(any::<u8>(), 0..3000);
    let chunks = proptest::collection::vec(1usize..700, 0..5);
    (body, chunks).prop_map(|(body, chunks)| Sent { body, chunks })
}

fn wire(requests: &[Sent]) -> Vec<u8> {
    let mut wire = Vec::new();
    for (at, Sent { body, chunks }) in requests.iter().enumerate() {
        let close = match at + 1 == requests.len() {
            true => "Connection: close\r\n",
            false => "",
        };
        let head = format!("POST /echo HTTP/1.1\r\nHost: a\r\n{close}");
        wire.extend_from_slice(head.as_bytes());
        if chunks.is_empty() {
            wire.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            wire.extend_from_slice(body);
            continue;
        }
        wire.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        let mut rest = &body[..];
        for size in chunks.iter().cycle() {
            let Some((chunk, after)) = rest.split_at_checked((*size).min(rest.len())) else {
                break;
            };
            if chunk.is_empty() {
                break;
            }
            wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
            rest = after;
        }
        wire.extend_from_slice(b"0\r\n\r\n");
    }
    wire
}

/// Bodies of the answers in `bytes`, each framed by its length.
fn answers(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut bodies = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n");
        let (head, rest) = bytes.split_at(end.expect("a whole head") + 4);
        let head = std::str::from_utf8(head).expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let length = head.split("content-length: ").nth(1).expect("a length");
        let length = length.split('\r').next().expect("a length");
        let (body, rest) = rest.split_at(length.parse().expect("a number"));
        bodies.push(body.to_vec());
        bytes = rest;
    }
    bodies
}

async fn converse(wire: Vec<u8>, cuts: Vec<usize>) -> Vec<Vec<u8>> {
    let (client, io) = duplex(1500);
    let server = tokio::spawn(async move {
        let (corridor, limits) = (Scripted::default(), Arc::new(Limits::default()));
        super::serve(
            io,
            BytesMut::new(),
            &info(),
            &corridor,
            &limits,
            Signal::never(),
        )
        .await;
    });
    let (mut read, mut write) = tokio::io::split(client);
    let writing = async {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (wire.len() + 1)).collect();
        ends.push(wire.len());
        ends.sort_unstable();
        let mut from = 0;
        for end in ends {
            write.write_all(&wire[from..end]).await.expect("a write");
            tokio::task::yield_now().await;
            from = end;
        }
    };
    let mut bytes = Vec::new();
    let (_, read) = tokio::join!(writing, read.read_to_end(&mut bytes));
    read.expect("a clean end");
    server.await.expect("the server ends");
    answers(&bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pipelined_requests_get_their_own_answers(
        requests in proptest::collection::vec(sent(), 1..6),
        cuts in proptest::collection::vec(any::<usize>(), 0..20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let bodies = runtime.block_on(converse(wire(&requests), cuts));
        let sent: Vec<Vec<u8>> = requests.into_iter().map(|r| r.body).collect();
        prop_assert_eq!(bodies, sent);
    }
}
