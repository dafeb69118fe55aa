//! The filter's maps as bytes: settings, networks, ports, and what the host has.

use std::net::IpAddr;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::step;
use crate::filter::{Allow, FilterError, FilterOptions};

// `filter_config.flags` in intf.h.
pub(super) const ENFORCE: u64 = 1;
pub(super) const FORCED: u64 = 2;
pub(super) const JUDGE_PORTS: u64 = 4;
pub(super) const ALLOWS_NETWORKS: u64 = 8;
pub(super) const ALLOWS_PORTS: u64 = 16;
/// What the program has in itself, as `lasting` in main.bpf.c.
pub(super) const LASTING: u64 = FORCED | JUDGE_PORTS | ALLOWS_NETWORKS | ALLOWS_PORTS;
// `filter_followed.flags`.
pub(super) const JUDGE_IPV4: u64 = 1;
pub(super) const JUDGE_IPV6: u64 = 2;
pub(super) const JUDGE_ARP: u64 = 4;
pub(super) const JUDGE_SOLICITATIONS: u64 = 8;
pub(super) const WIDE_LOCAL: u64 = 16;
/// Bytes of `filter_followed`.
pub(super) const FOLLOWED_BYTES: usize = 32;

pub(super) fn flags(options: &FilterOptions) -> u64 {
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    flag(options.enforce, ENFORCE)
        | flag(options.force, FORCED)
        | flag(options.judge_ports, JUDGE_PORTS)
        | flag(options.allow.iter().any(|one| matches!(one, Allow::Network(..))), ALLOWS_NETWORKS)
        | flag(options.allow.iter().any(|one| matches!(one, Allow::Port(_))), ALLOWS_PORTS)
}

pub(super) fn write_config(config: &MapHandle, options: &FilterOptions) -> Result<(), FilterError> {
    let until = options.enforce_until.map_or(0, |until| until.0.max(1));
    update(config, &0_u32.to_ne_bytes(), &words(&[flags(options), until]))
}

pub(super) fn allow(networks: &MapHandle, ports: &MapHandle, allow: &[Allow]) -> Result<(), FilterError> {
    for one in allow {
        match one {
            Allow::Network(ip, bits) => update(networks, &network_key(*ip, *bits), &[1])?,
            Allow::Port(port) => update(ports, &u32::from(*port).to_ne_bytes(), &[1])?,
        }
    }
    Ok(())
}

/// `struct network_key` in `intf.h`: leading bits, then 16 bytes; IPv4 as ::ffff:a.b.c.d. Bits behind the prefix are 0, so that
/// equal networks have equal keys.
pub(super) fn network_key(ip: IpAddr, bits: u8) -> Vec<u8> {
    let (address, bits) = match ip {
        IpAddr::V4(ip) => (ip.to_ipv6_mapped(), 96 + u32::from(bits.min(32))),
        IpAddr::V6(ip) => (ip, u32::from(bits.min(128))),
    };
    let mask = if bits == 0 { 0 } else { u128::MAX << (128 - bits) };
    [&bits.to_ne_bytes()[..], &(address.to_bits() & mask).to_be_bytes()].concat()
}

pub(super) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

pub(super) fn lookup(map: &MapHandle) -> Result<Vec<u8>, FilterError> {
    let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(|error| step("read a map", &error))?;
    Ok(value.unwrap_or_default())
}

pub(super) fn update(map: &MapHandle, key: &[u8], value: &[u8]) -> Result<(), FilterError> {
    map.update(key, value, MapFlags::ANY).map_err(|error| step("write a map", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_networks_have_equal_keys() {
        let key = |text: &str, bits| network_key(text.parse().unwrap(), bits);
        assert_eq!(key("10.1.2.3", 8), key("10.0.0.0", 8));
        assert_eq!(key("10.0.0.0", 8)[..4], 104_u32.to_ne_bytes());
        assert_eq!(key("0.0.0.0", 0)[4..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(key("fd00::1", 0)[4..], [0; 16]);
        assert_eq!(key("fd00::1", 128)[19], 1);
    }
}
