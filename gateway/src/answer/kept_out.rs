//! The words for a client that an access rule keeps out.
//!
//! Its code is the one of an address without an app, which is what such a client has to do with: come
//! to another address, or be let in. But there is an app, and the code's own words would deny it.

use bridgehead_protocol::verdict::{Code, Reason};

use super::prefer::Language;
use crate::error::Failure;

/// Title, sentence and hint.
pub(super) struct KeptOut {
    pub(super) title: &'static str,
    pub(super) text: &'static str,
    pub(super) hint: &'static str,
}

const ENGLISH: KeptOut = KeptOut {
    title: "No access from here",
    text: "This address is not open to the client.",
    hint: "Ask the operator for access; repeating the request will not help.",
};

const RUSSIAN: KeptOut = KeptOut {
    title: "Доступ закрыт",
    text: "Этот адрес закрыт для клиента.",
    hint: "Попросите администратора открыть доступ: повтор запроса не поможет.",
};

/// The words, if the failure is of this kind.
pub(super) fn kept_out(failure: &Failure, language: Language) -> Option<KeptOut> {
    if failure.code != Code::AppNotFound || failure.reason != Reason::Denied {
        return None;
    }
    Some(match language {
        Language::En => ENGLISH,
        Language::Ru => RUSSIAN,
    })
}
