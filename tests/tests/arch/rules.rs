//! The rules of the house: who may import what, how large a file may be, which words never appear.
//!
//! Owns: the table of rooms. Must not: touch the disk, so that each rule is itself tested with a
//! planted violation. Invariant: a rule names a path prefix; the longest matching room decides.

use crate::source::Named;

/// What one room may import. Prefixes are whole path segments.
pub(crate) struct Room {
    /// Module prefix, crate name first.
    pub(crate) prefix: &'static str,
    /// The only paths of crates and of other rooms it may name; its own folder is always allowed.
    pub(crate) may: &'static [&'static str],
    /// Paths it may not name although `may` covers them.
    pub(crate) never: &'static [&'static str],
}

/// Parts of the standard library that read a clock, touch the system or start a thread.
const IMPURE: &[&str] = &[
    "std::time::Instant",
    "std::time::SystemTime",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::UdpSocket",
    "std::thread",
    "std::fs",
    "std::process",
    "std::env",
    "std::os",
    "tokio::time::Instant",
];

/// Crates that are values and functions only.
const PURE_GATEWAY: &[&str] = &[
    "std",
    "core",
    "http",
    "bytes",
    "thiserror",
    "serde",
    "serde_json",
    "uuid",
    "httparse",
    "bridgehead_protocol::config",
    "bridgehead_protocol::verdict",
    "bridgehead_protocol::time",
    "bridgehead_gateway::error",
    "bridgehead_gateway::config",
    "bridgehead_gateway::request::front",
    "bridgehead_gateway::h1::HeadError",
];

/// The canonicaliser's own values, and the one remover of hop-by-hop fields.
const PURE_NORMALIZE: &[&str] = &[
    "std",
    "core",
    "http",
    "thiserror",
    "bridgehead_protocol::verdict",
    "bridgehead_gateway::config",
    "bridgehead_gateway::error",
    "bridgehead_gateway::h1::fields",
    "bridgehead_gateway::request::front",
    "bridgehead_gateway::route::host",
    "bridgehead_gateway::route::path",
];

const PROTOCOL_CORE: &[&str] = &[
    "std",
    "core",
    "bytes",
    "slab",
    "thiserror",
    "subtle",
    "blake3",
    "base64",
    "zeroize",
    "bridgehead_protocol::verdict",
    "bridgehead_protocol::wire",
    "bridgehead_protocol::handshake",
    "bridgehead_protocol::conn",
    "bridgehead_protocol::time",
    // Bugs that the simulation switches on; a constant `false` elsewhere.
    "bridgehead_protocol::planted",
];

/// The pure parts of the chaos carrier and of the load generator: values in, values out.
const PURE_TOOLS: &[&str] = &[
    "std",
    "core",
    "bytes",
    "blake3",
    "rand",
    "serde",
    "serde_json",
    "thiserror",
    "bridgehead_protocol::wire",
    "bridgehead_tests::chaos::decision",
    "bridgehead_tests::chaos::scan",
    "bridgehead_tests::chaos::script",
    "bridgehead_tests::chaos::span",
    "bridgehead_tests::chaos::tally",
    "bridgehead_tests::load::histogram",
    "bridgehead_tests::load::judge",
    "bridgehead_tests::load::told",
    "bridgehead_tests::oracle::book",
    "bridgehead_tests::oracle::content",
];

macro_rules! pure_tool {
    ($prefix:literal) => {
        Room {
            prefix: $prefix,
            may: PURE_TOOLS,
            never: IMPURE,
        }
    };
}

macro_rules! pure_gateway {
    ($prefix:literal) => {
        Room {
            prefix: $prefix,
            may: PURE_GATEWAY,
            never: IMPURE,
        }
    };
}

