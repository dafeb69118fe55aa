//! Samples, medians, and taking turns.

use std::time::Instant;

use longhaul_emulator::{OwnFault, Status};
use serde::Serialize;
use serde_json::Value;

use crate::Result;
use crate::args::Plan;
use crate::machine::CpuUse;

/// What the emulator says of itself about one measurement.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct EmulatorFigures {
    /// CPU time of the emulating thread for 10⁹ bits of payload that arrived. A spinning thread uses all there is.
    pub(crate) cpu_s_per_gbit: f64,
    /// CPU time of the emulating thread, as a share of one CPU, from the lab's start to its end.
    pub(crate) cpu_share: f64,
    pub(crate) lateness_p50_ns: u64,
    pub(crate) lateness_p99_ns: u64,
    pub(crate) lateness_p99_9_ns: u64,
    pub(crate) lateness_max_ns: u64,
    /// How long the path's clock stood, because the emulator could not keep up with it.
    pub(crate) clock_stood_ns: u64,
    /// All own faults.
    pub(crate) own_fault: u64,
    /// The same by kind.
    pub(crate) own_fault_kinds: OwnFault,
    pub(crate) far_port_full_packets: u64,
    pub(crate) queue_drops_packets: u64,
    /// Payload memory of the clients' end: the most that was taken, and what there was.
    pub(crate) memory_peak_bytes: u64,
    pub(crate) memory_capacity_bytes: u64,
}

impl EmulatorFigures {
    /// From the status after a measurement in which `payload_bytes` arrived.
    pub(crate) fn of(status: &Status, payload_bytes: u64) -> Self {
        let gbit = payload_bytes as f64 * 8.0 / 1e9;
        let memory = status.memory.first();
        Self {
            cpu_s_per_gbit: if gbit > 0.0 { status.cpu_ns as f64 / 1e9 / gbit } else { 0.0 },
            cpu_share: status.cpu_ns as f64 / status.uptime_ns.max(1) as f64,
            lateness_p50_ns: status.lateness.p50_ns,
            lateness_p99_ns: status.lateness.p99_ns,
            lateness_p99_9_ns: status.lateness.p99_9_ns,
            lateness_max_ns: status.lateness.max_ns,
            clock_stood_ns: status.clock_stood_ns,
            own_fault: status.own_fault.total(),
            own_fault_kinds: status.own_fault,
            far_port_full_packets: status.far_port_full_packets,
            queue_drops_packets: status.hops.iter().map(|hop| hop.counters.dropped_queue.packets).sum(),
            memory_peak_bytes: memory.map_or(0, |memory| memory.peak_bytes),
            memory_capacity_bytes: memory.map_or(0, |memory| memory.capacity_bytes),
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sample {
    pub(crate) value: f64,
    /// `None` where no emulator took part.
    pub(crate) emulator: Option<EmulatorFigures>,
    /// CPUs that other programs, and other machines on the same host, kept busy meanwhile: on a quiet machine near 0.
    pub(crate) others_cpus: f64,
    /// Whatever else explains it.
    pub(crate) detail: Value,
}

impl Sample {
    /// Without an emulator.
    pub(crate) fn plain(value: f64, detail: Value) -> Self {
        Self { value, emulator: None, others_cpus: 0.0, detail }
    }
}

/// Something that is measured in turns with others.
pub(crate) struct Variant<'a> {
    pub(crate) name: String,
    pub(crate) measure: Box<dyn Fn() -> Result<Sample> + 'a>,
}

impl<'a> Variant<'a> {
    pub(crate) fn new(name: impl Into<String>, measure: impl Fn() -> Result<Sample> + 'a) -> Self {
        Self { name: name.into(), measure: Box::new(measure) }
    }
}

/// Measures each of `variants` in each of `rounds`, in turns. The samples of each variant, by round.
pub(crate) fn in_turns(plan: &Plan, rounds: usize, variants: &[Variant<'_>]) -> Result<Vec<Vec<Sample>>> {
    let mut samples = vec![Vec::new(); variants.len()];
    for round in 0..rounds {
        // Each round begins with another one, so that none always follows the same.
        for at in (0..variants.len()).map(|i| (i + round) % variants.len()) {
            let variant = &variants[at];
            let (begin, before) = (Instant::now(), CpuUse::now()?);
            // Once more where it broke: another lab on the machine may have taken this one's programs for its own.
            let mut sample = (variant.measure)()
                .or_else(|error| {
                    eprintln!("  again, as {} broke: {error}", variant.name);
                    (variant.measure)()
                })
                .map_err(|error| format!("{}: {error}", variant.name))?;
            sample.others_cpus = CpuUse::now()?.others_since(&before) / begin.elapsed().as_secs_f64();
            let emulator = sample.emulator.as_ref().map_or(String::new(), |figures| {
                format!(", late p99 {:.1} µs, own faults {}", figures.lateness_p99_ns as f64 / 1e3, figures.own_fault)
            });
            eprintln!(
                "  {}/{rounds} {} {}: {:.4e}{emulator} {}",
                round + 1,
                plan.case,
                variant.name,
                sample.value,
                sample.detail
            );
            samples[at].push(sample);
        }
    }
    Ok(samples)
}

/// The middle one; of an even number the mean of the middle two. 0 for none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The value that the share `q` (0 to 1) of `values` does not exceed (nearest rank). 0 for none.
pub(crate) fn quantile(values: &[u64], q: f64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0)
}
