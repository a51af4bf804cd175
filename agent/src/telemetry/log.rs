//! Set-up of the agent's log: text or JSON lines on standard error.
//!
//! For the binary only; in the gateway's `dev` mode the events go to the gateway's log.

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::cli::LogFormat;
use crate::config::ConfigError;
use crate::config::parse::LogOptions;

/// Sends events to standard error from now on.
///
/// # Errors
/// If the level is not understood, or the process has a log already.
pub fn start(options: &LogOptions) -> Result<(), ConfigError> {
    let subscriber = subscriber(options, std::io::stderr)?;
    tracing::subscriber::set_global_default(subscriber).map_err(|error| ConfigError::Setting {
        name: "--log",
        what: error.to_string(),
    })
}

/// The subscriber that [`start`] installs.
fn subscriber<W>(
    options: &LogOptions,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>, ConfigError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(&options.level)?)
        .with_writer(writer)
        .with_ansi(false);
    Ok(match options.format {
        LogFormat::Text => Box::new(builder.with_target(false).finish()),
        LogFormat::Json => Box::new(
            builder
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .finish(),
        ),
    })
}

/// A lone level is meant for our own crates; others only warn.
fn filter(level: &str) -> Result<EnvFilter, ConfigError> {
    let directives = match level {
        "error" | "warn" | "info" | "debug" | "trace" => {
            let others = if level == "error" { "error" } else { "warn" };
            format!("{others},bridgehead_agent={level},bridgehead_protocol={level}")
        }
        _ if level.contains(['=', ',']) => level.to_owned(),
        _ => return Err(wrong(level, "an unknown word")),
    };
    EnvFilter::try_new(directives).map_err(|error| wrong(level, &error.to_string()))
}

fn wrong(level: &str, what: &str) -> ConfigError {
    ConfigError::Setting {
        name: "--log-level",
        what: format!("`{level}` is not error, warn, info, debug or trace: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, SeekFrom};
    use std::sync::Arc;

    use super::*;

    fn logged(format: LogFormat, level: &str, write: impl FnOnce()) -> String {
        let file = Arc::new(tempfile::tempfile().expect("file"));
        let options = LogOptions {
            format,
            level: level.to_owned(),
        };
        let subscriber = subscriber(&options, Arc::clone(&file)).expect("subscriber");
        tracing::subscriber::with_default(subscriber, write);
        let mut text = String::new();
        (&*file).seek(SeekFrom::Start(0)).expect("seek");
        (&*file).read_to_string(&mut text).expect("read");
        text
    }

    #[test]
    fn json_is_one_flat_object_a_line() {
        let text = logged(LogFormat::Json, "info", || {
            tracing::info!(app = "demo", "app answers");
            tracing::debug!("hidden");
        });
        let line: serde_json::Value = serde_json::from_str(&text).expect("one object");
        assert_eq!(
            (line["app"].as_str(), line["message"].as_str()),
            (Some("demo"), Some("app answers"))
        );
    }

    #[test]
    fn text_names_level_and_message_without_colours() {
        let text = logged(LogFormat::Text, "bridgehead_agent=debug", || {
            tracing::debug!(app = "demo", "seen")
        });
        assert!(text.contains("DEBUG seen app=\"demo\""), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_level_that_is_none_is_refused_with_its_text() {
        let said = filter("loud").expect_err("no level").to_string();
        assert!(said.contains("`loud`"), "{said}");
    }
}
