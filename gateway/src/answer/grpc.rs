//! The gRPC dialect: a trailers-only answer (HTTP 200, one head that also ends the stream), the
//! status in `grpc-status`, the verdict in metadata.
//!
//! gRPC libraries repeat `UNAVAILABLE` on their own; `grpc-retry-pushback-ms: -1` forbids it
//! unless a repeat is safe even for a write, because a call does not say which it is.

use std::fmt::Write as _;

use bridgehead_protocol::verdict::{Advice, Code, Operation};
use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderName, HeaderValue};

use super::prefer::Language;
use super::{Answer, Asked, common, cors, insert, words};
use crate::error::Failure;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
const REASON: HeaderName = HeaderName::from_static("bridgehead-reason");
const STAGE: HeaderName = HeaderName::from_static("bridgehead-stage");
const WINDOW: HeaderName = HeaderName::from_static("bridgehead-window");
const RETRY_READ: HeaderName = HeaderName::from_static("bridgehead-retry-read");
const RETRY_WRITE: HeaderName = HeaderName::from_static("bridgehead-retry-write");
const OUTCOME_URL: HeaderName = HeaderName::from_static("bridgehead-outcome-url");

const DEADLINE_EXCEEDED: HeaderValue = HeaderValue::from_static("4");
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");

/// The whole answer.
pub(super) fn answer(failure: &Failure, asked: &Asked) -> Answer {
    let mut headers = common(failure, asked);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    headers.insert(GRPC_STATUS, grpc_status(failure.code));
    insert(
        &mut headers,
        GRPC_MESSAGE,
        &percent_encode(&words::message(failure, Language::En)),
    );
    let (read, write) = (
        failure.advice(Operation::Read),
        failure.advice(Operation::Write),
    );
    if let Some(milliseconds) = pushback(write, failure.pause()) {
        headers.insert(PUSHBACK, HeaderValue::from(milliseconds));
    }
    headers.insert(REASON, HeaderValue::from_static(failure.reason.as_str()));
    headers.insert(STAGE, HeaderValue::from_static(failure.stage.as_str()));
    if let Some(window) = failure.window {
        headers.insert(WINDOW, HeaderValue::from_static(window.as_str()));
    }
    headers.insert(RETRY_READ, HeaderValue::from_static(read.as_str()));
    headers.insert(RETRY_WRITE, HeaderValue::from_static(write.as_str()));
    if let Some(url) = &asked.outcome_url {
        insert(&mut headers, OUTCOME_URL, url);
    }
    cors::expose(asked, &mut headers);
    Answer {
        status: StatusCode::OK,
        headers,
        body: Bytes::new(),
        trailers_only_grpc: true,
    }
}

/// Time ran out while the call may have been under way, or the call is not to be had now. A queue
/// that took too long is the second: nothing was started.
fn grpc_status(code: Code) -> HeaderValue {
    match code {
        Code::BhAppTimeout | Code::BitrixTimeout | Code::ClientTimeout => DEADLINE_EXCEEDED,
        Code::QueueOverflow
        | Code::QueueTimeout
        | Code::RateLimited
        | Code::OperationTimeLimit
        | Code::TimeoutQuarantine
        | Code::BitrixError
        | Code::BitrixUnavailable
        | Code::PoolExhausted
        | Code::DbTransient
        | Code::ServiceUnavailable
        | Code::TokenRefreshFailed
        | Code::ErrorLoopDetected
        | Code::BhAppStarting
        | Code::LargeBodyBackendBusy
        | Code::BhAppBroken
        | Code::BadRequest
        | Code::AppNotFound
        | Code::BodyTooLarge
        | Code::UriTooLong
        | Code::Misdirected
        | Code::HeadTooLarge
        | Code::UpgradeUnsupported => UNAVAILABLE,
    }
}

/// −1 forbids a repeat; a number asks for a pause; nothing leaves it to the client's own policy.
fn pushback(write: Advice, pause: Option<u32>) -> Option<i64> {
    match (write, pause) {
        (Advice::Safe, Some(seconds)) => Some(i64::from(seconds) * 1000),
        (Advice::Safe, None) => None,
        (Advice::AfterFix | Advice::VerifyFirst | Advice::NeverAutomatic, _) => Some(-1),
    }
}

/// gRPC's percent encoding of UTF-8: printable ASCII but `%` stays.
fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_percent_encoded() {
        assert_eq!(percent_encode("a b~ 50%\r\nд"), "a b~ 50%25%0D%0A%D0%B4");
    }

    #[test]
    fn only_a_repeat_that_is_safe_for_a_write_is_not_forbidden() {
        assert_eq!(pushback(Advice::Safe, Some(2)), Some(2000));
        assert_eq!(pushback(Advice::Safe, None), None);
        for &advice in Advice::ALL.iter().filter(|&&advice| advice != Advice::Safe) {
            assert_eq!(pushback(advice, Some(2)), Some(-1));
            assert_eq!(pushback(advice, None), Some(-1));
        }
    }
}
