//! Attacks on the edge: the smuggling grid, floods of HTTP/2 and of TLS, slow peers, hostile agents and apps.
//!
//! Every case goes through the real programs. What an origin cannot be set up for is skipped loudly;
//! with `CI` set it is a failure.

mod agents;
mod attackers;
mod case;
mod descriptors;
mod floods;
mod grid;
mod h1_framing;
mod h1_heads;
mod h1_valid;
mod h2_cases;
mod handshakes;
mod memory;
mod origins;
mod rfc;
mod slow;
mod tenants;
// Shared with the suite of real programs, which uses all of it.
#[allow(dead_code, unused_imports, unused_macros)]
#[path = "../real/setup.rs"]
mod setup;

/// What measures or keeps the machine busy holds this: one after another, whatever the test runner does.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
