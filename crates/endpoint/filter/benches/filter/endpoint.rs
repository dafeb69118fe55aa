//! This program as the sender of a mix.

use longhaul_kernel::link::Netlink;
use longhaul_kernel::schedule::allowed_cpus;
use longhaul_mix::{EngineKind, MixAmount, Mixer};
use longhaul_mix::{MixSpec, Plan, Target};
use longhaul_units::Nanos;
use longhaul_wire::probe::Cookie;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::child::{answer, end_with_parent, ready};
use crate::rig::SERVER;

/// What an endpoint is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Sends a mix by the cable.
    Send { mix: String, packets_per_second: Option<f64>, seconds: f64 },
    /// Makes its frames and drops them.
    Make { mix: String, packets_per_second: Option<f64>, seconds: f64 },
}

/// What a sender knows in the end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    pub(crate) refused: u64,
    pub(crate) ns: f64,
    /// CPU time of the sending threads, with the receiver's softirq in it.
    pub(crate) cpu_ns: f64,
}

/// Does what `role` says and prints the result.
pub(crate) fn run(role: &Role) -> Result<()> {
    end_with_parent();
    ready()?;
    match role {
        Role::Send { mix, packets_per_second, seconds } => {
            let index = Netlink::open()?.index_of("cable")?;
            // A thread on each CPU that this program was given.
            let cpus = allowed_cpus()?;
            run_mixer(
                Mixer::open(index, plan(mix)?, Some(EngineKind::LiveFrames), &cpus)?,
                *packets_per_second,
                *seconds,
            )
        }
        Role::Make { mix, packets_per_second, seconds } => {
            run_mixer(Mixer::into_nothing(plan(mix)?)?, *packets_per_second, *seconds)
        }
    }
}

fn run_mixer(mixer: Mixer, packets_per_second: Option<f64>, seconds: f64) -> Result<()> {
    let time = Some(Nanos::from_secs_f64(seconds));
    let result = mixer.run(&MixAmount { packets_per_second, time, packets: None }, None, None, |_| {})?;
    answer(&Sent {
        packets: result.sent_packets,
        refused: result.refused_packets,
        ns: result.duration_ns as f64,
        cpu_ns: result.cpu_ns as f64,
    })
}

fn plan(mix: &str) -> Result<Plan> {
    let target = Target {
        mac: [2, 0, 0, 0, 0, 2],
        address: SERVER.into(),
        port: 5210,
        source: [10, 98, 0, 1].into(),
        source_port: 5210,
        cookie: Cookie(0x6d69_7800),
    };
    Ok(Plan::new(MixSpec::parse(mix)?, 1, Some(target))?)
}
