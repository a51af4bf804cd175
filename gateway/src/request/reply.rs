//! Answers made by the gateway on their way to the client: framing, flush, and the abort when bytes
//! of another answer are out already.

use std::future::poll_fn;

use bridgehead_protocol::verdict::Judgement;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

use super::Exchange;
use super::front::{Abort, AnswerBody, AnswerHead, ClientAnswer, ClientBody};
use crate::answer::{self, Answer};
use crate::error::Failure;

/// What happens to an HTTP/1 connection after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// As the client wishes.
    Keep,
    /// It is closed.
    Close,
}

/// Queues a complete answer.
pub fn queue<A: ClientAnswer>(client: &mut A, answer: Answer, after: After) {
    let Answer {
        status,
        mut headers,
        mut body,
        trailers_only_grpc,
    } = answer;
    let delimited = if trailers_only_grpc {
        AnswerBody::Empty
    } else {
        headers.insert(header::CONTENT_LENGTH, body.len().into());
        if body.is_empty() {
            AnswerBody::Empty
        } else {
            AnswerBody::Exact(body.len() as u64)
        }
    };
    let close = after == After::Close;
    client.head(AnswerHead {
        status,
        reason_phrase: None,
        headers,
        body: delimited,
        close,
    });
    while !body.is_empty() {
        let before = body.len();
        client.data(&mut body);
        if body.len() == before {
            break;
        }
    }
    client.end();
}

impl<B, A> Exchange<'_, B, A> {
    /// The client is gone; what is known is for the log and the ledger.
    pub(super) fn leave(&mut self, told: Judgement) {
        self.guard.left(told);
        self.page.left();
    }
}

impl<B: ClientBody, A: ClientAnswer> Exchange<'_, B, A> {
    /// Answers with the failure, or breaks visibly what is out already.
    pub(super) async fn fail(&mut self, failure: &Failure) {
        self.fail_then(failure, After::Keep).await;
    }

    /// The same for a request that was no request: what follows on the connection cannot be trusted.
    pub(super) async fn refuse_and_close(&mut self, failure: &Failure) {
        self.fail_then(failure, After::Close).await;
    }

    async fn fail_then(&mut self, failure: &Failure, after: After) {
        self.asked.outcome_url = self.page.failed(failure);
        if self.answer.head_sent() {
            self.guard.aborted(failure);
            self.answer.abort(Abort::Broken);
            return;
        }
        self.guard.failed(failure);
        let answer = answer::build(failure, &self.asked);
        // Some dialects have a status of their own.
        self.guard.status(answer.status.as_u16());
        self.send(answer, after).await;
    }

    /// Sends a small complete answer of the gateway's own.
    pub(super) async fn say(&mut self, status: StatusCode, headers: HeaderMap, body: Bytes) {
        self.guard.status(status.as_u16());
        self.send(
            Answer {
                status,
                headers,
                body,
                trailers_only_grpc: false,
            },
            After::Keep,
        )
        .await;
        self.guard.answered();
    }

    /// A window of HTTP/2 may be smaller than the answer, so it is sent as the client takes it.
    async fn send(&mut self, answer: Answer, after: After) {
        let Answer {
            status,
            mut headers,
            mut body,
            trailers_only_grpc,
        } = answer;
        if trailers_only_grpc || body.is_empty() {
            queue(
                self.answer,
                Answer {
                    status,
                    headers,
                    body,
                    trailers_only_grpc,
                },
                after,
            );
        } else {
            headers.insert(header::CONTENT_LENGTH, body.len().into());
            let delimited = AnswerBody::Exact(body.len() as u64);
            let close = after == After::Close;
            self.answer.head(AnswerHead {
                status,
                reason_phrase: None,
                headers,
                body: delimited,
                close,
            });
            while !body.is_empty() {
                if poll_fn(|cx| self.answer.poll_ready(cx)).await.is_err() {
                    return;
                }
                let before = body.len();
                self.answer.data(&mut body);
                self.guard.bytes_out((before - body.len()) as u64);
            }
            self.answer.end();
        }
        // A client that is gone by now has left; the failure was made and counted.
        let _ = poll_fn(|cx| self.answer.poll_flush(cx)).await;
    }
}
