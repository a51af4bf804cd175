//! One exchange in words: the JSON access line, the line for people, the admin view.
//!
//! Owns the names and the order of the fields, nothing else. Invariant: a line is one line,
//! whatever a client put into its request.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;

use super::access::{AppConn, Exchange, Facts};
use super::labels::Outcome;
use super::writer::Format;
use crate::clock::Clock;

/// The fields of an access line, in the order in which they are written. Spans are milliseconds
/// from the arrival of the head; `held` is the milliseconds spent waiting for the app.
#[derive(Serialize)]
struct Line<'a> {
    ts: String,
    request_id: String,
    app: Option<&'a str>,
    client: String,
    method: Option<&'a str>,
    host: Option<&'a str>,
    path: Option<&'a str>,
    protocol: &'static str,
    status: Option<u16>,
    code: Option<&'static str>,
    delivery: Option<&'static str>,
    reason: Option<&'static str>,
    stage: Option<&'static str>,
    window: Option<&'static str>,
    agent: Option<&'a str>,
    tunnel: Option<&'a str>,
    app_conn: Option<&'static str>,
    bytes_in: u64,
    bytes_out: u64,
    t_admit: Option<f64>,
    t_open: Option<f64>,
    t_first: Option<f64>,
    t_total: Option<f64>,
    held: f64,
    retries: u32,
    resumed: u32,
    /// Who ended the exchange before its answer was complete: `client`, or `gateway` (visibly).
    aborted: Option<&'static str>,
}

/// The admin view: the line, and whether the exchange still runs.
#[derive(Serialize)]
struct View<'a> {
    live: bool,
    #[serde(flatten)]
    line: Line<'a>,
}

impl<'a> Line<'a> {
    fn of(exchange: &Exchange, facts: &'a Facts, clock: Clock) -> Self {
        Self {
            ts: clock.stamp(exchange.started),
            request_id: exchange.id.to_string(),
            app: facts.app.as_deref(),
            client: exchange.client.to_string(),
            method: facts.method.as_ref().map(http::Method::as_str),
            host: facts.host.as_deref(),
            path: facts.path.as_deref(),
            protocol: exchange.protocol.as_str(),
            status: facts.status,
            code: facts.code.map(|c| c.as_str()),
            delivery: facts.delivery.map(|d| d.as_str()),
            reason: facts.reason.map(|r| r.as_str()),
            stage: facts.stage.map(|s| s.as_str()),
            window: facts.window.map(|w| w.as_str()),
            agent: facts.agent.as_deref(),
            tunnel: facts.tunnel.as_deref(),
            app_conn: facts.app_conn.map(AppConn::as_str),
            bytes_in: exchange.bytes_in.load(Ordering::Relaxed),
            bytes_out: exchange.bytes_out.load(Ordering::Relaxed),
            t_admit: facts.admit.map(millis),
            t_open: facts.open.map(millis),
            t_first: facts.first.map(millis),
            t_total: facts.total.map(millis),
            held: millis(facts.held),
            retries: facts.retries,
            resumed: facts.resumed,
            aborted: match facts.outcome {
                Some(Outcome::ClientLeft) => Some("client"),
                Some(Outcome::Aborted) => Some("gateway"),
                Some(Outcome::Answered | Outcome::Refused | Outcome::Failed) | None => None,
            },
        }
    }
}

/// Append the line of a finished exchange, its newline included.
pub(super) fn append(out: &mut Vec<u8>, exchange: &Exchange, format: Format, clock: Clock) {
    let facts = exchange.facts();
    let line = Line::of(exchange, &facts, clock);
    match format {
        Format::Json => {
            // A struct of strings and numbers always serialises, and a Vec takes every byte.
            let _ = serde_json::to_writer(&mut *out, &line);
        }
        Format::Text => out.extend_from_slice(person(&line).as_bytes()),
    }
    out.push(b'\n');
}

/// The admin view of an exchange, live or finished.
pub(super) fn view(exchange: &Exchange, clock: Clock) -> String {
    let facts = exchange.facts();
    let view = View {
        live: facts.total.is_none(),
        line: Line::of(exchange, &facts, clock),
    };
    // As above: this cannot fail; an empty object would only be the least wrong answer.
    serde_json::to_string(&view).unwrap_or_else(|_| "{}".into())
}

/// The line for people: when, what came of it, what was asked, how long it took, then details.
fn person(line: &Line<'_>) -> String {
    let mut text = String::with_capacity(160);
    let _ = write!(text, "{} ", line.ts);
    match (line.status, line.aborted) {
        (Some(status), _) => _ = write!(text, "{status} "),
        (None, Some(who)) => _ = write!(text, "left({who}) "),
        (None, None) => text.push_str("--- "),
    }
    escape(&mut text, line.method.unwrap_or("-"));
    text.push(' ');
    escape(&mut text, line.host.unwrap_or("-"));
    escape(&mut text, line.path.unwrap_or(""));
    let _ = write!(text, " {:.1}ms", line.t_total.unwrap_or(0.0));
    let words = [
        ("", line.code),
        ("", line.delivery.filter(|_| line.code.is_some())),
        ("reason=", line.reason),
        ("stage=", line.stage),
        ("window=", line.window),
        ("app=", line.app),
        ("agent=", line.agent),
    ];
    for (name, value) in words {
        if let Some(value) = value {
            text.push(' ');
            text.push_str(name);
            escape(&mut text, value);
        }
    }
    let _ = write!(text, " in={} out={}", line.bytes_in, line.bytes_out);
    if line.held > 0.0 {
        let _ = write!(text, " held={:.0}ms", line.held);
    }
    if line.retries > 0 {
        let _ = write!(text, " retries={}", line.retries);
    }
    let _ = write!(text, " client={} id={}", line.client, line.request_id);
    text
}

/// Append `value` so that it cannot end the line, start a colour or look like another field.
pub(super) fn escape(out: &mut String, value: &str) {
    for c in value.chars() {
        if c == ' ' {
            out.push_str("\\u{20}");
        } else if c == '\\' || c.is_control() || c.is_whitespace() || is_reordering(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
}

/// Append `value`; in quotes if it has blanks, so that it stays one value that a person can read.
pub(super) fn quote(out: &mut String, value: &str) {
    if !value.contains([' ', '"']) {
        return escape(out, value);
    }
    out.push('"');
    for (n, word) in value.split(' ').enumerate() {
        if n > 0 {
            out.push(' ');
        }
        escape(out, &word.replace('"', "'"));
    }
    out.push('"');
}

/// Characters that change the order in which a terminal shows the rest of the line.
const fn is_reordering(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Milliseconds with microseconds behind the point.
fn millis(span: Duration) -> f64 {
    // Exact up to 2^53 µs, which is 285 years.
    span.as_micros() as f64 / 1000.0
}
