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
//! | [`outside`] | the world around an agent: sockets, or the simulation's pipes |
//! | [`control`], [`signals`] | how it is told to stop; the process around it |
//! | [`wiring`] | puts it all together and runs it |

#![forbid(unsafe_code)]

pub mod app;
pub mod carrier;
pub mod cli;
pub mod config;
pub mod control;
pub mod error;
pub mod outside;
pub mod serve;
pub mod session;
pub mod signals;
pub mod telemetry;
pub mod wiring;
