//! The table of codes is a contract: clients have it compiled in. What stands here is written out
//! by hand, not derived, so that a change of the table has to be made twice, on purpose.
//!
//! Checks the table itself, what is served at the well-known address, and that every answer made
//! from a code keeps to its row in both JSON dialects, in the fields and for gRPC.

use bridgehead_gateway::answer::{self, Answer, Asked, codes_json};
use bridgehead_gateway::error::Failure;
use bridgehead_protocol::verdict::{
    Advice, Code, Delivery, Judgement, Operation, Reached, Reason, Stage, WindowKind, classify,
};
use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};

/// Code, HTTP status, reached, read, write, `Retry-After`, its default in seconds.
type Line = (
    &'static str,
    u16,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Option<u32>,
);

#[rustfmt::skip]
const SIXTEEN: [Line; 16] = [
    ("QUEUE_OVERFLOW",          503, "no",      "safe",      "safe",            "always",    Some(1)),
    ("QUEUE_TIMEOUT",           504, "no",      "safe",      "safe",            "always",    Some(10)),
    ("RATE_LIMITED",            429, "unknown", "safe",      "safe",            "always",    Some(1)),
    ("OPERATION_TIME_LIMIT",    429, "unknown", "safe",      "verify_first",    "always",    Some(600)),
    ("TIMEOUT_QUARANTINE",      503, "no",      "safe",      "safe",            "always",    Some(30)),
    ("BITRIX_TIMEOUT",          504, "yes",     "safe",      "verify_first",    "sometimes", None),
    ("BITRIX_ERROR",            422, "yes",     "after_fix", "never_automatic", "never",     None),
    ("BITRIX_UNAVAILABLE",      502, "unknown", "safe",      "verify_first",    "never",     None),
    ("POOL_EXHAUSTED",          503, "unknown", "safe",      "verify_first",    "always",    Some(1)),
    ("DB_TRANSIENT",            503, "unknown", "safe",      "verify_first",    "always",    Some(1)),
    ("SERVICE_UNAVAILABLE",     503, "unknown", "safe",      "verify_first",    "always",    Some(5)),
    ("TOKEN_REFRESH_FAILED",    401, "no",      "after_fix", "after_fix",       "never",     None),
    ("ERROR_LOOP_DETECTED",     429, "no",      "after_fix", "never_automatic", "always",    Some(60)),
    ("BH_APP_STARTING",         503, "unknown", "safe",      "verify_first",    "always",    Some(2)),
    ("BH_APP_TIMEOUT",          504, "unknown", "safe",      "verify_first",    "never",     None),
    ("LARGE_BODY_BACKEND_BUSY", 503, "no",      "safe",      "safe",            "always",    Some(2)),
];

#[rustfmt::skip]
const OURS: [Line; 9] = [
    ("BH_APP_BROKEN",           502, "yes",     "safe",      "verify_first",    "never",     None),
    ("BAD_REQUEST",             400, "unknown", "after_fix", "never_automatic", "never",     None),
    ("APP_NOT_FOUND",           404, "no",      "after_fix", "after_fix",       "never",     None),
    ("CLIENT_TIMEOUT",          408, "unknown", "safe",      "verify_first",    "never",     None),
    ("BODY_TOO_LARGE",          413, "unknown", "after_fix", "never_automatic", "never",     None),
    ("URI_TOO_LONG",            414, "no",      "after_fix", "after_fix",       "never",     None),
    ("MISDIRECTED",             421, "no",      "after_fix", "after_fix",       "never",     None),
    ("HEAD_TOO_LARGE",          431, "no",      "after_fix", "after_fix",       "never",     None),
    ("UPGRADE_UNSUPPORTED",     501, "no",      "after_fix", "after_fix",       "never",     None),
];

const REASONS: &[&str] = &[
    "no_agent",
    "connect_refused",
    "connect_timeout",
    "connect_reset",
    "tls_failed",
    "no_such_app",
    "unreachable",
    "agent_draining",
    "agent_limit",
    "expired",
    "stale_connection",
    "closed_before_head",
    "tunnel_lost",
    "first_frame",
    "stall",
    "app_closed",
    "bad_http",
    "queue_full",
    "queue_wait",
    "rate",
    "quarantine",
    "error_loop",
    "large_body",
    "overload",
    "draining",
    "client_timeout",
    "bad_request",
    "no_route",
    "body_limit",
    "uri_limit",
    "head_limit",
    "wrong_host",
    "upgrade",
    "denied",
    "internal",
];

