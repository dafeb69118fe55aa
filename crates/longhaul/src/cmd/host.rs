//! `longhaul host`.

use std::fmt::Write;
use std::process::ExitCode;

use longhaul_emulator::Warning;
use longhaul_kernel::host::{HostSnapshot, Interface, LONG_PATH_RTT};
use longhaul_units::{BitRate, Nanos};
use serde_json::json;

use crate::output::{Envelope, Outcome, print_json, print_text, print_warnings};

/// Show how this host is set up, as far as long fat networks care
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul host --rtt 195ms")]
pub(crate) struct Args {
    /// Round trip of the paths that buffers are judged by
    #[arg(long, value_name = "TIME", default_value_t = LONG_PATH_RTT)]
    rtt: Nanos,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Outcome {
    let host = HostSnapshot::take();
    let warnings: Vec<Warning> = host
        .findings(args.rtt)
        .into_iter()
        .map(|finding| Warning { code: finding.code.into(), message: finding.message, remedy: finding.remedy })
        .collect();
    if args.json {
        let now = jiff::Timestamp::now().to_string();
        print_json(&Envelope::new("longhaul.host/1", now, json!({ "rtt_ns": args.rtt.0 }), host, warnings));
        return Ok(ExitCode::SUCCESS);
    }
    print_text(&text(&host));
    print_warnings(&warnings);
    Ok(ExitCode::SUCCESS)
}

fn text(host: &HostSnapshot) -> String {
    let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".into());
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "host      {}, Linux {}", or(&host.hostname), or(&host.kernel.release));
    let _ = writeln!(
        text,
        "cpu       {} CPUs, {}, {} NUMA nodes, governor {}",
        host.cpu.online_cpus.len(),
        or(&host.cpu.model),
        host.cpu.numa_nodes.len(),
        if host.cpu.governors.is_empty() { "?".into() } else { host.cpu.governors.join(" ") },
    );
    let _ = writeln!(
        text,
        "clock     {}{}",
        or(&host.kernel.clocksource),
        host.kernel
            .virtualization
            .as_ref()
            .map_or_else(String::new, |machine| format!(", virtual machine ({machine})")),
    );
    for interface in &host.interfaces {
        let _ = writeln!(text, "{:<9} {}", interface.name, describe(interface));
    }
    for (key, value) in &host.sysctls {
        let _ = writeln!(text, "{key:<44} {value}");
    }
    for unread in &host.unreadable {
        let _ = writeln!(text, "unread    {}: {}", unread.what, unread.reason);
    }
    text
}

fn describe(interface: &Interface) -> String {
    let mut parts = vec![if interface.up { "up".to_owned() } else { "down".to_owned() }];
    parts.extend(interface.link_speed_bps.map(|rate| BitRate(rate).to_string()));
    parts.push(format!("MTU {}", interface.mtu_bytes));
    parts.extend(interface.driver.as_ref().map(|driver| format!("driver {driver}")));
    parts.extend(interface.qdisc.as_ref().map(|qdisc| format!("qdisc {qdisc}")));
    parts.extend(interface.transmit_queue_packets.map(|packets| format!("txqueuelen {packets}")));
    parts.push(format!("{} queues", interface.queues.len()));
    let off: Vec<_> = interface
        .offloads
        .iter()
        .filter(|offload| offload.changeable && !offload.active)
        .map(|offload| offload.name.as_str())
        .collect();
    if !off.is_empty() && off.len() <= 6 {
        parts.push(format!("off: {}", off.join(" ")));
    }
    parts.join(", ")
}
