//! Tunnels as the corridor sees them: who offers an app, which of them to take, kept connections.
//!
//! `registry`, `pick`, `pace` and `uptake` are pure; `quota` bounds what one token subject takes; `live` joins them with the running tunnels; `enroll` lets agents
//! in and keeps the registry true. Nothing here knows a request.

pub mod connection;
pub mod enroll;
pub mod http2;
pub mod live;
pub mod offered;
pub mod pace;
pub mod pick;
pub mod pool;
pub mod quota;
pub mod registry;
pub mod token;
pub mod uptake;
