//! `--prometheus FILE`: the last interval in Prometheus' text form, for node_exporter's textfile collector.
//!
//! Source: the text-based format of `prometheus.io/docs/instrumenting/exposition_formats`, version 0.0.4.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::scope;
use std::time::Duration;

use longhaul_kernel::links::{followed, parent};
use longhaul_kernel::new_file::{NewFile, PUBLIC};
use longhaul_kernel::open_folder::OpenFolder;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::output::Failure;
use crate::output::overwrite::Overwrite;

/// Series of one interval; the others are left out.
const SERIES_MOST: usize = 10_000;
/// How old the file of a command is at most that answers others.
const KEPT_INTERVAL: Duration = Duration::from_secs(1);

/// The option.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct PrometheusArgs {
    /// Write the latest figures to this file, for Prometheus: point node_exporter's --collector.textfile.directory at its folder
    #[arg(long, value_name = "FILE.prom")]
    prometheus: Option<PathBuf>,
}

impl PrometheusArgs {
    /// Whether there is a file to write.
    pub(crate) fn is_given(&self) -> bool {
        self.prometheus.is_some()
    }

    /// The file, once the first interval is over.
    ///
    /// # Errors
    /// The file is there and may not be replaced, or the name is not one that the collector reads.
    pub(crate) fn open(&self, overwrite: Overwrite) -> Result<Option<Textfile>, Failure> {
        let Some(path) = &self.prometheus else { return Ok(None) };
        if path.extension().is_none_or(|end| end != "prom") {
            let message =
                format!("--prometheus {}: node_exporter reads files whose names end in .prom", path.display());
            return Err(Failure::usage(message).remedy("name it longhaul.prom, for instance"));
        }
        overwrite.file(Some(path))?;
        let unwritable = |error| Failure::unwritable(path, error);
        let file = followed(path).map_err(unwritable)?;
        // Opened once: a command may change its folder when it goes to the background, and another user what has the folder's name.
        let folder = OpenFolder::open(parent(&file)).map_err(unwritable)?;
        let Some(name) = file.file_name() else { return Err(unwritable(io::ErrorKind::InvalidInput.into())) };
        Ok(Some(Textfile {
            name: name.to_owned(),
            folder,
            shown: path.clone(),
            last: BTreeMap::new(),
            overwrite,
            told: false,
            is_own: false,
        }))
    }
}

/// A file that has the last interval of each direction. What was written goes when this is dropped: nobody shall take old figures for those of now. A
/// process that is killed leaves it, so each interval has its time.
#[derive(Debug)]
pub(crate) struct Textfile {
    folder: OpenFolder,
    name: OsString,
    /// As the user wrote it.
    shown: PathBuf,
    last: BTreeMap<String, Value>,
    /// Until it is written once.
    overwrite: Overwrite,
    told: bool,
    /// The file is this one's: it was written.
    is_own: bool,
}

impl Textfile {
    /// Writes the file anew with `interval`, an object of `--json-stream`.
    pub(crate) fn write(&mut self, interval: &impl Serialize) {
        // A line that says what comes next has no figures.
        let Some(value) = serde_json::to_value(interval).ok().filter(Value::is_object) else { return };
        let which = value.get("direction").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.last.insert(which, value);
        self.write_text(&text(self.last.values()));
    }

