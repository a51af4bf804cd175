//! `cargo fuzz`: the first frames of a carrier.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bridgehead_tests::fuzz::run("handshake", data));
