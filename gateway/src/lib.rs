//! The public edge of Bridgehead.
//!
//! The way of a request, top to bottom: [`accept`] → [`request`] (the corridor) → [`route`] →
//! [`admit`] → [`tunnel`] → the app, and back; a failure becomes an HTTP answer only in [`answer`].

#![forbid(unsafe_code)]

pub mod accept;
pub mod admin;
pub mod admit;
pub mod answer;
pub mod cert;
pub mod chance;
pub mod cli;
pub mod clock;
pub mod config;
pub mod dev;
pub mod error;
pub mod h1;
pub mod ledger;
pub mod outlook;
pub mod pressure;
pub mod request;
pub mod route;
pub mod shutdown;
pub mod task;
pub mod telemetry;
pub mod tunnel;
pub mod wiring;
