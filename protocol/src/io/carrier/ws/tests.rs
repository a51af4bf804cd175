//! A carrier against the library's own WebSocket, and two carriers against each other.

use std::future::poll_fn;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::*;
use crate::wire::{Frame, Limits, MAX_PAYLOAD, StreamId, decode, encode};

fn data(stream: u32, length: usize, fin: bool) -> Frame {
    #[allow(clippy::cast_possible_truncation)] // the bytes only have to differ
    let bytes = (0..length).map(|at| at as u8).collect::<Vec<_>>().into();
    Frame::Data {
        stream: StreamId(stream),
        bytes,
        fin,
    }
}

fn bytes_of(frames: &[Frame]) -> BytesMut {
    let mut bytes = BytesMut::new();
    frames.iter().for_each(|frame| encode(frame, &mut bytes));
    bytes
}

/// A carrier at the gateway and the library's plain client on the other end.
async fn with_peer(room: usize) -> (Carrier, WebSocketStream<DuplexStream>) {
    let (near, far) = duplex(room);
    let peer = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    (Carrier::ws_server(near, &[], CarrierKind::Ws).await, peer)
}

async fn read_frames(carrier: &mut Carrier, count: usize) -> Vec<Frame> {
    let mut buf = BytesMut::new();
    let mut frames = Vec::new();
    while frames.len() < count {
        buf.reserve(1000);
        assert_ne!(
            carrier.read_buf(&mut buf).await.expect("bytes"),
            0,
            "an early end"
        );
        while let Some(frame) = decode(&mut buf, &Limits::default()).expect("frames") {
            frames.push(frame);
        }
    }
    frames
}

#[tokio::test(start_paused = true)]
async fn frames_of_any_size_cross_in_both_directions_at_once() {
    let (near, far) = duplex(10_000);
    let mut agent = Carrier::ws_client(near, &[], CarrierKind::Wss).await;
    let mut gateway = Carrier::ws_server(far, &[], CarrierKind::Wss).await;
    let frames = [
        data(1, MAX_PAYLOAD, false),
        data(3, 0, true),
        Frame::Ping([1; 8]),
    ];
    let bytes = bytes_of(&frames);
    let talk = async |carrier: &mut Carrier| {
        let (mut reader, mut writer) = tokio::io::split(carrier);
        let write = async {
            writer.write_all(&bytes).await.expect("room");
            writer.flush().await.expect("room");
        };
        let read = async {
            let mut buf = vec![0; bytes.len()];
            reader.read_exact(&mut buf).await.expect("bytes");
            buf
        };
        tokio::join!(write, read).1
    };
    let (at_agent, at_gateway) = tokio::join!(talk(&mut agent), talk(&mut gateway));
    assert_eq!(at_agent, bytes);
    assert_eq!(at_gateway, bytes);
}

