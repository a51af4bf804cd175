//! The codes and their one table. A client that knows only a code acts on its row; a single answer
//! may carry stronger evidence (see `advice` and `evidence`), never weaker.
//!
//! Owns names, HTTP statuses, fixed advice, `Retry-After` defaults and the English sentences.
//! It must not hold anything that depends on one request.
//!
//! Invariants: one row for each code, in the order of declaration (checked at compile time);
//! `BH_APP_TIMEOUT` never has a `Retry-After`, because a pause does not make a repeat safe.

use super::{Advice, Operation};

words! {
    /// A failure's name, stable for clients. The first sixteen are shared with the platform's own
    /// errors; the rest say what only an edge can say.
    Code {
        /// The bounded queue refused before the request started.
        QueueOverflow = "QUEUE_OVERFLOW",
        /// The request waited past the queue's limit and was taken out before it started.
        QueueTimeout = "QUEUE_TIMEOUT",
        /// A local limiter, or the target by frequency, refused.
        RateLimited = "RATE_LIMITED",
        /// The target's operation-time limit; later ones are local.
        OperationTimeLimit = "OPERATION_TIME_LIMIT",
        /// A local pause after timeouts.
        TimeoutQuarantine = "TIMEOUT_QUARANTINE",
        /// The target did not answer in time.
        BitrixTimeout = "BITRIX_TIMEOUT",
        /// The target refused for a business reason.
        BitrixError = "BITRIX_ERROR",
        /// The target failed with 5xx, or the network to it did.
        BitrixUnavailable = "BITRIX_UNAVAILABLE",
        /// No database connection in time.
        PoolExhausted = "POOL_EXHAUSTED",
        /// A deadlock, a serialization failure or a lost database connection.
        DbTransient = "DB_TRANSIENT",
        /// The edge is overloaded, draining, or failed internally.
        ServiceUnavailable = "SERVICE_UNAVAILABLE",
        /// The OAuth refresh failed; the target was not called.
        TokenRefreshFailed = "TOKEN_REFRESH_FAILED",
        /// The breaker on a run of identical failures.
        ErrorLoopDetected = "ERROR_LOOP_DETECTED",
        /// The exchange ended without a byte from the app.
        BhAppStarting = "BH_APP_STARTING",
        /// The exchange was still open and silent when a window ran out.
        BhAppTimeout = "BH_APP_TIMEOUT",
        /// The gate for large bodies refused before routing.
        LargeBodyBackendBusy = "LARGE_BODY_BACKEND_BUSY",
        /// The exchange ended after a byte of the app and before a final head went out.
        BhAppBroken = "BH_APP_BROKEN",
        /// The request is not well formed.
        BadRequest = "BAD_REQUEST",
        /// No route for this host.
        AppNotFound = "APP_NOT_FOUND",
        /// The client sent its request too slowly.
        ClientTimeout = "CLIENT_TIMEOUT",
        /// The body is larger than the route allows.
        BodyTooLarge = "BODY_TOO_LARGE",
        /// The request target is too long.
        UriTooLong = "URI_TOO_LONG",
        /// The host does not belong to the connection it came on.
        Misdirected = "MISDIRECTED",
        /// The request head is too large.
        HeadTooLarge = "HEAD_TOO_LARGE",
        /// The asked upgrade cannot be served.
        UpgradeUnsupported = "UPGRADE_UNSUPPORTED",
    }
}

words! {
    /// Did a request that failed with a code reach its target, as far as the code alone tells?
    Reached {
        /// It did not.
        No = "no",
        /// The code alone does not tell.
        Unknown = "unknown",
        /// It did.
        Yes = "yes",
    }
}

words! {
    /// Whether an answer with a code carries `Retry-After`.
    RetryAfter {
        /// Never.
        Never = "never",
        /// When a useful pause is known.
        Sometimes = "sometimes",
        /// Always.
        Always = "always",
    }
}

/// What is fixed for a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Whose row it is.
    pub code: Code,
    /// HTTP status of an answer made by the gateway.
    pub status: u16,
    /// Did the request reach its target?
    pub reached: Reached,
    /// Advice for a read.
    pub read: Advice,
    /// Advice for a write.
    pub write: Advice,
    /// Does an answer carry `Retry-After`?
    pub retry_after: RetryAfter,
    /// Seconds for `Retry-After` where nothing better was computed.
    pub default_retry: Option<u32>,
    /// What happened, one sentence.
    pub text: &'static str,
    /// What to do, one sentence.
    pub hint: &'static str,
}

impl Row {
    /// The row's advice for `operation`.
    #[must_use]
    pub const fn advice(&self, operation: Operation) -> Advice {
        match operation {
            Operation::Read => self.read,
            Operation::Write => self.write,
        }
    }
}

