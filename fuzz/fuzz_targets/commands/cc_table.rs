#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| longhaul_fuzz::commands::cc_table(input));
