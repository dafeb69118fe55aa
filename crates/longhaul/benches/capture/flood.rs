//! The flood, the cable that it comes over, and what CPUs did meanwhile.

use std::fs::{self, File};
use std::path::Path;
use std::thread::{self, sleep};
use std::time::Duration;

use longhaul_captures::CaptureReader;
use longhaul_kernel::ethtool;
use longhaul_kernel::link::{Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::schedule::pin_to;
use longhaul_mix::{EngineKind, MixAmount, Mixer};
use longhaul_mix::{MixSpec, Plan};
use longhaul_units::Nanos;
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{SysconfVar, sysconf};

/// Frames a little longer than `--snap`, of some flows in both versions of IP.
const FLOOD_OF: &str = r#"
name = "flood"
size = 128
class = [{ kind = "tcp", weight = 60 }, { kind = "udp", weight = 30 }, { kind = "ipv6", weight = 10 }]
"#;

/// Two hosts and a cable that takes frames as a driver does.
pub(crate) struct Cable {
    pub(crate) sender: NetNamespace,
    pub(crate) receiver: NetNamespace,
}

impl Cable {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
        let end = |name, namespace, mac| VethEnd {
            name,
            namespace: Some(namespace),
            mtu_bytes: None,
            mac: Some([2, 0, 0, 0, 0, mac]),
        };
        let mut near = sender.enter(|| Netlink::open().unwrap()).unwrap();
        let mut far = receiver.enter(|| Netlink::open().unwrap()).unwrap();
        near.create_veth(&end("out", &sender, 1), &end("in", &receiver, 2)).unwrap();
        for (netlink, name) in [(&mut near, "out"), (&mut far, "in")] {
            let ifindex = netlink.index_of(name).unwrap();
            netlink.set_up(ifindex, true).unwrap();
        }
        // NAPI, which takes frames that are no skbs.
        receiver.enter(|| ethtool::set_features("in", &[("rx-gro", true)]).unwrap()).unwrap();
        sleep(Duration::from_millis(200));
        Self { sender, receiver }
    }

    /// Floods for `time`, at a rate or as fast as it can; how many packets arrived at the far interface.
    pub(crate) fn flood(&self, time: Nanos, packets_per_second: Option<f64>) -> u64 {
        let before = self.received();
        thread::scope(|scope| {
            scope.spawn(|| {
                pin_to(&[0]).unwrap();
                let plan = Plan::new(MixSpec::parse(FLOOD_OF).unwrap(), 1, None).unwrap();
                let run = || {
                    let ifindex = Netlink::open().unwrap().index_of("out").unwrap();
                    let mixer = Mixer::open(ifindex, plan, Some(EngineKind::LiveFrames), &[]).unwrap();
                    let amount = MixAmount { packets_per_second, time: Some(time), packets: None };
                    mixer.run(&amount, None, None, |_| ()).unwrap();
                };
                self.sender.enter(run).unwrap();
            });
        });
        sleep(Duration::from_millis(300));
        self.received() - before
    }

    fn received(&self) -> u64 {
        let link = self.receiver.enter(|| Netlink::open().unwrap().link_by_name("in").unwrap()).unwrap();
        link.stats.unwrap().rx_packets
    }
}

/// CPU time of children that have ended.
pub(crate) fn children_cpu_s() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// How long all CPUs together worked since the machine began (proc(5), `/proc/stat`).
pub(crate) fn machine_cpu_s() -> f64 {
    let text = fs::read_to_string("/proc/stat").unwrap();
    let ticks: Vec<f64> = text.lines().next().unwrap().split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
    // user, nice, system, idle, iowait, irq, softirq, …
    let busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6];
    busy / sysconf(SysconfVar::CLK_TCK).unwrap().unwrap() as f64
}

/// Packets of a pcap file.
pub(crate) fn packets_of_pcap(path: &Path) -> u64 {
    let mut reader = CaptureReader::new(File::open(path).unwrap()).unwrap();
    let mut packets = 0;
    while reader.next().unwrap().is_some() {
        packets += 1;
    }
    packets
}