fn lines() -> impl Iterator<Item = Line> {
    SIXTEEN.into_iter().chain(OURS)
}

fn code(word: &str) -> Code {
    Code::parse(word).expect("the table knows every code of the contract")
}

fn words<T: Copy>(all: &[T], word: impl Fn(T) -> &'static str) -> Vec<&'static str> {
    all.iter().map(|&value| word(value)).collect()
}

/// What the contract lets a client do with an answer of this code under this evidence.
fn expected_advice(row: &'static str, delivery: Delivery) -> &'static str {
    match (row, delivery) {
        ("verify_first", Delivery::NotDelivered) => "safe",
        (row, _) => row,
    }
}

fn failed(line: Line, delivery: Delivery) -> Failure {
    let judgement = Judgement {
        delivery,
        stage: Stage::None,
    };
    Failure::judged(code(line.0), Reason::Internal, judgement)
}

fn answered(failure: &Failure, kind: &str) -> Answer {
    let mut head = HeaderMap::new();
    if kind == "grpc" {
        head.insert(
            "content-type",
            HeaderValue::from_static("application/grpc+proto"),
        );
    }
    let id = "0198f0c0-0000-7000-8000-00000000000a"
        .parse()
        .expect("the id is a UUID");
    answer::build(failure, &Asked::of(&Method::POST, &head, id, "gw-1"))
}

fn field<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer
        .headers
        .get(name)
        .and_then(|value| value.to_str().ok())
}

#[test]
fn the_table_is_exactly_the_contract() {
    assert_eq!(
        words(Code::SIXTEEN, Code::as_str),
        SIXTEEN.map(|line| line.0)
    );
    assert_eq!(
        words(Code::ALL, Code::as_str),
        lines().map(|line| line.0).collect::<Vec<_>>()
    );
    for line in lines() {
        let row = code(line.0).row();
        let found: Line = (
            row.code.as_str(),
            row.status,
            row.reached.as_str(),
            row.read.as_str(),
            row.write.as_str(),
            row.retry_after.as_str(),
            row.default_retry,
        );
        assert_eq!(found, line);
    }
}

#[test]
fn the_lists_of_words_are_closed() {
    assert_eq!(words(Reason::ALL, Reason::as_str), REASONS);
    assert_eq!(
        words(Delivery::ALL, Delivery::as_str),
        ["not_delivered", "unknown", "delivered"]
    );
    assert_eq!(
        words(Stage::ALL, Stage::as_str),
        [
            "none",
            "part_of_head",
            "head",
            "body",
            "all",
            "answer_begun"
        ]
    );
    assert_eq!(
        words(WindowKind::ALL, WindowKind::as_str),
        ["first_frame", "stall"]
    );
    assert_eq!(words(Operation::ALL, Operation::as_str), ["read", "write"]);
    assert_eq!(
        words(Reached::ALL, Reached::as_str),
        ["no", "unknown", "yes"]
    );
    assert_eq!(
        words(Advice::ALL, Advice::as_str),
        ["safe", "after_fix", "verify_first", "never_automatic"]
    );
}

#[test]
fn a_client_that_knows_only_the_code_gets_the_advice_of_the_contract() {
    for line in lines() {
        assert_eq!(
            classify(Some(line.0), Operation::Read).as_str(),
            line.3,
            "{}",
            line.0
        );
        assert_eq!(
            classify(Some(line.0), Operation::Write).as_str(),
            line.4,
            "{}",
            line.0
        );
    }
    for unknown in [
        None,
        Some("SOMETHING_ELSE"),
        Some("queue_overflow"),
        Some(""),
    ] {
        assert_eq!(classify(unknown, Operation::Read), Advice::Safe);
        assert_eq!(classify(unknown, Operation::Write), Advice::VerifyFirst);
    }
}

#[test]
fn the_served_table_has_exactly_the_promised_keys() {
    let served: Value = serde_json::from_str(&codes_json(None)).expect("the table is JSON");
    let expected: Vec<Value> = lines()
        .map(|(code, status, reached, read, write, retry_after, _)| {
            let text = Code::parse(code).map(|code| code.row().text);
            json!({
                "code": code, "status": status, "reached": reached, "read": read, "write": write,
                "retryAfter": retry_after, "text": text,
            })
        })
        .collect();
    assert_eq!(served, json!({ "codes": expected }));
}

#[test]
fn an_answer_says_the_same_in_both_dialects_and_in_its_fields() {
    for line in lines() {
        for &delivery in Delivery::ALL {
            let answer = answered(&failed(line, delivery), "json");
            let body: Value = serde_json::from_slice(&answer.body).expect("the body is JSON");
            let (name, status, _, read, write, _, default) = line;
            assert_eq!(answer.status.as_u16(), status, "{name}");
            assert_eq!(body["success"], false, "{name}");
            assert_eq!(body["code"], name);
            assert_eq!(body["error"]["code"], name);
            assert_eq!(field(&answer, "bridgehead-code"), Some(name));
            assert_eq!(body["error"]["delivery"], delivery.as_str(), "{name}");
            assert_eq!(
                field(&answer, "bridgehead-delivery"),
                Some(delivery.as_str()),
                "{name}"
            );
            assert_eq!(
                body["error"]["retry"]["read"],
                expected_advice(read, delivery),
                "{name}"
            );
            assert_eq!(
                body["error"]["retry"]["write"],
                expected_advice(write, delivery),
                "{name}"
            );
            let pause = default.map(Value::from);
            assert_eq!(body.get("retryAfter"), pause.as_ref(), "{name}");
            assert_eq!(body["error"].get("retryAfter"), pause.as_ref(), "{name}");
            let seconds = default.map(|seconds| seconds.to_string());
            assert_eq!(field(&answer, "retry-after"), seconds.as_deref(), "{name}");
        }
    }
}

#[test]
fn the_keys_of_an_answer_are_stable_and_in_order() {
    let starting = failed(SIXTEEN[13], Delivery::Unknown);
    let text =
        String::from_utf8(answered(&starting, "json").body.to_vec()).expect("the body is UTF-8");
    let keys = [
        "\"success\":",
        "\"error\":{",
        "\"code\":",
        "\"message\":",
        "\"hint\":",
        "\"retryAfter\":",
        "\"delivery\":",
        "\"reason\":",
        "\"stage\":",
        "\"window\":",
        "\"retry\":{\"read\":",
        "\"write\":",
        "\"requestId\":",
        "\"outcomeUrl\":",
        "\"code\":",
        "\"retryAfter\":",
    ];
    let mut from = 0;
    for key in keys {
        let found = text[from..].find(key);
        assert!(
            found.is_some(),
            "{key} is missing after byte {from} of {text}"
        );
        from += found.unwrap_or_default() + key.len();
    }
}

#[test]
fn no_pause_can_be_given_to_a_code_that_never_has_one() {
    for line in lines().filter(|line| line.5 == "never") {
        for mut failure in [
            failed(line, Delivery::Unknown),
            failed(line, Delivery::NotDelivered),
        ] {
            failure = failure.with_retry_after(7);
            failure.retry_after = failure.retry_after.or(Some(7));
            for kind in ["json", "grpc"] {
                let answer = answered(&failure, kind);
                assert_eq!(field(&answer, "retry-after"), None, "{}", line.0);
                assert!(
                    !String::from_utf8_lossy(&answer.body).contains("retryAfter"),
                    "{}",
                    line.0
                );
            }
        }
    }
}

#[test]
fn a_grpc_client_is_kept_from_repeating_what_is_not_safe_for_a_write() {
    for line in lines() {
        for &delivery in Delivery::ALL {
            let answer = answered(&failed(line, delivery), "grpc");
            assert_eq!(answer.status.as_u16(), 200);
            assert!(answer.trailers_only_grpc && answer.body.is_empty());
            let status = field(&answer, "grpc-status");
            assert!(matches!(status, Some("4" | "14")), "{}: {status:?}", line.0);
            let forbidden = field(&answer, "grpc-retry-pushback-ms") == Some("-1");
            assert_eq!(
                forbidden,
                expected_advice(line.4, delivery) != "safe",
                "{} {delivery}",
                line.0
            );
        }
    }
}
