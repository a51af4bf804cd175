//! The life of one of the agent's tunnels, from dialling to draining.
//!
//! Pure: time and seeds come in, actions go out; whoever runs it does the dialling (see `wiring`).

pub mod backoff;
pub mod core;
