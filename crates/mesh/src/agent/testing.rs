//! One test: `longhaul udp` against the partner's `longhaul serve`, which listens for this test alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use longhaul_channel::Key;
use longhaul_kernel::new_file::{NewFile, PRIVATE};
use longhaul_mesh_model::file::{Kind, TestPlan};
use longhaul_units::{BitRate, Nanos};
use serde::Deserialize;

use super::shared::Shared;
use crate::beside;
use crate::error::Failure;
use crate::folder::random;
use crate::store::TestResult;

/// The longest result that is read: exact maps of losses are long.
const RESULT_BYTES_MOST: u64 = 64 << 20;
/// How long `serve` has to listen.
const LISTENS_WITHIN: Duration = Duration::from_secs(4);
/// How long after its time a test may end.
const GRACE: Duration = Duration::from_secs(20);

/// A test that was granted.
pub(super) struct Job<'a> {
    pub(super) test: &'a TestPlan,
    /// Payload bits a second: the plan's rate, or less on a shared link.
    pub(super) rate: BitRate,
    pub(super) address: &'a str,
    pub(super) port: u16,
    pub(super) key: &'a str,
    /// Whether this site sends; else it receives.
    pub(super) sends: bool,
}

/// What a test came to.
pub(super) struct Counts {
    id: String,
    sent: i64,
    lost: i64,
    placed: Option<(i64, i64)>,
    received_rate_bps: i64,
}

impl Counts {
    pub(super) fn into_result(self, test: String, sender: String, receiver: String, at_ns: i64) -> TestResult {
        TestResult {
            id: self.id,
            test,
            sender,
            receiver,
            at_ns,
            sent: self.sent,
            lost: self.lost,
            at_sender: self.placed.map(|(at_sender, _)| at_sender),
            at_receiver: self.placed.map(|(_, at_receiver)| at_receiver),
            received_rate_bps: self.received_rate_bps,
        }
    }
}

/// The part of `longhaul udp --json` that the mesh keeps.
#[derive(Deserialize)]
struct Envelope {
    result: UdpResult,
}

#[derive(Deserialize)]
struct UdpResult {
    sent_packets: u64,
    lost_packets: u64,
    received_rate_bps: f64,
    location_method: String,
    loss_by_location: std::collections::BTreeMap<String, u64>,
}

/// A key of one test in a file, which goes with this value.
pub(super) struct KeyFile(PathBuf);

