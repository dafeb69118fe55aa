//! Options of all commands that emulate a path.

use longhaul_emulator::DEFAULT_LATENESS_BOUND;
use longhaul_lab::LabSpec;
use longhaul_path::network::{BATCH_TIME_MAX, DEFAULT_BATCH_TIME};
use longhaul_units::{Bytes, Nanos, QuantityError};
use serde::Serialize;

/// How packets travel in the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub(crate) enum SegmentationArg {
    /// Let packets of one super-packet that leave at nearly the same time travel together
    Auto,
    /// Let each packet travel alone, for exact spacing
    Wire,
}

/// The longest `--wake-interval`.
const WAKE_INTERVAL_MOST: Nanos = Nanos::from_millis(10);

/// Options of the emulator.
#[derive(Debug, Clone, clap::Args, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[command(next_help_heading = "Emulator")]
pub(crate) struct EngineArgs {
    /// Seed the path's random numbers; with equal arrivals, equal seeds give every packet the same fate
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    seed: u64,
    /// Choose how packets travel through the emulator
    #[arg(long, value_enum, default_value_t = SegmentationArg::Auto)]
    segmentation: SegmentationArg,
    /// Let release times of packets that travel together differ by up to this, at most 1s
    #[arg(long, value_name = "TIME", default_value_t = DEFAULT_BATCH_TIME, value_parser = batch_time, allow_hyphen_values = true)]
    batch_time: Nanos,
    /// Limit payload memory [default: half of what is available]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    memory: Option<Bytes>,
    /// Never sleep: more exact, uses a whole CPU
    #[arg(long)]
    spin: bool,
    /// Wake up at most once per TIME, at most 10ms: saves CPU time, but packets leave up to that much later, plus the time of a wake-up
    /// [default: 0ns, the most exact; `lab run` says where it uses more]
    #[arg(long, value_name = "TIME", conflicts_with = "spin", value_parser = wake_interval, allow_hyphen_values = true)]
    wake_interval: Option<Nanos>,
    /// Run the emulator on these CPUs, such as 3 or 2,3; a lab's hosts then run on the others
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    #[serde(rename = "cpus")]
    cpu: Vec<usize>,
    /// Run the emulator at this SCHED_FIFO priority (1-99)
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99), allow_hyphen_values = true)]
    #[cfg_attr(test, schemars(range(min = 1, max = 99)))]
    realtime: Option<u8>,
    /// Raise a caveat if 1 % of packets leave later than this; packets that travel together count as one
    #[arg(long, value_name = "TIME", default_value_t = DEFAULT_LATENESS_BOUND, allow_hyphen_values = true)]
    lateness_bound: Nanos,
}

fn batch_time(text: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|error: QuantityError| error.to_string())?;
    if time > BATCH_TIME_MAX { Err(format!("from 0ns to {BATCH_TIME_MAX}")) } else { Ok(time) }
}

fn wake_interval(text: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|error: QuantityError| error.to_string())?;
    if time > WAKE_INTERVAL_MOST { Err(format!("from 0ns to {WAKE_INTERVAL_MOST}")) } else { Ok(time) }
}

impl EngineArgs {
    /// Whether `--wake-interval` was given.
    pub(crate) fn says_wake_interval(&self) -> bool {
        self.wake_interval.is_some()
    }

    /// A lab spec with these options; name, MTU and offload are the defaults.
    pub(crate) fn spec(&self) -> LabSpec {
        LabSpec {
            seed: self.seed,
            wire: self.segmentation == SegmentationArg::Wire,
            batch_time: self.batch_time,
            memory: self.memory,
            spin: self.spin,
            wake_interval: self.wake_interval.unwrap_or_default(),
            cpus: self.cpu.clone(),
            realtime: self.realtime,
            lateness_bound: self.lateness_bound,
            ..LabSpec::default()
        }
    }
}
