//! The JSON body. Two dialects live in the wild (`error.code` and a top-level `code`), so both
//! are served. Owns shape and key order; sentences come from `words`.
//!
//! Invariant: `retryAfter` appears in both places or in neither, and never for `BH_APP_TIMEOUT`.

use bridgehead_protocol::verdict::Operation;
use serde::Serialize;

use super::prefer::Language;
use super::{Asked, words};
use crate::error::Failure;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    success: bool,
    error: Inner<'a>,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inner<'a> {
    code: &'static str,
    message: String,
    hint: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u32>,
    delivery: &'static str,
    reason: &'static str,
    stage: &'static str,
    window: Option<&'static str>,
    retry: Retry,
    request_id: String,
    outcome_url: Option<&'a str>,
}

#[derive(Serialize)]
struct Retry {
    read: &'static str,
    write: &'static str,
}

/// The body as text.
pub(super) fn write(failure: &Failure, asked: &Asked) -> String {
    let code = failure.code.as_str();
    let retry_after = failure.pause();
    let envelope = Envelope {
        success: false,
        error: Inner {
            code,
            message: words::message(failure, Language::En),
            hint: words::hint(failure, Language::En),
            retry_after,
            delivery: failure.delivery.as_str(),
            reason: failure.reason.as_str(),
            stage: failure.stage.as_str(),
            window: failure.window.map(|window| window.as_str()),
            retry: Retry {
                read: failure.advice(Operation::Read).as_str(),
                write: failure.advice(Operation::Write).as_str(),
            },
            request_id: asked.request_id.hyphenated().to_string(),
            outcome_url: asked.outcome_url.as_deref(),
        },
        code,
        retry_after,
    };
    serde_json::to_string(&envelope).unwrap_or_default()
}
