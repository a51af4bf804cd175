//! The `Proxy-Status` field of RFC 9209: who made this answer, and the registered error type.
//! Owns the mapping from reasons to types. The type must never claim more than the verdict does:
//! types that say "was not forwarded" are used only where that is proven.

use bridgehead_protocol::verdict::{Delivery, Reason};
use http::header::HeaderName;

use crate::error::Failure;

/// Field name.
pub(super) const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// One list member: `gw-1; error=connection_refused; details="connect_refused"`.
pub(super) fn value(failure: &Failure, node: &str) -> String {
    format!(
        "{}; error={}; details=\"{}\"",
        name(node),
        error_type(failure),
        failure.reason
    )
}

/// The node as a structured-field token, or as a string where a token cannot hold it.
fn name(node: &str) -> String {
    let token_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte);
    let starts = node
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'*');
    if starts && node.bytes().all(token_byte) {
        return node.to_owned();
    }
    let mut quoted = String::with_capacity(node.len() + 2);
    quoted.push('"');
    for letter in node.chars().filter(|letter| matches!(letter, ' '..='~')) {
        if matches!(letter, '"' | '\\') {
            quoted.push('\\');
        }
        quoted.push(letter);
    }
    quoted.push('"');
    quoted
}

/// The registered error type that fits a reason under this verdict.
fn error_type(failure: &Failure) -> &'static str {
    let untouched = failure.delivery == Delivery::NotDelivered;
    let answered = failure.delivery == Delivery::Delivered;
    match failure.reason {
        Reason::NoAgent | Reason::AgentDraining | Reason::Unreachable => "destination_unavailable",
        Reason::ConnectRefused => "connection_refused",
        Reason::ConnectTimeout | Reason::Expired => "connection_timeout",
        Reason::TunnelLost if answered => "http_response_incomplete",
        Reason::ConnectReset
        | Reason::StaleConnection
        | Reason::ClosedBeforeHead
        | Reason::TunnelLost => "connection_terminated",
        Reason::TlsFailed => "tls_protocol_error",
        Reason::NoSuchApp | Reason::NoRoute => "destination_not_found",
        Reason::AgentLimit => "connection_limit_reached",
        Reason::FirstFrame | Reason::Stall => "connection_read_timeout",
        Reason::AppClosed => "http_response_incomplete",
        Reason::BadHttp => "http_protocol_error",
        Reason::QueueFull
        | Reason::QueueWait
        | Reason::Rate
        | Reason::Quarantine
        | Reason::ErrorLoop
        | Reason::LargeBody
        | Reason::Denied
            if untouched =>
        {
            "http_request_denied"
        }
        Reason::Overload | Reason::Draining if untouched => "proxy_internal_response",
        Reason::ClientTimeout
        | Reason::BadRequest
        | Reason::BodyLimit
        | Reason::UriLimit
        | Reason::HeadLimit
        | Reason::WrongHost => "http_request_error",
        Reason::Upgrade => "http_upgrade_failed",
        Reason::QueueFull
        | Reason::QueueWait
        | Reason::Rate
        | Reason::Quarantine
        | Reason::ErrorLoop
        | Reason::LargeBody
        | Reason::Denied
        | Reason::Overload
        | Reason::Draining
        | Reason::Internal => "proxy_internal_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bridgehead_protocol::verdict::{Code, Judgement, Stage};

    /// Every type the registry of RFC 9209 holds.
    const REGISTERED: &[&str] = &[
        "dns_timeout",
        "dns_error",
        "destination_not_found",
        "destination_unavailable",
        "destination_ip_prohibited",
        "destination_ip_unroutable",
        "connection_refused",
        "connection_terminated",
        "connection_timeout",
        "connection_read_timeout",
        "connection_write_timeout",
        "connection_limit_reached",
        "tls_protocol_error",
        "tls_certificate_error",
        "tls_alert_received",
        "http_request_error",
        "http_request_denied",
        "http_response_incomplete",
        "http_response_header_section_size",
        "http_response_header_size",
        "http_response_body_size",
        "http_response_trailer_section_size",
        "http_response_trailer_size",
        "http_response_transfer_coding",
        "http_response_content_coding",
        "http_response_timeout",
        "http_upgrade_failed",
        "http_protocol_error",
        "proxy_internal_response",
        "proxy_internal_error",
        "proxy_configuration_error",
        "proxy_loop_detected",
    ];

    fn failure(reason: Reason, delivery: Delivery) -> Failure {
        Failure::judged(
            Code::BhAppStarting,
            reason,
            Judgement {
                delivery,
                stage: Stage::None,
            },
        )
    }

    #[test]
    fn every_reason_has_a_registered_type_under_every_verdict() {
        for &reason in Reason::ALL {
            for &delivery in Delivery::ALL {
                let error = error_type(&failure(reason, delivery));
                assert!(REGISTERED.contains(&error), "{reason} {delivery}: {error}");
            }
        }
    }

    #[test]
    fn a_type_that_says_not_forwarded_needs_the_proof() {
        for &reason in Reason::ALL {
            for delivery in [Delivery::Unknown, Delivery::Delivered] {
                let error = error_type(&failure(reason, delivery));
                assert!(
                    !["http_request_denied", "proxy_internal_response"].contains(&error),
                    "{reason}"
                );
            }
        }
    }

    #[test]
    fn a_node_that_is_no_token_is_quoted() {
        assert_eq!(name("gw-1"), "gw-1");
        assert_eq!(name("1gw"), "\"1gw\"");
        assert_eq!(name(""), "\"\"");
        assert_eq!(name("a \"b\\\r\n"), "\"a \\\"b\\\\\"");
    }

    #[test]
    fn the_field_names_node_type_and_reason() {
        let refused = failure(Reason::ConnectRefused, Delivery::NotDelivered);
        assert_eq!(
            value(&refused, "gw-1"),
            "gw-1; error=connection_refused; details=\"connect_refused\""
        );
    }
}
