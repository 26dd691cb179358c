//! libFuzzer on the target `json_scanner`; what it promises is said beside the function.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| model_gateway_fuzz::json_scanner(data));
