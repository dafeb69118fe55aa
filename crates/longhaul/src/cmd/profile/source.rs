//! Measurements of round trips, from what people have of them.

use std::io::Read;
use std::path::Path;

use longhaul_profile::{Probes, read_ping};
use longhaul_units::{Nanos, read_text};

use crate::output::Failure;

/// The longest output of `ping` that is read: two million lines.
const TEXT_BYTES_MAX: u64 = 256 << 20;
/// A path's name has at most so many characters.
const NAME_MAX: usize = 60;

/// A measurement.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) probes: Probes,
    /// For a path made of it.
    pub(crate) name: String,
    /// Where it is from, in a line.
    pub(crate) source: String,
}

impl Measured {
    /// Reads what `path` holds; `-` is standard input. `interval`: between the probes of a `ping`.
    pub(crate) fn read(path: &Path, interval: Option<Nanos>) -> Result<Self, Failure> {
        let shown = path.display().to_string();
        let unreadable = |error: &dyn std::fmt::Display| Failure::new("unreadable", format!("{shown}: {error}"));
        let text = if path == Path::new("-") {
            let mut text = String::new();
            let read = std::io::stdin().lock().take(TEXT_BYTES_MAX + 1).read_to_string(&mut text);
            if read.map_err(|error| unreadable(&error))? as u64 > TEXT_BYTES_MAX {
                return Err(unreadable(&format!("longer than {TEXT_BYTES_MAX} bytes")));
            }
            text
        } else {
            read_text(path, TEXT_BYTES_MAX).map_err(|error| unreadable(&error))?
        };
        let probes = read_ping(&text, interval.map(|interval| interval.0))
            .map_err(|error| unreadable(&error).remedy("give the output of ping: ping -i 0.01 -c 60000 HOST > FILE"))?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).filter(|stem| stem != "-");
        let plain = |text: &str| text.chars().filter(|c| !c.is_control()).take(NAME_MAX).collect::<String>();
        let name = stem.as_deref().map_or_else(|| "measured".to_owned(), plain);
        Ok(Self { probes, source: format!("{name}, output of ping"), name })
    }
}
