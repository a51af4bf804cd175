//! (being written)
pub mod front;
pub mod forwarded;
pub mod normalize;
