//! One failed exchange, as every room hands it on: the corridor makes it, `answer` puts it into
//! HTTP, telemetry counts it.
//!
//! Owns the value and the rules that keep it honest: evidence is never weaker than the code's row,
//! and a code that never has a `Retry-After` cannot be given one. It must not know HTTP types.

use bridgehead_protocol::verdict::{
    Advice, Code, Delivery, Judgement, Operation, Reason, RetryAfter, Stage, WindowKind, advise,
};

/// Why an exchange failed and what may be said about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The name clients act on.
    pub code: Code,
    /// What happened.
    pub reason: Reason,
    /// Did the app see the request?
    pub delivery: Delivery,
    /// How far the request is known to have got.
    pub stage: Stage,
    /// Which window ran out, if one did.
    pub window: Option<WindowKind>,
    /// Seconds to wait; always `None` where the code's row says never.
    pub retry_after: Option<u32>,
    /// A sentence for a person: the limit's name, or since when and how often it was refused.
    pub detail: Option<String>,
    /// HTTP status, where it differs from the row's.
    pub status: Option<u16>,
}

impl Failure {
    /// Refused before anything was handed over: `not_delivered`, with the row's default pause.
    #[must_use]
    pub fn refused(code: Code, reason: Reason) -> Self {
        Self::judged(code, reason, Judgement::NOT_DELIVERED)
    }

    /// Failed with what the evidence allows to say, and the row's default pause.
    #[must_use]
    pub fn judged(code: Code, reason: Reason, judgement: Judgement) -> Self {
        Self {
            code,
            reason,
            delivery: judgement.delivery,
            stage: judgement.stage,
            window: None,
            retry_after: code.row().default_retry,
            detail: None,
            status: None,
        }
    }

    /// Names the window that ran out.
    #[must_use]
    pub fn with_window(mut self, window: WindowKind) -> Self {
        self.window = Some(window);
        self
    }

    /// Sets the pause, at least one second. Without effect where the code's row says never: there
    /// a pause would suggest that waiting makes the repeat safe or useful.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        if self.code.row().retry_after != RetryAfter::Never {
            self.retry_after = Some(seconds.max(1));
        }
        self
    }

    /// Adds a sentence for a person. It reaches the client: no secrets, no inner addresses.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Answers with another status than the row's, 400 to 599; anything else is ignored.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        if (400..600).contains(&status) {
            self.status = Some(status);
        }
        self
    }

    /// Seconds a client is told to wait. `None` where the row says never, whatever the field holds.
    #[must_use]
    pub fn pause(&self) -> Option<u32> {
        self.retry_after
            .filter(|_| self.code.row().retry_after != RetryAfter::Never)
    }

    /// HTTP status of the answer.
    #[must_use]
    pub fn http_status(&self) -> u16 {
        self.status.unwrap_or(self.code.row().status)
    }

    /// Advice for this very answer.
    #[must_use]
    pub fn advice(&self, operation: Operation) -> Advice {
        advise(self.code, self.delivery, operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_not_delivered_and_carries_the_default_pause() {
        let failure = Failure::refused(Code::QueueTimeout, Reason::QueueWait);
        assert_eq!(failure.delivery, Delivery::NotDelivered);
        assert_eq!(failure.stage, Stage::None);
        assert_eq!(failure.retry_after, Some(10));
        assert_eq!(failure.http_status(), 504);
    }

    #[test]
    fn an_app_timeout_cannot_be_given_a_pause() {
        let failure = Failure::refused(Code::BhAppTimeout, Reason::FirstFrame)
            .with_window(WindowKind::FirstFrame)
            .with_retry_after(5);
        assert_eq!(failure.retry_after, None);
        let forced = Failure {
            retry_after: Some(5),
            ..failure.clone()
        };
        assert_eq!(forced.pause(), None);
        assert_eq!(failure.window, Some(WindowKind::FirstFrame));
    }

    #[test]
    fn a_pause_is_never_zero() {
        let failure = Failure::refused(Code::RateLimited, Reason::Rate).with_retry_after(0);
        assert_eq!(failure.retry_after, Some(1));
    }

    #[test]
    fn proof_lifts_the_advice_of_this_answer() {
        let unknown = Judgement {
            delivery: Delivery::Unknown,
            stage: Stage::All,
        };
        let lost = Failure::judged(Code::BhAppStarting, Reason::TunnelLost, unknown);
        assert_eq!(lost.advice(Operation::Write), Advice::VerifyFirst);
        let refused = Failure::refused(Code::BhAppStarting, Reason::ConnectRefused);
        assert_eq!(refused.advice(Operation::Write), Advice::Safe);
    }

    #[test]
    fn only_a_failure_status_replaces_the_rows() {
        let failure = Failure::refused(Code::ServiceUnavailable, Reason::Denied);
        assert_eq!(failure.clone().with_status(403).http_status(), 403);
        assert_eq!(failure.with_status(200).http_status(), 503);
    }
}
