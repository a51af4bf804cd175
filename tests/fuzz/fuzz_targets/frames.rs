//! `cargo fuzz`: bytes of a carrier.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bridgehead_tests::fuzz::run("frames", data));
