//! `bh-load`: requests at a rate that does not wait for answers, and every answer held against the oracle.
//!
//! | Module | Holds | |
//! |---|---|---|
//! | [`plan`] | the mix, the arrivals | pure |
//! | [`told`] | what a client was told, in words | pure |
//! | [`judge`](judge()) | told against seen: lies | pure |
//! | [`histogram`], [`report`] | counts, as text and JSON | pure |
//! | `wire`, `h2`, `ws`, `exchange` | one request each way of asking | |
//! | [`run`](run()) | the clock, the tasks | |
//! | [`cli`] | the program | |
//!
//! Must not: repeat a request, or count a broken answer as anything but broken.

pub mod cli;
mod exchange;
mod h2;
pub mod histogram;
mod judge;
pub mod plan;
pub mod report;
mod run;
mod target;
pub mod told;
mod wire;
mod ws;

pub use judge::{Lie, judge};
pub use plan::{Kind, Mix, Plan};
pub use report::Report;
pub use run::{Counts, Finished, Settings, ask_once, run, settle};
pub use target::Target;
pub use told::Told;
