#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| longhaul_fuzz::mesh_test_file(input));
