//! libFuzzer on the target `keys_file`; what it promises is said beside the function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| model_gateway_fuzz::keys_file(data));
