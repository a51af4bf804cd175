//! Frames of the tunnel protocol, version 1: their values, an incremental decoder, an encoder.
//!
//! `length u24 · type u8 · flags u8 · stream u32`, then the payload, all big endian.

pub mod frame;

pub use frame::*;
