//! Frames of the tunnel protocol, version 1: their values, an incremental decoder, an encoder.
//!
//! `length u24 · type u8 · flags u8 · stream u32`, then the payload, all big endian. `length`
//! counts the payload only. Layout and type number of each frame stand in its own file; the
//! building blocks every layout uses (text, milliseconds, lists) stand in `fields`.
//!
//! Pure: bytes in, values out. Order and state are `conn`'s business.
//!
//! Invariants: nothing is allocated for a length or count before it is checked against the bytes
//! that are really there; a payload is used up exactly; what [`encode()`] writes, [`decode()`] reads.

mod apps;
mod begin;
mod codes;
mod credit;
mod data;
mod decode;
mod encode;
mod error;
mod fence;
mod fields;
pub mod frame;
mod goaway;
mod header;
mod hello;
mod mask;
mod open;
mod opened;
mod ping;
mod refuse;
mod refused;
mod report;
mod reset;
mod resume;
mod terminal;
mod welcome;

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use apps::check_offers;
pub use decode::{decode, whole_frames};
pub use encode::{encode, encode_data_header};
pub use error::WireError;
pub use frame::*;
pub use header::{HEADER_LEN, Kind, Limits, MAX_PAYLOAD, MAX_STREAM};
