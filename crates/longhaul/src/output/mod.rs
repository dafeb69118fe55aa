//! Output that all commands share: the result envelope, errors, exit codes.

mod file;
mod flags;
pub(crate) mod limited;
pub(crate) mod live;
mod locale;
pub(crate) mod overwrite;
pub(crate) mod prometheus;
pub(crate) mod saved;
pub(crate) mod status;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use longhaul_kernel::signals::{Stop, StopSignal};
use longhaul_kernel::stderr_line;
pub(crate) use longhaul_result::Envelope;
use longhaul_result::{Caveat, CaveatCode};
use longhaul_session::SessionError;
use longhaul_terms::ParameterError;
use longhaul_units::{escaped_controls, nearest, without_controls};
use serde::Serialize;

use crate::Cli;
pub(crate) use crate::output::file::OutputFile;
pub(crate) use crate::output::flags::with_flags;

/// How a command ends.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// The exit code after Ctrl-C; the result so far is printed.
pub(crate) const INTERRUPTED: u8 = 130;

/// The exit code that a shell reports for a program ended by a signal: 128 plus the signal's number.
pub(crate) fn exit_code(signal: StopSignal) -> u8 {
    match signal {
        StopSignal::Interrupt => INTERRUPTED,
        StopSignal::Terminate => 128 + 15,
        StopSignal::HangUp => 128 + 1,
    }
}

/// Why a command failed.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Failure {
    /// For programs: `usage`, `no_lab`, `name_in_use`, `refused`, `lab`, `emulator`, `exec`, `not_written`, ….
    #[cfg_attr(test, schemars(regex(pattern = "^[a-z][a-z0-9_]*$")))]
    code: String,
    /// What failed, where and why, in one line.
    #[cfg_attr(test, schemars(regex(pattern = r"^[^\n]+$")))]
    message: String,
    /// What to do; empty if the message says it.
    remedy: String,
    /// 1, or 2 for wrong usage.
    #[serde(skip)]
    exit: u8,
}

/// An error as `--json` prints it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PrintedFailure<'a> {
    /// Name and version of this form.
    schema: &'static str,
    /// Why the command failed.
    error: &'a Failure,
}

/// The parameters of a command that takes none.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NothingAsked {}

impl Failure {
    /// Something did not work.
    pub(crate) fn new(code: &'static str, message: impl Display) -> Self {
        Self { code: code.into(), message: one_line(&message.to_string()), remedy: String::new(), exit: 1 }
    }

    /// An error of a library crate, which names fields.
    fn of(code: &str, message: &str, remedy: &str) -> Self {
        Self { code: code.into(), ..Self::new("", with_flags(message)).remedy(with_flags(remedy)) }
    }

    /// A file cannot be written.
    pub(crate) fn unwritable(file: &Path, error: impl Display) -> Self {
        Self::new("not_written", format!("cannot write {}: {error}", file.display()))
    }

    /// A signal came while `--resume` read what is at `path`.
    pub(crate) fn interrupted_reading(path: &Path, signal: StopSignal) -> Self {
        let message = format!("--resume {}: interrupted while it was read", path.display());
        Self::new("interrupted", message).exit(exit_code(signal))
    }

    /// The command was called wrongly.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { exit: 2, ..Self::new("usage", message) }
    }

    /// Adds what to do.
    pub(crate) fn remedy(mut self, remedy: impl Display) -> Self {
        self.remedy = one_line(&remedy.to_string());
        self
    }

    /// What failed.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// With another exit code than 1.
    pub(crate) fn exit(self, exit: u8) -> Self {
        Self { exit, ..self }
    }

    /// The same as a caveat of a result that there is all the same.
    pub(crate) fn as_caveat(&self, code: CaveatCode) -> Caveat {
        Caveat::new(code, format!("the test was cut short: {}", self.message), &self.remedy)
    }

    /// Prints it as a line on stderr; stdout has the result.
    pub(crate) fn report_beside(&self) -> ExitCode {
        say(with_remedy(&self.message, &self.remedy));
        ExitCode::from(self.exit)
    }

    /// Prints it: a line on stderr and, with `json`, an object on stdout.
    pub(crate) fn report(self, json: bool) -> ExitCode {
        // Nothing else follows, and whoever reads this may be slow.
        Stop::release();
        if json {
            print_json(&PrintedFailure { schema: "longhaul.error/1", error: &self });
        }
        self.report_beside()
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        Self::of(&error.code, &error.message, &error.remedy)
    }
}

impl From<Caveat> for Failure {
    fn from(caveat: Caveat) -> Self {
        Self::of(&caveat.code, &caveat.message, &caveat.remedy)
    }
}

impl From<ParameterError> for Failure {
    fn from(error: ParameterError) -> Self {
        Self::usage(with_flags(&error.to_string()))
    }
}

/// Prints clap's message: help unchanged, an error in one line, with `json` as an object too.
pub(crate) fn usage(error: &clap::Error, arguments: &[OsString], json: bool) -> ExitCode {
    if !error.use_stderr() {
        // A closed pipe (`longhaul --help | head`) is no error.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if let (ErrorKind::MissingSubcommand, Some(ContextValue::String(asked))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    {
        return missing_command(asked).report(json);
    }
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let message = lines.filter(|line| !line.is_empty() && !line.starts_with("For more")).collect::<Vec<_>>().join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    // This tip is about values that look like options; what is meant is an option.
    let message = message.split(" tip: to pass ").next().unwrap_or(message);
    let top = Cli::command();
    let (asked, command) = command_of(&top, arguments);
    let meant = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if error.get(ContextKind::SuggestedSubcommand).is_none() => {
            nearest(word, command.get_subcommands().map(clap::Command::get_name))
        }
        _ => None,
    };
    let tip = meant.map_or(String::new(), |meant| format!(" tip: a similar subcommand exists: '{meant}'"));
    Failure::usage(format!("{message}{tip}")).remedy(format!("see {asked} --help")).report(json)
}

