//! The text form of a mix (`docs/reference/mix.md` has every key).
//!
//! ```toml
//! name = "half junk"
//! size = 300                # of each frame, FCS included; or sizes = [{ from = 65, to = 127, weight = 34 }, …]
//! [[class]]
//! kind = "stream"
//! weight = 50
//! [[class]]
//! kind = "arp"
//! weight = 50
//! ```

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;

use longhaul_units::{TOML_CROWDED, toml_crowded_at};
use serde::Deserialize;

use crate::kind::Kind;

/// The shortest Ethernet frame with its FCS (IEEE 802.3 §4.4.2).
pub const LEAST_BYTES: u16 = 64;
/// The longest Ethernet frame without tags (IEEE 802.3 §3.2.7).
pub const MOST_BYTES: u16 = 1518;
/// The frame check sequence, which Linux leaves to the NIC.
pub const FCS_BYTES: u16 = 4;

/// Bound on the size of a mix file.
const FILE_BYTES_MOST: u64 = 1 << 20;
const CLASSES_MOST: usize = 64;
const SPANS_MOST: usize = 16;
const NAME_LETTERS_MOST: usize = 100;
/// As in a path file. Each series of an experiment has the mix once more.
const SOURCE_LETTERS_MOST: usize = 1000;
/// Weights above 0: beyond them shares would be too small to draw, and products of weights 0.
const WEIGHTS: RangeInclusive<f64> = 1e-9..=1e9;

/// Mixes that come with longhaul: name and text.
const KNOWN: &[(&str, &str)] = &[("nima", include_str!("../../../../mixes/nima.toml"))];

/// A mix, as a file describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct MixSpec {
    /// Its name.
    pub name: String,
    /// The source of its figures.
    pub source: String,
    /// The lengths of its frames.
    pub sizes: Sizes,
    /// At least one, at least one of them with a weight above 0.
    pub classes: Vec<Class>,
}

/// The lengths of frames, FCS included.
#[derive(Debug, Clone, PartialEq)]
pub enum Sizes {
    /// All frames have this length in bytes. A kind that needs more gets more; a kind of fixed length is padded.
    One(u16),
    /// Kinds that carry data have lengths by weight; others keep their own.
    Spread(Vec<Span>),
}

/// A range of sizes, each as likely as another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The smallest size, in bytes.
    pub from: u16,
    /// The largest size, in bytes.
    pub to: u16,
    /// Its weight among the spans.
    pub weight: f64,
}

/// A class of frames.
#[derive(Debug, Clone, PartialEq)]
pub struct Class {
    /// Its name, unique in the mix.
    pub name: String,
    /// The kind of its frames.
    pub kind: Kind,
    /// Its weight among the classes.
    pub weight: f64,
}

/// Why a text is no mix, in one line: where, why, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{message}")]
pub struct MixError {
    /// The file, and line and column where they are known, each followed by a colon.
    place: String,
    message: String,
}

impl MixError {
    fn new(message: impl fmt::Display) -> Self {
        let message = message.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { place: String::new(), message: message.chars().filter(|c| !c.is_control()).take(600).collect() }
    }

    fn at(key: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::new(format!("{key}: {why}"))
    }

