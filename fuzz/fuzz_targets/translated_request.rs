//! libFuzzer on the target `translated_request`; what it promises is said beside the function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| model_gateway_fuzz::translated_request(data));
