//! What the engine decides, as values that a connection can carry out.
//!
//! Pure data.

use std::time::Duration;

use super::script::End;

/// Number of a connection, from 1, in the order of acceptance.
pub type LinkId = u64;

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is carried, under this number.
    Carry(LinkId),
    /// It is reset at once.
    Refuse,
}

/// One step of passing a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// These bytes of the piece are passed.
    Pass {
        /// From.
        from: usize,
        /// To, exclusive.
        to: usize,
        /// Position of the first of them in its way.
        offset: u64,
        /// How.
        shape: Shape,
    },
    /// Once everything before has been written, the connection ends.
    End(End),
    /// Once everything before has been written, this way gets a FIN and nothing more.
    HalfClose,
}

/// How bytes are passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Later by this than they came.
    pub late: Duration,
    /// At most so many bytes a second; none means no limit.
    pub rate: Option<u64>,
    /// In writes of so many bytes; none means in one.
    pub slice: Option<usize>,
}

/// How a way is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// Until this time.
    Until(Duration),
    /// To the end of the connection or the run.
    ForGood,
}
