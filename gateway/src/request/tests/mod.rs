//! The corridor against a scripted app, sentence by sentence of the rules it must keep.
#![allow(clippy::unwrap_used)]

mod answers;
mod clients;
mod ending;
mod evidence;
mod go;
mod h2c;
mod hold;
mod http2;
mod ledger;
mod memory;
mod outcomes;
mod own;
mod resume;
mod retry;
mod tcp;
mod truth;
mod unavailable;
mod upgrade;
mod windows;
