//! Why a tunnel ended, and why a stream could not be opened.

use crate::wire::WireError;

/// A tunnel's end. All are terminal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnError {
    /// The peer sent bytes that are no frame.
    #[error("the peer sent a malformed frame: {0}")]
    Wire(WireError),
    /// The peer sent a frame it must not send in this state.
    #[error("the peer broke the protocol: {0}")]
    Breach(&'static str),
    /// The peer was silent too long.
    #[error("the peer is silent")]
    Dead,
    /// The carrier ended, or the owner gave it up.
    #[error("the carrier ended")]
    Closed,
    /// No carrier came back in time.
    #[error("no carrier came back within the resume window")]
    Lapsed,
}

/// A stream was not opened; the peer heard nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The tunnel is lost.
    #[error("the tunnel is lost")]
    Lost,
    /// One side takes nothing new.
    #[error("the tunnel is draining")]
    GoingAway,
    /// The stream limit is reached.
    #[error("the tunnel's stream limit is reached")]
    Full,
}
