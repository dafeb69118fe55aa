//! Why a text is no experiment.

use std::fmt;

use longhaul_terms::ParameterError;

/// What parameters of a test are called in the file.
const KEYS: [(&str, &str); 13] = [
    ("bytes", "bytes"),
    ("duration_ns", "time"),
    ("rate_bps", "rates"),
    ("spacing_ns", "spacings"),
    ("payload_bytes", "length"),
    ("sockbuf_bytes", "sockbuf"),
    ("window_bytes", "window"),
    ("streams", "flows"),
    ("mss_bytes", "mss"),
    ("pace_bps", "pace"),
    ("omit_ns", "omit"),
    ("affinity", "softirq"),
    ("packets", "packets"),
];

/// Why a text is no experiment, in one line: where, what, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{message}")]
pub struct ExperimentError {
    /// The file, and line and column where they are known, with a colon behind each.
    place: String,
    message: String,
}

impl ExperimentError {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        let message = message.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { place: String::new(), message: message.chars().filter(|c| !c.is_control()).take(500).collect() }
    }

    pub(crate) fn at(key: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::new(format!("{key}: {why}"))
    }

    /// A parameter of a test is out of range.
    pub(crate) fn parameter(place: impl fmt::Display, error: &ParameterError) -> Self {
        let key = KEYS.iter().find(|(field, _)| *field == error.field).map_or(error.field, |(_, key)| key);
        Self::at(format_args!("{place}.{key}"), format_args!("{}: {}", error.given, error.allowed))
    }

    /// The same with the line of `text` that has the key, where it begins with one (`udp[0].repeat: …`).
    pub(crate) fn located(mut self, text: &str) -> Self {
        if self.place.is_empty() {
            self.place = line_of(self.message.split(": ").next().unwrap_or_default(), text)
                .map_or_else(String::new, |line| format!("{line}:"));
        }
        self
    }

    /// What the reader of TOML says of `text`, and where.
    pub(super) fn of_toml(error: &toml::de::Error, text: &str) -> Self {
        let refused = Self::new(error.message());
        match error.span() {
            Some(span) => refused.at_byte(span.start, text),
            None => refused,
        }
    }

    /// The same with line and column of a byte of `text`.
    pub(super) fn at_byte(mut self, byte: usize, text: &str) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        self.place = format!("{}:{column}:", before.matches('\n').count() + 1);
        self
    }

    pub(crate) fn in_file(mut self, file: &str) -> Self {
        self.place = format!("{}:{} ", file.escape_debug(), self.place);
        self
    }
}

/// The line of `key` in `text`, from 1: `repeat` at the top, `udp[1].hosts.mtu` in the second `[[udp]]`; else that of its series.
fn line_of(key: &str, text: &str) -> Option<usize> {
    let (series, keys) = match key.split_once('[') {
        None => (None, key),
        Some((name, rest)) => {
            let (number, keys) = rest.split_once(']')?;
            (Some((name, number.parse::<usize>().ok()?)), keys.trim_start_matches('.'))
        }
    };
    let key = keys.split(['.', '[']).next().unwrap_or_default();
    let has_key = |line: &str| {
        let rest = line.trim_start().strip_prefix(key).map(str::trim_start);
        !key.is_empty() && rest.is_some_and(|rest| rest.starts_with('=') || rest.starts_with('.'))
    };
    let mut lines = text.lines().zip(1..).peekable();
    let mut begins = None;
    if let Some((name, number)) = series {
        let header = format!("[[{name}]]");
        begins =
            lines.by_ref().filter(|(line, _)| line.trim_start().starts_with(&header)).nth(number).map(|(_, at)| at);
        begins?;
    }
    lines
        .take_while(|(line, _)| !line.trim_start().starts_with("[["))
        .find(|(line, _)| has_key(line))
        .map(|(_, at)| at)
        .or(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_its_line() {
        let text = "title = 'x'\nrepeat = 0\n[[udp]]\nname = 'a'\n[[udp]]\nname = 'b'\nhosts = { mtu = 1 }\n";
        for (key, line) in [
            ("repeat", Some(2)),
            ("udp[0].name", Some(4)),
            ("udp[1].name", Some(6)),
            ("udp[1].hosts.mtu", Some(7)),
            ("udp[1].rates", Some(5)),
            ("udp[1]", Some(5)),
            ("udp[2].name", None),
            ("path", None),
        ] {
            assert_eq!(line_of(key, text), line, "{key}");
        }
    }
}
