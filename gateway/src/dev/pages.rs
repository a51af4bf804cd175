//! Pages of the demo app: what each address answers, or how it fails.
//!
//! Owns the addresses that `index.html` explains. A page that fails does it on the wire: it stays
//! silent, drops the socket, or writes bytes that are no HTTP.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::upgrade::OnUpgrade;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::app::Down;

/// What a page can reach beside its request.
#[derive(Clone, Debug)]
pub(super) struct Context {
    /// The connection itself, for bytes that are no HTTP.
    pub(super) socket: Arc<TcpStream>,
    /// Where an accepted upgrade is left for the connection's task.
    pub(super) upgrade: Arc<Mutex<Option<OnUpgrade>>>,
    /// Takes the whole app down.
    pub(super) down: mpsc::Sender<Down>,
}

/// The page closes the connection without (more of) an answer.
#[derive(Debug, thiserror::Error)]
#[error("the page dropped its connection")]
pub(super) struct Dropped;

type Page = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// Longest wait that `?s=` can ask for.
const MAX_SECONDS: u64 = 600;
/// Longest answer that `?bytes=` can ask for.
const MAX_BYTES: u64 = 10 << 30;
/// Size of a piece of a large answer.
const PIECE: usize = 64 * 1024;
/// Neither a status line nor anything that could be mistaken for one.
const GARBAGE: &[u8] = b"\x16\x03\x01 this is not HTTP\r\n\r\n";

/// Answer one request, or fail as its address says.
pub(super) async fn answer(context: Context, request: Request<Incoming>) -> Result<Page, Dropped> {
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let posted = request.method() == Method::POST;
    match path.as_str() {
        "/" => Ok(html(include_str!("index.html"))),
        "/hello" => Ok(text(StatusCode::OK, "Hello from the demo app.\n")),
        "/echo" => Ok(echo(request)),
        "/slow" => {
            let wait = seconds(&query, 5);
            tokio::time::sleep(wait).await;
            let said = format!("Answered after {} s.\n", wait.as_secs());
            Ok(text(StatusCode::OK, said))
        }
        "/silent" => std::future::pending().await,
        "/half" => Ok(half(number(&query, "after", 0).min(MAX_BYTES))),
        "/close" => Err(Dropped),
        "/cut" => Ok(cut()),
        "/garbage" => {
            garbage(&context.socket).await;
            Err(Dropped)
        }
        "/sse" => Ok(events()),
        "/ws" => Ok(websocket(&context, request)),
        "/upload" => upload(request).await,
        "/big" => Ok(big(number(&query, "bytes", 10 << 20).min(MAX_BYTES))),
        "/restart" if posted => Ok(restart(&context, seconds(&query, 5))),
        "/crash" if posted => {
            // A full channel means that the app goes down already.
            let _ = context.down.try_send(Down::Crash(seconds(&query, 5)));
            std::future::pending().await
        }
        "/restart" | "/crash" => Ok(text(
            StatusCode::METHOD_NOT_ALLOWED,
            "POST is wanted here.\n",
        )),
        other => Ok(numbered(other)),
    }
}

/// `/status/NNN`, or nothing.
fn numbered(path: &str) -> Page {
    let wanted = path
        .strip_prefix("/status/")
        .and_then(|digits| digits.parse().ok())
        .filter(|status| (200..600).contains(status))
        .and_then(|status: u16| StatusCode::from_u16(status).ok());
    match wanted {
        Some(status) => {
            let said = format!("The demo app itself answered {}.\n", status.as_u16());
            text(status, said)
        }
        None => text(StatusCode::NOT_FOUND, "The demo app has no such page.\n"),
    }
}

/// The request's body as it comes; a request without one gets its own head back.
fn echo(request: Request<Incoming>) -> Page {
    if hyper::body::Body::is_end_stream(request.body()) {
        let mut head = format!("{} {}\n", request.method(), request.uri());
        for (name, value) in request.headers() {
            head.push_str(&format!(
                "{name}: {}\n",
                value.to_str().unwrap_or("(binary)")
            ));
        }
        return text(StatusCode::OK, head);
    }
    let mut page = Response::new(());
    if let Some(length) = request.headers().get(CONTENT_LENGTH) {
        page.headers_mut().insert(CONTENT_LENGTH, length.clone());
    }
    // Never the sender's own type: a page of this origin is not for strangers to write.
    let kind = HeaderValue::from_static("application/octet-stream");
    page.headers_mut().insert(CONTENT_TYPE, kind);
    let body = request.into_body().map_err(io::Error::other);
    page.map(|()| body.boxed_unsync())
}

/// A head that promises more than it sends, then silence.
fn half(after: u64) -> Page {
    let pieces = pattern(after).chain(stream::pending());
    let mut page = streamed("text/plain; charset=utf-8", pieces);
    let promised = HeaderValue::from(after.saturating_add(1000));
    page.headers_mut().insert(CONTENT_LENGTH, promised);
    page
}

