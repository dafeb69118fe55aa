//! What is measured. The targets are those that the project set itself (README, `make bench`).

mod generator;
mod packets;
mod tcp;

use crate::run::Case;

/// All of them, in the order in which they run.
pub(crate) const ALL: &[Case] = &[
    Case { name: "reject", about: "frames for others, by who drops them", run: packets::reject },
    Case { name: "accept", about: "datagrams for us, beside XDP_PASS", run: packets::accept },
    Case { name: "tcp", about: "a TCP flow beside a mix", run: tcp::goodput },
    Case { name: "mix", about: "frames a second, beside trafgen and hping3", run: generator::mix },
];

/// The CPU on which sender and receiver are.
const CPU: usize = 0;
/// Where a program is that reads.
const OTHER_CPU: usize = 1;

/// A mix of frames of `bytes` of these kinds.
fn mix(bytes: u16, classes: &[(&str, f64)]) -> String {
    let mut text = format!("name = \"bench\"\nsize = {bytes}\n");
    for (kind, weight) in classes {
        text += &format!("[[class]]\nkind = \"{kind}\"\nweight = {weight:?}\n");
    }
    text
}

/// What NIMA's algorithm rejects of figure 3: what is for other end points, and ARP.
const JUNK: [(&str, f64); 4] = [("udp", 32.2), ("icmp", 20.6), ("tcp", 7.2), ("arp", 20.0)];
