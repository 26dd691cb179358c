//! libFuzzer entry point of the target `videos`. Its invariants are documented at the function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| model_gateway_fuzz::videos(data));
