//! `/proc/net/snmp`, `/proc/net/netstat` and `/proc/net/snmp6`.
//!
//! ```text
//! snmp, netstat: pairs of lines       snmp6: one a line
//!   Udp: InDatagrams NoPorts …          Udp6InDatagrams     17
//!   Udp: 4242 17 …
//! ```
//!
//! Source: `net/ipv4/proc.c`, `net/ipv6/proc.c`; RFC 1213, RFC 4113, RFC 4293.

/// Names and values out of a file's text.
type Parse = fn(&str) -> Vec<(String, u64)>;

/// The files and how each is read.
pub(super) const FILES: [(&str, Parse); 3] = [("snmp", parse_pairs), ("netstat", parse_pairs), ("snmp6", parse_lines)];

/// Whether it is a setting or a number of things that exist now, rather than a counter.
pub(super) fn is_level(name: &str) -> bool {
    matches!(
        name,
        "Ip.Forwarding"
            | "Ip.DefaultTTL"
            | "Tcp.RtoAlgorithm"
            | "Tcp.RtoMin"
            | "Tcp.RtoMax"
            | "Tcp.MaxConn"
            | "Tcp.CurrEstab"
            | "MPTcpExt.MPCurrEstab"
    )
}

/// `Udp.NoPorts` and its value for each name in the pairs of lines. Lines that are no pair are passed over.
fn parse_pairs(text: &str) -> Vec<(String, u64)> {
    let mut values = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((group, names)) = line.split_once(':') else { continue };
        let Some((other, numbers)) = lines.peek().and_then(|next| next.split_once(':')) else { continue };
        if group != other {
            continue;
        }
        for (name, number) in names.split_ascii_whitespace().zip(numbers.split_ascii_whitespace()) {
            if let Some(bits) = number_bits(number) {
                values.push((format!("{group}.{name}"), bits));
            }
        }
        lines.next();
    }
    values
}

fn parse_lines(text: &str) -> Vec<(String, u64)> {
    let parse = |line: &str| {
        let (name, number) = line.split_once(|c: char| c.is_ascii_whitespace())?;
        Some((name.to_owned(), number_bits(number.trim())?))
    };
    text.lines().filter_map(parse).collect()
}

/// Some levels are negative.
fn number_bits(number: &str) -> Option<u64> {
    number.parse().ok().or_else(|| number.parse::<i64>().ok().map(|negative| negative as u64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pairs_of_lines_are_zipped() {
        let text = "Tcp: RtoMin MaxConn\nTcp: 200 -1\nUdp: InDatagrams NoPorts InErrors\nUdp: 4242 17 0\n";
        let expected = [
            ("Tcp.RtoMin", 200),
            ("Tcp.MaxConn", u64::MAX),
            ("Udp.InDatagrams", 4242),
            ("Udp.NoPorts", 17),
            ("Udp.InErrors", 0),
        ];
        assert_eq!(parse_pairs(text), expected.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn a_broken_pair_hides_no_other() {
        let text = "Ip: A B\nUdp: InDatagrams\nUdp: 3\nalone\nTcp: X Y\nTcp: 1\n";
        assert_eq!(parse_pairs(text), [("Udp.InDatagrams".to_owned(), 3), ("Tcp.X".to_owned(), 1)]);
    }

    #[test]
    fn lines_have_a_name_and_a_number() {
        let text = "Ip6InReceives                   \t12\nUdp6InErrors\t0\nnonsense\n";
        assert_eq!(parse_lines(text), [("Ip6InReceives".to_owned(), 12), ("Udp6InErrors".to_owned(), 0)]);
    }

    #[test]
    fn this_kernels_own_files_are_understood() {
        let read = |file| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
        let snmp = parse_pairs(&read("snmp"));
        for name in ["Udp.RcvbufErrors", "Udp.SndbufErrors", "Udp.InCsumErrors", "Ip.InDiscards", "Tcp.CurrEstab"] {
            assert!(snmp.iter().any(|(known, _)| known == name), "{name}");
        }
        assert!(parse_pairs(&read("netstat")).iter().any(|(name, _)| name == "TcpExt.TCPRcvCollapsed"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ -~:\\n\\t]{0,200}") {
            let _ = (parse_pairs(&text), parse_lines(&text));
        }
    }
}
