//! libFuzzer entry point of the target `catalogue`. Its invariants are documented at the function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| model_gateway_fuzz::catalogue(data));
