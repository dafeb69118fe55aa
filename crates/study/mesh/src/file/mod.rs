//! The mesh file: which sites there are, and which tests run between them.
//!
//! ```toml
//! name = "teragrid"
//! [[site]]
//! name = "cornell"
//! address = "192.0.2.1"             # or several: ["192.0.2.1", "2001:db8::1"]; names of hosts, too
//! rate = "10Gbit"                   # of its link (L1)
//! tags = ["east"]
//! nat = true                        # cannot be connected to: it begins the tests of both directions
//! [[group]]
//! name = "core"
//! members = ["cornell", "@east"]    # sites, and all sites with a tag
//! [[link]]                          # shared by all paths between the members of two groups
//! name = "atlantic"
//! between = ["core", "@europe"]
//! rate = "10Gbit"
//! share = "10%"                     # what all tests together may take of it
//! [[test]]
//! name = "probes"
//! kind = "udp"                      # udp, rtt, tcp, diagnose
//! between = ["core", "@europe"]     # one group: all its pairs; two: from each to the other; without: all sites
//! every = "1h"
//! time = "60s"
//! rate = "1M"                       # payload bits a second; with udp
//! length = 1000                     # payload bytes of a packet; with udp
//! share = "5%"                      # at most what share of the slowest link
//! pairs = 1000                      # test this many pairs in a round, others in the next
//! ```
//!
//! `rtt` has `name`, `kind`, `between` and `time`: what one result covers; the next begins when it ends. `diagnose` has these and `share`.

mod error;
mod limits;
mod parse;
mod reader;

pub use error::MeshError;
pub use limits::{Limits, LimitsError, Refusal};
pub(crate) use parse::LINKS_MOST;
pub use parse::is_name;

use std::collections::BTreeSet;

use longhaul_units::{BitRate, Nanos};

use crate::sample::SiteId;

/// A mesh as its file says it.
#[derive(Debug, Clone, PartialEq)]
pub struct Mesh {
    /// Its name.
    pub name: String,
    /// Its sites; a [`SiteId`] is a place in this list.
    pub sites: Vec<Site>,
    /// Links that several sites share.
    pub links: Vec<SharedLink>,
    /// The tests.
    pub tests: Vec<TestPlan>,
}

/// A site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Its name: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Addresses or names of its host, the preferred first. Empty where it cannot be connected to.
    pub addresses: Vec<String>,
    /// The port of its agent.
    pub port: u16,
    /// The rate of its link (L1).
    pub rate: BitRate,
    /// What it is called together with others.
    pub tags: Vec<String>,
    /// Whether nobody can connect to it.
    pub nat: bool,
}

/// The part of a shared link's share that the coordinator leases: most, as it is seldom away.
const LEASED: f64 = 0.7;

/// A link that the paths between two sets of sites share.
#[derive(Debug, Clone, PartialEq)]
pub struct SharedLink {
    /// Its name.
    pub name: String,
    /// How many sites are at each end.
    pub sites: [usize; 2],
    /// The end of each site, by its number: 0 or 1; `None` if it is at none. A mesh has a million pairs, each of which is looked up.
    end_of: Vec<Option<u8>>,
    /// Its rate (L1).
    pub rate: BitRate,
    /// What all tests together may take of it, above 0 and 1 at most.
    pub share: f64,
}

impl SharedLink {
    /// A link between two sets of sites without a common member.
    pub(crate) fn new(name: String, ends: &[BTreeSet<SiteId>; 2], rate: BitRate, share: f64) -> Self {
        let last = ends.iter().filter_map(BTreeSet::last).max();
        let mut end_of = vec![None; last.map_or(0, |last| usize::from(last.0) + 1)];
        for (end, number) in ends.iter().zip(0..) {
            end.iter().for_each(|site| end_of[usize::from(site.0)] = Some(number));
        }
        Self { name, sites: [ends[0].len(), ends[1].len()], end_of, rate, share }
    }

