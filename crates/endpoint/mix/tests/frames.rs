//! Wireshark is the judge: it names each kind of frame as what it is, and finds nothing wrong with it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul_mix::{Kind, MixSpec, Numbering, Plan, Target, Template};
use longhaul_wire::probe::{Cookie, Probe};

const TARGET: Target = Target {
    mac: [2, 0, 0, 0, 0, 2],
    address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
    port: 5210,
    source: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    source_port: 40_000,
    cookie: Cookie(0x1234_5600),
};

/// What `frame.protocols` of a kind's frames is, one of these, without `data` at the end: the shortest have none.
fn expected(kind: &str) -> &'static [&'static str] {
    match kind {
        "stream" => &["eth:ethertype:ip:udp", "eth:ethertype:ipv6:udp"],
        "udp" | "broadcast" | "multicast" => &["eth:ethertype:ip:udp"],
        "tcp" => &["eth:ethertype:ip:tcp"],
        "icmp" => &["eth:ethertype:ip:icmp"],
        "arp" | "arp-for-target" => &["eth:ethertype:arp"],
        "igmp" => &["eth:ethertype:ip:igmp:igmp"],
        "ipx" => &["eth:ethertype:ipx", "eth:ipx", "eth:llc:ipx"],
        "ipx-ethernet-ii" => &["eth:ethertype:ipx"],
        "ipx-raw" => &["eth:ipx"],
        "ipx-llc" | "ipx-snap" => &["eth:llc:ipx"],
        "netbeui" => &["eth:llc:netbios"],
        "stp" => &["eth:llc:stp"],
        "cdp" => &["eth:llc:cdp"],
        "vtp" => &["eth:llc:vtp"],
        "disl" => &["eth:llc:dtp"],
        "edp" => &["eth:llc:edp"],
        "lldp" => &["eth:ethertype:lldp"],
        "appletalk" => &["eth:llc:ddp:nbp"],
        "ipv6" => &["eth:ethertype:ipv6:udp", "eth:ethertype:ipv6:tcp", "eth:ethertype:ipv6:icmpv6"],
        "neighbour-solicitation" | "solicitation-for-target" => &["eth:ethertype:ipv6:icmpv6"],
        "vlan" => &["eth:ethertype:vlan:ethertype:ip:udp"],
        "qinq" => &["eth:ethertype:ieee8021ad:ethertype:vlan:ethertype:ip:udp"],
        other => panic!("{other} is not judged"),
    }
}

/// A capture file of `frames` (pcap, link type Ethernet).
fn pcap(frames: &[Vec<u8>]) -> PathBuf {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend(word.to_ne_bytes());
    }
    for frame in frames {
        for word in [0, 0, frame.len() as u32, frame.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(frame);
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("frames-{}.pcap", std::process::id()));
    fs::write(&file, bytes).unwrap();
    file
}

/// For each frame: its protocols, what is malformed, what an expert says, the states of its checksums. `None` without tshark.
fn judge(frames: &[Vec<u8>]) -> Option<Vec<Vec<String>>> {
    let file = pcap(frames);
    let mut command = Command::new("tshark");
    command.arg("-r").arg(&file).args(["-T", "fields", "-E", "separator=|", "-n"]);
    // Streams of one segment each: nothing to put together, and no port that names a protocol.
    for option in ["ip.check_checksum:TRUE", "udp.check_checksum:TRUE", "tcp.check_checksum:TRUE", "eth.fcs:Never"] {
        command.args(["-o", option]);
    }
    for field in [
        "frame.protocols",
        "_ws.malformed",
        "_ws.expert.message",
        "ip.checksum.status",
        "udp.checksum.status",
        "tcp.checksum.status",
        "icmp.checksum.status",
        "icmpv6.checksum.status",
        "igmp.checksum.status",
        "cdp.checksum.status",
        "edp.checksum.status",
    ] {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            longhaul_testing::no_judge!("tshark: {error}");
            return None;
        }
    };
    fs::remove_file(&file).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
}

#[test]
fn every_kind_is_what_its_name_says_and_well_formed() {
    let mut wrong = Vec::new();
    let by_ipv6 = Target {
        address: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2)),
        source: IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
        ..TARGET
    };
    let sizes = ["size = 64", "size = 300", "size = 1518", "sizes = [{ from = 64, to = 1518, weight = 1 }]"];
    for (target, size) in [TARGET, by_ipv6].iter().flat_map(|target| sizes.map(|size| (target, size))) {
        let mut text = format!("name = \"all\"\n{size}\n");
        let other = if target.address.is_ipv4() { Kind::SolicitationForTarget } else { Kind::ArpForTarget };
        for (_, kind) in Kind::ALL.iter().filter(|(kind, _)| *kind != other) {
            text += &format!("[[class]]\nkind = \"{kind}\"\nweight = 1\n");
        }
        let plan = Plan::new(MixSpec::parse(&text).unwrap(), 4711, Some(*target)).unwrap();
        let number = |(sequence, template): (u64, &Template)| {
            let mut frame = template.bytes.clone();
            if template.numbered {
                Numbering::write(&mut frame, &Probe { cookie: TARGET.cookie, sequence, sent_ns: 99 });
            }
            frame
        };
        let frames: Vec<Vec<u8>> = (0..).zip(&plan.templates).map(number).collect();
        assert_eq!(frames.len(), 8 * (Kind::ALL.len() - 1));
        let Some(verdicts) = judge(&frames) else { return };
        assert_eq!(verdicts.len(), frames.len());
        for ((verdict, frame), template) in verdicts.iter().zip(&frames).zip(&plan.templates) {
            let kind = plan.spec.classes[template.class].kind.name();
            let [protocols, malformed, expert, checksums @ ..] = &verdict[..] else { panic!("{verdict:?}") };
            let protocols = protocols.trim_end_matches(":data").trim_end_matches(":discard");
            // That nobody answers a ping is no fault of it, nor that a short frame is padded, which tshark is not sure of.
            let said = (expert.replace("No response seen to ICMP request", ""))
                .replace(
                    "Didn't find padding of zeros, and an undecoded trailer exists. There may be padding of non-zeros.",
                    "",
                )
                .replace(',', "");
            // 1 is good, none where there is no such header.
            let good = checksums.iter().all(|state| state.is_empty() || state == "1");
            if !expected(kind).contains(&protocols) || !malformed.is_empty() || !said.is_empty() || !good {
                wrong.push(format!("{kind}, {size}: {verdict:?} {:02x?}", &frame[..frame.len().min(80)]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
