//! What connection tracking dropped in this network namespace: `/proc/net/stat/nf_conntrack`.
//!
//! ```text
//! entries  clashres found … insert insert_failed drop early_drop …
//! 00000012 00000000 00000000 …                                       one line a CPU, hexadecimal
//! ```
//!
//! `drop`: no room for a new connection, or no memory. `early_drop`: another connection lost its entry for it. `insert_failed`: another
//! packet of the connection was faster.
//!
//! Source: `ct_cpu_seq_show` in `net/netfilter/nf_conntrack_standalone.c`.

/// Columns that count packets, or connections, that were dropped.
const COLUMNS: [&str; 3] = ["drop", "early_drop", "insert_failed"];

/// Name and value of each counter; nothing in a kernel without connection tracking.
pub(super) fn read() -> Vec<(String, u64)> {
    parse(&std::fs::read_to_string("/proc/thread-self/net/stat/nf_conntrack").unwrap_or_default())
}

/// The columns by their names, each summed over all CPUs.
fn parse(text: &str) -> Vec<(String, u64)> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap_or_default().split_ascii_whitespace().collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split_ascii_whitespace().collect()).collect();
    let sum = |column: usize| {
        let values = rows.iter().filter_map(|row| u64::from_str_radix(row.get(column)?, 16).ok());
        values.fold(0, u64::saturating_add)
    };
    let place = |wanted: &str| names.iter().position(|name| *name == wanted);
    COLUMNS.iter().filter_map(|name| Some((format!("Conntrack.{name}"), sum(place(name)?)))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_are_summed_over_all_cpus() {
        let text = "entries  clashres insert insert_failed drop early_drop icmp_error\n\
                    00000012 00000000 00000000 00000001 0000000a 00000002 00000000\n\
                    00000012 00000000 00000000 00000000 00000006 00000000 00000000\n";
        let expected = [("Conntrack.drop", 16), ("Conntrack.early_drop", 2), ("Conntrack.insert_failed", 1)];
        assert_eq!(parse(text), expected.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!(parse(""), []);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ -~\\n\\t]{0,200}") {
            let _ = parse(&text);
        }
    }
}
