//! `bh-chaos`: a carrier between agent and gateway that breaks when it is told to.
//!
//! A TCP proxy that knows the frames of the tunnel's protocol and a small language for faults. It is a
//! program of its own ([`cli`]) and a library for suites ([`Carrier`]).
//!
//! | Module | Holds | |
//! |---|---|---|
//! | [`script`], [`parse`](parse()) | rules as values, text to rules | pure |
//! | [`scan`] | bytes to frames, nothing altered | pure |
//! | [`engine`], [`decision`] | connections, frames and the time in, what happens out | pure |
//! | [`tally`] | what happened, as text and JSON | pure |
//! | [`carrier`] | the port, the clock | |
//! | [`link`] | one connection: its four ends, TLS, the waiting | |
//!
//! Must not: double, reorder or alter bytes (TCP does not either), or know what a gateway or agent does.

pub mod carrier;
pub mod cli;
pub mod decision;
pub mod engine;
mod link;
mod parse;
pub mod scan;
pub mod script;
mod span;
pub mod tally;
mod tls;

#[cfg(test)]
mod engine_tests;
#[cfg(test)]
mod parse_tests;

pub use carrier::Carrier;
pub use parse::{ScriptError, duration, parse, percent, size};
pub use script::{FaultKind, Script};
pub use tally::Tally;
pub use tls::Tls;

/// The language of scripts, for people.
pub const GRAMMAR: &str = include_str!("grammar.txt");
