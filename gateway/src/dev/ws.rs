//! The WebSocket of the demo app: sends each message back, after a greeting of its own.

use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Longest message; the largest buffer that one visitor can make us hold.
const MESSAGE: usize = 1 << 20;

/// Serve one upgraded connection to its end.
pub(super) async fn echo(upgrade: OnUpgrade) {
    // The peer left before the 101 was through.
    let Ok(upgraded) = upgrade.await else { return };
    let config = WebSocketConfig::default()
        .read_buffer_size(8 * 1024)
        .write_buffer_size(0)
        .max_write_buffer_size(MESSAGE + 1024)
        .max_message_size(Some(MESSAGE))
        .max_frame_size(Some(MESSAGE));
    let io = TokioIo::new(upgraded);
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let greeting = Message::text("hello from the demo app");
    if socket.send(greeting).await.is_err() {
        return;
    }
    while let Some(Ok(message)) = socket.next().await {
        // Pings and the closing handshake are answered by the library.
        let sent = match message {
            Message::Text(_) | Message::Binary(_) => socket.send(message).await,
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => {
                socket.flush().await
            }
        };
        if sent.is_err() {
            return;
        }
    }
}
