//! Text to script. Every mistake names line, column, and what would have been right.
//!
//! Pure. Must not decide what a rule does. Invariant: no text makes it panic.

use std::time::Duration;

use bridgehead_protocol::wire::{Kind, MAX_STREAM};

use super::script::{Direction, Effect, End, Fault, Filter, Often, Place, Rule, Script, Trigger};

/// Longest span of a script: a year keeps every sum of times far from overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// What is wrong with a script, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: expected {expected}, found {found}")]
pub struct ScriptError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What would have been right.
    pub expected: String,
    /// What stands there.
    pub found: String,
}

/// Reads a whole script.
///
/// # Errors
/// The first mistake.
pub fn parse(text: &str) -> Result<Script, ScriptError> {
    let mut script = Script::default();
    for (index, line) in text.lines().enumerate() {
        let mut reader = Reader::new(index + 1, line);
        if reader.peek().is_some() {
            script.rules.push(rule(&mut reader)?);
        }
    }
    Ok(script)
}

/// Reads `500ms`, `30s`, `5m` or `1h`.
pub fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_number(text)?;
    let unit = match unit {
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let span = Duration::try_from_secs_f64(number * unit).ok()?;
    (span <= LONGEST).then_some(span)
}

/// Reads `500B`, `64KiB`, `1MiB` or `1GiB`.
pub fn size(text: &str) -> Option<u64> {
    let (number, unit) = split_number(text)?;
    let unit = match unit {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        "GiB" => 1_073_741_824.0,
        _ => return None,
    };
    let bytes = number * unit;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked in this line
    (1.0..1e15).contains(&bytes).then_some(bytes as u64)
}

/// Reads `5%` or `0.01%` as parts of a million.
pub fn percent(text: &str) -> Option<u32> {
    let (number, unit) = split_number(text)?;
    if unit != "%" || number > 100.0 {
        return None;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to a million
    Some((number * 10_000.0).round() as u32)
}

fn split_number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    Some((number, unit))
}

struct Token<'a> {
    text: &'a str,
    column: usize,
}

/// The words of one line, from left to right.
struct Reader<'a> {
    line: usize,
    text: &'a str,
    tokens: Vec<Token<'a>>,
    next: usize,
    end: usize,
}

impl<'a> Reader<'a> {
    fn new(line: usize, text: &'a str) -> Self {
        let text = text.split('#').next().unwrap_or_default();
        let mut tokens = Vec::new();
        let mut begun: Option<(usize, usize)> = None;
        for (column, (at, c)) in text.char_indices().enumerate() {
            let sign = c == ':' || c == ',';
            if (sign || c.is_whitespace())
                && let Some((from, column)) = begun.take()
            {
                tokens.push(Token {
                    text: &text[from..at],
                    column,
                });
            }
            if sign {
                tokens.push(Token {
                    text: &text[at..=at],
                    column: column + 1,
                });
            } else if !c.is_whitespace() && begun.is_none() {
                begun = Some((at, column + 1));
            }
        }
        if let Some((from, column)) = begun {
            tokens.push(Token {
                text: &text[from..],
                column,
            });
        }
        let end = text.trim_end().chars().count() + 1;
        Self {
            line,
            text: text.trim(),
            tokens,
            next: 0,
            end,
        }
    }

    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.next).map(|t| t.text)
    }

    /// Takes `word` if it stands there.
    fn take(&mut self, word: &str) -> Option<()> {
        (self.peek()? == word).then(|| self.next += 1)
    }

    /// Takes both words or none.
    fn take_two(&mut self, first: &str, second: &str) -> Option<()> {
        let follows = self.tokens.get(self.next + 1)?.text == second;
        (follows && self.peek()? == first).then(|| self.next += 2)
    }

    /// Takes a word that `read` understands.
    fn read<T>(
        &mut self,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, ScriptError> {
        match self.peek().and_then(read) {
            Some(value) => {
                self.next += 1;
                Ok(value)
            }
            None => Err(self.wrong(expected)),
        }
    }

    fn expect(&mut self, word: &str) -> Result<(), ScriptError> {
        self.take(word)
            .ok_or_else(|| self.wrong(&format!("`{word}`")))
    }

    fn wrong(&self, expected: &str) -> ScriptError {
        let token = self.tokens.get(self.next);
        ScriptError {
            line: self.line,
            column: token.map_or(self.end, |t| t.column),
            expected: expected.to_owned(),
            found: token.map_or("the end of the line".into(), |t| format!("`{}`", t.text)),
        }
    }
}

