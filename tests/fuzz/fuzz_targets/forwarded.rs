//! `cargo fuzz`: what an app is told about its client.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bridgehead_tests::fuzz::run("forwarded", data));
