//! Real programs under faults: carriers cut by the frame, processes killed and frozen, apps that break.
//! Every answer is held against what the app saw; not one may be a lie.
//!
//! A *trial* is one fault that took effect while requests were under way. `BH_DEEP=1` makes more of them
//! and the drills longer; `BH_BIN_DIR` names other binaries, of the release profile for example.

mod app;
mod carrier;
mod cuts;
mod holes;
mod loss;
mod network;
mod processes;
mod resume;
// Shared with the suite of real programs, which uses all of it.
#[allow(dead_code, unused_imports, unused_macros)]
#[path = "../real/setup.rs"]
mod setup;
mod stage;
mod tls;
mod tools;
