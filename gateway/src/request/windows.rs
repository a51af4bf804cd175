//! The two windows over one exchange. Pure: `now` comes in, a deadline comes out.
//!
//! Source of the rule: a request may wait so long without a frame from its app, and a started
//! answer may be silent so long. A frame is progress made by the app: bytes it wrote, or request
//! bytes it took. Time in which somebody else is waited for does not count.

use std::time::Duration;

use bridgehead_protocol::time::Moment;
use bridgehead_protocol::verdict::WindowKind;

/// Lengths of the windows; `None` = this window does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// From the hand-over of the head to the final head of the answer.
    pub first_frame: Duration,
    /// Silence inside a started answer.
    pub stall: Duration,
    /// The same for streaming types.
    pub streaming_stall: Duration,
}

/// Which kind of answer has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// An ordinary body.
    Plain,
    /// A streaming type: its own, longer window.
    Streaming,
    /// gRPC, or a byte pipe: no window.
    Endless,
}

/// The windows of one exchange.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    lengths: Lengths,
    running: Option<(WindowKind, Duration)>,
    since: Moment,
    paused: Option<Moment>,
}

impl Windows {
    /// The first-frame window, from the first try to hand the head over.
    #[must_use]
    pub fn open(lengths: Lengths, now: Moment) -> Self {
        let running = Some((WindowKind::FirstFrame, lengths.first_frame));
        Self {
            lengths,
            running,
            since: now,
            paused: None,
        }
    }

    /// The app made progress.
    pub fn progress(&mut self, now: Moment) {
        self.since = now;
        if self.paused.is_some() {
            self.paused = Some(now);
        }
    }

    /// The final head arrived.
    pub fn head(&mut self, now: Moment, started: Started) {
        self.running = match started {
            Started::Plain => Some((WindowKind::Stall, self.lengths.stall)),
            Started::Streaming => Some((WindowKind::Stall, self.lengths.streaming_stall)),
            Started::Endless => None,
        };
        self.since = now;
        self.paused = None;
    }

    /// Somebody else is waited for (`paused`), or no longer.
    pub fn pause(&mut self, now: Moment, paused: bool) {
        match (self.paused, paused) {
            (None, true) => self.paused = Some(now),
            (Some(from), false) => {
                self.since += now.since(from);
                self.paused = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// True until the final head.
    #[must_use]
    pub fn is_first_frame(&self) -> bool {
        matches!(self.running, Some((WindowKind::FirstFrame, _)))
    }

    /// How long an app may be silent before its final head.
    #[must_use]
    pub const fn first_frame(&self) -> Duration {
        self.lengths.first_frame
    }

    /// When the running window will have run out; `None` while none runs.
    #[must_use]
    pub fn due(&self) -> Option<Moment> {
        let (_, length) = self.running?;
        self.paused.is_none().then(|| self.since + length)
    }

    /// The window that has run out at `now`, if one has.
    #[must_use]
    pub fn fired(&self, now: Moment) -> Option<WindowKind> {
        let (kind, _) = self.running?;
        self.due().filter(|due| *due <= now).map(|_| kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTHS: Lengths = Lengths {
        first_frame: Duration::from_secs(30),
        stall: Duration::from_secs(15),
        streaming_stall: Duration::from_secs(300),
    };

    fn at(second: u64) -> Moment {
        Moment::from_micros(second * 1_000_000)
    }

    #[test]
    fn an_app_that_never_says_a_word_runs_out_the_first_window() {
        let windows = Windows::open(LENGTHS, at(0));
        assert_eq!(windows.fired(at(29)), None);
        assert_eq!(windows.fired(at(30)), Some(WindowKind::FirstFrame));
    }

    #[test]
    fn request_bytes_that_the_app_takes_restart_the_window() {
        let mut windows = Windows::open(LENGTHS, at(0));
        windows.progress(at(20));
        assert_eq!(windows.fired(at(49)), None);
        assert_eq!(windows.fired(at(50)), Some(WindowKind::FirstFrame));
    }

    #[test]
    fn a_started_answer_has_the_shorter_window() {
        let mut windows = Windows::open(LENGTHS, at(0));
        windows.head(at(10), Started::Plain);
        assert_eq!(windows.fired(at(24)), None);
        windows.progress(at(24));
        assert_eq!(windows.fired(at(39)), Some(WindowKind::Stall));
    }

    #[test]
    fn streaming_answers_wait_longer_and_endless_ones_for_ever() {
        let mut windows = Windows::open(LENGTHS, at(0));
        windows.head(at(0), Started::Streaming);
        assert_eq!(windows.due(), Some(at(300)));
        windows.head(at(0), Started::Endless);
        assert_eq!((windows.due(), windows.fired(at(999_999))), (None, None));
    }

    #[test]
    fn time_spent_waiting_for_the_client_does_not_count() {
        let mut windows = Windows::open(LENGTHS, at(0));
        windows.pause(at(10), true);
        windows.pause(at(15), true);
        assert_eq!(windows.due(), None);
        windows.pause(at(110), false);
        assert_eq!(windows.due(), Some(at(130)));
    }

    #[test]
    fn progress_during_a_pause_starts_the_window_anew_when_it_ends() {
        let mut windows = Windows::open(LENGTHS, at(0));
        windows.pause(at(10), true);
        windows.progress(at(20));
        windows.pause(at(25), false);
        assert_eq!(windows.due(), Some(at(55)));
    }
}
