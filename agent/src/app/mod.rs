//! The app beside the agent: where it listens, a connection to it, whether it is there, its process.
//!
//! | File | Holds |
//! |---|---|
//! | [`target`] | where an app listens (pure) |
//! | [`connect`] | one connection to it, or the reason why not |
//! | [`tls`] | how the certificate of an `https` app is checked |
//! | [`health`] | what connecting showed (pure) |
//! | [`table`] | the apps of this agent by name |
//! | [`probe`] | looks whether a missing app has come |
//! | [`child`] | the app's process, if the agent starts it |
//!
//! Must not know streams or tunnels; those are `serve`'s.

pub mod child;
pub mod connect;
pub mod health;
pub mod probe;
pub mod table;
pub mod target;
pub mod tls;

pub use connect::{AppSocket, ConnectError};
pub use table::{App, AppTable};
pub use target::Target;
