//! What of a host's set-up is likely to cost throughput, and what to do about it.
//!
//! A finding is advice, not a measurement: whether it matters here a test tells.

use serde::Serialize;

use longhaul_units::{BitRate, Bytes, Nanos};

use super::{HostSnapshot, Interface};

/// The round-trip time that buffers are judged by where none is known: half around the world in fibre.
pub const LONG_PATH_RTT: Nanos = Nanos::from_millis(100);

/// A UDP receiver that is kept from running this long must not lose packets: one scheduling tick at 100 Hz.
const RECEIVER_PAUSE: Nanos = Nanos::from_millis(10);

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind it is, for programs.
    pub code: &'static str,
    /// The interface or sysctl that it is about.
    pub subject: Option<String>,
    /// What was found.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

impl HostSnapshot {
    /// What to look at, for paths of `rtt` ([`LONG_PATH_RTT`] where it is not known).
    pub fn findings(&self, rtt: Nanos) -> Vec<Finding> {
        let mut findings = Vec::new();
        let nics = self.interfaces.iter().filter(|interface| interface.hardware && interface.up);
        for nic in nics.clone() {
            judge_nic(nic, self.cpu.numa_nodes.len(), &mut findings);
        }
        // What the fastest NIC could carry.
        if let Some(rate) = nics.filter_map(|nic| nic.link_speed_bps).max().map(BitRate) {
            self.judge_buffers(rate, rtt, &mut findings);
        }
        self.judge_machine(&mut findings);
        findings
    }

    fn judge_buffers(&self, rate: BitRate, rtt: Nanos, findings: &mut Vec<Finding>) {
        let in_flight = rate.bytes_in(rtt);
        let most = |key: &str| self.sysctls.get(key).and_then(super::SysctlValue::most);
        // A buffer of n bytes holds about n/2 of payload.
        for key in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            let needed = in_flight.saturating_mul(2);
            if let Some(bytes) = most(key).and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes < needed) {
                findings.push(Finding {
                    code: "tcp_buffer_small",
                    subject: Some(key.into()),
                    message: format!(
                        "{key} allows {}, but at {rate} and {rtt} round trip {} are in flight",
                        Bytes(bytes),
                        Bytes(in_flight)
                    ),
                    remedy: format!("sysctl -w {key}=\"4096 131072 {needed}\", and the path's own rate if it is lower"),
                });
            }
        }
        let needed = rate.bytes_in(RECEIVER_PAUSE).saturating_mul(2);
        if let Some(bytes) =
            most("net.core.rmem_max").and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes < needed)
        {
            findings.push(Finding {
                code: "udp_buffer_small",
                subject: Some("net.core.rmem_max".into()),
                message: format!(
                    "net.core.rmem_max allows a program without root {}: at {rate} a receiver that waits {RECEIVER_PAUSE} \
                     for its CPU loses packets",
                    Bytes(bytes)
                ),
                remedy: format!("sysctl -w net.core.rmem_max={needed}, or run as root"),
            });
        }
    }

    fn judge_machine(&self, findings: &mut Vec<Finding>) {
        if let Some(slow) = self.cpu.governors.iter().find(|governor| *governor != "performance") {
            findings.push(Finding {
                code: "cpu_governor",
                subject: None,
                message: format!(
                    "the CPU governor is {slow}: cores may run below their speed when packets come in bursts"
                ),
                remedy: "cpupower frequency-set -g performance".into(),
            });
        }
        const FAST: [&str; 6] =
            ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase", "tod"];
        if let Some(slow) = self.kernel.clocksource.as_deref().filter(|clock| !FAST.contains(clock)) {
            findings.push(Finding {
                code: "clocksource_slow",
                subject: None,
                message: format!("the clock source is {slow}: reading the time costs a microsecond or more"),
                remedy: "boot with tsc=reliable if the machine's TSC is sound, or see dmesg for why it was given up"
                    .into(),
            });
        }
        if let Some(0) = self.sysctls.get("net.ipv4.tcp_window_scaling").and_then(super::SysctlValue::most) {
            findings.push(Finding {
                code: "window_scaling_off",
                subject: Some("net.ipv4.tcp_window_scaling".into()),
                message: "TCP window scaling is off: no more than 64 KiB are in flight".into(),
                remedy: "sysctl -w net.ipv4.tcp_window_scaling=1".into(),
            });
        }
    }
}

