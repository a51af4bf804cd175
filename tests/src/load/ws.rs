//! A WebSocket whose numbered messages must come back in order, none lost, none doubled.

use std::time::Instant;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::exchange::{Clients, Outcome, answer};
use super::plan::Arrival;
use super::target::Stream;
use super::told::Told;
use super::wire::Wire;
use crate::oracle::content::Check;
use crate::wait;

pub(super) async fn ask(clients: &Clients, arrival: &Arrival) -> Outcome {
    let (_, target, _) = clients.request(arrival);
    let mut wire = match clients.target.connect(b"http/1.1").await {
        Ok(io) => Wire::new(io),
        Err(error) => return Told::Unreachable(error.to_string()).into(),
    };
    let head = format!(
        "GET {target} HTTP/1.1\r\nHost: {}\r\nOracle-Request: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\n\r\n",
        clients.target.host,
        arrival.id,
        generate_key()
    );
    drop(wire.send(&head, b"").await);
    let head = match wire.peek_head().await {
        Ok(head) => head,
        Err(how) => return Told::Empty(how).into(),
    };
    if head != 101 {
        return answer(
            &mut wire,
            Check::of(clients.run, arrival.id, arrival.action, b""),
        )
        .await;
    }
    if let Err(how) = wire.head().await {
        return Told::Empty(how).into();
    }
    let came = Some(Instant::now());
    let (io, begun) = wire.into_parts();
    let socket = WebSocketStream::from_partially_read(io, begun.to_vec(), Role::Client, None).await;
    Outcome {
        told: talk(socket, clients, arrival.id).await,
        head: came,
    }
}

async fn talk(mut socket: WebSocketStream<Stream>, clients: &Clients, id: u64) -> Told {
    let (count, pause) = clients.messages;
    for n in 1..=count {
        wait::dawdle(pause).await;
        let message = format!("message {n} of request {id}");
        if let Err(error) = socket.send(Message::text(message.clone())).await {
            return Told::Aborted(error.to_string());
        }
        loop {
            match socket.next().await {
                Some(Ok(Message::Text(text))) if text.as_str() == message => break,
                Some(Ok(Message::Text(text))) => {
                    return Told::Wrong(format!("{message:?} came back as {:?}", text.as_str()));
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(other)) => return Told::Aborted(format!("{other:?}")),
                Some(Err(error)) => return Told::Aborted(error.to_string()),
                None => return Told::Aborted("the end".into()),
            }
        }
    }
    if let Err(error) = socket.close(None).await {
        return Told::Aborted(error.to_string());
    }
    loop {
        match socket.next().await {
            None => return Told::Right,
            Some(Ok(Message::Text(_) | Message::Binary(_))) => {
                return Told::Wrong("a message more than were sent".into());
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Told::Aborted(format!("closing: {error}")),
        }
    }
}
