//! What gateway and agent share: the verdict, the frames, and the tunnel state machine.
//!
//! | Room | Holds |
//! |---|---|
//! | [`verdict`] | the code table, delivery, advice, and the one function that decides what may be said |
//! | [`wire`] | the frames, an incremental decoder and an encoder |
//! | [`handshake`] | how an agent proves who it is, and what both sides agree on |
//! | [`conn`] | the tunnel: streams, credit, order, evidence, liveness; no clock, no I/O |
//! | `config` (feature `config`) | configuration files: every mistake at once, each with its line |
//! | `io` (feature `io`) | tokio around the core: carriers, the driver task, `TunnelStream` |

#![forbid(unsafe_code)]

#[cfg(feature = "config")]
pub mod config;
pub mod conn;
pub mod handshake;
#[cfg(feature = "io")]
pub mod io;
pub mod planted;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
pub mod time;
pub mod verdict;
pub mod wire;