/// Rooms with a list of their own. Others are free, except for [`NEVER_UP`].
pub(crate) const ROOMS: &[Room] = &[
    Room {
        prefix: "bridgehead_protocol",
        may: PROTOCOL_CORE,
        never: IMPURE,
    },
    Room {
        prefix: "bridgehead_protocol::config",
        may: &["std", "core", "toml"],
        never: IMPURE,
    },
    Room {
        prefix: "bridgehead_protocol::io",
        may: &[
            "std",
            "core",
            "bytes",
            "thiserror",
            "bridgehead_protocol",
            "tokio",
            "tokio_tungstenite",
            "tokio_rustls",
            "rustls",
            "tracing",
            "futures_util",
            "rand",
            "http",
            "httparse",
            "rustix",
            "socket2",
            "base64",
            "zeroize",
        ],
        never: &["std::thread", "std::fs", "std::process", "std::env"],
    },
    Room {
        prefix: "bridgehead_protocol::io::tls",
        may: &["std", "rustls", "thiserror", "zeroize"],
        never: &["std::thread", "std::process", "std::env"],
    },
    Room {
        prefix: "bridgehead_protocol::testing",
        may: PROTOCOL_CORE,
        never: IMPURE,
    },
    pure_tool!("bridgehead_tests::chaos::decision"),
    pure_tool!("bridgehead_tests::chaos::engine"),
    pure_tool!("bridgehead_tests::chaos::parse"),
    pure_tool!("bridgehead_tests::chaos::scan"),
    pure_tool!("bridgehead_tests::chaos::script"),
    pure_tool!("bridgehead_tests::chaos::span"),
    pure_tool!("bridgehead_tests::chaos::tally"),
    pure_tool!("bridgehead_tests::load::histogram"),
    pure_tool!("bridgehead_tests::load::judge"),
    pure_tool!("bridgehead_tests::load::plan"),
    pure_tool!("bridgehead_tests::load::report"),
    pure_tool!("bridgehead_tests::load::told"),
    pure_tool!("bridgehead_tests::oracle::content"),
    pure_gateway!("bridgehead_gateway::route"),
    pure_gateway!("bridgehead_gateway::admit"),
    pure_gateway!("bridgehead_gateway::answer"),
    Room {
        prefix: "bridgehead_gateway::request::normalize",
        may: PURE_NORMALIZE,
        never: IMPURE,
    },
    pure_gateway!("bridgehead_gateway::request::forwarded"),
    pure_gateway!("bridgehead_gateway::request::windows"),
    pure_gateway!("bridgehead_gateway::request::retry"),
    pure_gateway!("bridgehead_gateway::tunnel::registry"),
    // The store behind its lock counts; the rest is pure and knows who an agent is.
    Room {
        prefix: "bridgehead_gateway::ledger",
        may: &[
            "std",
            "core",
            "thiserror",
            "serde",
            "uuid",
            "blake3",
            "bridgehead_protocol::verdict",
            "bridgehead_protocol::time",
            "bridgehead_protocol::handshake",
            "bridgehead_protocol::wire",
            "bridgehead_gateway::clock",
            "bridgehead_gateway::telemetry::labels",
            "bridgehead_gateway::telemetry::metrics",
        ],
        never: IMPURE,
    },
    // It chooses among the values of its neighbour.
    Room {
        prefix: "bridgehead_gateway::tunnel::pick",
        may: &[
            "std",
            "core",
            "thiserror",
            "bridgehead_protocol::verdict",
            "bridgehead_protocol::time",
            "bridgehead_gateway::error",
            "bridgehead_gateway::tunnel::registry",
        ],
        never: IMPURE,
    },
    Room {
        prefix: "bridgehead_gateway::config::parse",
        may: &[
            "std",
            "core",
            "http",
            "thiserror",
            "bridgehead_protocol::config",
            "bridgehead_protocol::verdict",
            "bridgehead_protocol::time",
            "bridgehead_protocol::handshake",
            "bridgehead_gateway::config",
            "bridgehead_gateway::error",
            "bridgehead_gateway::route::host",
            "bridgehead_gateway::route::path",
        ],
        never: IMPURE,
    },
    Room {
        prefix: "bridgehead_gateway::h1",
        may: &[
            "std",
            "core",
            "http",
            "bytes",
            "httparse",
            "thiserror",
            "bridgehead_gateway::request::front",
        ],
        never: IMPURE,
    },
    Room {
        prefix: "bridgehead_agent::session",
        may: &["std", "core", "thiserror", "bridgehead_protocol"],
        never: &[
            "std::time::Instant",
            "std::time::SystemTime",
            "std::net",
            "std::thread",
            "std::fs",
            "std::process",
            "std::env",
            "bridgehead_protocol::io",
        ],
    },
];

