//! A WebSocket client and a WebSocket app over `tokio-tungstenite`.

use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Response;

pub use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
pub use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message};
pub use tokio_tungstenite::tungstenite::{Error, http::StatusCode};

/// A connected client.
pub type Ws = WebSocketStream<TcpStream>;

/// Connects to `ws://HOST PATH` at `addr`; the error keeps an HTTP answer that refused.
pub async fn connect(addr: SocketAddr, host: &str, path: &str) -> Result<(Ws, Response), Error> {
    let request = format!("ws://{host}{path}").into_client_request()?;
    let stream = TcpStream::connect(addr).await?;
    drop(stream.set_nodelay(true));
    tokio_tungstenite::client_async(request, stream).await
}
