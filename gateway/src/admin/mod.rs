//! The operator's listener: health, metrics, what runs, what became of one request, drain.
//!
//! Owns its own listener, router and guard; never on the data path. It reads the gateway through
//! [`AdminState`] and changes it only by asking to drain. Every answer is JSON except `/metrics`;
//! an address that is not built is 404, never a pretence.

mod guard;
mod routes;
mod serve;
mod state;

pub use guard::Access;
pub use routes::Admin;
pub use serve::serve;
pub use state::{
    AdminState, AdmissionInfo, AgentOfApp, AppHealth, AppInfo, GatewayInfo, Readiness, Refusals,
    Reloaded, TunnelInfo,
};

#[cfg(test)]
mod tests;
