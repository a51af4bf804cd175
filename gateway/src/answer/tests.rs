//! Whole answers: every code under every verdict in every dialect.

use bridgehead_protocol::verdict::{
    Advice, Code, Delivery, Judgement, Operation, Reason, Stage, WindowKind,
};
use proptest::prelude::*;

use super::*;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

fn asked() -> Asked {
    let id = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001);
    Asked::of(&Method::POST, &HeaderMap::new(), id, "gw-1")
}

fn navigating(language: &str) -> Asked {
    Asked {
        method: Method::GET,
        accept: Some(BROWSER.to_owned()),
        accept_language: Some(language.to_owned()),
        ..asked()
    }
}

fn failure(code: Code, delivery: Delivery) -> Failure {
    Failure::judged(
        code,
        Reason::ConnectRefused,
        Judgement {
            delivery,
            stage: Stage::None,
        },
    )
}

fn field<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer
        .headers
        .get(name)
        .map(|value| value.to_str().expect("our fields are ASCII"))
}

fn body(answer: &Answer) -> &str {
    std::str::from_utf8(&answer.body).expect("our bodies are UTF-8")
}

#[test]
fn the_envelope_has_both_dialects_in_a_fixed_order() {
    let answer = build(
        &failure(Code::BhAppStarting, Delivery::NotDelivered),
        &asked(),
    );
    assert_eq!(
        body(&answer),
        concat!(
            r#"{"success":false,"error":{"code":"BH_APP_STARTING","#,
            r#""message":"The exchange ended without a single byte from the app. The app's port refused the connection.","#,
            r#""hint":"The app has not seen the request and never will, so it may be repeated after Retry-After.","#,
            r#""retryAfter":2,"delivery":"not_delivered","reason":"connect_refused","stage":"none","window":null,"#,
            r#""retry":{"read":"safe","write":"safe"},"requestId":"01900000-0000-7000-8000-000000000001","outcomeUrl":null},"#,
            r#""code":"BH_APP_STARTING","retryAfter":2}"#,
        )
    );
}