impl KeyFile {
    pub(super) fn write(folder: &Path, text: &str) -> Result<Self, Failure> {
        let name = format!("key-{:016x}", u64::from_le_bytes(random()?));
        let path = folder.join(name);
        let write = || {
            let file = NewFile::create(&path, PRIVATE)?;
            file.file().write_all(text.as_bytes())?;
            file.finish_new()
        };
        write()
            .map_err(|error: std::io::Error| Failure::new(format_args!("cannot write {}: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A program that ends with this value.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a test that this site began.
pub(super) fn run(shared: &Shared, job: &Job) -> Result<Counts, Failure> {
    let Kind::Udp { length, .. } = job.test.kind else {
        return Err(Failure::new("this version runs UDP tests alone"));
    };
    // It becomes a file that longhaul reads: nothing but a key goes there.
    let key: Key = job.key.parse().map_err(Failure::new)?;
    let key = KeyFile::write(&shared.folder.file(""), &key.to_text())?;
    let mut command = beside::command(&shared.options.longhaul).map_err(Failure::new)?;
    command.args(["udp", job.address, "--json", "--port", &job.port.to_string(), "--key"]).arg(&key.0);
    command.args([
        "--rate",
        &job.rate.0.to_string(),
        "--length",
        &length.to_string(),
        "--time",
        &job.test.time.to_string(),
    ]);
    if !job.sends {
        command.arg("--reverse");
    }
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child =
        Program(child.map_err(|error| {
            Failure::new(format_args!("cannot start {}: {error}", shared.options.longhaul.display()))
        })?);
    let Some(output) = child.0.stdout.take() else { return Err(Failure::new("no output")) };
    let (sender, receiver) = mpsc::channel();
    let reading = move || {
        let mut text = Vec::new();
        let read = output.take(RESULT_BYTES_MOST).read_to_end(&mut text);
        // Nobody waits any more where the test took too long.
        let _ = sender.send(read.map(|_| text));
    };
    thread::Builder::new().name("result".into()).spawn(reading).map_err(Failure::new)?;
    let text = receiver
        .recv_timeout(Duration::from(job.test.time) + GRACE)
        .map_err(|_| Failure::new("the test took too long"))?
        .map_err(Failure::new)?;
    let envelope: Envelope = serde_json::from_slice(&text).map_err(|_| {
        let said = String::from_utf8_lossy(&text);
        let line: String = said.chars().filter(|c| !c.is_control()).take(300).collect();
        Failure::new(format_args!("longhaul udp failed: {line}"))
    })?;
    counts(&envelope.result)
}

fn counts(result: &UdpResult) -> Result<Counts, Failure> {
    let at = |end: &str| -> u64 {
        let locations = result.loss_by_location.iter().filter(|(location, _)| location.starts_with(end));
        locations.map(|(_, packets)| packets).sum()
    };
    let unexplained = result.loss_by_location.get("unexplained").copied().unwrap_or(0);
    // Only drop events of both hosts say where each packet was lost.
    let seen = result.location_method == "bpf" && unexplained == 0;
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let id: [u8; 16] = random()?;
    Ok(Counts {
        id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
        sent: number(result.sent_packets),
        lost: number(result.lost_packets),
        placed: seen.then(|| (number(at("sender_")), number(at("receiver_")))),
        received_rate_bps: result.received_rate_bps as i64,
    })
}

/// Starts `longhaul serve` for one test of a partner and waits until it listens; its port. It ends with the test, when the sender of `over` is
/// gone, or when the test must be over.
pub(super) fn serve(
    shared: &Arc<Shared>,
    test: &TestPlan,
    key: &Key,
    held: Nanos,
    over: mpsc::Receiver<()>,
) -> Result<u16, Failure> {
    let Kind::Udp { rate, length } = test.kind else {
        return Err(Failure::new("this version runs UDP tests alone"));
    };
    let (sender, receiver) = mpsc::channel();
    let (shared, key, time) = (Arc::clone(shared), key.to_text(), test.time);
    // The program ends with the thread that starts it.
    let serving = move || {
        let serve = || -> Result<(Program, KeyFile, ChildStderr), Failure> {
            let key = KeyFile::write(&shared.folder.file(""), &key)?;
            let mut command = beside::command(&shared.options.longhaul).map_err(Failure::new)?;
            command.args(["serve", "--once", "--port", "0", "--bind", &shared.options.bind, "--key"]).arg(&key.0);
            command.args(["--rate-cap", &rate.0.to_string(), "--length-cap", &length.to_string()]);
            command.args(["--time-cap", &time.to_string(), "--host-settings", "refuse"]);
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
            let mut child = Program(child.map_err(|error| {
                Failure::new(format_args!("cannot start {}: {error}", shared.options.longhaul.display()))
            })?);
            let errors = child.0.stderr.take().ok_or_else(|| Failure::new("no output"))?;
            Ok((child, key, errors))
        };
        let (child, key, errors) = match serve() {
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
            let _ = over.recv_timeout(Duration::from(held));
        }
        drop((child, key));
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

/// Removes the keys of tests that a killed agent left.
pub(super) fn clean(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let keys = entries.filter_map(Result::ok).filter(|entry| entry.file_name().to_string_lossy().starts_with("key-"));
    keys.for_each(|entry| drop(std::fs::remove_file(entry.path())));
}
