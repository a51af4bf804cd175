//! An HTTP/2 client over the `h2` crate: plain by prior knowledge, or TLS by ALPN.
//!
//! Must not: hide a reset; [`Ended`] names its code.

use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::client;
use crate::wait;

/// An open connection.
pub struct H2 {
    send: SendRequest<Bytes>,
    driver: JoinHandle<()>,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By END_STREAM.
    Complete,
    /// By RST_STREAM with this code.
    Reset(Reason),
    /// With the connection.
    Connection,
}

/// A whole answer.
#[derive(Debug)]
pub struct H2Answer {
    /// Head.
    pub head: Response<()>,
    /// Body.
    pub body: Vec<u8>,
    /// Trailers.
    pub trailers: Option<HeaderMap>,
    /// How it ended.
    pub end: Ended,
}

impl H2Answer {
    /// First value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers().get(name).and_then(|v| v.to_str().ok())
    }

    /// Body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl H2 {
    /// By prior knowledge, in plain text.
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr)
            .await
            .unwrap_or_else(|e| panic!("{addr} does not answer: {e}"));
        drop(stream.set_nodelay(true));
        Self::over(stream).await
    }

    /// With TLS and ALPN `h2`.
    pub async fn connect_tls(addr: SocketAddr, name: &str, roots: &rustls::RootCertStore) -> Self {
        let stream = client::tls(addr, name, roots, &[b"h2"]).await;
        assert_eq!(
            stream.get_ref().1.alpn_protocol(),
            Some(&b"h2"[..]),
            "h2 is negotiated"
        );
        Self::over(stream).await
    }

    async fn over(io: impl client::Io + 'static) -> Self {
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(256 << 10)
            .initial_connection_window_size(4 << 20);
        let (send, connection) = builder.handshake(io).await.expect("an HTTP/2 connection");
        let driver = tokio::spawn(async move {
            // How it ended is told by each stream.
            drop(connection.await);
        });
        Self { send, driver }
    }

    /// Waits for the server's settings and says whether extended CONNECT is allowed.
    pub async fn extended_connect(&mut self) -> bool {
        let ready = self
            .send
            .clone()
            .ready()
            .await
            .expect("the connection stands");
        ready.is_extended_connect_protocol_enabled()
    }

    /// Opens a stream; the body, unless `end`, is sent through the handle.
    pub async fn open(
        &mut self,
        request: Request<()>,
        end: bool,
    ) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
        let mut send = self
            .send
            .clone()
            .ready()
            .await
            .expect("the connection stands");
        send.send_request(request, end)
            .expect("the request is well formed")
    }

    /// Sends a whole request and reads its whole answer.
    pub async fn ask(&mut self, request: Request<()>, body: &[u8]) -> Result<H2Answer, Ended> {
        let (response, mut send) = self.open(request, body.is_empty()).await;
        if !body.is_empty() {
            send_all(&mut send, Bytes::copy_from_slice(body), true).await;
        }
        wait::within(wait::SOON * 2, "an HTTP/2 answer", answer(response)).await
    }

    /// A request head for `host` and `path`.
    pub fn get(host: &str, path: &str) -> Request<()> {
        Self::head("GET", host, path)
    }

    /// A request head with a method.
    pub fn head(method: &str, host: &str, path: &str) -> Request<()> {
        let uri = format!("http://{host}{path}");
        Request::builder()
            .method(method)
            .uri(uri)
            .version(http::Version::HTTP_2)
            .body(())
            .expect("a request")
    }
}

impl Drop for H2 {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Sends `data` under the peer's flow control; stops quietly if the stream is reset.
pub async fn send_all(send: &mut h2::SendStream<Bytes>, mut data: Bytes, end: bool) {
    while !data.is_empty() {
        send.reserve_capacity(data.len().min(64 * 1024));
        let granted = std::future::poll_fn(|cx| send.poll_capacity(cx)).await;
        let Some(Ok(granted)) = granted else { return };
        let part = data.split_to(granted.min(data.len()));
        let last = end && data.is_empty();
        if send.send_data(part, last).is_err() {
            return;
        }
    }
}

/// Reads a whole answer.
pub async fn answer(response: h2::client::ResponseFuture) -> Result<H2Answer, Ended> {
    let response = response.await.map_err(|error| ended(&error))?;
    let (parts, mut stream) = response.into_parts();
    let (body, end) = read_body(&mut stream).await;
    let trailers = if end == Ended::Complete {
        stream.trailers().await.ok().flatten()
    } else {
        None
    };
    Ok(H2Answer {
        head: Response::from_parts(parts, ()),
        body,
        trailers,
        end,
    })
}

/// Reads a body to its end.
pub async fn read_body(stream: &mut RecvStream) -> (Vec<u8>, Ended) {
    let mut body = Vec::new();
    while let Some(chunk) = stream.data().await {
        match chunk {
            Ok(chunk) => {
                drop(stream.flow_control().release_capacity(chunk.len()));
                body.extend_from_slice(&chunk);
            }
            Err(error) => return (body, ended(&error)),
        }
    }
    (body, Ended::Complete)
}

/// What an error of the `h2` crate says about the stream.
pub fn ended(error: &h2::Error) -> Ended {
    match error.reason() {
        Some(reason) if error.is_reset() => Ended::Reset(reason),
        _ => Ended::Connection,
    }
}
