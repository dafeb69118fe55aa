//! [`Following`]: gives a filter the host's addresses whenever they change.

use std::io;

use longhaul_bpf::filter::{Filter, FilterError, Generations, Judgement, RoutingGenerations};
use longhaul_kernel::link::{Changes, LinkError, Netlink};
use longhaul_kernel::wait::readable_until;
use longhaul_units::Nanos;

use crate::obstacle::{forwards_ipv4, forwards_ipv6};

/// Why the host could not be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The filter refused.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The kernel's tables could not be read.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The kernel does not notify of changes.
    #[error("cannot listen to changes of links, addresses and routes: {0}")]
    Changes(io::Error),
}

/// What a filter knows of its host, and the notifications of changes. It is opened and used in the interface's network namespace.
#[derive(Debug)]
pub struct Following {
    generations: Generations,
    netlink: Netlink,
    changes: Changes,
    /// The interface's index: its name may change.
    index: u32,
    told: Option<(RoutingGenerations, Judgement)>,
}

impl Following {
    /// How often to look without a notification: turning forwarding on causes none.
    pub const LOOK: Nanos = Nanos::from_millis(50);

    /// Starts to follow the host for a filter at `interface`. The first [`Self::tell`] sends everything.
    ///
    /// # Errors
    /// Any [`FollowError`].
    pub fn begin(interface: &str) -> Result<Self, FollowError> {
        let mut netlink = Netlink::open()?;
        let index = netlink.index_of(interface)?;
        Ok(Self {
            generations: Generations::load()?,
            netlink,
            changes: Changes::listen().map_err(FollowError::Changes)?,
            index,
            told: None,
        })
    }

    /// Sends `filter` what changed. Returns whether anything did.
    ///
    /// # Errors
    /// Any [`FollowError`].
    pub fn tell(&mut self, filter: &Filter) -> Result<bool, FollowError> {
        self.changes.take();
        // Read before the addresses: a later change makes them old.
        let generations = self.generations.now()?;
        let judgement = match self.netlink.link_by_index(self.index) {
            Ok(link) => judgement(&link.name),
            // It is gone, or in another namespace, of which nothing is known here.
            Err(LinkError::NoSuchLink { .. }) => {
                Judgement { ipv4: false, ipv6: false, arp: false, solicitations: false }
            }
            Err(error) => return Err(error.into()),
        };
        if self.told == Some((generations, judgement)) {
            return Ok(false);
        }
        let local = self.netlink.local_networks()?;
        filter.follow(&local, judgement, generations)?;
        self.told = Some((generations, judgement));
        Ok(true)
    }

    /// Waits for a notification until `deadline` on `CLOCK_MONOTONIC`. Returns whether one came.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn wait(&self, deadline: Nanos) -> io::Result<bool> {
        readable_until(&self.changes, Some(deadline))
    }
}

/// A host that forwards accepts packets for others, and may answer ARP and solicitations for them.
fn judgement(interface: &str) -> Judgement {
    let (ipv4, ipv6) = (!forwards_ipv4(interface), !forwards_ipv6(interface));
    Judgement { ipv4, ipv6, arp: ipv4, solicitations: ipv6 }
}
