//! `cargo fuzz`: hosts, authorities and paths.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bridgehead_tests::fuzz::run("host", data));
