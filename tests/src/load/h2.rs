//! Requests over HTTP/2: a few connections shared by all, each stream judged for itself.
//!
//! Must not: repeat a request. A connection that cannot take a stream is replaced before anything was sent.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::Request;
use tokio::sync::Mutex;

use super::exchange::{Clients, Outcome, whole};
use super::plan::Arrival;
use super::target::Target;
use super::told::{Told, Verdict, failure};
use crate::h2c::send_all;
use crate::oracle::content::Check;

/// Connections at once; as few as a proxy in front would hold.
const CONNECTIONS: usize = 4;

pub(super) struct Pool {
    target: Target,
    slots: [Mutex<Option<SendRequest<Bytes>>>; CONNECTIONS],
    next: AtomicUsize,
}

impl Pool {
    pub(super) fn new(target: Target) -> Self {
        Self {
            target,
            slots: Default::default(),
            next: AtomicUsize::new(0),
        }
    }

    pub(super) async fn ask(&self, clients: &Clients, arrival: &Arrival) -> Outcome {
        let mut send = match self.connection().await {
            Ok(send) => send,
            Err(error) => return Told::Unreachable(error).into(),
        };
        let (method, target, body) = clients.request(arrival);
        let scheme = if self.target.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{scheme}://{}{target}", self.target.host))
            .header("oracle-request", arrival.id)
            .body(());
        let request = match request {
            Ok(request) => request,
            Err(error) => return Told::Unreachable(error.to_string()).into(),
        };
        let check = Check::of(clients.run, arrival.id, arrival.action, &body);
        let (response, mut stream) = match send.send_request(request, body.is_empty()) {
            Ok(opened) => opened,
            Err(error) => return Told::Unreachable(error.to_string()).into(),
        };
        let upload = async {
            if !body.is_empty() {
                send_all(&mut stream, Bytes::from(body), true).await;
            }
        };
        // An early answer does not wait for the upload, nor the upload for it.
        let (outcome, ()) = tokio::join!(answer(response, check), upload);
        outcome
    }

    /// A connection that can take a stream now.
    async fn connection(&self) -> Result<SendRequest<Bytes>, String> {
        let slot = &self.slots[self.next.fetch_add(1, Ordering::Relaxed) % CONNECTIONS];
        let mut slot = slot.lock().await;
        if let Some(send) = slot.clone()
            && let Ok(ready) = send.ready().await
        {
            return Ok(ready);
        }
        let io = self
            .target
            .connect(b"h2")
            .await
            .map_err(|error| error.to_string())?;
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(256 << 10)
            .initial_connection_window_size(4 << 20);
        let (send, connection) = builder
            .handshake(io)
            .await
            .map_err(|error| error.to_string())?;
        // How it ends is told by each of its streams.
        tokio::spawn(async move { drop(connection.await) });
        let ready = send.ready().await.map_err(|error| error.to_string())?;
        *slot = Some(ready.clone());
        Ok(ready)
    }
}

async fn answer(response: h2::client::ResponseFuture, mut check: Check) -> Outcome {
    let response = match response.await {
        Ok(response) => response,
        Err(error) => return without_head(&error).into(),
    };
    let head = Some(Instant::now());
    let (parts, mut stream) = response.into_parts();
    let name = |name: &http::HeaderName| name.as_str().to_owned();
    let headers: BTreeMap<String, String> = parts
        .headers
        .iter()
        .map(|(n, value)| {
            (
                name(n),
                String::from_utf8_lossy(value.as_bytes()).into_owned(),
            )
        })
        .collect();
    let status = parts.status.as_u16();
    let by_app = status == 200 && !headers.contains_key("bridgehead-code");
    let mut kept = Vec::new();
    let told = loop {
        match next(&mut stream).await {
            Some(Ok(part)) if by_app => {
                check.feed(&part);
                if !check.is_right() {
                    break Told::Wrong("a byte of the answer is not the app's".into());
                }
            }
            Some(Ok(part)) => kept.extend_from_slice(&part),
            Some(Err(error)) => break Told::Aborted(error.to_string()),
            None if by_app => break whole(&check),
            None if headers.contains_key("oracle") => break Told::AppSays(status),
            None => break failure(status, &headers, &kept),
        }
    };
    Outcome { told, head }
}

async fn next(stream: &mut RecvStream) -> Option<Result<Bytes, h2::Error>> {
    let part = stream.data().await?;
    if let Ok(part) = &part {
        // Fails only for a stream that is over.
        drop(stream.flow_control().release_capacity(part.len()));
    }
    Some(part)
}

/// HTTP/2 has a word of its own for "not delivered", which is held to as any other.
fn without_head(error: &h2::Error) -> Told {
    let refused = error.reason() == Some(Reason::REFUSED_STREAM);
    match refused && error.is_remote() {
        true => Told::Refused(Verdict {
            code: "REFUSED_STREAM".into(),
            delivery: "not_delivered".into(),
            reason: "refused_stream".into(),
            stage: "none".into(),
        }),
        false => Told::Empty(error.to_string()),
    }
}
