//! A corridor for tests: it acts by the target of the request and records what it saw.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use tokio::time::timeout;

use super::{Corridor, Refusal, Spoken};
use crate::request::front::ClientProtocol;
use crate::request::front::{
    Abort, AnswerBody, AnswerHead, BodyPart, ClientAnswer, ClientBody, ClientFault, ClientInfo,
    RawHead,
};

/// What one exchange looked like from inside.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) head: Option<RawHead>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) fault: Option<ClientFault>,
    pub(crate) left: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Scripted {
    seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) refused: Arc<Mutex<Vec<Refusal>>>,
    pub(crate) clients: Arc<Mutex<Vec<ClientInfo>>>,
}

pub(crate) fn info() -> ClientInfo {
    ClientInfo {
        peer: ([127, 0, 0, 1], 1000).into(),
        announced: false,
        local: ([127, 0, 0, 1], 80).into(),
        tls: false,
        sni: None,
        certified: false,
        allowance: None,
        connection: 1,
    }
}

pub(crate) fn answer(status: u16, body: AnswerBody) -> AnswerHead {
    AnswerHead {
        status: StatusCode::from_u16(status).expect("a status"),
        reason_phrase: None,
        headers: HeaderMap::new(),
        body,
        close: false,
    }
}

impl Scripted {
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("a lock").clone()
    }

    fn note(&self, at: usize, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().expect("a lock")[at]);
    }

    /// Read the body to its end.
    async fn read<B: ClientBody>(&self, at: usize, body: &mut B) -> Result<(), ClientFault> {
        loop {
            match poll_fn(|cx| body.poll_part(cx)).await {
                Ok(BodyPart::Data(data)) => self.note(at, |s| s.body.extend_from_slice(&data)),
                Ok(BodyPart::Trailers(map)) => {
                    self.note(at, |s| s.trailers = Some(map));
                    return Ok(());
                }
                Ok(BodyPart::End) => return Ok(()),
                Err(fault) => {
                    self.note(at, |s| s.fault = Some(fault));
                    return Err(fault);
                }
            }
        }
    }

    fn body(&self, at: usize) -> Bytes {
        Bytes::from(self.seen.lock().expect("a lock")[at].body.clone())
    }

    /// Wait until the client leaves or `time` is over.
    async fn left<B: ClientBody>(&self, at: usize, body: &mut B, time: Duration) -> bool {
        let left = timeout(time, poll_fn(|cx| body.poll_left(cx)))
            .await
            .is_ok();
        self.note(at, |s| s.left = left);
        left
    }
}

/// Offer all of `chunk`; false if the client is gone.
pub(crate) async fn send<A: ClientAnswer>(answer: &mut A, mut chunk: Bytes) -> bool {
    while !chunk.is_empty() {
        if poll_fn(|cx| answer.poll_ready(cx)).await.is_err() {
            return false;
        }
        answer.data(&mut chunk);
    }
    true
}

async fn flush<A: ClientAnswer>(answer: &mut A) -> bool {
    poll_fn(|cx| answer.poll_flush(cx)).await.is_ok()
}

async fn whole<A: ClientAnswer>(answer_: &mut A, status: u16, body: Bytes) {
    answer_.head(answer(status, AnswerBody::Exact(body.len() as u64)));
    if send(answer_, body).await {
        answer_.end();
    }
}

