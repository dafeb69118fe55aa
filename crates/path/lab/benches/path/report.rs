//! The table and the file.

use std::fs;
use std::path::PathBuf;

use jiff::Timestamp;
use longhaul_emulator::OwnFault;
use serde::Serialize;

use crate::args::Args;
use crate::machine::Machine;
use crate::measure::{EmulatorFigures, Sample, median};
use crate::{Error, NAME, Result};

/// What is asked of a figure.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code)] // No benchmark asks for all of these.
pub(crate) enum Target {
    ValueAtLeast(f64),
    ValueAtMost(f64),
    /// Of the medians of each round's ratio to the reference.
    RatioAtLeast(f64),
    /// Likewise, below.
    RatioBelow(f64),
}

/// A figure of the report.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// The median.
    pub(crate) value: f64,
    /// Median of the reference.
    pub(crate) reference: Option<f64>,
    /// Median over the rounds of ours ÷ reference.
    pub(crate) ratio: Option<f64>,
    /// `None`: stated, not judged.
    pub(crate) target: Option<Target>,
    pub(crate) met: Option<bool>,
    /// CPUs that others kept busy, ours and the reference's samples together.
    pub(crate) others_cpus: f64,
    /// The emulator's own figures: medians over the rounds; sums of faults; the most of peaks.
    pub(crate) emulator: Option<EmulatorFigures>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) reference_samples: Vec<Sample>,
}

impl Row {
    /// The figure whose samples are `samples`.
    pub(crate) fn new(name: impl Into<String>, unit: &'static str, samples: &[Sample]) -> Self {
        Self {
            name: name.into(),
            unit,
            value: median(samples.iter().map(|sample| sample.value)),
            reference: None,
            ratio: None,
            target: None,
            met: None,
            others_cpus: median(samples.iter().map(|sample| sample.others_cpus)),
            emulator: together(samples),
            samples: samples.to_vec(),
            reference_samples: Vec::new(),
        }
    }

    /// Beside the samples of its reference, of the same rounds.
    #[must_use]
    pub(crate) fn beside(mut self, reference: &[Sample]) -> Self {
        self.reference = Some(median(reference.iter().map(|sample| sample.value)));
        self.ratio = Some(median(self.samples.iter().zip(reference).map(|(own, other)| own.value / other.value)));
        self.others_cpus = median(self.samples.iter().chain(reference).map(|sample| sample.others_cpus));
        self.reference_samples = reference.to_vec();
        self
    }

    /// Judged.
    #[must_use]
    pub(crate) fn against(mut self, target: Target) -> Self {
        self.met = Some(match target {
            Target::ValueAtLeast(limit) => self.value >= limit,
            Target::ValueAtMost(limit) => self.value <= limit,
            Target::RatioAtLeast(limit) => self.ratio.is_some_and(|ratio| ratio >= limit),
            Target::RatioBelow(limit) => self.ratio.is_some_and(|ratio| ratio < limit),
        });
        self.target = Some(target);
        self
    }
}

fn together(samples: &[Sample]) -> Option<EmulatorFigures> {
    let all: Vec<_> = samples.iter().filter_map(|sample| sample.emulator.as_ref()).collect();
    let middle = |of: fn(&EmulatorFigures) -> f64| median(all.iter().map(|figures| of(figures)));
    (!all.is_empty()).then(|| EmulatorFigures {
        cpu_s_per_gbit: middle(|f| f.cpu_s_per_gbit),
        cpu_share: middle(|f| f.cpu_share),
        lateness_p50_ns: middle(|f| f.lateness_p50_ns as f64) as u64,
        lateness_p99_ns: middle(|f| f.lateness_p99_ns as f64) as u64,
        lateness_p99_9_ns: middle(|f| f.lateness_p99_9_ns as f64) as u64,
        lateness_max_ns: all.iter().map(|f| f.lateness_max_ns).max().unwrap_or(0),
        clock_stood_ns: all.iter().map(|f| f.clock_stood_ns).max().unwrap_or(0),
        own_fault: all.iter().map(|f| f.own_fault).sum(),
        own_fault_kinds: OwnFault {
            receive_overflow_frames: all.iter().map(|f| f.own_fault_kinds.receive_overflow_frames).sum(),
            port_ring_full_frames: all.iter().map(|f| f.own_fault_kinds.port_ring_full_frames).sum(),
            memory_full_frames: all.iter().map(|f| f.own_fault_kinds.memory_full_frames).sum(),
            oversized_frames: all.iter().map(|f| f.own_fault_kinds.oversized_frames).sum(),
            send_error_packets: all.iter().map(|f| f.own_fault_kinds.send_error_packets).sum(),
        },
        far_port_full_packets: all.iter().map(|f| f.far_port_full_packets).sum(),
        queue_drops_packets: all.iter().map(|f| f.queue_drops_packets).sum(),
        memory_peak_bytes: all.iter().map(|f| f.memory_peak_bytes).max().unwrap_or(0),
        memory_capacity_bytes: all.iter().map(|f| f.memory_capacity_bytes).max().unwrap_or(0),
    })
}

