//! Fuzz targets: what reads bytes of strangers, each as one plain function.
//!
//! A target takes any bytes, checks what must hold of them with assertions, and answers a *signature*:
//! a small number for what it found (which error, how far it got). `cargo fuzz` (see `tests/fuzz`)
//! drives the same functions with coverage; [`engine`] drives them on stable with a seeded mutator that
//! keeps inputs with new signatures. A finding is an assertion or a panic.

pub mod engine;
pub mod feed;

mod config;
mod conn;
mod forwarded;
mod frames;
mod handshake;
mod head;
mod host;
mod message;
mod proxy_header;

/// A target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: of its folder in the corpus, and of its `cargo fuzz` binary.
    pub name: &'static str,
    /// Runs it.
    pub run: fn(&[u8]) -> u64,
    /// Pieces that inputs are made of.
    pub words: &'static [&'static [u8]],
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "frames",
        run: frames::run,
        words: frames::WORDS,
    },
    Target {
        name: "conn",
        run: conn::run,
        words: &[],
    },
    Target {
        name: "handshake",
        run: handshake::run,
        words: handshake::WORDS,
    },
    Target {
        name: "head",
        run: head::run,
        words: head::WORDS,
    },
    Target {
        name: "message",
        run: message::run,
        words: message::WORDS,
    },
    Target {
        name: "host",
        run: host::run,
        words: host::WORDS,
    },
    Target {
        name: "forwarded",
        run: forwarded::run,
        words: forwarded::WORDS,
    },
    Target {
        name: "proxy_header",
        run: proxy_header::run,
        words: proxy_header::WORDS,
    },
    Target {
        name: "config",
        run: config::run,
        words: config::WORDS,
    },
];

/// Runs a target by name; panics if there is none. For the `cargo fuzz` binaries.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|t| t.name == name);
    let target = target.unwrap_or_else(|| panic!("no target {name}"));
    (target.run)(data);
}

/// A signature from parts: order matters.
fn signature(parts: &[u64]) -> u64 {
    parts.iter().fold(0xcbf2_9ce4_8422_2325, |sum, part| {
        (sum ^ part).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A signature of a value's variant, as its Debug form says it, without the data behind it.
fn variant(value: &impl std::fmt::Debug) -> u64 {
    let text = format!("{value:?}");
    let name: Vec<u64> = text
        .bytes()
        .filter(|b| !b.is_ascii_digit())
        .take(48)
        .map(u64::from)
        .collect();
    signature(&name)
}

/// How large something is, coarsely.
fn size(n: usize) -> u64 {
    u64::from(usize::BITS - n.leading_zeros())
}