    /// The direction, 0 or 1, in which a path crosses the link; `None` if it does not.
    pub fn direction(&self, from: SiteId, to: SiteId) -> Option<usize> {
        let end = |site: SiteId| self.end_of.get(usize::from(site.0)).copied().flatten();
        end(from).zip(end(to)).filter(|(from, to)| from != to).map(|(from, _)| usize::from(from))
    }

    /// What all tests together may take.
    pub fn allowed(&self) -> BitRate {
        share_of(self.rate, self.share)
    }

    /// The part of it that the coordinator leases. The rest is for sites that do not reach the coordinator.
    pub fn leased(&self) -> BitRate {
        share_of(self.allowed(), LEASED)
    }

    /// What one site may take without a lease, in each direction: an equal part of what is not leased.
    pub fn safe_share(&self) -> BitRate {
        let sites = self.sites.iter().sum::<usize>().max(1);
        share_of(self.allowed(), (1.0 - LEASED) / sites as f64)
    }
}

/// What is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// UDP probes at a rate: loss, by location.
    Udp {
        /// Payload bits a second.
        rate: BitRate,
        /// Payload bytes of a packet.
        length: u32,
    },
    /// Round trips, without pause. It disturbs no other test.
    Rtt,
    /// Goodput of TCP, held to the share.
    Tcp,
    /// What limits a path, where something changed.
    Diagnose,
}

impl Kind {
    /// Its name in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp { .. } => "udp",
            Self::Rtt => "rtt",
            Self::Tcp => "tcp",
            Self::Diagnose => "diagnose",
        }
    }

    /// Whether a host runs no other such test beside it.
    pub fn is_throughput(self) -> bool {
        !matches!(self, Self::Rtt)
    }
}

/// A test and its pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct TestPlan {
    /// Its name.
    pub name: String,
    /// What is tested.
    pub kind: Kind,
    /// Its pairs in order, each from the sender to the receiver, without those that cannot be tested. Of `rtt` each pair is there once, as a round
    /// trip has both directions.
    pub pairs: Vec<(SiteId, SiteId)>,
    /// Pairs of two sites that nobody can connect to.
    pub untestable: Vec<(SiteId, SiteId)>,
    /// How often a round begins; `None` for what has no rounds: `rtt`, `diagnose`.
    pub every: Option<Nanos>,
    /// How long a test takes; of `rtt`: what one result covers.
    pub time: Nanos,
    /// At most what share of the slowest link on the way, above 0 and 1 at most.
    pub share: f64,
    /// Pairs of a round, where not all are tested in each.
    pub sample: Option<usize>,
}

/// Beside the test itself: asking, connecting, reporting.
pub const OVERHEAD: Nanos = Nanos::from_secs(5);
/// The same of `diagnose`: each of its tests, a dozen, connects anew and waits for what is under way. Beside 5 s of tests eight took 21 s.
pub const DIAGNOSE_OVERHEAD: Nanos = Nanos::from_secs(60);
/// Time from one probe of round trips to the next.
pub const PROBE_EVERY: Nanos = Nanos::from_millis(100);
/// A result may have a tenth more packets than the plan says, and so many more: of a short test a tenth is little.
const PACKETS_MORE: u64 = 100;
/// Ethernet, IPv6, UDP, preamble and gap beside the payload.
const HEADER_BYTES: u64 = 14 + 4 + 40 + 8 + 20;
/// A TCP segment on the wire: payload and headers of Ethernet with 1500 bytes, IPv6, TCP with time stamps, preamble and gap.
const SEGMENT: (u64, u64) = (1428, 1428 + 14 + 4 + 40 + 32 + 20);

impl TestPlan {
    /// How long a test holds both hosts at most.
    pub fn holds(&self) -> Nanos {
        self.time.saturating_add(if self.kind == Kind::Diagnose { DIAGNOSE_OVERHEAD } else { OVERHEAD })
    }

    /// Whether it tests this pair, from the sender to the receiver: of `rtt` in either order.
    pub fn has(&self, (from, to): (SiteId, SiteId)) -> bool {
        let is_there = |pair| self.pairs.binary_search(&pair).is_ok();
        is_there((from, to)) || self.kind == Kind::Rtt && is_there((to, from))
    }

