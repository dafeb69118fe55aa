//! One TCP flow of `longhaul tcp` over a long fat network that the emulator makes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use longhaul_emulator::Status;
use longhaul_lab::{Lab, LabSpec};
use longhaul_path::spec::{PathSpec, no_files};
use longhaul_tcp::{CongestionStep, TcpParameters};
use longhaul_terms::Amount;
use longhaul_units::Nanos;
use serde_json::json;

use crate::Result;
use crate::args::Plan;
use crate::child::Endpoint;
use crate::endpoint::{Role, TestedTcp};
use crate::measure::{EmulatorFigures, Sample, Variant, in_turns};
use crate::report::{Row, Target};

const PORT: u16 = 5210;
/// What the slowest hop carries, in frames: a window that leaves at the speed of memory overflows any queue that there is.
const PACE_BPS: u64 = 11_200_000_000;
const PATH: &str = "name = 'bench'\n[[both]]\nrate = '12Gbit'\nqueue = '256MiB'\ndelay = '250ms'";
/// The window rises to its full size, so that the memory it takes exists when the flow that counts begins.
const WARM_UP_SECONDS: f64 = 15.0;

/// One flow after another over the lab. The first one only makes the machine take its memory: a virtual machine gets memory from its
/// host when it is first used, and stops meanwhile, in which a path of 11 Gb/s overflows.
fn flow(congestion_control: &str, ipv6: bool, omit: f64, seconds: f64) -> Result<Sample> {
    let lab = Lab::up(
        LabSpec { name: "bench".into(), realtime: Some(50), ..LabSpec::default() },
        PathSpec::parse(PATH, &no_files)?,
    )?;
    let warm = test(&lab, congestion_control, ipv6, 0.0, WARM_UP_SECONDS)?;
    let before = lab.status()?;
    let tested = test(&lab, congestion_control, ipv6, omit, seconds)?;
    let after = lab.status()?;
    let faults = |status: &Status| status.own_fault.total();
    let queue = |status: &Status| status.hops.iter().map(|hop| hop.counters.dropped_queue.packets).sum::<u64>();
    let detail = json!({
        "retransmits": tested.retransmits,
        "limited_by": tested.limited_by,
        "own_faults": faults(&after) - faults(&before),
        "queue_drops": queue(&after) - queue(&before),
        "warm_up_gbit_per_second": warm.goodput_bps as f64 / 1e9,
    });
    let emulator = EmulatorFigures::of(&after, 0);
    let emulator = Some(EmulatorFigures { own_fault: faults(&after) - faults(&before), ..emulator });
    Ok(Sample { emulator, ..Sample::plain(tested.goodput_bps as f64 / 1e9, detail) })
}

fn test(lab: &Lab, congestion_control: &str, ipv6: bool, omit: f64, seconds: f64) -> Result<TestedTcp> {
    let (client, host) = (lab.host("client")?, lab.host("server")?);
    let ip: IpAddr = if ipv6 { host.plan.ipv6.into() } else { host.plan.ipv4.into() };
    let at = SocketAddr::from((ip, PORT));
    let parameters = TcpParameters {
        amount: Amount::DurationNs(Nanos::from_secs_f64(seconds).0),
        omit_ns: Nanos::from_secs_f64(omit).0,
        interval_ns: None,
        congestion: vec![CongestionStep { name: congestion_control.into(), duration_ns: None }],
        pace_bps: Some(PACE_BPS),
        // Sender and receiver share what CPUs the emulator leaves.
        zerocopy: true,
        ..TcpParameters::default()
    };
    let cpus = lab.spec().host_cpus();
    let server = Endpoint::start(&cpus, &host.namespace, &Role::Serve { at })?;
    let client = Endpoint::start(&cpus, &client.namespace, &Role::Tcp { server: at, parameters })?;
    let tested = client.result(Duration::from_secs_f64(seconds))?;
    let _: f64 = server.result(Duration::ZERO)?;
    Ok(tested)
}

pub(crate) fn scalable(plan: &Plan) -> Result<Vec<Row>> {
    both_protocols(plan, "scalable")
}

pub(crate) fn bbr(plan: &Plan) -> Result<Vec<Row>> {
    both_protocols(plan, "bbr")
}

/// Over IPv4 and IPv6, the end of each flow.
fn both_protocols(plan: &Plan, congestion_control: &str) -> Result<Vec<Row>> {
    let seconds = plan.seconds(60.0, 30.0);
    let omit = plan.seconds(30.0, 20.0);
    let name = |ipv6: bool| format!("{congestion_control} IPv{}", if ipv6 { 6 } else { 4 });
    let variants =
        [false, true].map(|ipv6| Variant::new(name(ipv6), move || flow(congestion_control, ipv6, omit, seconds)));
    let samples = in_turns(plan, plan.long_rounds, &variants)?;
    let row = |(samples, ipv6): (&Vec<Sample>, bool)| {
        Row::new(name(ipv6), "Gb/s", samples).against(Target::ValueAtLeast(10.0))
    };
    Ok(samples.iter().zip([false, true]).map(row).collect())
}
