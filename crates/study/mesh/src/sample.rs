//! What one UDP test between two sites says about loss.

use longhaul_units::Nanos;

/// A site, by its number in the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteId(pub u16);

/// Packets that drop events or counters place at one of the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    /// Lost at the sending host.
    pub at_sender: u32,
    /// Lost at the receiving host.
    pub at_receiver: u32,
}

/// One UDP test in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// When it began, since 1970, by the coordinator's clock.
    pub at: Nanos,
    /// The site that sent.
    pub from: SiteId,
    /// The site that received.
    pub to: SiteId,
    /// Packets sent.
    pub sent: u32,
    /// Packets lost, at most `sent`.
    pub lost: u32,
    /// Which of them the hosts' own evidence places; `None` where a host could not see its drops.
    pub placed: Option<Evidence>,
}