/// A good beginning, then the connection drops in mid-body.
fn cut() -> Page {
    let broken = stream::once(async {
        // A pause lets the server flush what it has; without one the whole answer would be dropped.
        tokio::task::yield_now().await;
        Err(io::Error::other("cut on purpose"))
    });
    let pieces = pattern(500).chain(broken);
    let mut page = streamed("text/plain; charset=utf-8", pieces);
    page.headers_mut()
        .insert(CONTENT_LENGTH, HeaderValue::from_static("1000"));
    page
}

async fn garbage(socket: &TcpStream) {
    // A peer that is gone already needs no garbage.
    if socket.writable().await.is_ok() {
        let _ = socket.try_write(GARBAGE);
    }
}

/// One event at once, then one a second.
fn events() -> Page {
    let pieces = stream::unfold(0_u64, |n| async move {
        if n > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let event = format!("data: event {n}\n\n");
        Some((io::Result::Ok(Bytes::from(event)), n + 1))
    });
    streamed("text/event-stream", pieces)
}

/// A page that talks to itself, or the handshake of its socket.
fn websocket(context: &Context, mut request: Request<Incoming>) -> Page {
    if !request.headers().contains_key(UPGRADE) {
        return html(include_str!("ws.html"));
    }
    let headers = request.headers();
    let version = headers.get(SEC_WEBSOCKET_VERSION);
    let (Some(key), true) = (
        headers.get(SEC_WEBSOCKET_KEY),
        version.is_some_and(|v| v == "13"),
    ) else {
        return text(StatusCode::BAD_REQUEST, "This is no WebSocket handshake.\n");
    };
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()));
    let Ok(accept) = accept else {
        return text(StatusCode::BAD_REQUEST, "This is no WebSocket key.\n");
    };
    let upgrade = hyper::upgrade::on(&mut request);
    *context
        .upgrade
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = Some(upgrade);
    let mut page = Response::new(
        Full::default()
            .map_err(|never| match never {})
            .boxed_unsync(),
    );
    *page.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = page.headers_mut();
    fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
    fields.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    fields.insert(SEC_WEBSOCKET_ACCEPT, accept);
    page
}

/// Counts what it is sent, in constant memory.
async fn upload(request: Request<Incoming>) -> Result<Page, Dropped> {
    if request.method() == Method::GET {
        return Ok(html(include_str!("upload.html")));
    }
    let mut body = request.into_body();
    let mut bytes = 0_u64;
    let mut hash = blake3::Hasher::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Dropped)?;
        if let Some(data) = frame.data_ref() {
            bytes += data.len() as u64;
            hash.update(data);
        }
    }
    let said = format!("{bytes} bytes, blake3 {}\n", hash.finalize().to_hex());
    Ok(text(StatusCode::OK, said))
}

fn big(bytes: u64) -> Page {
    let mut page = streamed("application/octet-stream", pattern(bytes));
    page.headers_mut()
        .insert(CONTENT_LENGTH, HeaderValue::from(bytes));
    page
}

fn restart(context: &Context, pause: Duration) -> Page {
    // A full channel means that the app goes down already.
    let _ = context.down.try_send(Down::Restart(pause));
    let said = format!(
        "The demo app is down for {} s. Open any page now: the gateway waits for the app.\n",
        pause.as_secs()
    );
    let mut page = text(StatusCode::ACCEPTED, said);
    page.headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    page
}

/// `total` bytes of printable text in pieces.
fn pattern(total: u64) -> impl Stream<Item = io::Result<Bytes>> + Send + use<> {
    let piece: Bytes = b"the quick brown fox jumps over it\n\n"
        .iter()
        .copied()
        .cycle()
        .take(PIECE)
        .collect();
    stream::unfold(total, move |left| {
        let length = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let piece = piece.slice(..length);
        async move { (length > 0).then(|| (Ok(piece), left - length as u64)) }
    })
}

fn streamed(
    kind: &'static str,
    pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> Page {
    let frames = pieces.map(|piece| piece.map(Frame::data));
    let body = StreamBody::new(frames).boxed_unsync();
    page(StatusCode::OK, kind, body)
}

fn text(status: StatusCode, said: impl Into<Bytes>) -> Page {
    whole(status, "text/plain; charset=utf-8", said.into())
}

fn html(said: &'static str) -> Page {
    let said = Bytes::from_static(said.as_bytes());
    whole(StatusCode::OK, "text/html; charset=utf-8", said)
}

fn whole(status: StatusCode, kind: &'static str, said: Bytes) -> Page {
    let body = Full::new(said).map_err(|never| match never {});
    page(status, kind, body.boxed_unsync())
}

fn page(status: StatusCode, kind: &'static str, body: UnsyncBoxBody<Bytes, io::Error>) -> Page {
    let mut page = Response::new(body);
    *page.status_mut() = status;
    let headers = page.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    page
}

/// The `s` parameter as a span.
fn seconds(query: &str, default: u64) -> Duration {
    Duration::from_secs(number(query, "s", default).min(MAX_SECONDS))
}

/// A whole number from a query; `default` if it is not there or no number.
fn number(query: &str, name: &str, default: u64) -> u64 {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(default)
}
