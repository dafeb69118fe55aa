//! Packets for which a neighbour's queue was full (`unresolved_discards`), and neighbours that did not answer (`res_failed`), whose queue the kernel
//! then drops without a count: `/proc/net/stat/arp_cache` and `ndisc_cache`.
//!
//! ```text
//! entries  allocs   … res_failed … unresolved_discards table_fulls
//! 00000002 0000276a … 00000003   … 00001988            00000000        one line a CPU, hexadecimal
//! ```
//!
//! The kernel has one table a protocol for all network namespaces, and shows it in the first one only; a host of a lab reads it
//! there. Source: `neigh_stat_seq_show` and `neigh_invalidate` in `net/core/neighbour.c`.

use std::fs;
use std::io;

const FILES: [&str; 2] = ["arp_cache", "ndisc_cache"];
/// As in the first line of the files.
const COLUMNS: [&str; 2] = ["unresolved_discards", "res_failed"];

/// CPU, name and value of each counter.
///
/// # Errors
/// Where the files are in reach neither of this thread nor of process 1.
pub(super) fn read() -> io::Result<Vec<(u32, String, u64)>> {
    let mut values = Vec::new();
    for file in FILES {
        let own = fs::read_to_string(format!("/proc/thread-self/net/stat/{file}"));
        let text = own.or_else(|_| fs::read_to_string(format!("/proc/1/net/stat/{file}")));
        let text = match text {
            Ok(text) => text,
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !values.is_empty() => continue,
            Err(error) => return Err(error),
        };
        for column in COLUMNS {
            values.extend(parse(&text, column).into_iter().map(|(cpu, bits)| (cpu, format!("{file}.{column}"), bits)));
        }
    }
    Ok(values)
}

/// The place of a line among them, which is its CPU where none is missing, and its value in the column of that name.
fn parse(text: &str, column: &str) -> Vec<(u32, u64)> {
    let mut lines = text.lines();
    let column = lines.next().and_then(|names| names.split_ascii_whitespace().position(|name| name == column));
    let Some(column) = column else { return Vec::new() };
    let value = |line: &str| u64::from_str_radix(line.split_ascii_whitespace().nth(column)?, 16).ok();
    (0..).zip(lines).filter_map(|(cpu, line)| Some((cpu, value(line)?))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_column_is_found_by_its_name() {
        let text =
            "entries allocs unresolved_discards table_fulls\n00000002 0000276a 00001988 00000000\n2 257d 1d72 0\nx\n";
        assert_eq!(parse(text, COLUMNS[0]), [(0, 0x1988), (1, 0x1d72)]);
        assert_eq!(parse(text, "allocs"), [(0, 0x276a), (1, 0x257d)]);
        assert_eq!(parse("entries allocs\n1 2\n", COLUMNS[0]), []);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[ -~\\n\\t]{0,200}") {
            let _ = parse(&text, COLUMNS[0]);
        }
    }
}
