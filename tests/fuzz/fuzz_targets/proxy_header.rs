//! `cargo fuzz`: the PROXY header.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bridgehead_tests::fuzz::run("proxy_header", data));
