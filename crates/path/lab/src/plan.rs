//! Names, addresses and interfaces of a lab's hosts: all follow from the path, so two labs of one path are alike.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use longhaul_path::spec::{PathEnd, PathSpec};
use serde::{Deserialize, Serialize};

/// The interface of every host.
pub const HOST_INTERFACE: &str = "eth0";
/// Leading bits that all hosts of a lab share.
pub const PREFIX_BITS: (u8, u8) = (16, 64);
/// What a host's interface takes unless told otherwise: Ethernet's.
pub const DEFAULT_MTU: u32 = 1500;

/// One host of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostPlan {
    /// Its name.
    pub name: String,
    /// Other names that lead to it: an end's first host is also `client` or `server`.
    pub aliases: Vec<String>,
    /// Its IPv4 address: 10.77.1.N for clients, 10.77.2.N for servers.
    pub ipv4: Ipv4Addr,
    /// Its IPv6 address: `fd77::1:N`, `fd77::2:N`.
    pub ipv6: Ipv6Addr,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// MTU of its interface, in bytes.
    #[cfg_attr(feature = "schema", schemars(range(min = 68, max = 65535)))]
    pub mtu_bytes: u32,
    /// The emulator's interface to this host.
    pub port: String,
}

impl HostPlan {
    /// Both addresses.
    pub fn addresses(&self) -> [(IpAddr, u8); 2] {
        [(self.ipv4.into(), PREFIX_BITS.0), (self.ipv6.into(), PREFIX_BITS.1)]
    }

    /// Whether it is called `name`.
    pub fn is(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

/// The hosts of `path`: clients, then servers. `mtu_bytes` is for hosts that have none of their own.
pub fn hosts(path: &PathSpec, mtu_bytes: u32) -> Vec<HostPlan> {
    let mut plans = Vec::new();
    for (end, number) in [(PathEnd::Client, 1u8), (PathEnd::Server, 2)] {
        let specs = path.hosts(end);
        for (i, name) in path.host_names(end).into_iter().enumerate() {
            // A path has 64 hosts at most, so a byte holds their number.
            let host = i as u8 + 1;
            let alias = end.name().to_owned();
            plans.push(HostPlan {
                aliases: if i == 0 && name != alias { vec![alias] } else { Vec::new() },
                ipv4: Ipv4Addr::new(10, 77, number, host),
                ipv6: Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, number.into(), host.into()),
                // Locally administered (IEEE 802 §8.4), then "lh".
                mac: [0x02, 0x6c, 0x68, number, 0, host],
                mtu_bytes: specs.get(i).and_then(|spec| spec.mtu).unwrap_or(mtu_bytes),
                port: format!("{}{host}", end.name()),
                name,
            });
        }
    }
    plans
}

/// What `/etc/hosts` says in a lab.
pub fn hosts_file(hosts: &[HostPlan]) -> String {
    let mut text = String::from("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
    for host in hosts {
        let names = std::iter::once(&host.name).chain(&host.aliases).cloned().collect::<Vec<_>>().join(" ");
        text += &format!("{} {names}\n{} {names}\n", host.ipv4, host.ipv6);
    }
    text
}

#[cfg(test)]
mod tests {
    use longhaul_path::spec::HostSpec;

    use super::*;

    #[test]
    fn a_dumbbell_has_names_and_addresses() {
        let path = PathSpec {
            name: "dumbbell".into(),
            source: String::new(),
            forward: Vec::new(),
            backward: Vec::new(),
            clients: vec![HostSpec::default(), HostSpec { mtu: Some(9000), ..HostSpec::default() }],
            servers: Vec::new(),
        };
        let hosts = hosts(&path, DEFAULT_MTU);
        let names: Vec<_> = hosts.iter().map(|h| (h.name.as_str(), h.mtu_bytes)).collect();
        assert_eq!(names, [("client1", 1500), ("client2", 9000), ("server", 1500)]);
        assert!(hosts[0].is("client") && !hosts[1].is("client"));
        assert!(hosts_file(&hosts).contains("10.77.1.2 client2\nfd77::1:2 client2\n"));
    }
}
