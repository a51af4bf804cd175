//! `cargo fuzz`: bodies and an app's answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bridgehead_tests::fuzz::run("message", data));