const WHEN: &str = "`always`, `at`, `after`, `on`, `every` or `with`";
const WHAT: &str = "a fault: `cut`, `reset`, `half-close`, `blackhole`, `delay`, `rate`, `slice`, `refuse` or `down`";
const TIME: &str = "a time such as 20ms, 5s or 1m";
const NUMBER: &str = "a number from 1";

fn rule(reader: &mut Reader<'_>) -> Result<Rule, ScriptError> {
    let trigger = trigger(reader)?;
    let span = span(reader)?;
    if reader.peek() != Some(":") {
        let after = match span {
            Some(_) => "`:` and a fault",
            None => "more of when, or `:` and a fault",
        };
        return Err(reader.wrong(after));
    }
    reader.next += 1;
    let mut faults = vec![fault(reader, &trigger, span)?];
    while reader.take(",").is_some() {
        faults.push(fault(reader, &trigger, span)?);
    }
    if reader.peek().is_some() {
        return Err(reader.wrong("`,` and another fault, or the end of the line"));
    }
    Ok(Rule {
        text: reader.text.to_owned(),
        trigger,
        faults,
    })
}

fn trigger(reader: &mut Reader<'_>) -> Result<Trigger, ScriptError> {
    match reader.peek() {
        Some("always") => {
            reader.next += 1;
            Ok(Trigger::Always)
        }
        Some("at") => {
            reader.next += 1;
            at(reader)
        }
        Some("after") => {
            reader.next += 1;
            if reader.take("frame").is_some() {
                return frame(reader, Place::After);
            }
            let delay = reader.read(&format!("`frame` or {TIME}"), duration)?;
            Ok(Trigger::After { delay })
        }
        Some("on") => {
            reader.next += 1;
            on(reader)
        }
        Some("every") => {
            reader.next += 1;
            every(reader)
        }
        Some("with") => {
            reader.next += 1;
            with(reader)
        }
        _ => Err(reader.wrong(WHEN)),
    }
}

fn at(reader: &mut Reader<'_>) -> Result<Trigger, ScriptError> {
    match reader.peek() {
        Some("frame") => {
            reader.next += 1;
            frame(reader, Place::Before)
        }
        Some("byte") => {
            reader.next += 1;
            let offset = reader.read("a number of bytes", |w| w.parse().ok())?;
            let direction = direction(reader);
            Ok(Trigger::Byte {
                offset,
                direction,
                often: often(reader),
            })
        }
        Some("connection") => {
            reader.next += 1;
            Ok(Trigger::Connection {
                number: reader.read(NUMBER, ordinal)?,
            })
        }
        _ => Err(reader.wrong("`frame`, `byte` or `connection`")),
    }
}

fn frame(reader: &mut Reader<'_>, place: Place) -> Result<Trigger, ScriptError> {
    let number = reader.read(NUMBER, ordinal)?;
    let filter = filter(reader, None)?;
    Ok(Trigger::Frame {
        number,
        filter,
        place,
        often: often(reader),
    })
}

fn on(reader: &mut Reader<'_>) -> Result<Trigger, ScriptError> {
    let each = reader.take("each");
    let kind = reader.read(&kinds(), kind)?;
    let filter = filter(reader, Some(kind))?;
    if each.is_some() {
        return Ok(Trigger::EveryFrames { step: 1, filter });
    }
    let often = often(reader);
    Ok(Trigger::Frame {
        number: 1,
        filter,
        place: Place::Before,
        often,
    })
}

fn every(reader: &mut Reader<'_>) -> Result<Trigger, ScriptError> {
    if let Some(step) = reader.peek().and_then(ordinal) {
        reader.next += 1;
        reader.expect("frames")?;
        return Ok(Trigger::EveryFrames {
            step,
            filter: filter(reader, None)?,
        });
    }
    let positive = |word: &str| duration(word).filter(|d| *d >= Duration::from_millis(1));
    let expected = format!("{TIME}, or a number of frames");
    Ok(Trigger::Every {
        period: reader.read(&expected, positive)?,
    })
}

fn with(reader: &mut Reader<'_>) -> Result<Trigger, ScriptError> {
    let positive = |word: &str| percent(word).filter(|p| *p > 0);
    let chance = reader.read("a chance such as 1% or 0.01%", positive)?;
    reader.expect("per")?;
    match reader.peek() {
        Some("frame") => {
            reader.next += 1;
            Ok(Trigger::PerFrame {
                chance,
                filter: filter(reader, None)?,
            })
        }
        Some("connection") => {
            reader.next += 1;
            Ok(Trigger::PerConnection { chance })
        }
        _ => Err(reader.wrong("`frame` or `connection`")),
    }
}

