//! Several flows beside one: a limit that each flow has by itself, or one that all share.

use super::{Known, WORTH_NAMING, about};
use crate::diagnosis::{Cause, Code, Line, Remedy, Role};
use crate::evidence::Purpose;

/// Limits of a path that UDP reached. Tests with several flows show whether each flow has its own limit.
const OF_PATH: [Code; 2] = [Code::Shaper, Code::Policer];
/// Limits that each TCP flow has by itself.
const OF_FLOW: [Code; 9] = [
    Code::ReceiveWindow,
    Code::SendBuffer,
    Code::ApplicationWindow,
    Code::Loss,
    Code::CongestionControl,
    Code::MiddleboxOptions,
    Code::Reordering,
    Code::Queue,
    Code::Cpu,
];

/// One flow, and several: payload bits per second.
struct Compared {
    one_bps: u64,
    several_bps: u64,
    flows: usize,
}

impl Compared {
    fn grows(&self) -> bool {
        self.several_bps as f64 >= WORTH_NAMING * self.one_bps as f64
    }
}

fn udp(known: &Known<'_>) -> Option<Compared> {
    let several = known.udp_runs().filter(|run| run.purpose == Purpose::SeveralFlows && run.sent_packets > 0).last()?;
    let one = known.udp_runs().filter(|run| run.purpose == Purpose::Rate && run.streams.len() <= 1);
    // At about the same rate in all.
    let one = one.filter(|run| run.asked_bps >= several.asked_bps.map(|bps| bps / 10 * 9)).last()?;
    Some(Compared { one_bps: one.arrived_bps(), several_bps: several.arrived_bps(), flows: several.streams.len() })
}

fn tcp(known: &Known<'_>) -> Option<Compared> {
    let several = known.tcp(Purpose::SeveralFlows)?;
    let one_bps = known.tcp(Purpose::Default)?.steady_bps;
    Some(Compared { one_bps, several_bps: several.steady_bps, flows: several.flows.len() })
}

/// Adds to each cause what several flows say of it.
pub(super) fn explain(known: &Known<'_>, causes: &mut [Cause]) {
    let (udp, tcp) = (udp(known), tcp(known));
    for cause in causes {
        let code = cause.bound.code;
        // What waits in the reverse direction was not met by UDP.
        let compared = match &udp {
            Some(compared) if OF_PATH.contains(&code) => compared,
            _ => match &tcp {
                Some(compared) if OF_FLOW.contains(&code) => compared,
                _ => continue,
            },
        };
        let Compared { one_bps, several_bps, flows } = *compared;
        let (one, several) = (about(one_bps), about(several_bps));
        let kind = if OF_PATH.contains(&code) { "UDP" } else { "TCP" };
        let command = format!("longhaul {} HOST -P {flows}", kind.to_lowercase());
        if compared.grows() {
            let text = format!(
                "{flows} flows of {kind} carried {several} together, and one {one}: each flow has this limit for itself"
            );
            cause.bound.evidence.push(Line::new(text, command));
            // A cap on each flow is met by no setting of a host; other causes have a better remedy first.
            let remedy = Remedy::new(
                Some(Role::Sender),
                format!("use several connections, as bbcp, GridFTP, aria2c or rclone do: {flows} carried {several}"),
                format!("iperf3 -c HOST -P {flows}"),
            );
            let at = if OF_PATH.contains(&code) { 0 } else { cause.bound.remedies.len() };
            cause.bound.remedies.insert(at, remedy);
        } else {
            let text = format!(
                "{flows} flows of {kind} carried {several} together, and one {one}: all flows share this limit"
            );
            cause.bound.evidence.push(Line::new(text, command));
        }
    }
}