    /// The same with line and column of a byte of `text`.
    fn at_byte(mut self, byte: usize, text: &str) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        self.place = format!("{}:{column}:", before.matches('\n').count() + 1);
        self
    }

    fn in_file(mut self, file: &str) -> Self {
        self.place = format!("{}:{} ", file.escape_debug(), self.place);
        self
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    name: String,
    #[serde(default)]
    source: String,
    size: Option<i64>,
    sizes: Option<Vec<SpanText>>,
    class: Vec<ClassText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpanText {
    from: i64,
    to: Option<i64>,
    weight: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassText {
    name: Option<String>,
    kind: String,
    weight: f64,
}

impl MixSpec {
    /// The mix with this name that comes with longhaul.
    ///
    /// # Errors
    /// There is none; the error lists those that there are.
    pub fn preset(name: &str) -> Result<Self, MixError> {
        match KNOWN.iter().find(|(known, _)| *known == name) {
            Some((name, text)) => Self::parse(text).map_err(|error| error.in_file(name)),
            None => {
                let known = KNOWN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
                Err(MixError::new(format!("`{}` does not come with longhaul; use one of {known}", name.escape_debug())))
            }
        }
    }

    /// The mix with this name that comes with longhaul, or the file with this path.
    ///
    /// # Errors
    /// It is neither, or the file is no mix.
    pub fn load(name_or_file: &str) -> Result<Self, MixError> {
        if KNOWN.iter().any(|(name, _)| *name == name_or_file) {
            return Self::preset(name_or_file);
        }
        let text = longhaul_units::read_text(Path::new(name_or_file), FILE_BYTES_MOST).map_err(|error| {
            let known = KNOWN.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            MixError::new(format!("{error}; give a file, or one of {known}")).in_file(name_or_file)
        })?;
        Self::parse(&text).map_err(|error| error.in_file(name_or_file))
    }

    /// Reads the text of a mix.
    ///
    /// # Errors
    /// The text is no TOML, a required key is missing, a key is unknown, or a value is not allowed.
    pub fn parse(text: &str) -> Result<Self, MixError> {
        if let Some(at) = toml_crowded_at(text) {
            return Err(MixError::new(TOML_CROWDED).at_byte(at, text));
        }
        let written: Text = toml::from_str(text).map_err(|error| {
            let refused = MixError::new(error.message());
            match error.span() {
                Some(span) => refused.at_byte(span.start, text),
                None => refused,
            }
        })?;
        check_name("name", &written.name)?;
        if written.source.chars().nth(SOURCE_LETTERS_MOST).is_some() || written.source.contains(char::is_control) {
            return Err(MixError::at("source", format!("at most {SOURCE_LETTERS_MOST} letters in a line")));
        }
        let sizes = match (written.size, written.sizes) {
            (Some(_), Some(_)) => return Err(MixError::new("size and sizes: give one of them")),
            (Some(bytes), None) => Sizes::One(size("size", bytes)?),
            (None, Some(spans)) => Sizes::Spread(read_spans(spans)?),
            (None, None) => return Err(MixError::new("size, or sizes: one of them is needed")),
        };
        if !(1..=CLASSES_MOST).contains(&written.class.len()) {
            return Err(MixError::at("class", format!("{} of them, 1 to {CLASSES_MOST}", written.class.len())));
        }
        let mut classes: Vec<Class> = Vec::new();
        for (number, class) in written.class.into_iter().enumerate() {
            let at = |key: &str| format!("class[{number}].{key}");
            let kind: Kind = class.kind.parse().map_err(|error| MixError::at(at("kind"), error))?;
            let name = class.name.unwrap_or_else(|| kind.name().to_owned());
            check_name(&at("name"), &name)?;
            if classes.iter().any(|other| other.name == name) {
                return Err(MixError::at(at("name"), format!("`{}` is another's name already", name.escape_debug())));
            }
            classes.push(Class { name, kind, weight: weight(&at("weight"), class.weight)? });
        }
        if classes.iter().all(|class| class.weight == 0.0) {
            return Err(MixError::at("class", "at least one weight must be above 0"));
        }
        Ok(Self { name: written.name, source: written.source, sizes, classes })
    }

    /// The same mix with all frames of `bytes`, FCS included.
    ///
    /// # Errors
    /// Ethernet has no frames of that length.
    pub fn with_size(self, bytes: u16) -> Result<Self, MixError> {
        Ok(Self { sizes: Sizes::One(size("size", bytes.into())?), ..self })
    }

    /// The share of a class, 0 to 1.
    pub fn share(&self, class: usize) -> f64 {
        let sum: f64 = self.classes.iter().map(|class| class.weight).sum();
        self.classes.get(class).map_or(0.0, |class| class.weight / sum)
    }

    /// Whether some of the frames are for a target.
    pub fn has_target(&self) -> bool {
        self.classes.iter().any(|class| class.kind.takes_target() && class.weight > 0.0)
    }

    /// Whether some of the frames are numbered.
    pub fn has_stream(&self) -> bool {
        self.classes.iter().any(|class| class.kind == Kind::Stream && class.weight > 0.0)
    }
}

fn read_spans(spans: Vec<SpanText>) -> Result<Vec<Span>, MixError> {
    if !(1..=SPANS_MOST).contains(&spans.len()) {
        return Err(MixError::at("sizes", format!("{} of them, 1 to {SPANS_MOST}", spans.len())));
    }
    let read = |(number, span): (usize, SpanText)| {
        let at = |key: &str| format!("sizes[{number}].{key}");
        let from = size(&at("from"), span.from)?;
        let to = size(&at("to"), span.to.unwrap_or(span.from))?;
        if to < from {
            return Err(MixError::at(at("to"), format!("{to}: at least {from}, where it begins")));
        }
        Ok(Span { from, to, weight: weight(&at("weight"), span.weight)? })
    };
    let spans: Vec<Span> = spans.into_iter().enumerate().map(read).collect::<Result<_, _>>()?;
    if spans.iter().all(|span| span.weight == 0.0) {
        return Err(MixError::at("sizes", "at least one weight must be above 0"));
    }
    Ok(spans)
}

fn size(key: &str, bytes: i64) -> Result<u16, MixError> {
    let known = u16::try_from(bytes).ok().filter(|bytes| (LEAST_BYTES..=MOST_BYTES).contains(bytes));
    known.ok_or_else(|| MixError::at(key, format!("{bytes}: {LEAST_BYTES} to {MOST_BYTES} bytes, FCS included")))
}

fn weight(key: &str, weight: f64) -> Result<f64, MixError> {
    // No range contains NaN.
    if weight == 0.0 || WEIGHTS.contains(&weight) {
        return Ok(weight.abs());
    }
    let (least, most) = WEIGHTS.into_inner();
    Err(MixError::at(key, format!("{weight:?}: 0, or a number from {least:e} to {most:e}")))
}

fn check_name(key: &str, name: &str) -> Result<(), MixError> {
    let letters = name.chars().count();
    if name.trim().is_empty() || letters > NAME_LETTERS_MOST || name.chars().any(char::is_control) {
        return Err(MixError::at(key, format!("1 to {NAME_LETTERS_MOST} letters in a line")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "name = \"x\"\nsize = 300\n[[class]]\nkind = \"stream\"\nweight = 50\n[[class]]\nkind = \"arp\"\nweight = 0.5\n";

    /// NIMA, figure 3.
    #[test]
    fn nima_has_the_shares_of_figure_3() {
        let nima = MixSpec::load("nima").unwrap();
        let share = |kinds: &[&str]| -> f64 {
            let of = |(number, class): (usize, &Class)| kinds.contains(&class.kind.name()).then(|| nima.share(number));
            100.0 * nima.classes.iter().enumerate().filter_map(of).sum::<f64>()
        };
        for (kinds, percent) in [
            (&["stream"][..], 5.0),
            (&["udp", "tcp", "icmp"], 60.0),
            (&["multicast", "igmp"], 2.0),
            (&["ipx"], 3.0),
            (&["netbeui"], 1.0),
            (&["arp"], 20.0),
            (&["broadcast"], 5.0),
            (&["stp", "cdp", "vtp", "disl", "edp", "lldp", "appletalk", "ipv6", "neighbour-solicitation"], 4.0),
        ] {
            assert!((share(kinds) - percent).abs() < 1e-9, "{kinds:?}: {}", share(kinds));
        }
        assert!(!nima.source.is_empty() && nima.has_stream());
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        assert!(MixSpec::parse(GOOD).is_ok());
        for (from, to, said) in [
            ("size = 300", "size = 63", "size: 63: 64 to 1518 bytes, FCS included"),
            ("size = 300", "", "size, or sizes: one of them is needed"),
            ("size = 300", "size = 64\nsizes = []", "size and sizes: give one of them"),
            ("size = 300", "sizes = []", "sizes: 0 of them, 1 to 16"),
            ("size = 300", "sizes = [{ from = 99, to = 98, weight = 1 }]", "sizes[0].to: 98: at least 99"),
            ("size = 300", "sizes = [{ from = 99, weight = 0 }]", "sizes: at least one weight must be above 0"),
            ("\"arp\"", "\"arq\"", "class[1].kind: `arq` is not a kind; use one of stream, udp, tcp"),
            ("\"arp\"", "\"stream\"", "class[1].name: `stream` is another's name already"),
            ("weight = 50", "weight = -1", "class[0].weight: -1.0: 0, or a number from 1e-9 to 1e9"),
            ("weight = 50", "weight = nan", "class[0].weight: NaN: 0, or a number from 1e-9 to 1e9"),
            ("weight = 50", "weight = 5e-324", "class[0].weight: 5e-324: 0, or a number from 1e-9 to 1e9"),
            ("weight = 50", "wait = 50", "5:1: unknown field `wait`, expected one of `name`, `kind`, `weight`"),
            ("name = \"x\"", "name = \"\"", "name: 1 to 100 letters in a line"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let error = MixSpec::parse(&text).unwrap_err().in_file("x.toml").to_string();
            assert!(error.contains(said), "{to}: {error}");
            assert!(error.starts_with("x.toml:") && error.lines().count() == 1, "{error}");
        }
        let long = format!("source = \"{}\"\n{GOOD}", "x".repeat(1001));
        assert_eq!(MixSpec::parse(&long).unwrap_err().to_string(), "source: at most 1000 letters in a line");
        // Two bytes of a key are a table.
        let error = MixSpec::parse(&"a.b.b.b.b.b.b.b.b = 1\n".repeat(50_000)).unwrap_err().to_string();
        assert_eq!(error, "9844:16:more tables, lists and dots in keys than a file of this length has");
        let error = MixSpec::load("/nonexistent").unwrap_err().to_string();
        assert!(error.contains("give a file, or one of nima"), "{error}");
    }
}
