//! Configuration files as both programs read them: every mistake at once, each with its line.
//!
//! | File | Holds |
//! |---|---|
//! | [`section`] | the TOML text as tables whose every key must be asked for |
//! | [`units`] | durations, sizes, dates and shares as people write them |
//! | [`fault`] | what is wrong, one line each, and the key somebody meant |
//!
//! Pure: whoever has the text gives it. Which keys there are and what they mean is the programs' own.

pub mod fault;
pub mod section;
pub mod units;

pub use fault::{ConfigError, ConfigErrors, Fault, nearest};
pub use section::{Section, Sink, Value};
pub use units::{Percent, show_duration, show_size};

use toml::de::DeTable;

/// Reads `text`, which stands in `file`, by `read`. It gets the root, must call [`Section::finish`] on it and
/// on each section that it takes from it, and may report to the sink what does not fit together.
///
/// # Errors
/// Every mistake: text that is no TOML, and what was reported.
pub fn read<T>(
    text: &str,
    file: &str,
    read: impl for<'d> FnOnce(&'d Sink<'d>, Section<'d>) -> T,
) -> Result<T, ConfigErrors> {
    let sink = Sink::new(file, text);
    let document = DeTable::parse(text).map_err(|error| sink.no_toml(&error))?;
    let value = read(&sink, Section::root(&sink, document.get_ref()));
    drop(document);
    sink.into_result()?;
    Ok(value)
}