impl Code {
    /// The codes that clients of the platform know already, in the order of its documentation.
    pub const SIXTEEN: &'static [Self] = Self::ALL.split_at(16).0;

    /// The row of this code.
    #[must_use]
    pub const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}

/// Advice for a read and for a write.
type Pair = (Advice, Advice);
/// Whether `Retry-After` is sent, and its default in seconds.
type Pause = (RetryAfter, Option<u32>);

const SAFE: Pair = (Advice::Safe, Advice::Safe);
const VERIFY: Pair = (Advice::Safe, Advice::VerifyFirst);
const FIX: Pair = (Advice::AfterFix, Advice::AfterFix);
const PERSON: Pair = (Advice::AfterFix, Advice::NeverAutomatic);

const NEVER: Pause = (RetryAfter::Never, None);
const ADVISED: Pause = (RetryAfter::Sometimes, None);

const fn always(seconds: u32) -> Pause {
    (RetryAfter::Always, Some(seconds))
}

const fn row(
    code: Code,
    status: u16,
    reached: Reached,
    advice: Pair,
    pause: Pause,
    text: &'static str,
    hint: &'static str,
) -> Row {
    let (read, write) = advice;
    let (retry_after, default_retry) = pause;
    Row {
        code,
        status,
        reached,
        read,
        write,
        retry_after,
        default_retry,
        text,
        hint,
    }
}

/// Defaults of computed pauses are their bounds: one second for what drains or refills, the first
/// pause of a quarantine, and for the operation-time limit its whole accounting period.
#[rustfmt::skip]
static TABLE: [Row; Code::ALL.len()] = [
    row(Code::QueueOverflow, 503, Reached::No, SAFE, always(1),
        "The app's queue is full, so the request was refused before it was started.",
        "Wait for Retry-After, send fewer requests at once and add a random delay to every repeat."),
    row(Code::QueueTimeout, 504, Reached::No, SAFE, always(10),
        "The request waited in the queue for too long and was taken out before it was started.",
        "Wait for Retry-After and repeat."),
    row(Code::RateLimited, 429, Reached::Unknown, SAFE, always(1),
        "Too many requests came in a short time, so this one was refused without being carried out.",
        "Wait for Retry-After and repeat at a lower rate."),
    row(Code::OperationTimeLimit, 429, Reached::Unknown, VERIFY, always(600),
        "The method has used up the execution time that the target grants it for now.",
        "Do not repeat before Retry-After; check whether a write took effect before you repeat it."),
    row(Code::TimeoutQuarantine, 503, Reached::No, SAFE, always(30),
        "The app is paused after a run of timeouts, so the request was stopped before it was sent.",
        "Wait for the whole Retry-After; earlier requests only delay the recovery."),
    row(Code::BitrixTimeout, 504, Reached::Yes, VERIFY, ADVISED,
        "The target received the call and did not answer in time; it may still be carrying it out.",
        "Wait for the advised pause and check whether a write took effect before you repeat it."),
    row(Code::BitrixError, 422, Reached::Yes, PERSON, NEVER,
        "The target refused the call for a business reason.",
        "Mend the cause named by b24Code and the error's fields; waiting changes nothing."),
    row(Code::BitrixUnavailable, 502, Reached::Unknown, VERIFY, NEVER,
        "The target failed or could not be reached, and nothing shows whether it carried out the call.",
        "Repeat a read with growing pauses; check whether a write took effect before you repeat it."),
    row(Code::PoolExhausted, 503, Reached::Unknown, VERIFY, always(1),
        "No database connection became free in time, and the request may have been partly handled.",
        "Wait for Retry-After and check whether a write took effect before you repeat it."),
    row(Code::DbTransient, 503, Reached::Unknown, VERIFY, always(1),
        "A database transaction was rolled back, which does not undo calls that were already made.",
        "Wait for Retry-After and check whether a write took effect before you repeat it."),
    row(Code::ServiceUnavailable, 503, Reached::Unknown, VERIFY, always(5),
        "The gateway cannot serve the request now.",
        "Wait for Retry-After and check whether a write took effect before you repeat it, unless delivery is not_delivered."),
    row(Code::TokenRefreshFailed, 401, Reached::No, FIX, NEVER,
        "The access token could not be refreshed, so the call was not sent.",
        "Restore the authorisation first; waiting alone does not help."),
    row(Code::ErrorLoopDetected, 429, Reached::No, PERSON, always(60),
        "The same failure occurred again and again, so the request was stopped before it was sent.",
        "Remove the cause of the failures before you send the request again."),
    row(Code::BhAppStarting, 503, Reached::Unknown, VERIFY, always(2),
        "The exchange ended without a single byte from the app.",
        "Wait for Retry-After and check whether a write took effect before you repeat it, unless delivery is not_delivered."),
    row(Code::BhAppTimeout, 504, Reached::Unknown, VERIFY, NEVER,
        "The app stayed silent for too long, and it may have carried out the request or may still do so.",
        "Check whether a write took effect before you repeat it; a pause alone does not make the repeat safe."),
    row(Code::LargeBodyBackendBusy, 503, Reached::No, SAFE, always(2),
        "Too many large bodies are under way, so this one was refused before it was sent.",
        "Wait for Retry-After and repeat, or send a smaller body."),
    row(Code::BhAppBroken, 502, Reached::Yes, VERIFY, NEVER,
        "The answer of the app had begun and broke off before it could be passed on.",
        "Check whether a write took effect before you repeat it."),
    row(Code::BadRequest, 400, Reached::Unknown, PERSON, NEVER,
        "The request is not well formed.",
        "Mend the request; the same bytes will be refused again."),
    row(Code::AppNotFound, 404, Reached::No, FIX, NEVER,
        "No app is published at this address.",
        "Check the host name, or publish the app under it."),
    row(Code::ClientTimeout, 408, Reached::Unknown, VERIFY, NEVER,
        "The request did not arrive completely in time.",
        "Repeat over a better connection; check whether a write took effect first, unless delivery is not_delivered."),
    row(Code::BodyTooLarge, 413, Reached::Unknown, PERSON, NEVER,
        "The request body is larger than this address allows.",
        "Send a smaller body, or ask the operator to raise the limit."),
    row(Code::UriTooLong, 414, Reached::No, FIX, NEVER,
        "The address of the request is longer than the gateway allows.",
        "Shorten the address, for instance by moving parameters into the body."),
    row(Code::Misdirected, 421, Reached::No, FIX, NEVER,
        "The host of the request does not belong to the connection it came on.",
        "Open a new connection for this host and send the request there."),
    row(Code::HeadTooLarge, 431, Reached::No, FIX, NEVER,
        "The header fields of the request are larger or more numerous than the gateway allows.",
        "Send fewer or shorter header fields; often it helps to delete cookies."),
    row(Code::UpgradeUnsupported, 501, Reached::No, FIX, NEVER,
        "The asked protocol upgrade cannot be served here.",
        "Send the request without the upgrade, or use a protocol that the app serves."),
];

