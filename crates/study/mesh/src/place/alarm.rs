//! What is named, and how.

use longhaul_units::Nanos;

use crate::sample::SiteId;

/// Who may lose the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suspect {
    /// What a site receives, from all partners.
    Receiver(SiteId),
    /// What a site sends, to all partners.
    Sender(SiteId),
    /// From the first site to the second, and no other path of either.
    Path(SiteId, SiteId),
    /// A shared link, by its number in the mesh, from its first group to its second.
    LinkForward(u16),
    /// The same link, from its second group to its first.
    LinkBackward(u16),
}

/// Where at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At the host: its own drop events or counters say so.
    Host,
    /// Not at the host, which sees its drops: on the site's access link.
    AccessLink,
    /// At the host or on its access link: the host cannot see its drops.
    HostOrAccessLink,
    /// Between the two sites.
    Network,
}

/// Loss above the usual level, and who loses.
#[derive(Debug, Clone, PartialEq)]
pub struct Alarm {
    /// Who, most likely first. Several: the data cannot tell them apart.
    pub suspects: Vec<Suspect>,
    /// Where, for the first suspect.
    pub place: Place,
    /// When it was raised.
    pub raised: Nanos,
    /// Since when, as the losses say; `None`: since before the mesh knows.
    pub since: Option<Nanos>,
    /// Share of the packets that is lost above the usual level, since it began.
    pub loss: f64,
    /// How much more likely than no change at all the losses are with this fault: logarithm to base 10, at most 99. One test cannot add more
    /// than 1.7.
    pub log10_odds: f64,
}
