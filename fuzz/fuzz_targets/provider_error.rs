//! libFuzzer on the target `provider_error`; what it promises is said beside the function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| model_gateway_fuzz::provider_error(data));