/// The command that the first words name, as they call it.
fn command_of<'a>(top: &'a clap::Command, arguments: &[OsString]) -> (String, &'a clap::Command) {
    let (mut asked, mut command) = (String::from("longhaul"), top);
    for word in arguments.iter().skip(1) {
        let Some(below) = command.find_subcommand(word) else { break };
        asked = format!("{asked} {}", below.get_name());
        command = below;
    }
    (asked, command)
}

/// The command `asked`, such as `longhaul lab`, lacks a subcommand.
fn missing_command(asked: &str) -> Failure {
    let top = Cli::command();
    let command = asked.split(' ').skip(1).try_fold(&top, |command, word| command.find_subcommand(word));
    let shown = command.into_iter().flat_map(clap::Command::get_subcommands).filter(|command| !command.is_hide_set());
    let names: Vec<_> = shown.map(clap::Command::get_name).collect();
    // `report` puts "longhaul: " before the line.
    let asked_below = asked.strip_prefix("longhaul").unwrap_or(asked).trim_start();
    let whom = if asked_below.is_empty() { String::new() } else { format!("{asked}: ") };
    Failure::usage(format!("{whom}which command? use one of {}", names.join(", ")))
        .remedy(format!("see {asked} --help"))
}

/// Whether the caller wants JSON: read from the raw arguments, since they may be what is wrong.
pub(crate) fn json_asked(arguments: &[OsString]) -> bool {
    let mut own = arguments.iter().take_while(|argument| *argument != "--");
    own.any(|argument| argument == "--json" || argument == "--json-stream" || argument == "-J")
}

/// Prints a result as JSON or as text on stdout, and its caveats on stderr.
pub(crate) fn print_result<P: Serialize, R: Serialize, H: Serialize>(
    envelope: &Envelope<P, R, H>,
    json: bool,
    text: impl FnOnce(&R) -> String,
) {
    // The work is done, and whoever reads this may be slow.
    Stop::release();
    if json {
        print_json(envelope)
    } else {
        print_text(&text(&envelope.result))
    }
    print_caveats(&envelope.caveats);
}

/// Says which files could not be written, on stderr: the result is printed already, and with `--json` it is the only object. Returns the exit code
/// then.
pub(crate) fn report_unwritten(written: [Result<(), Failure>; 2]) -> Option<ExitCode> {
    let failures = written.into_iter().filter_map(Result::err);
    failures.map(|failure| failure.report_beside()).reduce(|first, _| first)
}

/// The exit code of a command that ends by itself or by a signal: only Ctrl-C interrupts its result.
pub(crate) fn ended_by(signal: Option<StopSignal>) -> ExitCode {
    if signal == Some(StopSignal::Interrupt) { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS }
}

/// Prints `value` as one line of JSON on stdout.
pub(crate) fn print_json(value: &impl Serialize) {
    // The types of results always serialize.
    if let Ok(text) = serde_json::to_string(value) {
        print_json_text(&text);
    }
}

/// Prints `text`, JSON on one line, on stdout.
pub(crate) fn print_json_text(text: &str) {
    print(&(escaped_controls(text) + "\n"));
}

/// Prints `text` on stdout, without what a terminal would obey: names and messages in it may come from anybody.
pub(crate) fn print_text(text: &str) {
    print(&plain(text));
}

/// Prints a line on stderr, beside the result, without what a terminal would obey.
pub(crate) fn say(line: impl Display) {
    stderr_line!("longhaul: {}", plain(&line.to_string()));
}

/// Why what was printed last did not reach where standard output leads.
static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

/// A closed pipe is no error. Another one is told at the end ([`lost`]): a measurement goes on for what else it writes.
fn print(text: &str) {
    let mut output = io::stdout();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            *LOST.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
        _ => {}
    }
}

/// The failure of a command whose result standard output did not take, as on a full disk.
pub(crate) fn lost() -> Option<Failure> {
    let error = LOST.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    let failure = Failure::new("not_written", format!("standard output: {error}; what was printed is lost"));
    Some(failure.remedy("make room where it leads to, or print to another place"))
}

/// `text` without what a terminal obeys, except for line breaks, and in letters that the locale has.
pub(crate) fn plain(text: &str) -> String {
    let text = without_controls(text);
    if locale::is_ascii() { locale::in_ascii(&text) } else { text }
}

/// `text` without line breaks and other control characters.
fn one_line(text: &str) -> String {
    let text = without_errno(text);
    let words = text.split(|letter: char| letter.is_control() || letter.is_whitespace());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// `text` without the numbers that Rust puts behind the kernel's errors: the words before say the same.
fn without_errno(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => plain += rest,
            _ => plain += &format!(" (os error {part}"),
        }
    }
    plain
}

fn with_remedy(message: &str, remedy: &str) -> String {
    if remedy.is_empty() { message.to_owned() } else { format!("{message} ({remedy})") }
}

/// Prints caveats as text on stderr.
pub(crate) fn print_caveats(caveats: &[Caveat]) {
    for caveat in caveats {
        say(format_args!("caveat: {}", one_line(&with_flags(&with_remedy(&caveat.message, &caveat.remedy)))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_no_numbers_of_the_kernel() {
        let error = std::io::Error::from_raw_os_error(2);
        assert_eq!(one_line(&format!("x: {error}; use y")), "x: No such file or directory; use y");
        for kept in ["a (os error", "a (os error x) b", "plain"] {
            assert_eq!(one_line(kept), kept);
        }
    }
}
