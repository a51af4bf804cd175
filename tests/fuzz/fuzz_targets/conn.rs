//! `cargo fuzz`: lists of operations on the tunnel's state machine.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bridgehead_tests::fuzz::run("conn", data));
