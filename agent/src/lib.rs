//! The sidecar: dials out to the gateway and copies bytes to and from the app, keeping count.
//!
//! ```text
//! carrier ─► session ─► serve ─► app
//! ```
//!
//! | Room | Holds |
//! |---|---|
//! | [`cli`], [`config`] | what the agent is told |
//! | [`session`] | the life of a tunnel: dial, up, drain, back-off (pure) |
//! | [`carrier`] | one connection to the gateway |
//! | [`serve`] | one task per stream: copy, count, conclude |
//! | [`app`] | connections to the app, its health, its process |
//! | [`telemetry`] | log, health endpoint |

#![forbid(unsafe_code)]

pub mod app;
pub mod carrier;
pub mod cli;
pub mod config;
pub mod serve;
pub mod session;
