//! The only place of the tests crate that waits for time to pass.
//!
//! Owns: bounded waiting for a condition, and the deliberate slowness of app doubles. Must not be
//! used to "give it a moment": every wait has a condition and a deadline that fails loudly.

use std::future::Future;
use std::time::{Duration, Instant};

/// Generous bound for anything that should happen at once; only a hang reaches it.
pub const SOON: Duration = Duration::from_secs(15);

/// How often a condition that cannot be awaited is asked again.
const STEP: Duration = Duration::from_millis(10);

/// Awaits `future`; panics with `what` after `limit`.
pub async fn within<F: Future>(limit: Duration, what: &str, future: F) -> F::Output {
    match tokio::time::timeout(limit, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not happen within {limit:?}"),
    }
}

/// Asks `probe` again and again until it gives a value; panics with `what` after `limit`.
pub async fn until<T, F, P>(limit: Duration, what: &str, mut probe: P) -> T
where
    F: Future<Output = Option<T>>,
    P: FnMut() -> F,
{
    let begun = Instant::now();
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(
            begun.elapsed() < limit,
            "{what} did not happen within {limit:?}"
        );
        tokio::time::sleep(STEP).await;
    }
}

/// As [`until`], without a runtime.
pub fn until_blocking<T>(limit: Duration, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(
            begun.elapsed() < limit,
            "{what} did not happen within {limit:?}"
        );
        // The child cannot be awaited: it is a process, and there may be no runtime here.
        std::thread::park_timeout(STEP);
    }
}

/// The deliberate slowness of a scripted peer: part of the fault under test, never a synchronisation.
pub async fn dawdle(how_long: Duration) {
    tokio::time::sleep(how_long).await;
}

/// True if `future` stays unfinished for all of `how_long`: the check that nothing happens.
pub async fn nothing_for<F: Future>(how_long: Duration, future: F) -> bool {
    tokio::time::timeout(how_long, future).await.is_err()
}
