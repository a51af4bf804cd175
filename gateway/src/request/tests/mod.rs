//! The corridor against a scripted app, sentence by sentence of the rules it must keep.
#![allow(clippy::unwrap_used)]

mod evidence;
mod go;
mod retry;
mod windows;
