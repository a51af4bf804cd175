//! The TOML text as sections whose every key must be asked for: what nobody asked for is unknown.
//!
//! Owns positions, key paths and the collection of mistakes; a key's name stands once, where it is
//! read. Must not know what any key means. Place in the path: between the file and its meaning.
//! Invariant: `Section::finish` is called for every section, so no key is accepted silently.

use std::cell::RefCell;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use super::fault::{ConfigError, ConfigErrors, Fault, nearest};
use super::units;

/// Where mistakes go while a file is read; all are reported, not only the first.
#[derive(Debug)]
pub struct Sink<'t> {
    file: &'t str,
    text: &'t str,
    errors: RefCell<Vec<ConfigError>>,
}

impl<'t> Sink<'t> {
    /// For the mistakes of `text`, which stands in `file`.
    #[must_use]
    pub fn new(file: &'t str, text: &'t str) -> Self {
        Self {
            file,
            text,
            errors: RefCell::new(Vec::new()),
        }
    }

    /// Takes one mistake: at the key `path`, at a byte of the text where known.
    pub fn push(&self, path: &str, offset: Option<usize>, fault: Fault) {
        self.errors.borrow_mut().push(ConfigError {
            file: self.file.to_owned(),
            line: offset.map(|at| self.line(at)),
            path: path.to_owned(),
            what: fault.what,
            mend: fault.mend,
        });
    }

    /// True if nothing was reported.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.errors.borrow().is_empty()
    }

    /// `Ok` if nothing was reported.
    ///
    /// # Errors
    /// All that was reported, in the order of the file.
    pub fn into_result(self) -> Result<(), ConfigErrors> {
        let errors = self.errors.into_inner();
        if errors.is_empty() {
            return Ok(());
        }
        Err(ConfigErrors::new(errors))
    }

    /// What the parser of TOML says, as the only mistake.
    pub(super) fn no_toml(&self, error: &toml::de::Error) -> ConfigErrors {
        let offset = error.span().map(|span| span.start);
        let line = offset.map_or(String::new(), |at| format!(" at line {}", self.line(at)));
        let what = format!("not TOML{line}: {}", error.message().replace('\n', " "));
        self.push("", offset, Fault::new(what, "mend the syntax"));
        ConfigErrors::new(self.errors.take())
    }

    /// The line of an offset, counted from 1.
    #[must_use]
    pub fn line(&self, offset: usize) -> usize {
        let before = self.text.as_bytes().get(..offset).unwrap_or_default();
        before.iter().filter(|byte| **byte == b'\n').count() + 1
    }
}

/// One table of the file, or the absence of one (every key then reads as absent).
#[derive(Debug)]
pub struct Section<'d> {
    sink: &'d Sink<'d>,
    path: String,
    offset: Option<usize>,
    table: Option<&'d DeTable<'d>>,
    known: RefCell<Vec<&'static str>>,
}

impl<'d> Section<'d> {
    /// The whole document.
    #[must_use]
    pub fn root(sink: &'d Sink<'d>, table: &'d DeTable<'d>) -> Self {
        Self::new(sink, String::new(), None, Some(table))
    }

    fn new(
        sink: &'d Sink<'d>,
        path: String,
        offset: Option<usize>,
        table: Option<&'d DeTable<'d>>,
    ) -> Self {
        Self {
            sink,
            path,
            offset,
            table,
            known: RefCell::new(Vec::new()),
        }
    }

