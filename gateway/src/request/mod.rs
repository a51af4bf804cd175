//! (being written)
pub mod forwarded;
pub mod front;
pub mod normalize;
