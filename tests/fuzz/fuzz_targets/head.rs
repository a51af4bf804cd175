//! `cargo fuzz`: request heads and their one reading.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bridgehead_tests::fuzz::run("head", data));
