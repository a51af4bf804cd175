//! The page for a browser that navigates: the same facts as the JSON, for a person. Owns which
//! value goes into which place; the look is the template's, the sentences are `words`'.
//!
//! Invariant: the page reloads itself only if the app has provably not seen the request and a
//! pause is known; everything else is left to the person.

use std::sync::LazyLock;

use bridgehead_protocol::verdict::Delivery;
use http::HeaderMap;
use http::header::{self, HeaderValue};

use super::prefer::{self, Language};
use super::template::{Slot, Template};
use super::{Asked, words};
use crate::error::Failure;

/// No dependence on anything outside the page: it must work when nothing else does.
static BUILT_IN: LazyLock<Option<Template>> =
    LazyLock::new(|| Template::parse(include_str!("page.html")).ok());

/// For the built-in page, which has one inline style and no script. The operator's own page may
/// hold what it likes.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
);

/// Writes the page and the fields that belong to it.
pub(super) fn write(failure: &Failure, asked: &Asked, headers: &mut HeaderMap) -> String {
    let language = prefer::language(asked.accept_language.as_deref());
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(
        header::CONTENT_LANGUAGE,
        HeaderValue::from_static(language.tag()),
    );
    if asked.page.is_none() {
        headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    }
    let values = |slot| value(slot, failure, asked, language);
    match (asked.page.as_deref(), BUILT_IN.as_ref()) {
        (Some(page), _) | (None, Some(page)) => page.fill(values),
        (None, None) => words::message(failure, language),
    }
}

/// Seconds after which the page reloads itself.
fn refresh(failure: &Failure) -> Option<u32> {
    failure
        .pause()
        .filter(|_| failure.delivery == Delivery::NotDelivered)
}

fn value(slot: Slot, failure: &Failure, asked: &Asked, language: Language) -> String {
    let labels = words::labels(language);
    let text = match slot {
        Slot::Message => return words::message(failure, language),
        Slot::Advice => {
            return refresh(failure).map_or_else(
                || words::page_advice(failure, language).to_owned(),
                |seconds| words::reloads(seconds, language),
            );
        }
        Slot::Status => return failure.http_status().to_string(),
        Slot::RetryAfter => return number(failure.pause()),
        Slot::Refresh => return number(refresh(failure)),
        Slot::RequestId => return asked.request_id.hyphenated().to_string(),
        Slot::Lang => language.tag(),
        Slot::Title => words::title(failure, language),
        Slot::Seen => words::seen(failure.delivery, language),
        Slot::Hint => words::hint(failure, language),
        Slot::Code => failure.code.as_str(),
        Slot::Reason => failure.reason.as_str(),
        Slot::Delivery => failure.delivery.as_str(),
        Slot::Stage => failure.stage.as_str(),
        Slot::Window => failure.window.map_or("", |window| window.as_str()),
        Slot::Detail => failure.detail.as_deref().unwrap_or_default(),
        Slot::OutcomeUrl => asked.outcome_url.as_deref().unwrap_or_default(),
        Slot::Node => &asked.node,
        Slot::LabelYou => labels.you,
        Slot::LabelGateway => labels.gateway,
        Slot::LabelApp => labels.app,
        Slot::LabelAgain => labels.again,
        Slot::LabelFacts => labels.facts,
        Slot::LabelCode => labels.code,
        Slot::LabelReason => labels.reason,
        Slot::LabelDelivery => labels.delivery,
        Slot::LabelStage => labels.stage,
        Slot::LabelRequest => labels.request,
        Slot::LabelOutcome => labels.outcome,
    };
    text.to_owned()
}

fn number(seconds: Option<u32>) -> String {
    seconds
        .map(|seconds| seconds.to_string())
        .unwrap_or_default()
}
