//! What an agent has to do with the world around it: carriers, connections to apps, its own pace.
//!
//! A running agent uses sockets and is never held. The simulation hands in pipes, and stops an agent
//! as SIGSTOP stops a process. Nothing is decided here that depends on which it is.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bridgehead_protocol::handshake::Token;
use bridgehead_protocol::io::carrier::Carrier;
use tokio::time::Instant;

use crate::app::connect::{AppSocket, ConnectError};
use crate::carrier::address::GatewayAddress;
use crate::carrier::dial::{DialError, Dialer};
use crate::config::RunOptions;
use crate::error::AgentError;

/// A boxed future; one per carrier or connection.
pub type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes carriers. Cancel safe: a dropped future closes what it opened.
pub trait Dial: Debug + Send + Sync {
    /// A carrier to `gateway`, or why there is none; see [`Dialer::dial`].
    fn dial<'a>(
        &'a self,
        gateway: &'a GatewayAddress,
        token: &'a Token,
        until: Instant,
    ) -> Soon<'a, Result<Carrier, DialError>>;
}

/// Makes connections to apps. Cancel safe, and no byte of a stream is written.
pub trait Connect: Debug + Send + Sync {
    /// A connection to the app of that name, or why there is none.
    fn connect<'a>(
        &'a self,
        app: &'a str,
        deadline: Instant,
    ) -> Soon<'a, Result<AppSocket, ConnectError>>;
}

impl Dial for Dialer {
    fn dial<'a>(
        &'a self,
        gateway: &'a GatewayAddress,
        token: &'a Token,
        until: Instant,
    ) -> Soon<'a, Result<Carrier, DialError>> {
        Box::pin(Self::dial(self, gateway, token, until))
    }
}

/// The world around one agent.
#[derive(Clone, Debug)]
pub struct Outside {
    /// The way to gateways.
    pub carriers: Arc<dyn Dial>,
    /// The way to apps; `None`: sockets to where each app listens.
    pub apps: Option<Arc<dyn Connect>>,
    /// Whether its tasks run.
    pub pace: Pace,
}

impl Outside {
    /// Sockets, and nobody who holds the agent.
    ///
    /// # Errors
    /// If TLS towards the gateways cannot be set up.
    pub fn sockets(options: &RunOptions) -> Result<Self, AgentError> {
        let dialer = Dialer::build(
            &options.gateways,
            &options.roots,
            options.certificate.as_ref(),
            options.proxies.clone(),
        )?;
        Ok(Self {
            carriers: Arc::new(dialer),
            apps: None,
            pace: Pace::free(),
        })
    }
}

/// Whether the tasks of an agent run. Clones mean the same agent.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    held: Option<Arc<Mutex<Held>>>,
}

#[derive(Debug, Default)]
struct Held {
    now: bool,
    waiting: Vec<Waker>,
}

impl Pace {
    /// Never held.
    #[must_use]
    pub const fn free() -> Self {
        Self { held: None }
    }

    /// One that can be held.
    #[must_use]
    pub fn steerable() -> Self {
        Self {
            held: Some(Arc::default()),
        }
    }

    /// No task of the agent is polled from here on. Does nothing to one that is free.
    pub fn hold(&self) {
        if let Some(held) = &self.held {
            lock(held).now = true;
        }
    }

    /// The agent goes on where it stood.
    pub fn go_on(&self) {
        let Some(held) = &self.held else { return };
        let mut held = lock(held);
        held.now = false;
        let waiting = std::mem::take(&mut held.waiting);
        drop(held);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// True while the agent is held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.as_ref().is_some_and(|held| lock(held).now)
    }

    /// `task`, polled only while the agent is not held. Each task of the agent is given through here.
    pub async fn keep<F: Future>(self, task: F) -> F::Output {
        let mut task = pin!(task);
        poll_fn(|cx| match self.poll_free(cx) {
            Poll::Ready(()) => task.as_mut().poll(cx),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    fn poll_free(&self, cx: &Context<'_>) -> Poll<()> {
        let Some(held) = &self.held else {
            return Poll::Ready(());
        };
        let mut held = lock(held);
        if !held.now {
            return Poll::Ready(());
        }
        if !held.waiting.iter().any(|w| w.will_wake(cx.waker())) {
            held.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_held_task_stands_still_and_goes_on_where_it_stood() {
        let pace = Pace::steerable();
        let task = tokio::spawn(pace.clone().keep(async {
            sleep(Duration::from_secs(1)).await;
            Instant::now()
        }));
        let began = Instant::now();
        tokio::task::yield_now().await;
        pace.hold();
        sleep(Duration::from_secs(5)).await;
        assert!(pace.is_held() && !task.is_finished());
        pace.go_on();
        let woke = task.await.expect("it goes on");
        assert_eq!(woke - began, Duration::from_secs(5));
    }

    #[tokio::test]
    async fn what_is_free_is_never_held() {
        let pace = Pace::free();
        pace.hold();
        assert_eq!(pace.keep(async { 7 }).await, 7);
    }
}