    /// Does `work`, and meanwhile writes the file anew every second with `intervals`, objects of `--json-stream`: whatever others do, and however
    /// often, the file is written by one thread, which nobody waits for.
    pub(crate) fn keep<I: Serialize, T>(
        mut self,
        intervals: impl Fn() -> Vec<I> + Send,
        work: impl FnOnce() -> T,
    ) -> T {
        let (end, over) = channel::<()>();
        scope(|scope| {
            scope.spawn(move || {
                loop {
                    let objects: Vec<Value> = intervals().iter().flat_map(serde_json::to_value).collect();
                    self.write_text(&text(&objects));
                    if over.recv_timeout(KEPT_INTERVAL) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            });
            let done = work();
            drop(end);
            done
        })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(&self.name)
    }

    /// Writes the file anew with `text`, which has the format already.
    pub(crate) fn write_text(&mut self, text: &str) {
        let write = || {
            let new = NewFile::create(&self.path(), PUBLIC)?;
            new.file().write_all(text.as_bytes())?;
            self.overwrite.finish(new)
        };
        match write() {
            Ok(()) => (self.overwrite, self.is_own) = (Overwrite::by(true), true),
            Err(error) if !std::mem::replace(&mut self.told, true) => {
                let failure = Failure::unwritable(&self.shown, error);
                let _ = failure.report_beside();
            }
            Err(_) => {}
        }
    }
}

impl Drop for Textfile {
    fn drop(&mut self) {
        if self.is_own {
            let _ = std::fs::remove_file(self.path());
        }
    }
}

/// Intervals as gauges, with the Unix time at which each ended. Texts and truths are labels of the numbers beside and below them; a time in
/// nanoseconds is in seconds.
fn text<'a>(intervals: impl IntoIterator<Item = &'a Value>) -> String {
    let mut families: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut left = SERIES_MOST;
    for interval in intervals.into_iter().filter_map(Value::as_object) {
        let kind = interval.get("schema").and_then(Value::as_str).unwrap_or("longhaul");
        let name = kind.split('/').next().unwrap_or_default().trim_end_matches(".interval").replace('.', "_");
        gauges(&name, interval, &[], &mut families, &mut left);
        let at = interval.get("at").and_then(Value::as_str).and_then(|at| at.parse::<jiff::Timestamp>().ok());
        if let Some(at) = at {
            let sample = format!("{} {}", written(&labels(interval, &[])), at.as_millisecond() as f64 / 1e3);
            families.entry(format!("{name}_timestamp_seconds")).or_default().push(sample);
        }
    }
    let mut text = String::new();
    for (name, samples) in families {
        let _ = writeln!(text, "# TYPE {name} gauge");
        for sample in samples {
            let _ = writeln!(text, "{name}{sample}");
        }
    }
    text
}

fn gauges(
    name: &str,
    object: &Map<String, Value>,
    outer: &[(String, String)],
    families: &mut BTreeMap<String, Vec<String>>,
    left: &mut usize,
) {
    let labels = labels(object, outer);
    for (key, value) in object {
        let name = format!("{name}_{}", word(key));
        match value {
            Value::Number(number) if *left > 0 => {
                *left -= 1;
                let (name, value) = in_base_units(name, number.as_f64().unwrap_or(f64::NAN));
                families.entry(name).or_default().push(format!("{} {value}", written(&labels)));
            }
            Value::Object(object) => gauges(&name, object, &labels, families, left),
            Value::Array(all) => {
                for object in all.iter().filter_map(Value::as_object) {
                    gauges(&name, object, &labels, families, left);
                }
            }
            _ => {}
        }
    }
}

/// Those of `outer`, and the texts and truths of `object`.
fn labels(object: &Map<String, Value>, outer: &[(String, String)]) -> Vec<(String, String)> {
    let mut labels = outer.to_vec();
    for (key, value) in object.iter().filter(|(key, _)| !matches!(key.as_str(), "schema" | "at")) {
        match value {
            Value::String(text) => labels.push((word(key), text.clone())),
            Value::Bool(truth) => labels.push((word(key), truth.to_string())),
            _ => {}
        }
    }
    labels
}

/// Prometheus' names have base units.
fn in_base_units(name: String, value: f64) -> (String, f64) {
    if let Some(stem) = name.strip_suffix("_ns") {
        return (format!("{stem}_seconds"), value / 1e9);
    }
    match name.strip_suffix("_bps") {
        Some(stem) => (format!("{stem}_bits_per_second"), value),
        None => (name, value),
    }
}

/// What a name may have.
fn word(key: &str) -> String {
    key.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_")
}