    /// Packets that a result of it has at most: those that the plan sends, a tenth more, and 100. `None` where packets are not counted: `tcp`, `diagnose`.
    pub fn packets_most(&self) -> Option<u64> {
        let planned = match self.kind {
            Kind::Udp { rate, length } => rate.bytes_in(self.time) / u64::from(length.max(1)),
            Kind::Rtt => self.time.0 / PROBE_EVERY.0,
            Kind::Tcp | Kind::Diagnose => return None,
        };
        Some(planned.saturating_add(planned / 10).saturating_add(PACKETS_MORE))
    }
}

impl Kind {
    /// What a payload rate is on the wire (L1), and back: payload bytes of a packet and all its bytes. `None` where packets have no one length.
    fn packet(self) -> Option<(u64, u64)> {
        match self {
            Self::Udp { length, .. } => Some((u64::from(length), u64::from(length) + HEADER_BYTES)),
            Self::Tcp => Some(SEGMENT),
            Self::Rtt | Self::Diagnose => None,
        }
    }

    /// The rate of UDP probes on the wire (L1); `None` for other kinds.
    pub fn wire_rate(self) -> Option<BitRate> {
        let (Self::Udp { rate, .. }, Some((payload, all))) = (self, self.packet()) else { return None };
        Some(BitRate(
            (u128::from(rate.0) * u128::from(all)).div_ceil(u128::from(payload)).try_into().unwrap_or(u64::MAX),
        ))
    }

    /// The payload rate of a test that takes `wire` on the wire (L1), UDP probes not more than they are meant to; `None` where it has no rate:
    /// `rtt`, and `diagnose`, whose tests differ.
    pub fn payload_rate(self, wire: BitRate) -> Option<BitRate> {
        let (payload, all) = self.packet()?;
        let fits = BitRate((u128::from(wire.0) * u128::from(payload) / u128::from(all)).try_into().unwrap_or(u64::MAX));
        match self {
            Self::Udp { rate, .. } => Some(rate.min(fits)),
            _ => Some(fits),
        }
    }
}

impl Mesh {
    /// Shared links that a path crosses, each with the direction.
    pub fn crossed(&self, from: SiteId, to: SiteId) -> impl Iterator<Item = (usize, usize, &SharedLink)> {
        let links = self.links.iter().enumerate();
        links.filter_map(move |(number, link)| Some((number, link.direction(from, to)?, link)))
    }

    /// The site of that name.
    pub fn site(&self, name: &str) -> Option<SiteId> {
        self.sites.iter().position(|site| site.name == name).map(|index| SiteId(index as u16))
    }

    /// A site of this mesh.
    ///
    /// # Panics
    /// If it is of another one.
    pub fn of(&self, site: SiteId) -> &Site {
        &self.sites[usize::from(site.0)]
    }

    /// What a test sends between two sites at most: payload bits a second of `udp` and `tcp`, on the wire (L1) of `diagnose`, whose tests differ.
    /// Nothing of `rtt`, which is not counted.
    pub fn rate_of(&self, test: &TestPlan, (from, to): (SiteId, SiteId)) -> BitRate {
        let most = || self.rate_most(test, from, to);
        match test.kind {
            Kind::Udp { rate, .. } => rate,
            Kind::Tcp => test.kind.payload_rate(most()).unwrap_or(BitRate(0)),
            Kind::Diagnose => most(),
            Kind::Rtt => BitRate(0),
        }
    }

    /// The rate (L1) that a test may have between two sites: its share of the slower of their links, and no more than is leased of any link
    /// that is shared on the way.
    pub fn rate_most(&self, test: &TestPlan, from: SiteId, to: SiteId) -> BitRate {
        let own = share_of(self.of(from).rate.min(self.of(to).rate), test.share);
        let shared = self.links.iter().filter(|link| link.direction(from, to).is_some()).map(SharedLink::leased);
        shared.fold(own, BitRate::min)
    }
}

/// A share of a rate.
fn share_of(rate: BitRate, share: f64) -> BitRate {
    BitRate((rate.0 as f64 * share) as u64)
}

#[cfg(test)]
mod tests;
