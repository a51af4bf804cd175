//! The demo app of `bh-gateway dev`: a small real app with a page for each verdict.
//!
//! It knows nothing of the gateway: it listens on a loopback port like any app, and the agent dials
//! it like any app. It misbehaves only where its address says so, by real causes (silence, a closed
//! socket, broken bytes), never by a switch inside the gateway.

mod app;
mod pages;
mod socket;
mod ws;

pub use app::DemoApp;

#[cfg(test)]
mod tests;
