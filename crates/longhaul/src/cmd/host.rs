//! `longhaul host`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use longhaul_host::{Coalescing, HostSnapshot, Interface, LONG_PATH_RTT, PciePath, QueueDirection};
use longhaul_units::{BitRate, Bytes, Nanos};
use serde::Serialize;

use crate::output::{Envelope, Failure, Outcome, print_caveats, print_json, print_text};

/// Characters of a line.
const WIDTH: usize = 80;

/// Show how this host is set up for long fat networks, and what to change
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  longhaul host --rtt 195ms\n  longhaul host eth0 --json | jq .result.interfaces[0].rings"
)]
pub(crate) struct Args {
    /// Show only this interface
    #[arg(value_name = "INTERFACE")]
    interface: Option<String>,
    /// Judge buffers for paths with this round trip
    #[arg(long, value_name = "TIME", default_value_t = LONG_PATH_RTT)]
    rtt: Nanos,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// What was asked, as the result has it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Parameters {
    /// The round trip of the paths for which buffers were judged.
    rtt_ns: u64,
    /// The one interface that was asked for; `None` for all.
    interface: Option<String>,
}

pub(crate) fn run(args: Args) -> Outcome {
    let mut host = HostSnapshot::take();
    if let Some(wanted) = &args.interface {
        let names: Vec<String> = host.interfaces.iter().map(|interface| interface.name.clone()).collect();
        host.interfaces.retain(|interface| interface.name == *wanted);
        if host.interfaces.is_empty() {
            return Err(Failure::new(
                "no_interface",
                format!("there is no interface {wanted}; there are {}", names.join(", ")),
            ));
        }
    }
    let caveats = host.caveats(args.rtt);
    if args.json {
        let now = jiff::Timestamp::now().to_string();
        let parameters = Parameters { rtt_ns: args.rtt.0, interface: args.interface };
        print_json(&Envelope::new("longhaul.host/1", now, parameters, host, caveats));
        return Ok(ExitCode::SUCCESS);
    }
    print_text(&text(&host));
    print_caveats(&caveats);
    Ok(ExitCode::SUCCESS)
}

fn text(host: &HostSnapshot) -> String {
    let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "?".into());
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "host      {}, Linux {}", or(&host.hostname), or(&host.kernel.release));
    let cpu = &host.cpu;
    let mut words = vec![format!("{} CPUs", cpu.online_cpus.len()), or(&cpu.model)];
    words.push(format!("{} NUMA nodes", cpu.numa_nodes.len()));
    let governors = if cpu.governors.is_empty() { "not set here".into() } else { cpu.governors.join(" ") };
    words.push(format!("governor {governors}"));
    words.extend(cpu.max_frequency_hz.map(|hz| format!("up to {:.1} GHz", hz as f64 / 1e9)));
    if !cpu.isolated_cpus.is_empty() {
        words.push(format!("isolated {}", ranges(&cpu.isolated_cpus)));
    }
    words.extend(cpu.idle_driver.as_ref().map(|driver| format!("idle driver {driver}")));
    paragraph(&mut text, "cpu", &words);
    let machine = host.kernel.virtualization.as_ref();
    let machine = machine.map_or_else(String::new, |machine| format!(", virtual machine ({machine})"));
    let _ = writeln!(text, "clock     {}{machine}", or(&host.kernel.clocksource));
    for interface in &host.interfaces {
        describe(&mut text, interface);
    }
    if let Some(table) = host.conntrack {
        let _ = writeln!(text, "conntrack {} of {} entries", table.entries, table.most_entries);
    }
    let limits = &host.group_limits;
    if let Some(cpu) = &limits.cpu {
        let share = cpu.quota_us as f64 / cpu.period_us.max(1) as f64;
        let _ = writeln!(text, "cgroup    {share:.2} CPUs ({})", cpu.folder);
    }
    if let Some(memory) = &limits.memory {
        let (used, limit) = (Bytes(memory.used_bytes).rounded(), Bytes(memory.limit_bytes).rounded());
        let _ = writeln!(text, "cgroup    {used} of {limit} memory ({})", memory.folder);
    }
    for (key, value) in &host.sysctls {
        let _ = writeln!(text, "{key:<44} {value}");
    }
    let mut unread: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for one in &host.unreadable {
        unread.entry(&one.reason).or_default().push(one.what.clone());
    }
    for (reason, whats) in unread {
        let words: Vec<String> =
            std::iter::once(format!("{reason}: {}", whats[0])).chain(whats[1..].iter().cloned()).collect();
        paragraph(&mut text, "unread", &words);
    }
    text
}

