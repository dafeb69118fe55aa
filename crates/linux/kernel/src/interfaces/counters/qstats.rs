//! The netdev family's queue statistics, in words that mean the same for every driver.
//!
//! Source: `Documentation/netlink/specs/netdev.yaml` (`qstats-get`), `<linux/netdev.h>`, Linux 6.10.

use std::io;

use netlink_sys::protocols::NETLINK_GENERIC;

use super::attributes::{attribute, attributes, push, u32_at, uint};
use super::netlink::{NLM_F_DUMP, ask};

/// `GENL_ID_CTRL`, the family that knows the others.
const CONTROLLER: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// `struct genlmsghdr`: command, version, 16 spare bits.
const GENL_HEADER_BYTES: usize = 4;
const NETDEV_CMD_QSTATS_GET: u8 = 12;
const NETDEV_A_QSTATS_IFINDEX: u16 = 1;
/// The first statistic, `NETDEV_A_QSTATS_RX_PACKETS`; the others follow.
const NETDEV_A_QSTATS_RX_PACKETS: u16 = 8;

/// Names of the statistics in the order of their attributes.
const NAMES: [&str; 27] = [
    "rx-packets",
    "rx-bytes",
    "tx-packets",
    "tx-bytes",
    "rx-alloc-fail",
    "rx-hw-drops",
    "rx-hw-drop-overruns",
    "rx-csum-complete",
    "rx-csum-unnecessary",
    "rx-csum-none",
    "rx-csum-bad",
    "rx-hw-gro-packets",
    "rx-hw-gro-bytes",
    "rx-hw-gro-wire-packets",
    "rx-hw-gro-wire-bytes",
    "rx-hw-drop-ratelimits",
    "tx-hw-drops",
    "tx-hw-drop-errors",
    "tx-csum-none",
    "tx-needs-csum",
    "tx-hw-gso-packets",
    "tx-hw-gso-bytes",
    "tx-hw-gso-wire-packets",
    "tx-hw-gso-wire-bytes",
    "tx-hw-drop-ratelimits",
    "tx-stop",
    "tx-wake",
];

/// An interface's index and its statistics.
pub(super) type Row = (u32, Vec<(&'static str, u64)>);

/// Each interface's index and statistics, its queues summed; interfaces whose driver has none are not there.
///
/// # Errors
/// `NotFound` where the kernel has no such family.
pub(super) fn read() -> io::Result<Vec<Row>> {
    let mut body = vec![CTRL_CMD_GETFAMILY, 1, 0, 0];
    push(&mut body, CTRL_ATTR_FAMILY_NAME, b"netdev\0");
    let answer = ask(NETLINK_GENERIC, CONTROLLER, 0, &body)?;
    let family = answer
        .iter()
        .find_map(|body| attribute(body.get(GENL_HEADER_BYTES..)?, CTRL_ATTR_FAMILY_ID))
        .and_then(|id| Some(u16::from_ne_bytes(id.try_into().ok()?)))
        .ok_or(io::ErrorKind::NotFound)?;
    let rows = ask(NETLINK_GENERIC, family, NLM_F_DUMP, &[NETDEV_CMD_QSTATS_GET, 1, 0, 0])?;
    Ok(rows.iter().filter_map(|body| row(body)).collect())
}

fn row(body: &[u8]) -> Option<Row> {
    let rest = body.get(GENL_HEADER_BYTES..)?;
    let index = u32_at(attribute(rest, NETDEV_A_QSTATS_IFINDEX)?, 0)?;
    let named = |(kind, value)| {
        let name = NAMES.get(usize::from(u16::checked_sub(kind, NETDEV_A_QSTATS_RX_PACKETS)?))?;
        Some((*name, uint(value)?))
    };
    Some((index, attributes(rest).filter_map(named).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statistics_of_either_width_are_named() {
        let mut body = vec![NETDEV_CMD_QSTATS_GET, 1, 0, 0];
        push(&mut body, NETDEV_A_QSTATS_IFINDEX, &4_u32.to_ne_bytes());
        push(&mut body, NETDEV_A_QSTATS_RX_PACKETS + 5, &7_u32.to_ne_bytes());
        push(&mut body, NETDEV_A_QSTATS_RX_PACKETS + 6, &(1_u64 << 40).to_ne_bytes());
        push(&mut body, 4_000, &[0; 8]);
        assert_eq!(row(&body), Some((4, vec![("rx-hw-drops", 7), ("rx-hw-drop-overruns", 1 << 40)])));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = row(&bytes);
        }
    }
}
