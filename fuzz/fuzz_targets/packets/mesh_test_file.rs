#![no_main]

// Panics of the Parquet library are caught (`guarded`): libFuzzer's hook would end the process before. Others end it all the same.
libfuzzer_sys::fuzz_target!(init: drop(std::panic::take_hook()), |input: &[u8]| longhaul_fuzz::mesh_test_file(input));
