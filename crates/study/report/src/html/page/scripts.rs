//! The scripts of pages. A page's policy allows these and no other, by their hashes.

use std::io::Read;
use std::sync::OnceLock;

use flate2::read::GzDecoder;

include!(concat!(env!("OUT_DIR"), "/charts.rs"));

/// A script, and its SHA-256 in base64.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) text: String,
    pub(crate) hash: &'static str,
}

/// Draws figures over time (`web/`). `None` where this was built without it: then the drawings of the page stay.
pub(crate) fn charts() -> Option<&'static Script> {
    static CHARTS: OnceLock<Option<Script>> = OnceLock::new();
    let unpacked = || {
        let (packed, hash) = EMBEDDED?;
        let mut text = String::new();
        GzDecoder::new(packed).read_to_string(&mut text).ok()?;
        Some(Script { text, hash })
    };
    CHARTS.get_or_init(unpacked).as_ref()
}