/// A run of this program.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema: String,
    started_at: String,
    machine: Machine,
    quick: bool,
    filters: Vec<String>,
    cases: Vec<CaseReport>,
}

#[derive(Debug, Serialize)]
struct CaseReport {
    case: &'static str,
    rows: Vec<Row>,
    /// Why it broke.
    error: Option<String>,
}

impl Report {
    pub(crate) fn new(args: &Args, machine: Machine) -> Self {
        Self {
            schema: format!("longhaul.bench.{NAME}/1"),
            started_at: Timestamp::now().to_string(),
            machine,
            quick: args.quick,
            filters: args.filters.clone(),
            cases: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, case: &'static str, rows: Vec<Row>) {
        self.cases.push(CaseReport { case, rows, error: None });
    }

    pub(crate) fn broke(&mut self, case: &'static str, error: &(dyn std::error::Error + 'static)) {
        eprintln!("  {case} broke: {error}");
        self.cases.push(CaseReport { case, rows: Vec::new(), error: Some(error.to_string()) });
    }

    /// Whether no case broke.
    pub(crate) fn is_whole(&self) -> bool {
        self.cases.iter().all(|case| case.error.is_none())
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let machine = &self.machine;
        let mut text = format!(
            "\n{} × {}, {:.0} GiB{}, Linux {}, load {:.2} at the start; {}\n\n",
            machine.cpus,
            machine.cpu,
            machine.memory_bytes as f64 / f64::from(1 << 30),
            if machine.is_virtual { ", virtual" } else { "" },
            machine.kernel,
            machine.load_average,
            if self.quick { "quick: short rounds, not for the record" } else { "medians" },
        );
        text += &format!(
            "{:<38} {:>12} {:>12} {:>7}  {:<16} {:<8} {:>6}",
            "what", "ours", "reference", "ratio", "target", "", "others"
        );
        let emulated = self.cases.iter().flat_map(|case| &case.rows).any(|row| row.emulator.is_some());
        if emulated {
            text += &format!(" {:>9} {:>10} {:>6} {:>6}", "CPU s/Gb", "late p99", "own", "far");
        }
        text += "\n";
        for case in &self.cases {
            if let Some(error) = &case.error {
                text += &format!("{:<38} BROKE: {error}\n", case.case);
            }
            for row in &case.rows {
                text += &line(case.case, row);
            }
        }
        text += "\nothers: CPUs kept busy by other programs\n";
        if emulated {
            text += "CPU s/Gb: of the emulating thread, for 10⁹ bits of payload; own: packets and frames lost by the emulator's own\n\
                     fault; far: refused by a receiver's full ring (all rounds)\n";
        }
        text
    }

    /// Writes all samples as JSON; returns where to.
    pub(crate) fn write(&self) -> Result<PathBuf> {
        let folder = target_folder()?.join("bench");
        fs::create_dir_all(&folder)?;
        let file = folder.join(format!("{NAME}.json"));
        fs::write(&file, serde_json::to_string_pretty(self)? + "\n")?;
        Ok(file)
    }
}

fn line(case: &str, row: &Row) -> String {
    let number = |value: f64| format!("{} {}", short(value), row.unit);
    let target = match row.target {
        None => "stated".to_owned(),
        Some(Target::ValueAtLeast(limit)) => format!("≥ {}", number(limit)),
        Some(Target::ValueAtMost(limit)) => format!("≤ {}", number(limit)),
        Some(Target::RatioAtLeast(limit)) => format!("ratio ≥ {limit}"),
        Some(Target::RatioBelow(limit)) => format!("ratio < {limit}"),
    };
    let met = row.met.map_or("", |met| if met { "met" } else { "NOT met" });
    let mut text = format!(
        "{:<38} {:>12} {:>12} {:>7}  {target:<16} {met:<8} {:>6.2}",
        format!("{case} {}", row.name),
        number(row.value),
        row.reference.map_or(String::new(), number),
        row.ratio.map_or(String::new(), |ratio| format!("{ratio:.3}")),
        row.others_cpus,
    );
    if let Some(figures) = &row.emulator {
        text += &format!(
            " {:>9.4} {:>7.1} µs {:>6} {:>6}",
            figures.cpu_s_per_gbit,
            figures.lateness_p99_ns as f64 / 1e3,
            figures.own_fault,
            figures.far_port_full_packets
        );
    }
    text.trim_end().to_owned() + "\n"
}

/// Three digits or so.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value == 0.0 || value == value.trunc() => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Cargo's target directory: what it was told, else where this program lies (`TARGET/release/deps/path-…`).
fn target_folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("CARGO_TARGET_DIR") {
        return Ok(folder.into());
    }
    let program = std::env::current_exe()?;
    let folder = program.ancestors().nth(3).ok_or_else(|| Error::from("this program lies in no target directory"))?;
    Ok(folder.to_owned())
}
