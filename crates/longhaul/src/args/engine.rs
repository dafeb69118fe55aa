//! Arguments of everything that emulates.

use longhaul_emulator::DEFAULT_LATENESS_BOUND;
use longhaul_lab::LabSpec;
use longhaul_path::network::{BATCH_TIME_MAX, DEFAULT_BATCH_TIME};
use longhaul_units::{Bytes, Nanos, QuantityError};
use serde_json::{Value, json};

/// How packets travel in the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SegmentationArg {
    /// Packets that belong together and leave at nearly the same time travel as one
    Auto,
    /// Each packet travels alone, for exact spacing
    Wire,
}

/// How to emulate.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Emulator")]
pub(crate) struct EngineArgs {
    /// Seed of the path's random numbers: same seed and same arrivals, same fate of every packet
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    seed: u64,
    /// How packets travel
    #[arg(long, value_enum, default_value_t = SegmentationArg::Auto)]
    segmentation: SegmentationArg,
    /// How long the release times of packets that travel as one may span, at most 1s
    #[arg(long, value_name = "TIME", default_value_t = DEFAULT_BATCH_TIME, value_parser = batch_time, allow_hyphen_values = true)]
    batch_time: Nanos,
    /// Payload memory at most [default: what the path needs, if the machine has it]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    memory: Option<Bytes>,
    /// Never sleep: more exact, takes a whole CPU
    #[arg(long)]
    spin: bool,
    /// CPUs for the emulator, such as 3 or 2,3; a lab's hosts then run on the others
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    cpu: Vec<usize>,
    /// Run the emulator at this SCHED_FIFO priority (1-99); busy for long, it rests 25 us at a time, lest the kernel stop it
    /// for 50 ms (sysctl kernel.sched_rt_runtime_us; -1: it need not)
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(u8).range(1..=99), allow_hyphen_values = true)]
    realtime: Option<u8>,
    /// Warn where one run of packets in a hundred leaves later than this
    #[arg(long, value_name = "TIME", default_value_t = DEFAULT_LATENESS_BOUND, allow_hyphen_values = true)]
    lateness_bound: Nanos,
}

fn batch_time(text: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|error: QuantityError| error.to_string())?;
    if time > BATCH_TIME_MAX { Err(format!("from 0ns to {BATCH_TIME_MAX}")) } else { Ok(time) }
}

impl EngineArgs {
    /// As a lab's spec without name, MTU and offload.
    pub(crate) fn spec(&self) -> LabSpec {
        LabSpec {
            seed: self.seed,
            wire: self.segmentation == SegmentationArg::Wire,
            batch_time: self.batch_time,
            memory: self.memory,
            spin: self.spin,
            cpus: self.cpu.clone(),
            realtime: self.realtime,
            lateness_bound: self.lateness_bound,
            ..LabSpec::default()
        }
    }

    /// What was asked of the emulator, for a result.
    pub(crate) fn parameters(&self) -> Value {
        let mut parameters = json!(self.spec());
        if let Some(keys) = parameters.as_object_mut() {
            keys.retain(|key, _| !["name", "mtu_bytes", "offload"].contains(&key.as_str()));
        }
        parameters
    }
}
