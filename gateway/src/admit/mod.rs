//! Who is let through to an app, and when: pure decisions with `now` passed in, one file each.
//!
//! | File | Decides |
//! |---|---|
//! | `net` | allow and deny lists |
//! | `rate` | GCRA for the app and for each client |
//! | `quarantine` | a pause after a run of timeouts, and the probe that ends it |
//! | `error_loop` | a breaker on one client's identical failures |
//! | `large_body` | who needs one of the slots for large bodies |
//! | `queue` | who waits for a place in flight, first come first served, and how fast that drains |
//! | `share` | how much of each kind of place one client may have |
//! | `gate` | all of it for one app, in this order: the first denial wins |
//! | `permit` | the proof of admission; what it holds is given back by its drop |
//! | `denied` | what a denial says: code, reason, pause |
//!
//! Nothing here waits, reads a clock or knows HTTP: the corridor asks, waits and answers. A gate is
//! shared by all workers behind one short lock. Invariant: whatever a permit took is given back
//! exactly once, whoever drops it and wherever.

mod denied;
mod error_loop;
mod gate;
mod large_body;
mod net;
mod permit;
mod quarantine;
mod queue;
mod rate;
mod recent;
mod share;
#[cfg(test)]
mod tests;

pub use denied::{Denied, Limit, Places};
pub use gate::{Asker, Gate, GateView, Shape};
pub use net::Client;
pub use permit::{Ending, Permit};
pub use rate::{Of, Standing};