#[test]
fn an_app_timeout_has_no_pause_in_any_dialect() {
    let mut silent = failure(Code::BhAppTimeout, Delivery::Unknown).with_window(WindowKind::Stall);
    // Even a producer that sets the field by hand does not get it out.
    silent.retry_after = Some(3);
    let answer = build(&silent, &asked());
    assert_eq!(answer.status, StatusCode::GATEWAY_TIMEOUT);
    assert!(!answer.headers.contains_key("retry-after"));
    assert!(!body(&answer).contains("retryAfter"));
    assert!(body(&answer).contains(r#""window":"stall""#));
    let page = build(&silent, &navigating("en"));
    assert!(!page.headers.contains_key("retry-after"));
    assert!(!body(&page).contains("http-equiv"));
    let call = build(
        &silent,
        &Asked {
            grpc: true,
            ..asked()
        },
    );
    assert!(!call.headers.contains_key("retry-after"));
    assert_eq!(field(&call, "grpc-status"), Some("4"));
    assert_eq!(field(&call, "grpc-retry-pushback-ms"), Some("-1"));
}

#[test]
fn every_answer_says_who_made_it_and_what_is_known() {
    for &code in Code::ALL {
        for &delivery in Delivery::ALL {
            let failure = failure(code, delivery);
            for asked in [
                asked(),
                navigating("ru"),
                Asked {
                    grpc: true,
                    ..asked()
                },
            ] {
                let answer = build(&failure, &asked);
                assert_eq!(field(&answer, "bridgehead-code"), Some(code.as_str()));
                assert_eq!(
                    field(&answer, "bridgehead-delivery"),
                    Some(delivery.as_str())
                );
                assert_eq!(
                    field(&answer, "x-request-id"),
                    Some("01900000-0000-7000-8000-000000000001")
                );
                assert_eq!(field(&answer, "cache-control"), Some("no-store"));
                assert!(
                    field(&answer, "proxy-status")
                        .is_some_and(|value| value.starts_with("gw-1; error="))
                );
                let pause = failure.pause().map(|seconds| seconds.to_string());
                assert_eq!(field(&answer, "retry-after"), pause.as_deref());
            }
        }
    }
}

#[test]
fn the_page_holds_the_facts_in_the_browsers_language() {
    let answer = build(
        &failure(Code::BhAppStarting, Delivery::Unknown),
        &navigating("ru-RU,ru;q=0.9,en;q=0.8"),
    );
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        field(&answer, "content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(field(&answer, "content-language"), Some("ru"));
    for part in [
        "<html lang=\"ru\">",
        "Приложение пока не отвечает",
        "Неизвестно, видело ли приложение этот запрос.",
        "BH_APP_STARTING · 503",
        "connect_refused",
        "01900000-0000-7000-8000-000000000001",
    ] {
        assert!(body(&answer).contains(part), "{part}");
    }
    assert!(!body(&answer).contains("{{"));
    assert!(!body(&answer).contains("<script"));
}

#[test]
fn the_page_reloads_itself_only_after_proof_and_with_a_pause() {
    for &code in Code::ALL {
        for &delivery in Delivery::ALL {
            let failure = failure(code, delivery);
            let reloads =
                body(&build(&failure, &navigating("en"))).contains("http-equiv=\"refresh\"");
            let may = delivery == Delivery::NotDelivered && failure.pause().is_some();
            assert_eq!(reloads, may, "{code} {delivery}");
        }
    }
}

#[test]
fn the_page_needs_nothing_from_outside() {
    let answer = build(
        &failure(Code::BhAppStarting, Delivery::NotDelivered),
        &navigating("en"),
    );
    for foreign in ["http://", "https://", "src=", "url(", "@import", "<link"] {
        assert!(!body(&answer).contains(foreign), "{foreign}");
    }
    assert!(
        field(&answer, "content-security-policy")
            .is_some_and(|policy| policy.contains("default-src 'none'"))
    );
}

#[test]
fn the_operators_page_replaces_the_built_in_one() {
    let page = Template::parse("<h1>Acme</h1>{{code}} {{request_id}}")
        .expect("the template is well formed");
    let asked = Asked {
        page: Some(Arc::new(page)),
        ..navigating("en")
    };
    let answer = build(
        &failure(Code::QueueOverflow, Delivery::NotDelivered),
        &asked,
    );
    assert_eq!(
        body(&answer),
        "<h1>Acme</h1>QUEUE_OVERFLOW 01900000-0000-7000-8000-000000000001"
    );
    assert!(!answer.headers.contains_key("content-security-policy"));
}

#[test]
fn only_a_navigating_get_gets_the_page() {
    let failure = failure(Code::BhAppStarting, Delivery::NotDelivered);
    let json =
        |asked: &Asked| field(&build(&failure, asked), "content-type") == Some("application/json");
    assert!(json(&Asked {
        method: Method::POST,
        ..navigating("en")
    }));
    assert!(json(&Asked {
        websocket: true,
        ..navigating("en")
    }));
    assert!(json(&Asked {
        accept: Some("*/*".to_owned()),
        ..navigating("en")
    }));
    assert!(json(&Asked {
        accept: None,
        ..navigating("en")
    }));
    assert!(!json(&navigating("en")));
}

#[test]
fn a_head_request_gets_the_fields_without_a_body() {
    let answer = build(
        &failure(Code::BhAppStarting, Delivery::Unknown),
        &Asked {
            method: Method::HEAD,
            ..asked()
        },
    );
    assert!(answer.body.is_empty());
    assert_eq!(field(&answer, "bridgehead-code"), Some("BH_APP_STARTING"));
}

#[test]
fn a_grpc_call_gets_trailers_only_with_the_verdict_in_metadata() {
    let asked = Asked {
        grpc: true,
        ..asked()
    };
    let answer = build(&failure(Code::BhAppStarting, Delivery::Unknown), &asked);
    assert!(answer.trailers_only_grpc && answer.body.is_empty());
    assert_eq!(answer.status, StatusCode::OK);
    for (name, value) in [
        ("content-type", "application/grpc"),
        ("grpc-status", "14"),
        ("grpc-retry-pushback-ms", "-1"),
        ("bridgehead-reason", "connect_refused"),
        ("bridgehead-stage", "none"),
        ("bridgehead-retry-read", "safe"),
        ("bridgehead-retry-write", "verify_first"),
    ] {
        assert_eq!(field(&answer, name), Some(value), "{name}");
    }
    let proven = build(
        &failure(Code::BhAppStarting, Delivery::NotDelivered),
        &asked,
    );
    assert_eq!(field(&proven, "grpc-retry-pushback-ms"), Some("2000"));
}

#[test]
fn browser_code_of_another_origin_may_read_the_verdict() {
    let asked = Asked {
        origin: Some(HeaderValue::from_static("https://shop.example")),
        ..asked()
    };
    let answer = build(&failure(Code::BhAppTimeout, Delivery::Unknown), &asked);
    assert_eq!(
        field(&answer, "access-control-allow-origin"),
        Some("https://shop.example")
    );
    assert_eq!(field(&answer, "vary"), Some("Origin"));
    assert!(
        field(&answer, "access-control-expose-headers")
            .is_some_and(|names| names.contains("Bridgehead-Delivery"))
    );
    let off = build(
        &failure(Code::BhAppTimeout, Delivery::Unknown),
        &Asked {
            cors: false,
            ..asked
        },
    );
    assert!(!off.headers.contains_key("access-control-allow-origin"));
}

#[test]
fn a_preflight_is_answered_for_the_app_without_credentials_or_caching() {
    let mut head = HeaderMap::new();
    head.insert("origin", HeaderValue::from_static("https://shop.example"));
    head.insert(
        "access-control-request-method",
        HeaderValue::from_static("PUT"),
    );
    head.insert(
        "access-control-request-headers",
        HeaderValue::from_static("x-a, content-type"),
    );
    let asked = Asked::of(&Method::OPTIONS, &head, Uuid::nil(), "gw-1");
    let answer = build(
        &failure(Code::BhAppStarting, Delivery::NotDelivered),
        &asked,
    );
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    for (name, value) in [
        ("access-control-allow-origin", "https://shop.example"),
        ("access-control-allow-methods", "PUT"),
        ("access-control-allow-headers", "x-a, content-type"),
        ("access-control-max-age", "0"),
        ("bridgehead-code", "BH_APP_STARTING"),
    ] {
        assert_eq!(field(&answer, name), Some(value), "{name}");
    }
    assert!(
        !answer
            .headers
            .contains_key("access-control-allow-credentials")
    );
    let off = build(
        &failure(Code::BhAppStarting, Delivery::NotDelivered),
        &Asked {
            cors: false,
            ..asked
        },
    );
    assert_eq!(off.status, StatusCode::SERVICE_UNAVAILABLE);
}

#[test]
fn a_plain_options_request_is_not_taken_for_a_preflight() {
    let mut head = HeaderMap::new();
    head.insert("origin", HeaderValue::from_static("https://shop.example"));
    assert_eq!(PreflightAsked::of(&Method::OPTIONS, &head), None);
    head.insert(
        "access-control-request-method",
        HeaderValue::from_static("PUT"),
    );
    assert_eq!(PreflightAsked::of(&Method::GET, &head), None);
}

#[test]
fn the_head_of_a_request_tells_its_kind() {
    let with = |name: &'static str, value: &'static str| {
        let mut head = HeaderMap::new();
        head.append(name, HeaderValue::from_static(value));
        Asked::of(&Method::POST, &head, Uuid::nil(), "gw")
    };
    assert!(with("content-type", "application/grpc").grpc);
    assert!(with("content-type", "Application/gRPC+proto; x=y").grpc);
    assert!(!with("content-type", "application/grpc-web+proto").grpc);
    assert!(!with("content-type", "application/json").grpc);
    assert!(with("upgrade", "WebSocket").websocket);
    assert!(!with("upgrade", "h2c").websocket);
    let mut two = HeaderMap::new();
    two.append("origin", HeaderValue::from_static("https://a"));
    two.append("origin", HeaderValue::from_static("https://b"));
    assert_eq!(
        Asked::of(&Method::GET, &two, Uuid::nil(), "gw").origin,
        None
    );
}

#[test]
fn a_failures_own_status_replaces_the_rows() {
    let denied = Failure::refused(Code::ServiceUnavailable, Reason::Denied).with_status(403);
    assert_eq!(build(&denied, &asked()).status, StatusCode::FORBIDDEN);
}

fn one_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    (0..all.len()).prop_map(|index| all[index])
}

fn failures() -> impl Strategy<Value = Failure> {
    let what = (
        one_of(Code::ALL),
        one_of(Reason::ALL),
        one_of(Delivery::ALL),
        one_of(Stage::ALL),
    );
    let more = (
        proptest::option::of(any::<u32>()),
        proptest::option::of(any::<String>()),
    );
    (what, more, proptest::option::of(one_of(WindowKind::ALL))).prop_map(
        |((code, reason, delivery, stage), (retry_after, detail), window)| Failure {
            code,
            reason,
            delivery,
            stage,
            window,
            retry_after,
            detail,
            status: None,
        },
    )
}

proptest! {
    #[test]
    fn any_failure_becomes_an_envelope_whose_two_dialects_agree(failure in failures(), url in proptest::option::of(any::<String>())) {
        let asked = Asked { outcome_url: url.clone(), ..asked() };
        let answer = build(&failure, &asked);
        let json: serde_json::Value = serde_json::from_slice(&answer.body).expect("the body is JSON");
        let error = &json["error"];
        prop_assert_eq!(&json["success"], &serde_json::Value::Bool(false));
        prop_assert_eq!(&json["code"], &error["code"]);
        prop_assert_eq!(json.get("retryAfter"), error.get("retryAfter"));
        let header = answer.headers.get("retry-after").and_then(|value| value.to_str().ok());
        let written = json.get("retryAfter").map(ToString::to_string);
        prop_assert_eq!(header, written.as_deref());
        prop_assert_eq!(error["retry"]["write"].as_str(), Some(failure.advice(Operation::Write).as_str()));
        prop_assert_eq!(error["outcomeUrl"].as_str(), url.as_deref());
        if failure.code == Code::BhAppTimeout {
            prop_assert_eq!(header, None);
        }
    }

    #[test]
    fn no_failure_brings_markup_into_the_page(failure in failures(), node in any::<String>(), url in any::<String>()) {
        let plain = Failure { detail: None, ..failure.clone() };
        let marks = |text: &str| text.matches('<').count();
        let page = |failure: &Failure, asked: &Asked| marks(body(&build(failure, asked)));
        let quiet = Asked { outcome_url: Some("x".to_owned()), ..navigating("en") };
        prop_assume!(!url.is_empty());
        let loud = Asked { node, outcome_url: Some(url), ..quiet.clone() };
        prop_assert_eq!(page(&failure, &loud), page(&plain, &quiet));
    }

    #[test]
    fn a_grpc_message_is_always_a_legal_field_and_never_permits_an_unsafe_repeat(failure in failures()) {
        let answer = build(&failure, &Asked { grpc: true, ..asked() });
        prop_assert!(answer.headers.contains_key("grpc-message"));
        let forbidden = field(&answer, "grpc-retry-pushback-ms") == Some("-1");
        prop_assert_eq!(forbidden, failure.advice(Operation::Write) != Advice::Safe);
    }
}