#[tokio::test(start_paused = true)]
async fn a_message_holds_whole_frames_however_the_writer_cuts_them() {
    let frames = [
        data(1, 300, false),
        Frame::Ping([1; 8]),
        data(3, 5000, true),
        data(1, 0, true),
    ];
    let bytes = bytes_of(&frames);
    for cut in [1, 9, 10, 311, 4096] {
        let (mut carrier, mut peer) = with_peer(64 * 1024).await;
        for part in bytes.chunks(cut) {
            carrier.write_all(part).await.expect("room");
        }
        let mut read = Vec::new();
        while read.len() < frames.len() {
            let message = peer.next().await.expect("a message").expect("a message");
            let Message::Binary(message) = message else {
                panic!("binary only")
            };
            assert_eq!(whole_frames(&message), Ok(message.len()), "cut by {cut}");
            let mut message = BytesMut::from(&message[..]);
            while let Some(frame) = decode(&mut message, &Limits::default()).expect("frames") {
                read.push(frame);
            }
        }
        assert_eq!(read, frames, "cut by {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn slices_written_together_travel_in_one_message_without_a_flush() {
    let (mut carrier, mut peer) = with_peer(64 * 1024).await;
    let bytes = bytes_of(&[data(1, 300, false), data(3, 20, true)]);
    let (head, rest) = bytes.split_at(9);
    let slices = [IoSlice::new(head), IoSlice::new(rest)];
    assert_eq!(
        carrier.write_vectored(&slices).await.expect("room"),
        bytes.len()
    );
    let message = peer.next().await.expect("a message").expect("a message");
    assert_eq!(message, Message::Binary(bytes.freeze()));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_stops_the_writer_after_one_message() {
    let (carrier, _peer) = with_peer(1000).await;
    let mut carrier = carrier;
    let bytes = bytes_of(&vec![data(1, 16 * 1024, false); 32]);
    let mut accepted = 0;
    let blocked = poll_fn(|cx| {
        while accepted < bytes.len() {
            match Pin::new(&mut carrier).poll_write(cx, &bytes[accepted..]) {
                Poll::Ready(count) => accepted += count.expect("room"),
                Poll::Pending => return Poll::Ready(true),
            }
        }
        Poll::Ready(false)
    });
    assert!(blocked.await);
    assert!(accepted <= MAX_MESSAGE, "{accepted} bytes accepted");
}

#[tokio::test(start_paused = true)]
async fn a_ping_is_answered_while_nothing_is_written() {
    let (mut carrier, mut peer) = with_peer(1000).await;
    peer.send(Message::Ping(Bytes::from_static(b"hi")))
        .await
        .expect("room");
    let mut byte = [0; 1];
    tokio::select! {
        biased;
        pong = peer.next() => {
            let pong = pong.expect("a message").expect("a message");
            assert_eq!(pong, Message::Pong(Bytes::from_static(b"hi")));
        }
        read = carrier.read(&mut byte) => panic!("nothing to read, but {read:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_is_read_in_pieces_and_an_empty_one_is_no_end() {
    let (mut carrier, mut peer) = with_peer(64 * 1024).await;
    let frames = [data(1, 5000, false), Frame::Pong([2; 8])];
    peer.send(Message::Binary(Bytes::new()))
        .await
        .expect("room");
    peer.send(Message::Binary(bytes_of(&frames).freeze()))
        .await
        .expect("room");
    assert_eq!(read_frames(&mut carrier, 2).await, frames);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_only_pings_does_not_hold_the_worker() {
    let (mut carrier, mut peer) = with_peer(64 * 1024).await;
    let pings = (0..IDLE_MESSAGES + 1).map(|_| Message::Pong(Bytes::new()));
    for ping in pings {
        peer.feed(ping).await.expect("room");
    }
    peer.flush().await.expect("room");
    let mut byte = [0; 1];
    let mut polls = 0;
    let woken_again = poll_fn(|cx| {
        let mut buf = ReadBuf::new(&mut byte);
        assert!(Pin::new(&mut carrier).poll_read(cx, &mut buf).is_pending());
        polls += 1;
        if polls == 2 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    });
    // A reader that took them all at once would not be polled again.
    let second = tokio::time::timeout(std::time::Duration::from_secs(1), woken_again);
    second.await.expect("the rest is read in a second poll");
}

#[tokio::test(start_paused = true)]
async fn a_close_is_answered_and_read_as_the_end() {
    let (mut carrier, mut peer) = with_peer(1000).await;
    let close = CloseFrame {
        code: CloseCode::Away,
        reason: "bye".into(),
    };
    peer.send(Message::Close(Some(close))).await.expect("room");
    assert_eq!(carrier.read(&mut [0; 8]).await.expect("an end"), 0);
    assert_eq!(carrier.read(&mut [0; 8]).await.expect("still the end"), 0);
    assert!(matches!(peer.next().await, Some(Ok(Message::Close(_)))));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_just_ends_is_read_as_the_end() {
    let (mut carrier, peer) = with_peer(1000).await;
    drop(peer);
    assert_eq!(carrier.read(&mut [0; 8]).await.expect("an end"), 0);
}

#[tokio::test(start_paused = true)]
async fn shutting_down_closes_the_web_socket_and_the_connection() {
    let (near, far) = duplex(1000);
    let mut agent = Carrier::ws_client(near, &[], CarrierKind::Ws).await;
    let mut gateway = Carrier::ws_server(far, &[], CarrierKind::Ws).await;
    agent.shutdown().await.expect("closed");
    assert_eq!(gateway.read(&mut [0; 8]).await.expect("an end"), 0);
    gateway.shutdown().await.expect("closed");
    assert_eq!(agent.read(&mut [0; 8]).await.expect("an end"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_text_message_and_one_above_the_cap_are_errors() {
    let (mut carrier, mut peer) = with_peer(1000).await;
    peer.send(Message::text("hello")).await.expect("room");
    let error = carrier.read(&mut [0; 8]).await.expect_err("text");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);

    let (mut carrier, mut peer) = with_peer(4 * MAX_INBOUND).await;
    peer.send(Message::Binary(vec![0; MAX_INBOUND + 1].into()))
        .await
        .expect("room");
    let error = carrier.read(&mut [0; 8]).await.expect_err("too long");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[tokio::test(start_paused = true)]
async fn what_was_read_beyond_the_upgrade_is_not_lost() {
    let (near, far) = duplex(64 * 1024);
    let mut agent = Carrier::ws_client(near, &[], CarrierKind::Ws).await;
    let mut far = far;
    let frames = [Frame::Ping([9; 8]), data(2, 10, true)];
    agent.write_all(&bytes_of(&frames)).await.expect("room");
    let mut early = [0; 20];
    far.read_exact(&mut early).await.expect("bytes");
    let mut gateway = Carrier::ws_server(far, &early, CarrierKind::Ws).await;
    assert_eq!(read_frames(&mut gateway, 2).await, frames);
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_frames_are_not_sent() {
    let (mut carrier, _peer) = with_peer(1000).await;
    let error = carrier.write_all(&[0xff; 64]).await.expect_err("no frame");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}
