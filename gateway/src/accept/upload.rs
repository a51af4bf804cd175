//! Timers that run only while somebody polls: a reusable alarm, and the limit on slow uploads.
//!
//! An upload is slow only by time that *we* spent waiting for the client. The corridor stops polling
//! while it has no room for more, and nobody tells us; so waiting is counted in ticks, and a pause
//! longer than a tick counts as one tick. Invariant: time in which the body was not wanted never
//! makes a client too slow.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

use super::limits::Limits;

/// How often waiting is counted: the precision of the upload limits.
const TICK: Duration = Duration::from_secs(1);

/// An alarm that is allocated once and set many times.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    /// Ready once `at` has come; otherwise the task is woken then.
    pub(super) fn poll_at(&mut self, cx: &mut Context<'_>, at: Instant) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.as_mut().poll(cx)
    }
}

/// What we know about the pace of one upload.
#[derive(Debug, Default)]
pub(super) struct UploadWatch {
    /// Waiting since the last byte.
    idle: Duration,
    /// All waiting.
    waited: Duration,
    /// Bytes that came.
    bytes: u64,
    /// When waiting was last counted; `None` while bytes flow.
    counted: Option<Instant>,
    alarm: Alarm,
}

impl UploadWatch {
    /// A new body begins.
    pub(super) fn restart(&mut self) {
        let alarm = std::mem::take(&mut self.alarm);
        *self = Self {
            alarm,
            ..Self::default()
        };
    }

    /// Body bytes came.
    pub(super) fn progress(&mut self, bytes: usize) {
        self.count(Instant::now());
        self.counted = None;
        self.idle = Duration::ZERO;
        self.bytes = self.bytes.saturating_add(bytes as u64);
    }

    /// The caller found nothing to read and is about to wait. Ready if the client is too slow.
    pub(super) fn poll_slow(&mut self, cx: &mut Context<'_>, limits: &Limits) -> Poll<()> {
        loop {
            let now = Instant::now();
            self.count(now);
            self.counted = Some(now);
            let earned = self.waited.as_secs().saturating_mul(limits.upload_rate);
            let slow = self.waited > limits.upload_grace && self.bytes < earned;
            if slow || self.idle >= limits.upload_idle {
                return Poll::Ready(());
            }
            if self.alarm.poll_at(cx, now + TICK).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn count(&mut self, now: Instant) {
        if let Some(last) = self.counted {
            let span = now.saturating_duration_since(last).min(TICK);
            self.idle += span;
            self.waited += span;
        }
    }
}
