//! This program as the sender of a mix.

use std::time::Instant;

use longhaul_bpf::mix::{LiveFrames, LiveOptions, LiveTemplate};
use longhaul_kernel::link::Netlink;
use longhaul_measure::mix::{EngineKind, MixAmount, Mixer};
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
    /// Makes as many frames of it and drops them.
    Make { mix: String, frames: u32 },
}

/// What a sender knows in the end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    pub(crate) refused: u64,
    pub(crate) ns: f64,
}

/// Does what `role` says and prints the result.
pub(crate) fn run(role: &Role) -> Result<()> {
    end_with_parent();
    ready()?;
    match role {
        Role::Send { mix, packets_per_second, seconds } => {
            let index = Netlink::open()?.index_of("cable")?;
            let mut mixer = Mixer::open(index, plan(mix)?, Some(EngineKind::LiveFrames))?;
            let time = Some(Nanos::from_secs_f64(*seconds));
            let amount = MixAmount { packets_per_second: *packets_per_second, time, packets: None };
            let result = mixer.run(&amount, None, None, |_| {})?;
            answer(&Sent {
                packets: result.sent_packets,
                refused: result.refused_packets,
                ns: result.duration_ns as f64,
            })
        }
        Role::Make { mix, frames } => {
            let plan = plan(mix)?;
            let templates: Vec<_> = (plan.templates.iter())
                .map(|template| LiveTemplate { bytes: &template.bytes, numbered: template.numbered })
                .collect();
            let columns: Vec<_> = plan.alias.entries().iter().map(|entry| (entry.threshold, entry.other)).collect();
            let (ifindex, anchor) = (0, None);
            let live = LiveFrames::load(&LiveOptions {
                ifindex,
                anchor,
                templates: &templates,
                columns: &columns,
                seed: plan.seed,
                cookie: 0,
            })?;
            live.run(1 << 16)?;
            let begin = Instant::now();
            live.run(*frames)?;
            answer(&Sent { packets: u64::from(*frames), refused: 0, ns: begin.elapsed().as_nanos() as f64 })
        }
    }
}

fn plan(mix: &str) -> Result<Plan> {
    let target = Target {
        mac: [2, 0, 0, 0, 0, 2],
        address: SERVER.octets(),
        port: 5210,
        source: [10, 98, 0, 1],
        source_port: 5210,
        cookie: Cookie(0x6d69_7800),
    };
    Ok(Plan::new(MixSpec::parse(mix)?, 1, Some(target))?)
}
