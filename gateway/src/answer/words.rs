//! The sentences of an answer. English for programs and people, Russian for people. Owns wording
//! only; which sentence fits is read from the failure, nothing is decided here.
//!
//! Every match is total without a wildcard, so that a new code or reason does not compile before
//! it has words in both languages.

use bridgehead_protocol::verdict::{Advice, Code, Delivery, Operation, Reason};

use super::kept_out::kept_out;
use super::prefer::Language;
use super::russian::russian;
use crate::error::Failure;

/// What happened: the code's sentence, then the reason's where it adds something, then the detail.
pub(super) fn message(failure: &Failure, language: Language) -> String {
    let text = match (kept_out(failure, language), language) {
        (Some(kept_out), _) => kept_out.text,
        (None, Language::En) => failure.code.row().text,
        (None, Language::Ru) => russian(failure.code).text,
    };
    let mut message = text.to_owned();
    if let Some(cause) = cause(failure.reason, language) {
        message.push(' ');
        message.push_str(cause);
    }
    if let Some(detail) = failure
        .detail
        .as_deref()
        .filter(|detail| !detail.is_empty())
    {
        message.truncate(message.trim_end_matches('.').len());
        message.push_str(" (");
        message.push_str(detail);
        message.push_str(").");
    }
    message
}

/// What the sender should do. Where proof lifts the advice of the code, the code's own hint would
/// be needlessly careful.
pub(super) fn hint(failure: &Failure, language: Language) -> &'static str {
    if let Some(kept_out) = kept_out(failure, language) {
        return kept_out.hint;
    }
    let lifted = failure.delivery == Delivery::NotDelivered
        && failure.code.row().write == Advice::VerifyFirst;
    match (language, lifted, failure.pause().is_some()) {
        (Language::En, true, true) => {
            "The app has not seen the request and never will, so it may be repeated after Retry-After."
        }
        (Language::En, true, false) => {
            "The app has not seen the request and never will, so it may be repeated."
        }
        (Language::En, false, _) => failure.code.row().hint,
        (Language::Ru, ..) => russian(failure.code)
            .hint
            .unwrap_or_else(|| page_advice(failure, language)),
    }
}

/// What a person before a page may do.
pub(super) fn page_advice(failure: &Failure, language: Language) -> &'static str {
    if let Some(kept_out) = kept_out(failure, language) {
        return kept_out.hint;
    }
    let safe = failure.advice(Operation::Write) == Advice::Safe;
    match (language, failure.advice(Operation::Read), safe) {
        (Language::En, Advice::Safe, true) => "You can try again without risk.",
        (Language::Ru, Advice::Safe, true) => "Можно спокойно попробовать ещё раз.",
        (Language::En, Advice::Safe, false) => {
            "If you only wanted to look at something, reload the page. If you sent something, check first whether it took effect."
        }
        (Language::Ru, Advice::Safe, false) => {
            "Если вы только просматривали, обновите страницу. Если что-то отправляли, сначала проверьте, не выполнилось ли это."
        }
        (Language::En, Advice::AfterFix | Advice::VerifyFirst | Advice::NeverAutomatic, _) => {
            failure.code.row().hint
        }
        (Language::Ru, Advice::AfterFix | Advice::VerifyFirst | Advice::NeverAutomatic, _) => {
            russian(failure.code)
                .hint
                .unwrap_or("Повтор без изменений не поможет.")
        }
    }
}

/// The verdict as a sentence.
pub(super) const fn seen(delivery: Delivery, language: Language) -> &'static str {
    match (language, delivery) {
        (Language::En, Delivery::NotDelivered) => {
            "The app has not seen this request and never will."
        }
        (Language::En, Delivery::Unknown) => {
            "It is not known whether the app has seen this request."
        }
        (Language::En, Delivery::Delivered) => "The app has received this request.",
        (Language::Ru, Delivery::NotDelivered) => {
            "Приложение не видело этот запрос и уже не увидит."
        }
        (Language::Ru, Delivery::Unknown) => "Неизвестно, видело ли приложение этот запрос.",
        (Language::Ru, Delivery::Delivered) => "Приложение получило этот запрос.",
    }
}

/// That the page reloads itself.
pub(super) fn reloads(seconds: u32, language: Language) -> String {
    match language {
        Language::En => format!("This page reloads itself in {seconds} s."),
        Language::Ru => format!("Страница обновится сама через {seconds} с."),
    }
}

