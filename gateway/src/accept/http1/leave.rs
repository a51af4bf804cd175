//! Has the client left? A reset or a failed write says so; a FIN does not.
//!
//! After its FIN a client may have closed (browsers, `^C` in curl, `fetch` aborted) or may only have
//! ended its side and still wait (`nc -N`, some test tools). TCP shows the difference only to who
//! sends: a closed peer answers data with a reset. "The app's socket closes within a second of the
//! client's leaving" and "an answer after the client's FIN arrives" are both promised, so:
//!
//! 1. Nothing is concluded for a grace time; most answers are out by then.
//! 2. Before the final head an HTTP/1.1 client is sent one `100 Continue`, which every client must
//!    skip. A reset within the next moments means it left; silence means it waits.
//! 3. After the head there is nothing harmless to send; the answer's own bytes are the probe. If
//!    none were written within the grace time, a client that wanted to keep the connection has left
//!    (half-closing means it can send no further request), while one that said `close` or speaks
//!    HTTP/1.0 is believed to wait, and found out by the next write.
//! 4. In a tunnel the FIN is passed on; resets are found by reading and writing.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::core::{AnswerState, Core, Fill};
use crate::accept::Transport;
use crate::accept::upload::Alarm;

/// From the FIN to the first conclusion.
const GRACE: Duration = Duration::from_millis(300);

/// First and longest pause between looks for the reset that a probe may bring. Resets that do not
/// wake the task (the socket is not being read) are also found at the longest pause.
const LOOK_FIRST: Duration = Duration::from_millis(50);
const LOOK_LAST: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub(super) struct LeaveWatch {
    /// When the FIN was noticed.
    fin_at: Option<Instant>,
    /// When bytes were first written after it.
    probed_at: Option<Instant>,
    /// When the kernel is next asked for a reset.
    look_at: Option<Instant>,
    alarm: Alarm,
}

impl LeaveWatch {
    /// A new exchange begins; an earlier FIN concerns it anew.
    pub(super) fn restart(&mut self) {
        self.fin_at = None;
        self.probed_at = None;
        self.look_at = None;
    }

    /// Bytes were written to the socket.
    pub(super) fn wrote(&mut self, after_fin: bool) {
        if after_fin && self.probed_at.is_none() {
            self.probed_at = Some(Instant::now());
        }
    }
}

impl<IO: Transport> Core<IO> {
    pub(super) fn poll_left(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.write_once(cx);
        if self.broken {
            return Poll::Ready(());
        }
        if self.is_tunnel() {
            return Poll::Pending;
        }
        while !self.fin {
            let Some(most) = self.peek_limit() else {
                return self.poll_reset(cx, LOOK_LAST);
            };
            match ready!(self.poll_fill(cx, most)) {
                Fill::Bytes | Fill::End => {}
                Fill::Broken => return Poll::Ready(()),
            }
        }
        self.poll_after_fin(cx)
    }

    fn poll_after_fin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let fin_at = *self.leave.fin_at.get_or_insert_with(Instant::now);
        if self.leave.probed_at.is_none() {
            ready!(self.leave.alarm.poll_at(cx, fin_at + GRACE));
            // A blocked write is a probe that is still under way.
            if self.output.is_empty() {
                match self.answer {
                    AnswerState::Waiting if self.version_11 => {
                        self.push_continue();
                        self.write_once(cx);
                    }
                    AnswerState::Open(_) if self.client_keeps => return Poll::Ready(()),
                    _ => {}
                }
            }
        }
        match self.leave.probed_at {
            _ if self.broken => Poll::Ready(()),
            None => Poll::Pending,
            Some(at) => {
                let age = Instant::now().saturating_duration_since(at);
                self.poll_reset(cx, age.clamp(LOOK_FIRST, LOOK_LAST))
            }
        }
    }

    /// Ask the kernel for a reset now and then.
    fn poll_reset(&mut self, cx: &mut Context<'_>, pause: Duration) -> Poll<()> {
        loop {
            let now = Instant::now();
            let at = *self.leave.look_at.get_or_insert(now + pause);
            if at > now {
                ready!(self.leave.alarm.poll_at(cx, at));
            }
            self.leave.look_at = None;
            if self.io.is_reset() {
                self.broken = true;
                return Poll::Ready(());
            }
        }
    }
}
