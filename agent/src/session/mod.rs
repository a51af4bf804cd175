//! The life of the agent's tunnels: from dialling to draining (`core`), from one carrier to the next
//! (`redial`), and what is still to be told when one is lost (`fates`).
//!
//! Pure: time and seeds come in, actions go out; whoever runs it does the dialling (see `wiring`).

pub mod backoff;
pub mod core;
pub mod fates;
pub mod redial;