/// `label` before `words`, with commas between, in lines of at most [`WIDTH`] characters where words allow.
fn paragraph(text: &mut String, label: &str, words: &[String]) {
    let mut line = format!("{label:<9}");
    for (at, word) in words.iter().enumerate() {
        let comma = if at + 1 < words.len() { "," } else { "" };
        if line.chars().count() + 1 + word.chars().count() + comma.len() > WIDTH && line.trim() != label {
            let _ = writeln!(text, "{line}");
            line = " ".repeat(9);
        }
        let _ = write!(line, " {word}{comma}");
    }
    if !words.is_empty() {
        let _ = writeln!(text, "{line}");
    }
}

fn describe(text: &mut String, interface: &Interface) {
    let mut words = vec![if interface.up { "up".to_owned() } else { "down".to_owned() }];
    if interface.up && !interface.carrier {
        words.push("no carrier".into());
    }
    words.extend(interface.link_speed_bps.map(|rate| BitRate(rate).to_string()));
    words.push(format!("MTU {}", interface.mtu_bytes));
    words.extend(interface.driver.as_ref().map(|driver| {
        let version = interface.driver_version.as_ref().map_or_else(String::new, |version| format!(" {version}"));
        format!("driver {driver}{version}")
    }));
    words.extend(interface.firmware.as_ref().map(|firmware| format!("firmware {firmware}")));
    words.extend(interface.qdisc.as_ref().map(|qdisc| format!("qdisc {qdisc}")));
    words.extend(interface.transmit_queue_packets.map(|packets| format!("txqueuelen {packets}")));
    paragraph(text, &interface.name, &words);
    paragraph(text, "  bus", &bus(interface));
    paragraph(text, "  queues", &queues(interface));
    let polls = interface.napi_defer_hard_irqs.zip(interface.gro_flush_timeout_ns);
    let mut napi: Vec<String> = polls
        .map(|(polls, flush)| format!("defers interrupts for {polls} polls, GRO for {}", Nanos(flush)))
        .into_iter()
        .collect();
    napi.extend(interface.napi_threaded.filter(|threaded| *threaded).map(|_| "in threads of its own".to_owned()));
    paragraph(text, "  napi", &napi);
    paragraph(text, "  irqs", &interface.coalescing.iter().flat_map(coalescing).collect::<Vec<_>>());
    let named = |active: bool| {
        let of = |offload: &&longhaul_host::Offload| offload.changeable && offload.active == active;
        interface.offloads.iter().filter(of).map(|offload| offload.name.clone()).collect::<Vec<_>>()
    };
    paragraph(text, "  on", &named(true));
    paragraph(text, "  off", &named(false));
}

fn bus(interface: &Interface) -> Vec<String> {
    let mut words: Vec<String> = interface.pci_address.iter().map(|address| format!("PCI {address}")).collect();
    words.extend(interface.pcie.iter().flat_map(pcie));
    words.extend(interface.numa_node.map(|node| format!("NUMA node {node}")));
    if interface.stamps_in_hardware {
        words.push("stamps packets in hardware".into());
    }
    words
}

