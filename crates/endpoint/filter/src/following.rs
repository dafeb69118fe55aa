//! [`Following`]: tells a filter of the host's addresses whenever they change.

use std::io;

use longhaul_bpf::filter::{Filter, FilterError, Generations, Judgement, RoutingGenerations};
use longhaul_kernel::link::{Changes, LinkError, Netlink};
use longhaul_kernel::sysctl;
use longhaul_kernel::wait::readable_until;
use longhaul_units::Nanos;

/// Why a host could not be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The filter.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// The kernel's tables.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The news of changes.
    #[error("cannot listen to changes of links, addresses and routes: {0}")]
    Changes(io::Error),
}

/// What a filter was told, and where its host's news come from. Opened and used in the network namespace of the interface.
#[derive(Debug)]
pub struct Following {
    generations: Generations,
    netlink: Netlink,
    changes: Changes,
    interface: String,
    told: Option<(RoutingGenerations, Judgement)>,
}

impl Following {
    /// How often it looks where no news came: forwarding may be turned on without any.
    pub const LOOK: Nanos = Nanos::from_millis(50);

    /// Begins to follow the host for a filter at `interface`. The first [`Self::tell`] tells everything.
    ///
    /// # Errors
    /// Any [`FollowError`].
    pub fn begin(interface: &str) -> Result<Self, FollowError> {
        Ok(Self {
            generations: Generations::load()?,
            netlink: Netlink::open()?,
            changes: Changes::listen().map_err(FollowError::Changes)?,
            interface: interface.into(),
            told: None,
        })
    }

    /// Tells `filter` what changed; whether anything did.
    ///
    /// # Errors
    /// Any [`FollowError`].
    pub fn tell(&mut self, filter: &Filter) -> Result<bool, FollowError> {
        self.changes.take();
        // Before the addresses: what changes after this makes them old.
        let generations = self.generations.now()?;
        let judgement = judgement(&self.interface);
        if self.told == Some((generations, judgement)) {
            return Ok(false);
        }
        let local = self.netlink.local_networks()?;
        filter.follow(&local, judgement, generations)?;
        self.told = Some((generations, judgement));
        Ok(true)
    }

    /// Waits for news, but not beyond `deadline` on `CLOCK_MONOTONIC`.
    ///
    /// # Errors
    /// As poll(2) has them.
    pub fn wait(&self, deadline: Nanos) -> io::Result<bool> {
        readable_until(&self.changes, Some(deadline))
    }
}

/// A host that forwards takes packets for others, and may answer ARP and solicitations for them.
fn judgement(interface: &str) -> Judgement {
    // A family that the kernel lacks forwards nothing.
    let is_on = |family: &str| {
        sysctl::read(&format!("net/{family}/conf/{interface}/forwarding")).is_ok_and(|value| value != "0")
    };
    let (ipv4, ipv6) = (!is_on("ipv4"), !is_on("ipv6"));
    Judgement { ipv4, ipv6, arp: ipv4, solicitations: ipv6 }
}