/// A row in the wrong place would give a code the advice of another; it does not compile.
const _: () = {
    let mut i = 0;
    while i < Code::ALL.len() {
        assert!(Code::ALL[i] as usize == i && TABLE[i].code as usize == i);
        i += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_row() {
        for &code in Code::ALL {
            assert_eq!(code.row().code, code);
            assert_eq!(Code::parse(code.as_str()), Some(code));
        }
    }

    #[test]
    fn the_sixteen_come_first_and_end_with_the_large_body_gate() {
        assert_eq!(Code::SIXTEEN.len(), 16);
        assert_eq!(Code::SIXTEEN.first(), Some(&Code::QueueOverflow));
        assert_eq!(Code::SIXTEEN.last(), Some(&Code::LargeBodyBackendBusy));
    }

    #[test]
    fn a_pause_has_a_default_exactly_when_it_is_always_sent() {
        for row in &TABLE {
            assert_eq!(
                row.default_retry.is_some(),
                row.retry_after == RetryAfter::Always,
                "{}",
                row.code
            );
            assert_ne!(row.default_retry, Some(0), "{}", row.code);
        }
    }

    #[test]
    fn a_write_is_never_freer_than_a_read() {
        let freedom = |advice| match advice {
            Advice::Safe => 3,
            Advice::AfterFix => 2,
            Advice::VerifyFirst => 1,
            Advice::NeverAutomatic => 0,
        };
        for row in &TABLE {
            assert!(freedom(row.write) <= freedom(row.read), "{}", row.code);
        }
    }

    #[test]
    fn a_code_that_did_not_reach_its_target_never_asks_to_verify() {
        for row in TABLE.iter().filter(|row| row.reached == Reached::No) {
            assert_ne!(row.write, Advice::VerifyFirst, "{}", row.code);
        }
    }

    #[test]
    fn texts_and_hints_are_one_plain_sentence_each() {
        for row in &TABLE {
            for sentence in [row.text, row.hint] {
                assert!(sentence.ends_with('.'), "{}: {sentence}", row.code);
                assert!(
                    !sentence.trim_end_matches('.').contains(". "),
                    "{}: {sentence}",
                    row.code
                );
                assert!(sentence.is_ascii(), "{}: {sentence}", row.code);
            }
        }
    }
}
