//! Set-up of the process log: JSON lines or text on standard error.
//!
//! Owns format and level, once per process. Events have a constant message and fields from the
//! fixed set ([`FIELDS`]); a field with another name is a fault of its writer and shows as
//! `other.NAME` so that it is found. Invariant: one event is one line, whatever its values hold.

use std::fmt;
use std::io::Write;
use std::sync::Mutex;
use std::time::SystemTime;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use super::line::{escape, quote};
use super::writer::Format;
use crate::clock::rfc3339;

/// Names that our own events may use. Values are never secrets: those are types whose Debug is a mask.
pub const FIELDS: &[&str] = &[
    "addr",
    "agent",
    "app",
    "bytes",
    "carrier",
    "changed",
    "code",
    "connection",
    "count",
    "error",
    "host",
    "instance",
    "kind",
    "limit",
    "lines",
    "listener",
    "millis",
    "node",
    "path",
    "peer",
    "reason",
    "request_id",
    "seconds",
    "state",
    "stream",
    "task",
    "tunnel",
    "version",
    "worker",
];

/// Crates whose events follow `--log-level`; everything else only warns.
const OURS: [&str; 3] = [
    "bridgehead_gateway",
    "bridgehead_agent",
    "bridgehead_protocol",
];

/// Why the log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is neither a level nor a list of directives.
    #[error("log level `{level}` is not one of error, warn, info, debug, trace: {reason}")]
    Level {
        /// What was asked for.
        level: String,
        /// What the parser says.
        reason: String,
    },
    /// A subscriber is already set in this process.
    #[error("the log is already set up")]
    Twice,
}

/// Send events to standard error from now on. `level` is a level for our own crates, or a list of
/// directives as in `warn,h2=debug`.
///
/// # Errors
/// If `level` is not understood, or the process has a log already.
pub fn start(format: Format, level: &str) -> Result<(), LogError> {
    let subscriber = subscriber(format, level, std::io::stderr())?;
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::Twice)
}

/// The subscriber that [`start`] installs, writing to `out`.
///
/// # Errors
/// If `level` is not understood.
pub fn subscriber(
    format: Format,
    level: &str,
    out: impl Write + Send + 'static,
) -> Result<impl Subscriber + Send + Sync, LogError> {
    let lines = Lines {
        format,
        out: Mutex::new(out),
    };
    Ok(tracing_subscriber::registry()
        .with(filter(level)?)
        .with(lines))
}

fn filter(level: &str) -> Result<EnvFilter, LogError> {
    let directives = match level {
        "error" | "warn" | "info" | "debug" | "trace" => {
            let ours = OURS.map(|name| format!("{name}={level}")).join(",");
            let rest = if level == "error" { "error" } else { "warn" };
            format!("{rest},{ours}")
        }
        _ if level.contains(['=', ',']) => level.to_owned(),
        _ => {
            return Err(LogError::Level {
                level: level.to_owned(),
                reason: "unknown word".to_owned(),
            });
        }
    };
    EnvFilter::try_new(directives).map_err(|error| LogError::Level {
        level: level.to_owned(),
        reason: error.to_string(),
    })
}

/// The layer that turns each event into one line.
struct Lines<W> {
    format: Format,
    out: Mutex<W>,
}

impl<S: Subscriber, W: Write + Send + 'static> Layer<S> for Lines<W> {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let meta = event.metadata();
        let ts = rfc3339(SystemTime::now());
        let mut line = match self.format {
            Format::Json => fields.json(&ts, meta.level().as_str(), meta.target()),
            Format::Text => fields.text(&ts, meta.level().as_str()),
        };
        line.push('\n');
        // A log that cannot be written has nobody left to be told.
        if let Ok(mut out) = self.out.lock() {
            let _ = out.write_all(line.as_bytes());
        }
    }
}

/// Message and fields of one event.
#[derive(Default)]
struct Fields {
    message: String,
    values: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        let name = field.name();
        if name == "message" {
            self.message = match value {
                Value::String(text) => text,
                other => other.to_string(),
            };
        } else if FIELDS.contains(&name) {
            self.values.insert(name.to_owned(), value);
        } else {
            self.values.insert(format!("other.{name}"), value);
        }
    }

    fn json(self, ts: &str, level: &str, target: &str) -> String {
        let mut line = Map::new();
        line.insert("ts".into(), ts.into());
        line.insert("level".into(), level.to_ascii_lowercase().into());
        line.insert("target".into(), target.into());
        line.insert("message".into(), self.message.into());
        line.extend(self.values);
        Value::Object(line).to_string()
    }

    fn text(&self, ts: &str, level: &str) -> String {
        let mut line = format!("{ts} {level:<5} ");
        // Blanks are what a message is made of; everything else that is not text is escaped.
        for (n, word) in self.message.split(' ').enumerate() {
            if n > 0 {
                line.push(' ');
            }
            escape(&mut line, word);
        }
        for (name, value) in &self.values {
            line.push(' ');
            line.push_str(name);
            line.push('=');
            match value {
                Value::String(text) => quote(&mut line, text),
                other => line.push_str(&other.to_string()),
            }
        }
        line
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, value.to_string().into());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("not poisoned").write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, level: &str, event: impl FnOnce()) -> String {
        let out = Shared::default();
        let subscriber = subscriber(format, level, out.clone()).expect("a level");
        tracing::subscriber::with_default(subscriber, event);
        let bytes = out.0.lock().expect("not poisoned").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn a_hostile_value_stays_on_its_line_in_both_formats() {
        let evil = "x\r\n2026-01-01T00:00:00.000Z ERROR forged\u{1b}[31m\u{202e}";
        for format in [Format::Json, Format::Text] {
            let text = logged(format, "info", || {
                tracing::info!(agent = evil, error = %evil, "agent joined");
            });
            assert_eq!(text.matches('\n').count(), 1, "{text}");
            assert!(!text.contains(['\r', '\u{1b}']), "{text}");
        }
        let text = logged(Format::Text, "info", || {
            tracing::info!(agent = evil, "joined")
        });
        assert!(!text.contains('\u{202e}'), "{text}");
        let end =
            "joined agent=\"x\\r\\n2026-01-01T00:00:00.000Z ERROR forged\\u{1b}[31m\\u{202e}\"\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn a_value_with_blanks_is_readable_and_cannot_end_its_quotes() {
        let text = logged(Format::Text, "info", || {
            tracing::info!(
                error = "connection refused",
                reason = "a\" level=b c",
                "lost"
            );
        });
        let end = "lost error=\"connection refused\" reason=\"a' level=b c\"\n";
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn a_json_line_has_message_and_fields_beside_each_other() {
        let text = logged(Format::Json, "debug", || {
            tracing::debug!(count = 3, app = "demo", unheard = true, "routes replaced");
        });
        let value: Value = serde_json::from_str(&text).expect("json");
        assert_eq!(value["level"], "debug");
        assert_eq!(value["message"], "routes replaced");
        assert_eq!(value["count"], 3);
        assert_eq!(value["app"], "demo");
        assert_eq!(value["other.unheard"], true);
    }

    #[test]
    fn other_crates_only_warn_whatever_the_level() {
        let text = logged(Format::Text, "trace", || {
            tracing::info!(target: "h2", "frame");
            tracing::warn!(target: "h2", "odd");
        });
        assert!(!text.contains("frame") && text.contains("odd"), "{text}");
    }

    #[test]
    fn an_unknown_level_is_refused_by_name() {
        let error = filter("loud").expect_err("no such level");
        assert!(error.to_string().contains("`loud`"));
        assert!(filter("warn,h2=debug").is_ok());
    }
}
