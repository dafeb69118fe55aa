//! Programs that a test runs.

use std::fs::DirEntry;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use longhaul_channel::Key;
use longhaul_kernel::address::zone_of;

use super::samples;
use crate::agent::shared::Shared;
use crate::beside;
use crate::error::Failure;

/// The longest result that is read: exact maps of losses are long.
const RESULT_BYTES_MOST: u64 = 64 << 20;
/// How long `serve` has to listen.
const LISTENS_WITHIN: Duration = Duration::from_secs(4);

/// Removes the samples of tests that a killed agent left.
pub(in crate::agent) fn clean(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let is_samples = |entry: &DirEntry| entry.file_name().to_string_lossy().starts_with(samples::PREFIX);
    for entry in entries.filter_map(Result::ok).filter(is_samples) {
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

/// A program that ends with this value.
struct Program(Child);

impl Program {
    /// Starts a command that uses `key`. The program reads it from a pipe: no file holds it, so none is left where this process is killed.
    fn start(shared: &Shared, command: &mut Command, key: &Key) -> Result<Self, Failure> {
        let program = shared.options.longhaul.display();
        let failed = |error| Failure::new(format_args!("cannot start {program}: {error}"));
        let mut program =
            command.args(["--key", "/dev/stdin"]).stdin(Stdio::piped()).spawn().map(Self).map_err(failed)?;
        let mut input = program.0.stdin.take().ok_or_else(|| Failure::new("no input"))?;
        input.write_all(key.to_text().as_bytes()).map_err(failed)?;
        Ok(program)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command of `longhaul` that ends with the thread that starts it.
pub(super) fn longhaul(shared: &Shared) -> Result<Command, Failure> {
    beside::command(&shared.options.longhaul).map_err(Failure::new)
}

/// What a command prints that uses `key`. It is ended if that takes longer than `within`.
pub(super) fn output(shared: &Shared, command: &mut Command, key: &Key, within: Duration) -> Result<Vec<u8>, Failure> {
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut program = Program::start(shared, command, key)?;
    let Some(output) = program.0.stdout.take() else { return Err(Failure::new("no output")) };
    let (sender, receiver) = mpsc::channel();
    let reading = move || {
        let mut text = Vec::new();
        let read = output.take(RESULT_BYTES_MOST).read_to_end(&mut text);
        // Nobody waits any more where the test took too long.
        let _ = sender.send(read.map(|_| text));
    };
    thread::Builder::new().name("result".into()).spawn(reading).map_err(Failure::new)?;
    let text = receiver.recv_timeout(within).map_err(|_| Failure::new("the test took too long"))?;
    text.map_err(Failure::new)
}

/// Starts `longhaul serve` with these arguments and this key and waits until it listens; its port. It ends when the sender of `over` is gone, or
/// after `held`.
pub(super) fn serve(
    shared: &Arc<Shared>,
    arguments: Vec<String>,
    key: &Key,
    held: Duration,
    over: mpsc::Receiver<()>,
) -> Result<u16, Failure> {
    let (sender, receiver) = mpsc::channel();
    let (shared, key) = (Arc::clone(shared), key.clone());
    // The program ends with the thread that starts it.
    let serving = move || {
        let serve = || -> Result<_, Failure> {
            let mut command = longhaul(&shared)?;
            let bind = shared.options.bind;
            let zone = zone_of(bind).map_or_else(String::new, |zone| format!("%{zone}"));
            command.args(["serve", "--bind", &format!("{}{zone}", bind.ip()), "--port", "0"]);
            command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut program = Program::start(&shared, &mut command, &key)?;
            let errors = program.0.stderr.take().ok_or_else(|| Failure::new("no output"))?;
            Ok((program, errors))
        };
        let (program, errors) = match serve() {
            Ok(served) => served,
            Err(failure) => return drop(sender.send(Err(failure))),
        };
        let reading = move || {
            let mut lines = BufReader::new(errors).take(RESULT_BYTES_MOST).lines();
            let _ = sender.send(Ok(lines.next().and_then(Result::ok).unwrap_or_default()));
            // Read on, or it would stop when the pipe is full.
            lines.for_each(drop);
        };
        if thread::Builder::new().name("serve".into()).spawn(reading).is_ok() {
            let _ = over.recv_timeout(held);
        }
        drop(program);
    };
    thread::Builder::new().name("serving".into()).spawn(serving).map_err(Failure::new)?;
    let silent = || Failure::new("longhaul serve does not listen");
    let line = receiver.recv_timeout(LISTENS_WITHIN).map_err(|_| silent())??;
    let port = line.split_once("listening at ").and_then(|(_, rest)| {
        let address = rest.split([';', ' ']).next()?;
        address.rsplit(':').next()?.parse().ok()
    });
    port.ok_or_else(silent)
}
