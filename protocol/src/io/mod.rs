//! Tokio around the core: carriers, one driver task per tunnel, streams with wakers.

mod app_stream;
mod asleep;
pub mod carrier;
pub mod clock;
pub mod descriptors;
mod driver;
pub mod shake;
mod shared;
pub mod socket;
mod stream;
#[cfg(test)]
mod tests;
pub mod tls;
mod tunnel;

pub use app_stream::{AppStream, FailedWrite, Outgoing};
pub use shared::{CloseReason, Notice};
pub use stream::{StreamControl, StreamEnded, TunnelStream};
pub use tunnel::{Tunnel, TunnelStats};
