//! `cargo fuzz`: configuration texts.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bridgehead_tests::fuzz::run("config", data));
