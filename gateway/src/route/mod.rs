//! Host and path → app. Pure lookup in an immutable table.
//!
//! Owns the canonical [`host::Host`], the judge of [`path`]s and the [`RouteTable`]. Must not know
//! agents, admission or sockets. Place in the path: after `normalize`, before `admit`.

pub mod brought;
mod build;
pub mod host;
pub mod path;
mod table;

pub use table::{AppRoute, Found, RouteTable};
