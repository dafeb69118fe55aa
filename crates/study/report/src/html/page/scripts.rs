//! The scripts of pages. A page's policy allows these and no other, by their hashes.

use std::io::Read;
use std::sync::OnceLock;

use flate2::read::GzDecoder;

include!(concat!(env!("OUT_DIR"), "/scripts.rs"));

#[cfg(test)]
#[path = "../../../build.rs"]
#[allow(dead_code, reason = "a test asks what it writes, and does not run it")]
mod build_script;

/// A script, and its SHA-256 in base64.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) text: String,
    pub(crate) hash: &'static str,
}

/// Draws figures over time (`web/`). `None` where this was built without it: then the drawings of the page stay.
pub(crate) fn charts() -> Option<&'static Script> {
    static SCRIPT: OnceLock<Option<Script>> = OnceLock::new();
    SCRIPT.get_or_init(|| unpacked(CHARTS)).as_ref()
}

/// Saves still figures and surfaces (`web/src/stills.ts`). `None` where this was built without it.
pub(crate) fn stills() -> Option<&'static Script> {
    static SCRIPT: OnceLock<Option<Script>> = OnceLock::new();
    SCRIPT.get_or_init(|| unpacked(STILLS)).as_ref()
}

fn unpacked(embedded: Option<(&[u8], &'static str)>) -> Option<Script> {
    let (packed, hash) = embedded?;
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).ok()?;
    Some(Script { text, hash })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// As `scripts/web.sh` leaves it where there is no Node.
    #[test]
    fn without_a_built_script_there_is_none() {
        let source = build_script::source(Path::new("no such folder"));
        for name in ["CHARTS", "STILLS"] {
            assert!(source.contains(&format!("const {name}: Option<(&[u8], &str)> = None;")), "{source}");
        }
        assert!(unpacked(None).is_none());
    }
}
