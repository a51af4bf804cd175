//! How an agent proves who it is, and what both sides agree on.
//!
//! ```text
//! agent    Client ── hello() ──► AwaitAnswer ── receive() ──► Welcome | ClientError
//!                     │ HELLO           ▲ WELCOME or REFUSE
//!                     ▼                 │
//! gateway  AwaitHello ── receive() ──► Applicant ── admit() ──► Admitted
//!                        └► Refuse            └► Refuse (registry full, draining, …)
//! ```
//! An applicant that wants to continue a tunnel is judged by [`Resumable`] before `admit()`.
//! Each state is a value that its only step consumes, so nothing can be said twice or out of
//! order. Pure: randomness (instance, tunnel id, secret) and the lookup of tokens come in from
//! outside; `io::shake` moves the bytes and keeps the deadline.
//!
//! Invariants: nothing about apps, limits or tunnels is said to a peer before its token holds; a
//! token is compared in constant time, and neither it nor its hash is ever printed.

mod client;
mod names;
mod resume;
mod scope;
mod server;
mod token;
mod version;

#[cfg(test)]
mod tests;

pub use client::{AwaitAnswer, Client, ClientError, Introduction, IntroductionError};
pub use names::{is_agent_id, is_app_name, is_host_header};
pub use resume::{Resumable, gone};
pub use scope::{AppPattern, Scope};
pub use server::{
    Admitted, Applicant, AwaitHello, Denied, Grant, Identity, Terms, TokenVerifier, check_apps,
};
pub use token::{Token, TokenError, TokenHash};
pub use version::{NEWEST, OLDEST, SPOKEN};
