//! What the agent says about itself: its log, and whether it is ready.
//!
//! | File | Holds |
//! |---|---|
//! | [`log`] | text or JSON lines on standard error |
//! | [`ready`] | how many tunnels are up, and how many wait for their next connection |
//! | [`health`] | `/healthz` and `/readyz`, if asked for |

pub mod health;
pub mod log;
pub mod ready;

pub use ready::{Readiness, Standing};