/// `(room, what it never names)`: the flow of §1 goes down only.
pub(crate) const NEVER_UP: &[(&str, &[&str])] = &[
    (
        "bridgehead_gateway::route",
        &["bridgehead_gateway::admit", "bridgehead_gateway::tunnel"],
    ),
    (
        "bridgehead_gateway::admit",
        &["bridgehead_gateway::route", "bridgehead_gateway::tunnel"],
    ),
    (
        "bridgehead_gateway::tunnel",
        &[
            "bridgehead_gateway::request",
            "bridgehead_gateway::accept",
            "bridgehead_gateway::admin",
        ],
    ),
    (
        "bridgehead_gateway::tunnel::registry",
        &["bridgehead_gateway::route", "bridgehead_gateway::admit"],
    ),
    (
        "bridgehead_gateway::request",
        &[
            "bridgehead_gateway::accept",
            "bridgehead_gateway::admin",
            "bridgehead_gateway::wiring",
        ],
    ),
    (
        "bridgehead_gateway::accept",
        &[
            "bridgehead_gateway::admin",
            "bridgehead_gateway::tunnel",
            "bridgehead_gateway::wiring",
        ],
    ),
    (
        "bridgehead_gateway::admin",
        &[
            "bridgehead_gateway::request",
            "bridgehead_gateway::accept",
            "bridgehead_gateway::wiring",
        ],
    ),
    (
        "bridgehead_gateway::answer",
        &[
            "bridgehead_gateway::telemetry",
            "bridgehead_gateway::request::forward",
        ],
    ),
    (
        "bridgehead_gateway::telemetry",
        &["bridgehead_gateway::accept", "bridgehead_gateway::wiring"],
    ),
    (
        "bridgehead_protocol",
        &["bridgehead_gateway", "bridgehead_agent"],
    ),
    ("bridgehead_agent", &["bridgehead_gateway"]),
];

/// Crates whose paths are judged; a path that starts with anything else is a local item.
pub(crate) const CRATES: &[&str] = &[
    "std",
    "core",
    "anyhow",
    "arc_swap",
    "axum",
    "base64",
    "blake3",
    "bytes",
    "clap",
    "futures_util",
    "h2",
    "http",
    "http_body_util",
    "httparse",
    "hyper",
    "hyper_util",
    "libc",
    "prometheus",
    "rand",
    "rcgen",
    "rustix",
    "rustls",
    "serde",
    "serde_json",
    "slab",
    "socket2",
    "subtle",
    "thiserror",
    "tokio",
    "tokio_rustls",
    "tokio_tungstenite",
    "toml",
    "tracing",
    "tracing_subscriber",
    "uuid",
    "x509_parser",
    "zeroize",
    "bridgehead_protocol",
    "bridgehead_gateway",
    "bridgehead_agent",
    "bridgehead_tests",
];

/// True if `path` is `prefix` or lies below it.
pub(crate) fn below(path: &str, prefix: &str) -> bool {
    path == prefix
        || path
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.starts_with("::"))
}