/// Labels of the page.
pub(super) struct Labels {
    pub(super) you: &'static str,
    pub(super) gateway: &'static str,
    pub(super) app: &'static str,
    pub(super) again: &'static str,
    pub(super) facts: &'static str,
    pub(super) code: &'static str,
    pub(super) reason: &'static str,
    pub(super) delivery: &'static str,
    pub(super) stage: &'static str,
    pub(super) request: &'static str,
    pub(super) outcome: &'static str,
}

/// Labels of the page in a language.
pub(super) const fn labels(language: Language) -> Labels {
    match language {
        Language::En => Labels {
            you: "You",
            gateway: "Gateway",
            app: "App",
            again: "Try again",
            facts: "Details for support",
            code: "Code",
            reason: "Reason",
            delivery: "Delivery",
            stage: "Stage",
            request: "Request",
            outcome: "Outcome",
        },
        Language::Ru => Labels {
            you: "Вы",
            gateway: "Шлюз",
            app: "Приложение",
            again: "Попробовать ещё раз",
            facts: "Сведения для поддержки",
            code: "Код",
            reason: "Причина",
            delivery: "Доставка",
            stage: "Этап",
            request: "Запрос",
            outcome: "Исход",
        },
    }
}

/// Heading of the page.
pub(super) fn title(failure: &Failure, language: Language) -> &'static str {
    match kept_out(failure, language) {
        Some(kept_out) => kept_out.title,
        None => title_of(failure.code, language),
    }
}

const fn title_of(code: Code, language: Language) -> &'static str {
    match language {
        Language::Ru => russian(code).title,
        Language::En => match code {
            Code::QueueOverflow | Code::QueueTimeout | Code::LargeBodyBackendBusy => {
                "The app is busy"
            }
            Code::RateLimited => "Too many requests",
            Code::OperationTimeLimit => "The time limit is used up",
            Code::TimeoutQuarantine => "The app is taking a break",
            Code::BitrixTimeout => "No answer in time",
            Code::BitrixError => "The call was refused",
            Code::BitrixUnavailable => "The service is unavailable",
            Code::PoolExhausted | Code::DbTransient | Code::ServiceUnavailable => {
                "Temporarily unavailable"
            }
            Code::TokenRefreshFailed => "Authorisation needs repair",
            Code::ErrorLoopDetected => "Stopped after repeated failures",
            Code::BhAppStarting => "The app is not answering yet",
            Code::BhAppTimeout => "The app did not answer in time",
            Code::BhAppBroken => "The app broke off its answer",
            Code::BadRequest => "The request is not valid",
            Code::AppNotFound => "There is no app here",
            Code::ClientTimeout => "The request took too long",
            Code::BodyTooLarge => "The upload is too large",
            Code::UriTooLong => "The address is too long",
            Code::Misdirected => "Wrong connection for this address",
            Code::HeadTooLarge => "The request head is too large",
            Code::UpgradeUnsupported => "This protocol is not supported",
        },
    }
}