/// Copy the client's bytes back until both directions have ended.
async fn echo<B: ClientBody, A: ClientAnswer>(body: &mut B, answer: &mut A) {
    let mut pending = Bytes::new();
    let mut ended = false;
    poll_fn(|cx| {
        loop {
            if !pending.is_empty() {
                match answer.poll_ready(cx) {
                    Poll::Ready(Ok(())) => answer.data(&mut pending),
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
                continue;
            }
            if ended {
                answer.end();
                return Poll::Ready(());
            }
            match body.poll_part(cx) {
                Poll::Ready(Ok(BodyPart::Data(data))) => pending = data,
                Poll::Ready(Ok(_)) => ended = true,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => {
                    // Only driven here; the reading half is what is waited for.
                    let _unfinished = answer.poll_flush(cx);
                    return Poll::Pending;
                }
            }
        }
    })
    .await;
}

impl Corridor for Scripted {
    type Place = ();

    fn connected(&self, _: Spoken) {}

    async fn exchange<B: ClientBody, A: ClientAnswer>(
        &self,
        info: &ClientInfo,
        head: RawHead,
        body: &mut B,
        client: &mut A,
    ) {
        self.clients.lock().expect("a lock").push(info.clone());
        let at = {
            let mut seen = self.seen.lock().expect("a lock");
            seen.push(Seen {
                head: Some(head.clone()),
                ..Seen::default()
            });
            seen.len() - 1
        };
        let path = head.target.split('?').next().unwrap_or_default().to_owned();
        match path.as_str() {
            "/echo" => match self.read(at, body).await {
                Ok(()) => {
                    let text = self.body(at);
                    let length = match head.method {
                        Method::HEAD => AnswerBody::Empty,
                        _ => AnswerBody::Exact(text.len() as u64),
                    };
                    client.head(answer(200, length));
                    if length == AnswerBody::Empty || send(client, text).await {
                        client.end();
                    }
                }
                Err(ClientFault::Left) => {}
                Err(ClientFault::TooSlow) => whole(client, 408, Bytes::from_static(b"slow")).await,
                Err(ClientFault::Malformed(why)) => whole(client, 400, why.into()).await,
            },
            "/stream-echo" => {
                client.head(answer(200, AnswerBody::Streamed));
                echo(body, client).await;
            }
            "/ignore" => whole(client, 200, Bytes::from_static(b"ignored")).await,
            "/early" => whole(client, 413, Bytes::from_static(b"too much")).await,
            "/streamed" => {
                client.head(answer(200, AnswerBody::Streamed));
                send(client, Bytes::from_static(b"one")).await;
                send(client, Bytes::from_static(b"two")).await;
                client.end();
            }
            "/trailers" => {
                let _done = self.read(at, body).await;
                client.head(answer(200, AnswerBody::Streamed));
                send(client, Bytes::from_static(b"one")).await;
                let mut map = HeaderMap::new();
                map.insert("x-sum", HeaderValue::from_static("1"));
                map.insert("content-length", HeaderValue::from_static("9"));
                client.trailers(map);
            }
            "/hints" => {
                let mut map = HeaderMap::new();
                map.insert("link", HeaderValue::from_static("</a>"));
                client.informational(StatusCode::EARLY_HINTS, &map);
                client.informational(StatusCode::EARLY_HINTS, &map);
                whole(client, 200, Bytes::from_static(b"ok")).await;
            }
            "/broken-length" => {
                client.head(answer(200, AnswerBody::Exact(10)));
                send(client, Bytes::from_static(b"half")).await;
                client.abort(Abort::Broken);
            }
            "/broken-stream" => {
                client.head(answer(200, AnswerBody::Streamed));
                send(client, Bytes::from_static(b"half")).await;
                client.abort(Abort::Broken);
            }
            "/forgotten" => client.head(answer(200, AnswerBody::Streamed)),
            "/silent" => {}
            "/late" => {
                // Long enough for every conclusion about a client that closed its side.
                if !self.left(at, body, Duration::from_millis(1500)).await {
                    whole(client, 200, Bytes::from_static(b"late")).await;
                }
            }
            "/events" => {
                client.head(answer(200, AnswerBody::Streamed));
                send(client, Bytes::from_static(b"event")).await;
                flush(client).await;
                self.left(at, body, Duration::from_secs(60)).await;
                client.end();
            }
            "/huge" => {
                let piece = Bytes::from(vec![7; 32 * 1024]);
                client.head(answer(200, AnswerBody::Streamed));
                for _ in 0..64 {
                    if !send(client, piece.clone()).await {
                        return self.note(at, |s| s.left = true);
                    }
                }
                client.end();
            }
            "/tunnel" => {
                let mut head = answer(101, AnswerBody::Tunnel);
                let protocol = HeaderValue::from_static("test");
                head.headers.insert("upgrade", protocol);
                client.head(head);
                send(client, Bytes::from_static(b"hello ")).await;
                echo(body, client).await;
                flush(client).await;
            }
            _ => whole(client, 404, Bytes::new()).await,
        }
    }

    fn refuse<A: ClientAnswer>(
        &self,
        _: &ClientInfo,
        _: ClientProtocol,
        refusal: Refusal,
        client: &mut A,
    ) {
        self.refused.lock().expect("a lock").push(refusal);
        let mut text = Bytes::from(format!("{refusal:?}"));
        client.head(answer(
            refusal.status(),
            AnswerBody::Exact(text.len() as u64),
        ));
        client.data(&mut text);
        client.end();
    }
}