fn judge_nic(nic: &Interface, numa_nodes: usize, findings: &mut Vec<Finding>) {
    let name = &nic.name;
    let mut found = |code, message: String, remedy: String| {
        findings.push(Finding { code, subject: Some(name.clone()), message, remedy });
    };
    if let Some(rings) = nic.rings {
        let small = rings.receive_packets < rings.receive_max_packets;
        if small {
            found(
                "ring_small",
                format!(
                    "{name}'s receive ring holds {} packets of {}",
                    rings.receive_packets, rings.receive_max_packets
                ),
                format!("ethtool -G {name} rx {}", rings.receive_max_packets),
            );
        }
    }
    if let (Some(speed), Some(pcie)) = (nic.link_speed_bps, &nic.pcie) {
        if let Some(ceiling) = pcie.ceiling_bps.filter(|ceiling| *ceiling < speed) {
            let place = pcie.limited_by.as_deref().unwrap_or("its slot");
            found(
                "pcie_below_link",
                format!("{name}'s link has {}, the PCIe link at {place} carries {}", BitRate(speed), BitRate(ceiling)),
                format!("move the NIC to a slot with more lanes; lspci -vvs {place} shows what both ends can do"),
            );
        }
        let narrowed =
            pcie.links.iter().find(|link| link.ceiling_bps < link.max_ceiling_bps && link.ceiling_bps.is_some());
        if let Some(link) = narrowed.filter(|link| link.pci_address == *nic.pci_address.as_deref().unwrap_or_default())
        {
            found(
                "pcie_narrowed",
                format!("{name}'s PCIe link runs below what the NIC can do ({})", link.pci_address),
                "look for a slot with as many lanes as the NIC, and whether it is seated well".into(),
            );
        }
    }
    for (feature, code, loss) in [
        ("rx-gro", "gro_off", "each received packet goes up the stack by itself"),
        ("tx-generic-segmentation", "gso_off", "each sent packet goes down the stack by itself"),
    ] {
        if nic.offloads.iter().any(|offload| offload.name == feature && !offload.active) {
            found(code, format!("{feature} is off at {name}: {loss}"), format!("ethtool -K {name} {feature} on"));
        }
    }
    let receiving = nic.interrupts.iter().filter(|irq| irq.name.is_some());
    let cpus: std::collections::BTreeSet<u32> =
        receiving.clone().flat_map(|irq| irq.effective_cpus.iter().flatten().copied()).collect();
    let queues = nic.queues.iter().filter(|queue| queue.direction == super::QueueDirection::Receive).count();
    if let (Some(cpu), true) = (cpus.first().filter(|_| cpus.len() == 1), queues > 1) {
        found(
            "interrupts_on_one_cpu",
            format!("all interrupts of {name}'s {queues} receive queues go to CPU {cpu}"),
            "start irqbalance, or write each queue's CPU to /proc/irq/N/smp_affinity_list".into(),
        );
    }
    if let (Some(node), true) = (nic.numa_node, numa_nodes > 1) {
        found(
            "numa_node",
            format!("{name} is next to memory node {node} of {numa_nodes}: from the others each packet crosses over"),
            format!("run sender and receiver on CPUs of node {node} (-A)"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Interrupt, Offload, PcieLink, PciePath, Queue, QueueDirection, Rings, SysctlValue};
    use super::*;

    fn codes(host: &HostSnapshot, rtt: Nanos) -> Vec<&'static str> {
        host.findings(rtt).iter().map(|finding| finding.code).collect()
    }

    /// This machine, but for what is judged.
    fn good_host() -> HostSnapshot {
        let mut host = HostSnapshot::take();
        host.cpu.governors = vec!["performance".into()];
        host.kernel.clocksource = Some("tsc".into());
        let most = SysctlValue::Number(i64::from(i32::MAX));
        for key in ["net.core.rmem_max", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_window_scaling"] {
            host.sysctls.insert(key.into(), most.clone());
        }
        let nic = Interface {
            name: "eth9".into(),
            hardware: true,
            up: true,
            link_speed_bps: Some(40_000_000_000),
            ..Interface::default()
        };
        host.interfaces = vec![nic];
        host
    }

    #[test]
    fn a_good_host_has_no_findings() {
        assert_eq!(codes(&good_host(), LONG_PATH_RTT), [""; 0]);
    }

    #[test]
    fn small_buffers_are_judged_by_rate_and_round_trip() {
        let mut host = good_host();
        host.sysctls.insert("net.core.rmem_max".into(), SysctlValue::Number(212_992));
        host.sysctls.insert("net.ipv4.tcp_rmem".into(), SysctlValue::Numbers(vec![4096, 131_072, 6_291_456]));
        assert_eq!(codes(&host, LONG_PATH_RTT), ["tcp_buffer_small", "udp_buffer_small"]);
        // 40 Gb/s × 0.1 ms = 500 kB.
        assert_eq!(codes(&host, Nanos::from_micros(100)), ["udp_buffer_small"]);
        host.interfaces[0].link_speed_bps = None;
        assert_eq!(codes(&host, LONG_PATH_RTT), [""; 0]);
    }

    #[test]
    fn a_nic_in_a_narrow_slot_with_a_small_ring() {
        let mut host = good_host();
        let link = PcieLink {
            pci_address: "0000:3b:00.0".into(),
            current_transfers_per_s: Some(8_000_000_000),
            current_lanes: Some(4),
            max_transfers_per_s: Some(8_000_000_000),
            max_lanes: Some(8),
            ceiling_bps: Some(31_507_692_307),
            max_ceiling_bps: Some(63_015_384_615),
        };
        let nic = &mut host.interfaces[0];
        nic.pci_address = Some(link.pci_address.clone());
        nic.pcie = Some(PciePath {
            ceiling_bps: link.ceiling_bps,
            limited_by: Some(link.pci_address.clone()),
            links: vec![link],
            formula: "",
        });
        nic.rings = Some(Rings {
            receive_packets: 512,
            receive_max_packets: 4096,
            transmit_packets: 512,
            transmit_max_packets: 512,
        });
        nic.offloads = vec![Offload { name: "rx-gro".into(), active: false, changeable: true }];
        let queue = |index| Queue { direction: QueueDirection::Receive, index, cpus: None, rfs_flows: None };
        nic.queues = vec![queue(0), queue(1)];
        let irq = |irq| Interrupt { irq, name: Some("q".into()), allowed_cpus: None, effective_cpus: Some(vec![3]) };
        nic.interrupts = vec![irq(40), irq(41)];
        let expected = ["ring_small", "pcie_below_link", "pcie_narrowed", "gro_off", "interrupts_on_one_cpu"];
        assert_eq!(codes(&host, LONG_PATH_RTT), expected);
        host.interfaces[0].up = false;
        assert_eq!(codes(&host, LONG_PATH_RTT), [""; 0]);
    }

    #[test]
    fn a_slow_clock_and_a_saving_governor() {
        let mut host = good_host();
        host.cpu.governors = vec!["performance".into(), "powersave".into()];
        host.kernel.clocksource = Some("hpet".into());
        assert_eq!(codes(&host, LONG_PATH_RTT), ["cpu_governor", "clocksource_slow"]);
    }
}
