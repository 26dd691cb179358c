//! libFuzzer entry point of the target `keys_file`. Its invariants are documented at the function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| model_gateway_fuzz::keys_file(data));