/// Why `module` may not name `named`, or nothing.
pub(crate) fn import_fault(module: &str, named: &Named) -> Option<String> {
    if named.test
        || !named
            .path
            .first()
            .is_some_and(|first| CRATES.contains(&first.as_str()))
    {
        return None;
    }
    let path = named.joined();
    for (room, never) in NEVER_UP {
        if below(module, room) && never.iter().any(|n| below(&path, n)) {
            return Some(format!("{module} names {path}: {room} knows nothing of it"));
        }
    }
    let room = ROOMS
        .iter()
        .filter(|r| below(module, r.prefix))
        .max_by_key(|r| r.prefix.len())?;
    if room.never.iter().any(|n| below(&path, n)) {
        return Some(format!(
            "{module} names {path}: {} must stay pure",
            room.prefix
        ));
    }
    // The crate-wide room has no folder of its own: its rooms are listed one by one.
    let own = room.prefix.contains("::") && below(&path, room.prefix);
    let allowed = own || room.may.iter().any(|m| below(&path, m));
    (!allowed).then(|| {
        format!(
            "{module} names {path}, which is not among what {} may import",
            room.prefix
        )
    })
}

/// Why a test may not call `named`, or nothing. `paused`: tokio's time stands still in this file.
pub(crate) fn sleep_fault(named: &Named, paused: bool) -> Option<String> {
    let path = named.joined();
    let timer = path.ends_with("time::sleep") || path.ends_with("time::sleep_until");
    let sleeps = path.ends_with("thread::sleep") || (timer && !paused);
    sleeps.then(|| {
        format!(
            "line {}: {path}: a test waits for events or pauses time",
            named.line
        )
    })
}

/// Hard limit on the lines of a source file.
pub(crate) const MAX_LINES: usize = 600;

/// What is wrong with a source file as such.
pub(crate) fn shape_faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        faults.push(format!(
            "has {lines} lines, more than {MAX_LINES}: split it by reasons to exist"
        ));
    }
    if !text
        .lines()
        .next()
        .is_some_and(|first| first.starts_with("//! ") && first.len() > 12)
    {
        faults.push("does not begin with a `//!` header that says what it owns".into());
    }
    faults
}

/// Entries allowed at the top level beside dot-files and dot-folders.
pub(crate) fn top_level_fault(name: &str) -> Option<String> {
    const ENTRIES: &[&str] = &[
        "Cargo.toml",
        "Cargo.lock",
        "LICENSE",
        "gateway",
        "agent",
        "protocol",
        "tests",
        "deploy",
        "README.md",
        "CHANGELOG.md",
        "target",
    ];
    let fine = name.starts_with('.') || ENTRIES.contains(&name);
    (!fine).then(|| format!("{name} does not belong at the top level"))
}

/// Words that tie the sources to the machine or the desk on which they were written.
///
/// They are put together from halves, so that this list does not find itself.
pub(crate) fn word_faults(text: &str) -> Vec<String> {
    let words = [
        ["/wo", "rk/"].concat(),
        ["/ro", "ot/"].concat(),
        ["/ho", "me/"].concat(),
        ["shared/", "design"].concat(),
        ["shared/", "cases"].concat(),
        ["shared/", "seeds"].concat(),
        ["crates", ".io/api"].concat(),
        ["static.", "crates"].concat(),
        ["registry.", "npmjs"].concat(),
        ["pypi", ".org"].concat(),
        ["deb.", "debian"].concat(),
        ["--index", "-url"].concat(),
        ["--reg", "istry"].concat(),
        ["Co-Auth", "ored-By"].concat(),
    ];
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in &words {
            if line.contains(word.as_str()) {
                faults.push(format!(
                    "line {}: {word} is nothing a reader elsewhere can use",
                    number + 1
                ));
            }
        }
    }
    faults
}

/// Sources named by a lock file that are not the public index.
pub(crate) fn lock_faults(text: &str) -> Vec<String> {
    let public = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    text.lines()
        .filter(|l| l.starts_with("source = ") && *l != public)
        .map(|l| format!("a dependency with {l}"))
        .collect()
}
