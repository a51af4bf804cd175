//! One request from its first byte to what it was told, over HTTP/1.1, HTTP/2 or as a WebSocket.
//!
//! Owns the pool of kept connections. Must not repeat anything: a request is sent once.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::h2::Pool;
use super::plan::{Arrival, Kind};
use super::target::{Speaks, Target};
use super::told::{Told, failure};
use super::wire::{Body, Wire};
use super::ws;
use crate::oracle::content::{self, Action, Check};

/// A kept connection is not used again after this time: the gateway may be about to close it, and what
/// is sent into a closing connection has no answer.
const KEEP: Duration = Duration::from_secs(5);

/// Most bytes of a failed answer that are kept.
const FAILURE: usize = 256 * 1024;

/// What came of one request.
pub(super) struct Outcome {
    pub(super) told: Told,
    /// When the final head came.
    pub(super) head: Option<Instant>,
}

impl From<Told> for Outcome {
    fn from(told: Told) -> Self {
        Self { told, head: None }
    }
}

/// The clients of a run.
pub(super) struct Clients {
    pub(super) target: Target,
    pub(super) run: u32,
    /// Messages of a WebSocket, and the pause between two.
    pub(super) messages: (u32, Duration),
    patience: Duration,
    idle: Mutex<Vec<(Wire, Instant)>>,
    h2: Pool,
}

impl Clients {
    pub(super) fn new(
        target: Target,
        run: u32,
        messages: (u32, Duration),
        patience: Duration,
    ) -> Self {
        let h2 = Pool::new(target.clone());
        Self {
            target,
            run,
            messages,
            patience,
            idle: Mutex::default(),
            h2,
        }
    }

    /// Sends one request and waits for what it is told.
    pub(super) async fn ask(&self, arrival: &Arrival) -> Outcome {
        let asked = async {
            match (arrival.kind, self.target.speaks) {
                (Kind::Ws, _) => ws::ask(self, arrival).await,
                (_, Speaks::Http1) => self.ask_h1(arrival).await,
                (_, Speaks::Http2) => self.h2.ask(self, arrival).await,
            }
        };
        // Cancelled, the request's connection is dropped, and with it the request.
        tokio::time::timeout(self.patience, asked)
            .await
            .unwrap_or(Outcome {
                told: Told::Late,
                head: None,
            })
    }

    /// Method, target and body of a request.
    pub(super) fn request(&self, arrival: &Arrival) -> (&'static str, String, Vec<u8>) {
        let method = if arrival.body > 0 { "POST" } else { "GET" };
        let body = content::body(arrival.id, arrival.body);
        (
            method,
            content::target(self.run, arrival.id, arrival.action),
            body,
        )
    }

    async fn ask_h1(&self, arrival: &Arrival) -> Outcome {
        let (method, target, body) = self.request(arrival);
        let mut wire = match self.connection(arrival).await {
            Ok(wire) => wire,
            Err(error) => return Told::Unreachable(error.to_string()).into(),
        };
        let mut head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nOracle-Request: {}\r\n",
            self.target.host, arrival.id
        );
        if !body.is_empty() {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        head += "\r\n";
        // A gateway that answers early may stop reading; its answer is what counts.
        drop(wire.send(&head, &body).await);
        let check = Check::of(self.run, arrival.id, arrival.action, &body);
        let outcome = answer(&mut wire, check).await;
        if wire.is_reusable() && !arrival.fresh {
            self.idle().push((wire, Instant::now()));
        }
        outcome
    }

    async fn connection(&self, arrival: &Arrival) -> std::io::Result<Wire> {
        let kept = || {
            if arrival.fresh {
                None
            } else {
                self.idle().pop()
            }
        };
        while let Some((mut wire, since)) = kept() {
            if since.elapsed() < KEEP && wire.is_silent().await {
                return Ok(wire);
            }
        }
        self.target.connect(b"http/1.1").await.map(Wire::new)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(Wire, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads an answer over HTTP/1.1 and judges its body as it comes.
pub(super) async fn answer(wire: &mut Wire, mut check: Check) -> Outcome {
    let head = match wire.head().await {
        Ok(head) => head,
        Err(how) => return Told::Empty(how).into(),
    };
    let came = Some(Instant::now());
    let by_app = head.status == 200 && !head.headers.contains_key("bridgehead-code");
    let mut kept = Vec::new();
    let told = loop {
        match wire.body().await {
            Ok(Body::Part(part)) if by_app => {
                check.feed(&part);
                if !check.is_right() {
                    break Told::Wrong("a byte of the answer is not the app's".into());
                }
            }
            Ok(Body::Part(part)) => {
                kept.extend_from_slice(&part[..part.len().min(FAILURE.saturating_sub(kept.len()))])
            }
            Ok(Body::End) if by_app => break whole(&check),
            Ok(Body::End) if head.headers.contains_key("oracle") => {
                break Told::AppSays(head.status);
            }
            Ok(Body::End) => break failure(head.status, &head.headers, &kept),
            Err(how) => break Told::Aborted(how),
        }
    };
    Outcome { told, head: came }
}

/// An answer that was told to be whole.
pub(super) fn whole(check: &Check) -> Told {
    match check.is_whole() {
        true => Told::Right,
        false => Told::Wrong("an answer was told to be whole and is not the app's".into()),
    }
}

/// True if the app was asked to fail, so that a failure is what should come.
pub(super) fn asks_to_fail(action: Action) -> bool {
    Action::FAULTS.contains(&action)
}