/// Speed and width of the NIC's own link, and the lowest ceiling between NIC and processor.
fn pcie(path: &PciePath) -> Vec<String> {
    let own = path.links.first().and_then(|link| {
        Some(format!("{:.1} GT/s x{}", link.current_transfers_per_s? as f64 / 1e9, link.current_lanes?))
    });
    let ceiling = path.ceiling_bps.map(|ceiling| {
        let at = path.limited_by.as_deref().unwrap_or("?");
        format!("at most {:.1} Gbit/s in one direction (at {at})", ceiling as f64 / 1e9)
    });
    own.into_iter().chain(ceiling).collect()
}

fn queues(interface: &Interface) -> Vec<String> {
    let count = |direction| interface.queues.iter().filter(|queue| queue.direction == direction).count();
    let (receive, transmit) = (count(QueueDirection::Receive), count(QueueDirection::Transmit));
    let mut words = vec![format!("{receive} receive"), format!("{transmit} transmit")];
    let channels = interface.channels.map(|c| {
        [
            ("receive", c.receive, c.receive_max),
            ("transmit", c.transmit, c.transmit_max),
            ("combined", c.combined, c.combined_max),
        ]
    });
    let there = channels.into_iter().flatten().filter(|(_, _, most)| *most > 0);
    words.extend(there.map(|(kind, now, most)| format!("{kind} channels {now} of {most}")));
    words.extend(
        interface
            .rings
            .map(|rings| format!("rings receive {} of {} packets", rings.receive_packets, rings.receive_max_packets)),
    );
    words.extend(
        interface.rings.map(|rings| format!("transmit {} of {}", rings.transmit_packets, rings.transmit_max_packets)),
    );
    for (name, direction) in [("RPS", QueueDirection::Receive), ("XPS", QueueDirection::Transmit)] {
        let of = interface.queues.iter().filter(|queue| queue.direction == direction);
        let mut cpus: Vec<u32> = of.flat_map(|queue| queue.cpus.iter().flatten().copied()).collect();
        cpus.sort_unstable();
        cpus.dedup();
        words.push(if cpus.is_empty() { format!("{name} off") } else { format!("{name} CPU {}", ranges(&cpus)) });
    }
    let flows: u64 = interface.queues.iter().filter_map(|queue| queue.rfs_flows).fold(0, u64::saturating_add);
    if flows > 0 {
        words.push(format!("RFS {flows} flows"));
    }
    let irqs: Vec<_> = interface.interrupts.iter().filter(|irq| irq.name.is_some()).collect();
    if !irqs.is_empty() {
        let mut cpus: Vec<u32> = irqs.iter().flat_map(|irq| irq.effective_cpus.iter().flatten().copied()).collect();
        cpus.sort_unstable();
        cpus.dedup();
        words.push(format!("{} interrupts at CPU {}", irqs.len(), ranges(&cpus)));
    }
    words.extend(interface.pause.map(|pause| {
        let on = |on: bool| if on { "on" } else { "off" };
        format!("pause frames receive {} transmit {}", on(pause.receive), on(pause.transmit))
    }));
    words
}

fn coalescing(c: &Coalescing) -> Vec<String> {
    let one = |direction: &str, us: u32, packets: u32, adaptive: bool| {
        format!("{direction} after {us}us or {packets} packets{}", if adaptive { ", adaptive" } else { "" })
    };
    vec![
        one("receive", c.receive_us, c.receive_max_packets, c.receive_adaptive),
        one("transmit", c.transmit_us, c.transmit_max_packets, c.transmit_adaptive),
    ]
}

/// `0-3,8`, of ascending numbers.
fn ranges(numbers: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let run = |&(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_short() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(ranges(&[]), "");
        assert_eq!(ranges(&[u32::MAX]), "4294967295");
    }

    #[test]
    fn paragraphs_break_between_words() {
        let mut text = String::new();
        paragraph(&mut text, "eth0", &["word".repeat(5), "x".repeat(60), "y".into()]);
        assert_eq!(
            text,
            format!("eth0      {},\n          {},\n          y\n", "word".repeat(5), "x".repeat(60))
                .replace(",\n          y", ", y")
        );
    }
}
