//! What ends the process: the first SIGTERM or Ctrl-C drains, the second forces. A hangup reloads.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::WiringError;
use super::reload::Reloader;

type Next = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Requests to end, one after the other.
pub(super) struct Signals {
    next: Box<dyn FnMut() -> Next + Send>,
}

impl Signals {
    /// Listens to the system.
    #[cfg(unix)]
    pub(super) fn listen() -> Result<Self, WiringError> {
        use tokio::signal::unix::{SignalKind, signal};
        use tokio::sync::Mutex;
        let listen = |kind| {
            signal(kind).map_err(|error| WiringError::System {
                what: "cannot listen to signals",
                error,
            })
        };
        let signals = (
            listen(SignalKind::terminate())?,
            listen(SignalKind::interrupt())?,
        );
        let signals = Arc::new(Mutex::new(signals));
        Ok(Self {
            next: Box::new(move || {
                let signals = Arc::clone(&signals);
                Box::pin(async move {
                    let mut signals = signals.lock().await;
                    let (terminate, interrupt) = &mut *signals;
                    tokio::select! {
                        biased;
                        _ = terminate.recv() => {}
                        _ = interrupt.recv() => {}
                    }
                })
            }),
        })
    }

    /// Listens to Ctrl-C.
    #[cfg(not(unix))]
    pub(super) fn listen() -> Result<Self, WiringError> {
        Ok(Self {
            next: Box::new(|| {
                Box::pin(async {
                    if tokio::signal::ctrl_c().await.is_err() {
                        std::future::pending::<()>().await;
                    }
                })
            }),
        })
    }

    /// The next request to end. Cancel safe.
    pub(super) async fn next(&mut self) {
        (self.next)().await;
    }
}

/// Reloads the configuration at every SIGHUP.
#[cfg(unix)]
pub(super) fn on_hangup(reloader: Arc<Reloader>) -> Result<(), WiringError> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangups = signal(SignalKind::hangup()).map_err(|error| WiringError::System {
        what: "cannot listen to signals",
        error,
    })?;
    tokio::spawn(async move {
        while hangups.recv().await.is_some() {
            let reloader = Arc::clone(&reloader);
            // It logs what came of it.
            let told = tokio::task::spawn_blocking(move || reloader.reload()).await;
            if told.is_err() {
                tracing::error!("the reload panicked");
            }
        }
    });
    Ok(())
}

/// There is no such signal here; the admin listener reloads as well.
#[cfg(not(unix))]
pub(super) fn on_hangup(_: Arc<Reloader>) -> Result<(), WiringError> {
    Ok(())
}
