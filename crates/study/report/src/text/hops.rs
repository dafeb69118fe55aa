//! Round trips to each hop as text.

use longhaul_rtt::{HopAddress, HopAnswerer, HopsResult, OfHop, RouteChange};

use super::short;

/// Route changes that are shown.
const CHANGES_SHOWN: usize = 5;

/// The result for a terminal.
pub fn report(result: &HopsResult) -> String {
    let mut text = format!("{} rounds in {}\n\n", result.rounds, short(result.duration_ns));
    text +=
        &format!("{:>3}  {:<39}{:>8}{:>9}{:>9}{:>9}{:>9}\n", "hop", "address", "answers", "min", "p50", "p99", "max");
    for OfHop { hop, sent, addresses, .. } in &result.hops {
        if addresses.is_empty() {
            text += &format!("{hop:>3}  {:<39}{:>8}\n", "no answer", format!("0/{sent}"));
        }
        for (at, HopAddress { address, place, answered, rtt, .. }) in addresses.iter().enumerate() {
            let number = if at == 0 { hop.to_string() } else { String::new() };
            let all = [rtt.min_ns, rtt.p50_ns, rtt.p99_ns, rtt.max_ns];
            let times = all.map(|ns| format!("{:>9}", short(ns.unsigned_abs()))).concat();
            let barrier = if *place == HopAnswerer::Barrier { "  lets nothing through" } else { "" };
            text += &format!(
                "{number:>3}  {:<39}{:>8}{times}{barrier}\n",
                address.to_string(),
                format!("{answered}/{sent}")
            );
        }
    }
    if result.hops.is_empty() {
        text += "no hop answered\n";
    }
    text += match result.destination_hop {
        Some(_) => "\nthe last is the destination\n",
        None => "\nthe destination did not answer\n",
    };
    if result.route_changes > 0 {
        text += &format!("the route changed {} times:\n", result.route_changes);
        for RouteChange { hop, from, to, .. } in result.changes.iter().take(CHANGES_SHOWN) {
            text += &format!("  hop {hop}: {from}, then {to}\n");
        }
    }
    if result.unattributed > 0 {
        text += &format!("{} answers quote too little to identify their probe: try --icmp\n", result.unattributed);
    }
    text + "routers limit their answers, so a missing answer is not a loss; the time of an answer is part\nof its round trip, so a router that answers slowly does not delay traffic through it\n"
}

#[cfg(test)]
mod tests {
    use longhaul_rtt::HopRtt;
    use longhaul_rtt::probe_log::{EndStamps, ProbeKind};

    use super::*;

    #[test]
    fn hops_are_lines_and_a_second_address_is_another() {
        let at = |last: u8, place, answered| HopAddress {
            address: [10, 0, 0, last].into(),
            place,
            answered,
            rtt: HopRtt { min_ns: 1_000_000, p50_ns: 1_500_000, p99_ns: 2_000_000, max_ns: 2_500_000 },
            first_ns: 0,
            last_ns: 0,
        };
        let hop = |hop, addresses: Vec<HopAddress>| {
            let answered = addresses.iter().map(|at| at.answered).sum();
            OfHop { hop, sent: 10, answered, addresses }
        };
        let result = HopsResult {
            kind: ProbeKind::Icmp,
            rounds: 10,
            duration_ns: 9_100_000_000,
            destination_hop: Some(3),
            hops: vec![
                hop(1, vec![at(1, HopAnswerer::Router, 6), at(9, HopAnswerer::Router, 4)]),
                hop(2, Vec::new()),
                hop(3, vec![at(3, HopAnswerer::Destination, 10)]),
            ],
            route_changes: 1,
            changes: vec![RouteChange { at_ns: 0, hop: 1, from: [10, 0, 0, 1].into(), to: [10, 0, 0, 9].into() }],
            unattributed: 0,
            timestamps: EndStamps::default(),
        };
        let text = report(&result);
        let lines: Vec<&str> = text.lines().skip(3).take(6).collect();
        let times = "   1.00ms   1.50ms   2.00ms   2.50ms";
        let address = |address: &str, answers: &str| format!("{address:<39}{answers:>8}");
        let wanted = [
            format!("  1  {}{times}", address("10.0.0.1", "6/10")),
            format!("     {}{times}", address("10.0.0.9", "4/10")),
            format!("  2  {}", address("no answer", "0/10")),
            format!("  3  {}{times}", address("10.0.0.3", "10/10")),
            String::new(),
            "the last is the destination".into(),
        ];
        assert_eq!(lines, wanted);
        assert!(text.contains("hop 1: 10.0.0.1, then 10.0.0.9"), "{text}");
    }
}