/// What the reason adds to the code's sentence. A table: one arm a reason.
const fn cause(reason: Reason, language: Language) -> Option<&'static str> {
    let (english, russian) = match reason {
        Reason::NoAgent => (
            "No agent that serves the app is connected.",
            "Агент приложения не подключён.",
        ),
        Reason::ConnectRefused => (
            "The app's port refused the connection.",
            "Порт приложения отклонил соединение.",
        ),
        Reason::ConnectTimeout => (
            "The connection to the app was not established in time.",
            "Соединение с приложением не установилось вовремя.",
        ),
        Reason::ConnectReset => (
            "The connection to the app broke while it was being established.",
            "Соединение с приложением оборвалось при установке.",
        ),
        Reason::TlsFailed => (
            "The TLS handshake with the app failed.",
            "Не удалось установить TLS-соединение с приложением.",
        ),
        Reason::NoSuchApp => (
            "The agent does not serve this app.",
            "Агент не обслуживает это приложение.",
        ),
        Reason::Unreachable => (
            "The app's host cannot be reached.",
            "Узел приложения недостижим.",
        ),
        Reason::AgentDraining => (
            "The app's agent is shutting down.",
            "Агент приложения завершает работу.",
        ),
        Reason::AgentLimit => (
            "The app's agent has reached its limit of connections.",
            "Агент приложения исчерпал предел соединений.",
        ),
        Reason::Expired => (
            "The time ran out before the request could be handed to the app.",
            "Время вышло раньше, чем запрос удалось передать приложению.",
        ),
        Reason::StaleConnection => (
            "The kept connection to the app had already ended.",
            "Сохранённое соединение с приложением уже было закрыто.",
        ),
        Reason::ClosedBeforeHead => (
            "The app closed the connection without answering.",
            "Приложение закрыло соединение, не ответив.",
        ),
        Reason::TunnelLost => (
            "The tunnel to the app broke.",
            "Туннель к приложению оборвался.",
        ),
        Reason::FirstFrame => (
            "Its answer did not begin in time.",
            "Ответ не начался вовремя.",
        ),
        Reason::Stall => (
            "Its answer had begun and fell silent.",
            "Ответ начался и замолчал.",
        ),
        Reason::AppClosed => (
            "The app closed the connection in the middle of its answer.",
            "Приложение закрыло соединение посреди ответа.",
        ),
        Reason::BadHttp => (
            "The app's answer is not valid HTTP.",
            "Ответ приложения нарушает правила HTTP.",
        ),
        Reason::Overload => (
            "It is short of memory or connections.",
            "Ему не хватает памяти или соединений.",
        ),
        Reason::Draining => ("It is shutting down.", "Он завершает работу."),
        Reason::Denied => (
            "An access rule refused the client.",
            "Клиенту отказано правилом доступа.",
        ),
        Reason::Internal => ("It failed internally.", "Внутренний сбой."),
        Reason::QueueFull
        | Reason::QueueWait
        | Reason::Rate
        | Reason::Quarantine
        | Reason::ErrorLoop
        | Reason::LargeBody
        | Reason::ClientTimeout
        | Reason::BadRequest
        | Reason::NoRoute
        | Reason::BodyLimit
        | Reason::UriLimit
        | Reason::HeadLimit
        | Reason::WrongHost
        | Reason::Upgrade => return None,
    };
    Some(match language {
        Language::En => english,
        Language::Ru => russian,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_stands_in_brackets_before_the_last_full_stop() {
        let failure = Failure::refused(Code::BhAppStarting, Reason::ConnectRefused)
            .with_detail("refused 14 times since 12:01:07Z");
        assert_eq!(
            message(&failure, Language::En),
            "The exchange ended without a single byte from the app. The app's port refused the connection \
             (refused 14 times since 12:01:07Z)."
        );
    }

    #[test]
    fn a_proof_replaces_the_careful_hint() {
        let refused = Failure::refused(Code::BhAppStarting, Reason::NoAgent);
        assert!(hint(&refused, Language::En).contains("may be repeated after Retry-After"));
        let fenced = Failure::refused(Code::BhAppTimeout, Reason::FirstFrame);
        assert!(hint(&fenced, Language::En).ends_with("may be repeated."));
        let full = Failure::refused(Code::QueueOverflow, Reason::QueueFull);
        assert_eq!(hint(&full, Language::En), Code::QueueOverflow.row().hint);
    }

    #[test]
    fn a_client_that_is_kept_out_is_not_told_that_there_is_no_app() {
        let denied = Failure::refused(Code::AppNotFound, Reason::Denied);
        let missing = Failure::refused(Code::AppNotFound, Reason::NoRoute);
        for language in [Language::En, Language::Ru] {
            assert_ne!(title(&denied, language), title(&missing, language));
            assert_ne!(hint(&denied, language), hint(&missing, language));
            let row = message(&missing, language);
            assert!(!message(&denied, language).contains(&row), "{row}");
        }
        assert_eq!(
            message(&missing, Language::En),
            Code::AppNotFound.row().text
        );
    }

    #[test]
    fn advice_on_a_page_never_calls_an_unproven_write_riskless() {
        for &code in Code::ALL {
            for &delivery in Delivery::ALL {
                let failure = Failure {
                    delivery,
                    ..Failure::refused(code, Reason::Internal)
                };
                for language in [Language::En, Language::Ru] {
                    let advice = page_advice(&failure, language);
                    let riskless = advice.contains("without risk") || advice.contains("спокойно");
                    assert_eq!(
                        riskless,
                        failure.advice(Operation::Write) == Advice::Safe,
                        "{code} {delivery}"
                    );
                }
            }
        }
    }

    #[test]
    fn every_code_and_reason_speaks_both_languages() {
        for &code in Code::ALL {
            for &reason in Reason::ALL {
                let failure = Failure::refused(code, reason);
                let english = message(&failure, Language::En);
                let russian = message(&failure, Language::Ru);
                assert!(english.is_ascii() && english.ends_with('.'), "{english}");
                assert!(!russian.is_ascii() && russian.ends_with('.'), "{russian}");
            }
            assert_ne!(title_of(code, Language::En), title_of(code, Language::Ru));
        }
    }
}
