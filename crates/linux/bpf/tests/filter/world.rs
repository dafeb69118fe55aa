//! What the naive classifier knows of the host: read from `/proc` and netlink, where the program reads the kernel's own memory.

use std::collections::BTreeSet;
use std::net::IpAddr;

use longhaul_kernel::link::Netlink;

use crate::cable::{Cable, LINK};
use crate::frames::OUR_MAC;

pub(crate) struct World {
    pub(crate) mac: [u8; 6],
    pub(crate) joined: BTreeSet<[u8; 6]>,
    pub(crate) local: Vec<(IpAddr, u8)>,
}

impl World {
    pub(crate) fn of(cable: &Cable) -> Self {
        // index, name, users, globals, address
        let table = cable.inside(|| std::fs::read_to_string("/proc/thread-self/net/dev_mcast").unwrap());
        let joined = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).filter(|row| row[1] == LINK);
        let joined =
            joined.map(|row| std::array::from_fn(|at| u8::from_str_radix(&row[4][2 * at..2 * at + 2], 16).unwrap()));
        let local = cable.inside(|| Netlink::open().unwrap().local_networks().unwrap());
        Self { mac: OUR_MAC, joined: joined.collect(), local }
    }

    pub(crate) fn is_local(&self, ip: IpAddr) -> bool {
        self.local.iter().any(|(network, bits)| match (network, ip) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => {
                let shift = 32 - u32::from(*bits);
                u64::from(network.to_bits()) >> shift == u64::from(ip.to_bits()) >> shift
            }
            (IpAddr::V6(network), IpAddr::V6(ip)) => {
                let shift = 128 - u32::from(*bits);
                network.to_bits().checked_shr(shift) == ip.to_bits().checked_shr(shift)
            }
            _ => false,
        })
    }
}