    /// The table `[key]`.
    #[must_use]
    pub fn table(&self, key: &'static str) -> Section<'d> {
        let path = format!("{}[{key}]", self.path);
        let Some(entry) = self.entry(key) else {
            return Section::new(self.sink, path, None, None);
        };
        match entry.value {
            DeValue::Table(table) => Section::new(self.sink, path, Some(entry.offset), Some(table)),
            _ => {
                entry.report(Fault::new("is not a table", format!("write [{key}]")));
                Section::new(self.sink, path, None, None)
            }
        }
    }

    /// The tables `[[key]]`.
    #[must_use]
    pub fn tables(&self, key: &'static str) -> Vec<Section<'d>> {
        let Some(entry) = self.entry(key) else {
            return Vec::new();
        };
        // A table inside another is written inline, so its path is a plain key there.
        let path = match self.path.is_empty() {
            true => format!("[[{key}]]"),
            false => format!("{}.{key}", self.path),
        };
        let DeValue::Array(items) = entry.value else {
            entry.report(Fault::new(
                "is not a list of tables",
                format!("write [[{key}]] above each"),
            ));
            return Vec::new();
        };
        let mut sections = Vec::new();
        for item in items {
            match item.get_ref() {
                DeValue::Table(table) => sections.push(Section::new(
                    self.sink,
                    path.clone(),
                    Some(item.span().start),
                    Some(table),
                )),
                other => self.sink.push(
                    &path,
                    Some(item.span().start),
                    Fault::new(
                        format!("{} stands where a table is wanted", kind(other)),
                        "write { key = value, … }",
                    ),
                ),
            }
        }
        sections
    }

    /// True if `key` is written.
    #[must_use]
    pub fn has(&self, key: &'static str) -> bool {
        self.entry(key).is_some()
    }

    /// The value of `key`, converted by `read`; `None` if it is absent or was reported as wrong.
    pub fn read<T>(
        &self,
        key: &'static str,
        read: impl FnOnce(&Value<'d>) -> Result<T, Fault>,
    ) -> Option<T> {
        let entry = self.entry(key)?;
        match read(&Value(entry.value)) {
            Ok(value) => Some(value),
            Err(fault) => {
                entry.report(fault);
                None
            }
        }
    }

    /// Each item of the list `key` (a single value counts as a list of one), converted by `read`.
    pub fn list<T>(
        &self,
        key: &'static str,
        read: impl Fn(&Value<'d>) -> Result<T, Fault>,
    ) -> Option<Vec<T>> {
        let entry = self.entry(key)?;
        let DeValue::Array(items) = entry.value else {
            return self.read(key, |value| read(value).map(|one| vec![one]));
        };
        let mut values = Vec::new();
        for item in items {
            match read(&Value(item.get_ref())) {
                Ok(value) => values.push(value),
                Err(fault) => self.sink.push(&entry.path, Some(item.span().start), fault),
            }
        }
        Some(values)
    }

    /// Reports a mistake of `key`, or of the whole section where `key` is empty.
    pub fn report(&self, key: &str, fault: Fault) {
        let offset = self
            .table
            .and_then(|table| table.iter().find(|(name, _)| name.get_ref() == key))
            .map(|(name, _)| name.span().start)
            .or(self.offset);
        self.sink.push(&self.path_of(key), offset, fault);
    }

    /// Reports every key that nobody asked for.
    pub fn finish(&self) {
        let known = self.known.borrow();
        for (name, _) in self.table.into_iter().flatten() {
            let key: &str = name.get_ref();
            if known.contains(&key) {
                continue;
            }
            let mend = match nearest(key, &known) {
                Some(meant) => format!("did you mean {meant}?"),
                None => format!("known here: {}", known.join(", ")),
            };
            self.sink.push(
                &self.path_of(key),
                Some(name.span().start),
                Fault::new("unknown key", mend),
            );
        }
    }

    fn entry(&self, key: &'static str) -> Option<Entry<'d>> {
        let mut known = self.known.borrow_mut();
        if !known.contains(&key) {
            known.push(key);
        }
        let table = self.table?;
        let (name, value) = table.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(Entry {
            sink: self.sink,
            path: self.path_of(key),
            offset: name.span().start,
            value: value.get_ref(),
        })
    }

    fn path_of(&self, key: &str) -> String {
        match (self.path.is_empty(), key.is_empty()) {
            (true, _) => key.to_owned(),
            (false, true) => self.path.clone(),
            (false, false) => format!("{}.{key}", self.path),
        }
    }
}

/// A key's value with its place.
struct Entry<'d> {
    sink: &'d Sink<'d>,
    path: String,
    offset: usize,
    value: &'d DeValue<'d>,
}

impl Entry<'_> {
    fn report(&self, fault: Fault) {
        self.sink.push(&self.path, Some(self.offset), fault);
    }
}

/// A value whose type is not known yet.
pub struct Value<'d>(&'d DeValue<'d>);

impl<'d> Value<'d> {
    /// A text in quotes.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn text(&self) -> Result<&'d str, Fault> {
        match self.0 {
            DeValue::String(text) => Ok(text),
            other => Err(wrong_type("text in quotes", other)),
        }
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn switch(&self) -> Result<bool, Fault> {
        match self.0 {
            DeValue::Boolean(value) => Ok(*value),
            other => Err(wrong_type("true or false", other)),
        }
    }

    /// A whole number from 0 upwards.
    ///
    /// # Errors
    /// If it is of another type.
    pub fn whole(&self) -> Result<u64, Fault> {
        match self.0 {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix())
                .map_err(|_| {
                    Fault::new(
                        format!("{number} is not a number from 0 upwards"),
                        "write for example 100",
                    )
                }),
            other => Err(wrong_type("a whole number", other)),
        }
    }

    /// A duration in quotes, or a bare 0.
    ///
    /// # Errors
    /// If it is of another type, or says something else.
    pub fn duration(&self) -> Result<Duration, Fault> {
        match self.0 {
            DeValue::String(text) => units::parse_duration(text),
            DeValue::Integer(number) if number.as_str() == "0" => Ok(Duration::ZERO),
            DeValue::Integer(number) => Err(Fault::new(
                format!("{number} has no unit"),
                format!("write \"{number}s\""),
            )),
            other => Err(wrong_type("a duration such as \"30s\"", other)),
        }
    }

    /// A size in quotes, in bytes.
    ///
    /// # Errors
    /// If it is of another type, or says something else.
    pub fn size(&self) -> Result<u64, Fault> {
        match self.0 {
            DeValue::String(text) => units::parse_size(text),
            DeValue::Integer(number) => Err(Fault::new(
                format!("{number} has no unit"),
                format!("write \"{number}B\" or \"{number}KiB\""),
            )),
            other => Err(wrong_type("a size such as \"64KiB\"", other)),
        }
    }

    /// A TOML date-time, as its text.
    ///
    /// # Errors
    /// If it is of another type, or says something else.
    pub fn date(&self) -> Result<String, Fault> {
        match self.0 {
            DeValue::Datetime(date) => Ok(date.to_string()),
            DeValue::String(text) => Ok(text.to_string()),
            other => Err(wrong_type("a date such as 2027-01-31T00:00:00Z", other)),
        }
    }
}

fn wrong_type(wanted: &str, found: &DeValue<'_>) -> Fault {
    Fault::new(
        format!("{} stands where {wanted} is wanted", kind(found)),
        format!("write {wanted}"),
    )
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
