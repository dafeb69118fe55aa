//! Pages of the documents that are written from what a program prints.

use std::path::Path;
use std::{env, fs};

/// Holds a page against `text`, which it is written from; writes it as snapshots are written, with `INSTA_UPDATE=always`. `page` is its path
/// in the repository, and `test` what follows `cargo test` to run the test alone.
///
/// # Panics
/// Where the page says something else, or cannot be written.
pub fn is_current(page: &str, text: &str, test: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(page);
    if env::var("INSTA_UPDATE").is_ok_and(|how| how == "always") {
        fs::write(&file, text).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    let first = written.lines().zip(text.lines()).find(|(page, binary)| page != binary);
    assert!(
        written == text,
        "{page} is not what the binary says, first here: {first:?}; write it: INSTA_UPDATE=always cargo test {test}"
    );
}
