//! Whether a host would lose its network with a link.

use std::collections::BTreeSet;
use std::fs;
use std::io;

/// <linux/route.h>: the route is one, and does not refuse.
const RTF_UP: u32 = 0x1;
const RTF_REJECT: u32 = 0x200;

/// Whether a default route of the calling thread's network namespace, IPv4 or IPv6, leaves by the link `name`, or by one above it
/// (a bridge, bond or VLAN that it is part of, as far as `/sys` is that of the namespace).
///
/// Source: `/proc/net/route` and `/proc/net/ipv6_route`, proc(5).
///
/// # Errors
/// Where `/proc` is not mounted. A kernel without IPv6 has no second list, which is none.
pub fn holds_default_route(name: &str) -> io::Result<bool> {
    let mut by = default_links_v4(&fs::read_to_string("/proc/thread-self/net/route")?);
    by.extend(default_links_v6(&fs::read_to_string("/proc/thread-self/net/ipv6_route").unwrap_or_default()));
    let mut open = vec![name.to_owned()];
    let mut seen = BTreeSet::new();
    while let Some(link) = open.pop() {
        if by.contains(&link) {
            return Ok(true);
        }
        if seen.insert(link.clone()) {
            let entries = fs::read_dir(format!("/sys/class/net/{link}")).into_iter().flatten().flatten();
            open.extend(
                entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("upper_")?.to_owned())),
            );
        }
    }
    Ok(false)
}

/// Iface Destination Gateway Flags RefCnt Use Metric Mask …
fn default_links_v4(text: &str) -> BTreeSet<String> {
    let link = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[link, destination, _, flags, _, _, _, mask, ..] = &words[..] else { return None };
        (destination == "00000000" && mask == "00000000" && is_used(flags)).then(|| link.to_owned())
    };
    text.lines().filter_map(link).collect()
}

/// Destination, its prefix, source, its prefix, next hop, metric, references, use, flags, link.
fn default_links_v6(text: &str) -> BTreeSet<String> {
    let link = |line: &str| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[destination, prefix, _, _, _, _, _, _, flags, link] = &words[..] else { return None };
        let is_default = prefix == "00" && destination.bytes().all(|digit| digit == b'0');
        // What nobody can reach goes to lo.
        (is_default && link != "lo" && is_used(flags)).then(|| link.to_owned())
    };
    text.lines().filter_map(link).collect()
}

fn is_used(flags: &str) -> bool {
    u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & RTF_UP != 0 && flags & RTF_REJECT == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_route_is_one_to_everywhere() {
        let text = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
                    eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                    eth1\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
                    eth2\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n";
        assert_eq!(default_links_v4(text), BTreeSet::from(["eth0".to_owned()]));
        let zero = "0".repeat(32);
        let text = format!(
            "{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200 lo\n\
             {zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth3\n\
             fe80{} 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001 eth4\n",
            "0".repeat(28)
        );
        assert_eq!(default_links_v6(&text), BTreeSet::from(["eth3".to_owned()]));
    }
}
