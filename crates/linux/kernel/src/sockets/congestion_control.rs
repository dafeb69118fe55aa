//! Congestion controls that the kernel has, and how many sockets use each.
//!
//! Source: tcp(7), `Documentation/networking/ip-sysctl.rst`, sock_diag(7). What is allowed and the default belong to the network
//! namespace that the calling thread is in; what is available is one list for the machine.

use std::collections::BTreeMap;
use std::io;

use crate::counters::{attributes, netlink};
use crate::sysctl::{self, SysctlError};

/// `NETLINK_SOCK_DIAG` of <linux/netlink.h>.
const NETLINK_SOCK_DIAG: isize = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const IPPROTO_TCP: u8 = 6;
/// `struct inet_diag_req_v2` and `struct inet_diag_msg` of <linux/inet_diag.h>.
const REQUEST_BYTES: usize = 56;
const ANSWER_BYTES: usize = 72;
const INET_DIAG_CONG: u16 = 4;

/// The controls that a socket can have, here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CongestionControls {
    /// All that are registered, in alphabetical order. Modules that are not loaded are not among them.
    pub available: Vec<String>,
    /// The controls that a socket of an ordinary user may select.
    pub allowed: Vec<String>,
    /// What a socket has that selects none.
    pub default: String,
}

impl CongestionControls {
    /// Reads the three lists.
    ///
    /// # Errors
    /// As [`sysctl::read`].
    pub fn read() -> Result<Self, SysctlError> {
        let list = |name: &str| -> Result<Vec<String>, SysctlError> {
            let text = sysctl::read(&format!("net.ipv4.{name}"))?;
            let mut names: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            names.sort_unstable();
            Ok(names)
        };
        Ok(Self {
            available: list("tcp_available_congestion_control")?,
            allowed: list("tcp_allowed_congestion_control")?,
            default: sysctl::read("net.ipv4.tcp_congestion_control")?,
        })
    }
}

/// How many TCP sockets of the calling thread's network namespace have each control: IPv4 and IPv6, listening ones too, those
/// that only wait for time to pass (TIME_WAIT) not.
///
/// # Errors
/// Where the kernel has no sock_diag for TCP (`CONFIG_INET_DIAG`).
pub fn sockets_by_control() -> io::Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    for family in [libc::AF_INET as u8, libc::AF_INET6 as u8] {
        let mut request = [0; REQUEST_BYTES];
        request[0] = family;
        request[1] = IPPROTO_TCP;
        request[2] = 1 << (INET_DIAG_CONG - 1);
        // Sockets in any state.
        request[4..8].fill(0xff);
        for answer in netlink::ask(NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, netlink::NLM_F_DUMP, &request)? {
            if let Some(name) = control_of(&answer) {
                *counts.entry(name).or_default() += 1;
            }
        }
    }
    Ok(counts)
}

/// The control in an answer; `None` for a socket that has none.
fn control_of(answer: &[u8]) -> Option<String> {
    attributes::attribute(answer.get(ANSWER_BYTES..)?, INET_DIAG_CONG).map(attributes::text)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_default_is_one_of_the_allowed() {
        let controls = CongestionControls::read().unwrap();
        assert!(controls.available.contains(&"reno".to_owned()), "{controls:?}");
        assert!(controls.allowed.iter().all(|name| controls.available.contains(name)), "{controls:?}");
        assert!(controls.available.contains(&controls.default), "{controls:?}");
    }

    #[test]
    fn sockets_are_counted() {
        let namespace = match crate::namespace::NetNamespace::create() {
            Ok(namespace) => namespace,
            Err(error) => return longhaul_testing::skipped!("{error}"),
        };
        namespace
            .enter(|| {
                let mut netlink = crate::link::Netlink::open().unwrap();
                let loopback = netlink.index_of("lo").unwrap();
                netlink.set_up(loopback, true).unwrap();
                let default = CongestionControls::read().unwrap().default;
                assert_eq!(sockets_by_control().unwrap(), BTreeMap::new());
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                let far = listener.accept().unwrap();
                assert_eq!(sockets_by_control().unwrap(), BTreeMap::from([(default, 3)]));
                drop((near, far, listener));
            })
            .unwrap();
    }

    #[test]
    fn a_broken_answer_has_no_control() {
        let mut answer = vec![0; ANSWER_BYTES];
        answer.extend(8_u16.to_ne_bytes());
        answer.extend(INET_DIAG_CONG.to_ne_bytes());
        answer.extend(*b"bbr\0");
        assert_eq!(control_of(&answer).as_deref(), Some("bbr"));
        for length in 0..answer.len() {
            assert_eq!(control_of(&answer[..length]), None);
        }
        answer[ANSWER_BYTES] = 0;
        assert_eq!(control_of(&answer), None, "an attribute without length");
    }
}