fn filter(reader: &mut Reader<'_>, kind_said: Option<Kind>) -> Result<Filter, ScriptError> {
    let mut filter = Filter {
        kind: kind_said,
        ..Filter::default()
    };
    if kind_said.is_none() && reader.take_two("of", "type").is_some() {
        filter.kind = Some(reader.read(&kinds(), kind)?);
    }
    if reader.take_two("of", "stream").is_some() {
        let stream = |word: &str| word.parse().ok().filter(|n| *n <= MAX_STREAM);
        filter.stream = Some(reader.read("a stream's number", stream)?);
    }
    filter.direction = direction(reader);
    Ok(filter)
}

fn often(reader: &mut Reader<'_>) -> Often {
    let each = reader.take_two("of", "each").is_some();
    match each && reader.take("connection").is_some() {
        true => Often::EachConnection,
        false => {
            // `of each` alone is told by what follows: the caller finds it where a colon belongs.
            if each {
                reader.next -= 2;
            }
            Often::Once
        }
    }
}

fn direction(reader: &mut Reader<'_>) -> Option<Direction> {
    let found = Direction::ALL
        .into_iter()
        .find(|d| reader.peek() == Some(d.as_str()))?;
    reader.next += 1;
    Some(found)
}

fn span(reader: &mut Reader<'_>) -> Result<Option<Duration>, ScriptError> {
    match reader.take("for") {
        Some(()) => reader.read(TIME, duration).map(Some),
        None => Ok(None),
    }
}

fn fault(
    reader: &mut Reader<'_>,
    trigger: &Trigger,
    default: Option<Duration>,
) -> Result<Fault, ScriptError> {
    let begin = reader.next;
    let word = reader.peek().unwrap_or_default();
    reader.next += 1;
    let effect = match word {
        "cut" => return moment(reader, trigger, begin, Fault::End(End::Cut)),
        "reset" => return moment(reader, trigger, begin, Fault::End(End::Reset)),
        "half-close" => {
            let way =
                direction(reader).ok_or_else(|| reader.wrong("`to-agent` or `to-gateway`"))?;
            return moment(reader, trigger, begin, Fault::HalfClose(way));
        }
        "blackhole" => Effect::BlackHole,
        "refuse" => Effect::Refuse,
        "down" => Effect::Down,
        "delay" => {
            let by = reader.read(TIME, duration)?;
            let jitter = match reader.take("jitter") {
                Some(()) => reader.read(TIME, duration)?,
                None => Duration::ZERO,
            };
            Effect::Delay { by, jitter }
        }
        "rate" => Effect::Rate(reader.read("a rate such as 500B/s or 1MiB/s", |word| {
            word.strip_suffix("/s").and_then(size)
        })?),
        "slice" => {
            let bytes = |word: &str| word.parse().ok().filter(|n| *n > 0);
            Effect::Slice(reader.read("a number of bytes from 1", bytes)?)
        }
        _ => {
            reader.next = begin;
            return Err(reader.wrong(WHAT));
        }
    };
    let way = match effect {
        Effect::Refuse | Effect::Down => None,
        _ => direction(reader),
    };
    let span = span(reader)?.or(default);
    if span.is_none() && trigger.repeats() && piles_up(effect, trigger) {
        return Err(reader.wrong("`for` and a time, since this rule can fire again"));
    }
    Ok(Fault::Last {
        effect,
        direction: way,
        span,
    })
}

/// True if the effect would never end without a span, or begin again before it does.
fn piles_up(effect: Effect, trigger: &Trigger) -> bool {
    let of_one = matches!(trigger, Trigger::PerConnection { .. }) && effect == Effect::Refuse;
    let global = matches!(effect, Effect::Refuse | Effect::Down);
    let often = matches!(
        trigger,
        Trigger::Every { .. } | Trigger::EveryFrames { .. } | Trigger::PerFrame { .. }
    );
    often || (global && !of_one)
}

/// A fault without a span, which needs a moment to fall on.
fn moment(
    reader: &mut Reader<'_>,
    trigger: &Trigger,
    begin: usize,
    fault: Fault,
) -> Result<Fault, ScriptError> {
    if matches!(trigger, Trigger::Always) {
        reader.next = begin;
        return Err(reader.wrong(
            "a fault that lasts; this one needs a moment (`at`, `on`, `after`, `every`, `with`)",
        ));
    }
    Ok(fault)
}

fn ordinal(word: &str) -> Option<u64> {
    word.parse().ok().filter(|n| *n > 0)
}

fn kind(word: &str) -> Option<Kind> {
    Kind::ALL
        .iter()
        .copied()
        .find(|k| k.as_str().eq_ignore_ascii_case(word))
}

fn kinds() -> String {
    let names: Vec<&str> = Kind::ALL.iter().map(|k| k.as_str()).collect();
    format!("a type of frame ({})", names.join(", "))
}
