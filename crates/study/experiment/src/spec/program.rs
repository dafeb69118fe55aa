//! `program = { … }` of a `[[tcp]]` series: any program in place of longhaul's own test, and what of its output is the result.

use std::fmt;

use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::ExperimentError;

/// Bytes of a command at most.
const COMMAND_BYTES_MOST: usize = 4096;

/// A program at the client, and one at the server that it talks to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// What a shell runs at the client; `{server}` is the server's address. Its end is the end of the run.
    pub client: String,
    /// What a shell runs at the server, and which ends with the run; `None`: nothing.
    pub server: Option<String>,
    /// How its output is read.
    pub parser: Parser,
    /// After this time it is ended, and the run has no result.
    pub time: Nanos,
}

/// Whose output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parser {
    /// `iperf3 -J`.
    Iperf3,
    /// `curl -w '%{json}'`.
    Curl,
    /// `rsync --stats`.
    Rsync,
}

/// What a program says that it did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Said {
    /// Payload bytes.
    pub bytes: u64,
    /// How long that took, seconds.
    pub seconds: f64,
    /// Packets that were retransmitted; `None`: it does not say.
    pub retransmits: Option<u64>,
}

/// Its text form.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramText {
    client: String,
    server: Option<String>,
    parse: Parser,
    #[serde(default = "a_minute")]
    time: Nanos,
}

fn a_minute() -> Nanos {
    Nanos::from_secs(60)
}

impl Program {
    pub(super) fn from_text(place: &str, written: ProgramText) -> Result<Self, ExperimentError> {
        let ProgramText { client, server, parse: parser, time } = written;
        for (key, command) in [("client", Some(&client)), ("server", server.as_ref())] {
            if command
                .is_some_and(|text| text.trim().is_empty() || text.len() > COMMAND_BYTES_MOST || text.contains('\0'))
            {
                return Err(ExperimentError::at(
                    format_args!("{place}.{key}"),
                    format!("1 to {COMMAND_BYTES_MOST} bytes"),
                ));
            }
        }
        Ok(Self { client, server, parser, time })
    }
}

impl fmt::Display for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Iperf3 => "iperf3",
            Self::Curl => "curl",
            Self::Rsync => "rsync",
        })
    }
}

impl Parser {
    /// What `output` says. `took` is how long the program ran, for one that does not say.
    ///
    /// # Errors
    /// It is not the output of that program, in a line.
    pub fn read(self, output: &str, took: Nanos) -> Result<Said, String> {
        match self {
            Self::Iperf3 => iperf3(output),
            Self::Curl => curl(output),
            Self::Rsync => rsync(output, took),
        }
        .map_err(|why| format!("the output of {self}: {why}"))
    }
}

fn number(value: &Value, key: &str) -> Result<f64, String> {
    value.get(key).and_then(Value::as_f64).filter(|number| *number >= 0.0).ok_or_else(|| format!("no number `{key}`"))
}

fn iperf3(output: &str) -> Result<Said, String> {
    let value: Value = serde_json::from_str(output).map_err(|error| format!("no JSON (give -J): {error}"))?;
    if let Some(error) = value.get("error").and_then(Value::as_str) {
        return Err(error.chars().filter(|c| !c.is_control()).take(200).collect());
    }
    let end = value.get("end").ok_or("no `end`")?;
    let received = end.get("sum_received").ok_or("no `end.sum_received`")?;
    let retransmits = end.get("sum_sent").and_then(|sent| sent.get("retransmits")).and_then(Value::as_u64);
    Ok(Said { bytes: number(received, "bytes")? as u64, seconds: number(received, "seconds")?, retransmits })
}

fn curl(output: &str) -> Result<Said, String> {
    let line =
        output.lines().rev().find(|line| line.trim_start().starts_with('{')).ok_or("no JSON: give -w '%{json}'")?;
    let value: Value = serde_json::from_str(line).map_err(|error| format!("no JSON (give -w '%{{json}}'): {error}"))?;
    if let Some(code) = value.get("exitcode").and_then(Value::as_i64).filter(|code| *code != 0) {
        return Err(format!("exit code {code}"));
    }
    let bytes = number(&value, "size_download")? + number(&value, "size_upload")?;
    Ok(Said { bytes: bytes as u64, seconds: number(&value, "time_total")?, retransmits: None })
}

fn rsync(output: &str, took: Nanos) -> Result<Said, String> {
    let of = |key: &str| {
        let line = output.lines().find_map(|line| line.trim().strip_prefix(key));
        let digits: String =
            line.unwrap_or_default().chars().take_while(|c| *c != 'b').filter(char::is_ascii_digit).collect();
        digits.parse::<u64>().map_err(|_| format!("no `{key}` (give --stats)"))
    };
    let bytes = of("Total bytes sent:")?.max(of("Total bytes received:")?);
    Ok(Said { bytes, seconds: took.as_secs_f64(), retransmits: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_each_program_is_read() {
        let took = Nanos::from_secs(4);
        let iperf3 = r#"{"start":{},"end":{"sum_sent":{"retransmits":7},"sum_received":{"bytes":1000,"seconds":2.0,"bits_per_second":4000}}}"#;
        let said = Parser::Iperf3.read(iperf3, took).unwrap();
        assert_eq!(said, Said { bytes: 1000, seconds: 2.0, retransmits: Some(7) });
        let curl = "some text\n{\"exitcode\":0,\"size_download\":2048,\"size_upload\":0,\"time_total\":0.5}\n";
        assert_eq!(Parser::Curl.read(curl, took).unwrap(), Said { bytes: 2048, seconds: 0.5, retransmits: None });
        let rsync = "Number of files: 1\nTotal bytes sent: 1,234,567\nTotal bytes received: 35\n\nsent 1,234,567 bytes";
        assert_eq!(
            Parser::Rsync.read(rsync, took).unwrap(),
            Said { bytes: 1_234_567, seconds: 4.0, retransmits: None }
        );
    }

    #[test]
    fn what_is_no_output_of_it_is_said_in_a_line() {
        for (parser, output, said) in [
            (Parser::Iperf3, "", "the output of iperf3: no JSON (give -J)"),
            (Parser::Iperf3, r#"{"error":"unable to connect"}"#, "the output of iperf3: unable to connect"),
            (Parser::Iperf3, r#"{"end":{"sum_received":{"bytes":-1}}}"#, "no number `bytes`"),
            (Parser::Curl, "hello", "the output of curl: no JSON: give -w '%{json}'"),
            (Parser::Curl, "{\"exitcode\":7}", "the output of curl: exit code 7"),
            (Parser::Rsync, "sent 12 bytes", "no `Total bytes sent:` (give --stats)"),
        ] {
            let error = parser.read(output, Nanos::ZERO).unwrap_err();
            assert!(error.contains(said) && error.lines().count() == 1, "{error}");
        }
    }
}