fn written(labels: &[(String, String)]) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let all: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread::sleep;
    use std::time::Instant;

    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_gauges_and_texts_their_labels() {
        let interval = json!({
            "schema": "longhaul.watch.interval/1", "at": "2026-01-01T00:00:00.25Z", "host": "a\"b\\", "elapsed_ns": 1_500_000_000_u64,
            "connections": [{ "program": "curl", "sent_rate_bps": 7, "limited_by": null }, { "program": "scp", "sent_rate_bps": 8 }],
            "dropped_packets": { "sender_qdisc": 3 },
        });
        let expected = r#"# TYPE longhaul_watch_connections_sent_rate_bits_per_second gauge
longhaul_watch_connections_sent_rate_bits_per_second{host="a\"b\\",program="curl"} 7
longhaul_watch_connections_sent_rate_bits_per_second{host="a\"b\\",program="scp"} 8
# TYPE longhaul_watch_dropped_packets_sender_qdisc gauge
longhaul_watch_dropped_packets_sender_qdisc{host="a\"b\\"} 3
# TYPE longhaul_watch_elapsed_seconds gauge
longhaul_watch_elapsed_seconds{host="a\"b\\"} 1.5
# TYPE longhaul_watch_timestamp_seconds gauge
longhaul_watch_timestamp_seconds{host="a\"b\\"} 1767225600.25
"#;
        assert_eq!(text([&interval]), expected);
    }

    #[test]
    fn the_file_has_both_directions_and_goes_with_its_writer() {
        let path = std::env::temp_dir().join(format!("longhaul-metrics-{}.prom", std::process::id()));
        let mut file = textfile(&path);
        for (direction, packets) in [("forward", 1), ("backward", 2), ("forward", 3)] {
            file.write(
                &json!({ "schema": "longhaul.udp.interval/1", "direction": direction, "received_packets": packets }),
            );
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let forward = "longhaul_udp_received_packets{direction=\"forward\"} 3";
        assert!(text.contains(forward) && text.contains("{direction=\"backward\"} 2"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
        drop(file);
        assert!(!path.exists());
    }

    /// Hundreds of events a second are no reason to write it.
    #[test]
    fn it_is_kept_by_one_write_a_second() {
        let path = std::env::temp_dir().join(format!("longhaul-metrics-kept-{}.prom", std::process::id()));
        let (begun, events, writes) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
        let intervals = || {
            writes.fetch_add(1, Ordering::Relaxed);
            vec![json!({ "schema": "longhaul.log.interval/1", "events": events.load(Ordering::Relaxed) })]
        };
        textfile(&path).keep(intervals, || {
            while writes.load(Ordering::Relaxed) < 2 {
                events.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(5));
            }
            assert!(fs::read_to_string(&path).unwrap().contains("longhaul_log_events "));
        });
        let seconds = begun.elapsed().as_secs();
        let writes = writes.into_inner();
        assert!(events.into_inner() > 10 && seconds >= 1 && writes <= seconds + 1, "{writes} in {seconds} s");
        assert!(!path.exists(), "old figures are not left");
    }

    fn textfile(path: &Path) -> Textfile {
        let args = PrometheusArgs { prometheus: Some(path.to_owned()) };
        args.open(Overwrite::by(true)).unwrap().unwrap()
    }

    /// Another command may have been told the same name.
    #[test]
    fn a_file_that_was_made_meanwhile_stays() {
        let path = std::env::temp_dir().join(format!("longhaul-meanwhile-{}.prom", std::process::id()));
        let args = PrometheusArgs { prometheus: Some(path.clone()) };
        for (force, text) in [(false, "theirs"), (true, "ours")] {
            let _ = fs::remove_file(&path);
            let mut file = args.open(Overwrite::by(force)).unwrap().unwrap();
            fs::write(&path, "theirs").unwrap();
            file.write_text("ours");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            drop(file);
            assert_eq!(path.exists(), !force, "only its own goes");
        }
        // What it wrote itself is written again.
        let mut file = args.open(Overwrite::by(false)).unwrap().unwrap();
        for text in ["one", "two"] {
            file.write_text(text);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    /// Who owns the parent of its folder puts a link in the folder's place.
    #[test]
    fn it_stays_in_its_folder() {
        let base = std::env::temp_dir().join(format!("longhaul-metrics-folder-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let (named, moved, other) = (base.join("named"), base.join("moved"), base.join("other"));
        fs::create_dir_all(&named).unwrap();
        fs::create_dir(&other).unwrap();
        let mut file = textfile(&named.join("a.prom"));
        file.write_text("1");
        fs::rename(&named, &moved).unwrap();
        symlink(&other, &named).unwrap();
        fs::write(other.join("a.prom"), "kept").unwrap();
        file.write_text("2");
        assert_eq!(fs::read_to_string(moved.join("a.prom")).unwrap(), "2");
        drop(file);
        assert_eq!(fs::read_to_string(other.join("a.prom")).unwrap(), "kept");
        assert!(!moved.join("a.prom").exists());
        fs::remove_dir_all(&base).unwrap();
    }
}
