//! Requests for the gateway's own hosts: the code table, outcomes, and agents that come by WebSocket.

mod outcomes;

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bridgehead_protocol::io::carrier::upgrade::{self, AcceptError};
use bridgehead_protocol::io::carrier::{Carrier, CarrierKind};
use bridgehead_protocol::verdict::{Code, Reason};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::front::{AnswerBody, AnswerHead, BodyPart, ClientAnswer, ClientBody, RawHead};
use super::normalize::Normal;
use super::outcome::OUTCOMES;
use super::{Exchange, Shared};
use crate::answer;
use crate::error::Failure;
use crate::tunnel::enroll::Newcomer;

/// The code table.
pub const CODES: &str = "/.well-known/bridgehead/codes.json";

/// Bytes between the WebSocket carrier and the client's connection; beyond the carrier's own
/// buffers, so small.
const BRIDGE: usize = 64 * 1024;

pub(super) async fn serve<B: ClientBody, A: ClientAnswer>(
    shared: &Arc<Shared>,
    exchange: &mut Exchange<'_, B, A>,
    raw: &RawHead,
    normal: &Normal,
) {
    exchange.guard.own();
    match normal.path() {
        CODES if matches!(normal.method, Method::GET | Method::HEAD) => {
            codes(exchange, &normal.method).await
        }
        upgrade::PATH => tunnel(shared, exchange, raw, normal).await,
        path if path.starts_with(OUTCOMES) => outcomes::serve(shared, exchange, normal).await,
        _ => {
            exchange
                .fail(&Failure::refused(Code::AppNotFound, Reason::NoRoute))
                .await
        }
    }
}

async fn codes<B: ClientBody, A: ClientAnswer>(exchange: &mut Exchange<'_, B, A>, method: &Method) {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("max-age=3600"),
    );
    let body = if *method == Method::HEAD {
        Bytes::new()
    } else {
        Bytes::from(answer::codes_json(None))
    };
    exchange.say(StatusCode::OK, headers, body).await;
}

async fn tunnel<B: ClientBody, A: ClientAnswer>(
    shared: &Arc<Shared>,
    exchange: &mut Exchange<'_, B, A>,
    raw: &RawHead,
    normal: &Normal,
) {
    if !shared.bounds.load().plain_tunnels && !shared.is_secure(exchange.info, &normal.headers) {
        let failure = Failure::refused(Code::UpgradeUnsupported, Reason::Upgrade).with_status(426);
        let detail = "the tunnel needs TLS here: wss://, or [tunnel] plain = true";
        return exchange.fail(&failure.with_detail(detail)).await;
    }
    if shared.enroll.requires_certificates() && !exchange.info.certified {
        let error = "an agent has to show a certificate of [tunnel].agent_ca here";
        shared.enroll.no_certificate(exchange.info.peer, &error);
        let failure = Failure::refused(Code::AppNotFound, Reason::Denied).with_status(403);
        return exchange.fail(&failure.with_detail(error)).await;
    }
    let accepted = match upgrade::accept(&raw.method, &raw.headers) {
        Ok(accepted) => accepted,
        Err(error) => {
            let failure = Failure::refused(Code::UpgradeUnsupported, Reason::Upgrade)
                .with_status(error.status())
                .with_detail(error.to_string());
            if let Some((name, value)) = wanted(error) {
                exchange.asked.fields.insert(name, value);
            }
            return exchange.fail(&failure).await;
        }
    };
    let status = StatusCode::SWITCHING_PROTOCOLS;
    exchange.guard.status(status.as_u16());
    exchange.guard.enter_long_lived();
    let (headers, body) = (accepted.headers, AnswerBody::Tunnel);
    exchange.answer.head(AnswerHead {
        status,
        reason_phrase: None,
        headers,
        body,
        close: false,
    });
    let kind = if exchange.info.tls {
        CarrierKind::Wss
    } else {
        CarrierKind::Ws
    };
    let (near, far) = tokio::io::duplex(BRIDGE);
    let enroll = Arc::clone(&shared.enroll);
    let (peer, shutdown) = (exchange.info.peer, shared.shutdown.clone());
    // A task of its own: the tunnel that this carrier begins outlives it, and this exchange.
    drop(shared.tasks.spawn("tunnel", async move {
        let carrier = Carrier::ws_server(far, &[], kind).await;
        let newcomer = Newcomer {
            carrier,
            peer,
            token: accepted.token,
            // Its client's connection has one.
            place: None,
        };
        enroll.serve(newcomer, shutdown).await;
    }));
    // Whoever ends first, the carrier or the client, the other learns it through the pipe.
    if let Err(error) = Bridge::new(&mut *exchange.body, &mut *exchange.answer, near)
        .run()
        .await
    {
        tracing::debug!(%peer, %error, "a carrier's connection failed");
    }
    exchange.guard.answered();
}

/// The field that goes with the status of a refused upgrade (RFC 9110, 15.5). The one that goes with
/// 426 belongs to the connection, whose fields are the codec's.
fn wanted(error: AcceptError) -> Option<(HeaderName, HeaderValue)> {
    match error {
        AcceptError::Method => Some((header::ALLOW, HeaderValue::from_static("GET"))),
        AcceptError::Authorization => {
            Some((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
        }
        AcceptError::NoUpgrade
        | AcceptError::Version
        | AcceptError::Key
        | AcceptError::Subprotocol => None,
    }
}

/// Bytes between a switched client connection and an in-process pipe.
struct Bridge<'a, B, A> {
    body: &'a mut B,
    answer: &'a mut A,
    pipe: DuplexStream,
    inward: Bytes,
    outward: Bytes,
    buffer: BytesMut,
}

impl<'a, B: ClientBody, A: ClientAnswer> Bridge<'a, B, A> {
    fn new(body: &'a mut B, answer: &'a mut A, pipe: DuplexStream) -> Self {
        Self {
            body,
            answer,
            pipe,
            inward: Bytes::new(),
            outward: Bytes::new(),
            buffer: BytesMut::zeroed(16 * 1024),
        }
    }

    /// Until either side ends.
    async fn run(mut self) -> io::Result<()> {
        poll_fn(|cx| {
            let inward = self.poll_inward(cx);
            let outward = self.poll_outward(cx);
            match (inward, outward) {
                (Poll::Ready(end), _) | (_, Poll::Ready(end)) => Poll::Ready(end),
                (Poll::Pending, Poll::Pending) => Poll::Pending,
            }
        })
        .await?;
        self.answer.end();
        // Whoever left does not take the goodbye.
        let _ = poll_fn(|cx| self.answer.poll_flush(cx)).await;
        Ok(())
    }

    fn poll_inward(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while !self.inward.is_empty() {
                match Pin::new(&mut self.pipe).poll_write(cx, &self.inward) {
                    Poll::Ready(Ok(count)) => drop(self.inward.split_to(count)),
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            match self.body.poll_part(cx) {
                Poll::Ready(Ok(BodyPart::Data(bytes))) => self.inward = bytes,
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn poll_outward(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while !self.outward.is_empty() {
                match self.answer.poll_ready(cx) {
                    Poll::Ready(Ok(())) => self.answer.data(&mut self.outward),
                    Poll::Ready(Err(_)) => return Poll::Ready(Ok(())),
                    Poll::Pending => return Poll::Pending,
                }
            }
            let mut read = ReadBuf::new(&mut self.buffer);
            match Pin::new(&mut self.pipe).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) if read.filled().is_empty() => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) => self.outward = Bytes::copy_from_slice(read.filled()),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    let _ = self.answer.poll_flush(cx);
                    return Poll::Pending;
                }
            }
        }
    }
}
