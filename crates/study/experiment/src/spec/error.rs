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

/// What the keys of a series take that may be lists.
const TAKES: [(&str, &str); 13] = [
    ("hosts.mtu", "68 to 65535"),
    ("hosts.txqueuelen", "a number of packets"),
    ("hosts.qdisc", "a queueing discipline such as pfifo, fq or fq_codel"),
    ("hosts.offloads", "true or false"),
    ("hosts.sack", "true or false"),
    ("hosts.timestamps", "true or false"),
    ("ip", "4 or 6"),
    ("poll_interval", "1us to 1s, or none"),
    ("softirq", "same or split"),
    ("emulator", "longhaul or netem"),
    ("length", "18 to 65507"),
    ("flows", "1 to 64"),
    ("beside.flows", "1 to 64"),
];

/// What a key of a series takes that may be a list, in words; `None` for other keys.
pub(super) fn takes(key: &str) -> Option<&'static str> {
    TAKES.iter().find(|(known, _)| *known == key).map(|(_, allowed)| *allowed)
}

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
        let message = error.message();
        // What is said of a key names it.
        let of_key = ["unknown field", "missing field"].iter().any(|begins| message.starts_with(*begins));
        let refused = match key_of(error).filter(|_| !of_key) {
            Some(key) => Self::at(&key, of_value(&key, message)),
            None => Self::new(message),
        };
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

    /// The same of a text with the values of `full`, which has other lines than the file.
    pub(super) fn in_full(self) -> Self {
        Self::at("with `full`", self.message)
    }

    /// The same with what to do about it.
    pub(super) fn and_do(mut self, remedy: &str) -> Self {
        self.message = format!("{}; {remedy}", self.message);
        self
    }

    pub(crate) fn in_file(mut self, file: &str) -> Self {
        self.place = format!("{}:{} ", file.escape_debug(), self.place);
        self
    }
}

/// The key with the value that was refused, `udp.hosts.mtu`: an error without its text is shown with it.
fn key_of(error: &toml::de::Error) -> Option<String> {
    let mut alone = error.clone();
    alone.set_input(None);
    let shown = alone.to_string();
    let (_, key) = shown.trim_end().rsplit_once("\nin `")?;
    Some(key.trim_end_matches('`').to_owned())
}

/// Why the value of `key` was refused, in what the key takes: for a value of another type, serde says what Rust calls the right one.
fn of_value(key: &str, message: &str) -> String {
    let of_type = ["invalid type: ", "invalid value: "].iter().find_map(|begins| message.strip_prefix(*begins));
    let given = of_type.and_then(|said| Some(said.rsplit_once(", expected ")?.0));
    let of_series = key.strip_prefix("udp.").or_else(|| key.strip_prefix("tcp."));
    let allowed = of_series.and_then(takes);
    given.zip(allowed).map_or_else(|| message.to_owned(), |(given, allowed)| format!("{given}: {allowed}"))
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
