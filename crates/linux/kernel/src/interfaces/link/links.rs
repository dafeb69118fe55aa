//! Links: what they are, and changing them.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State, Stats64};

use longhaul_units::Nanos;

use super::{LinkError, Netlink};
use crate::clock::monotonic;
use crate::wait::sleep_until;

/// A link as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Link {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name, up to 15 bytes.
    pub name: String,
    /// The largest IP packet it takes.
    pub mtu_bytes: u32,
    /// Its MAC address; `None` for links without (tunnels).
    pub mac: Option<[u8; 6]>,
    /// It was set up.
    pub up: bool,
    /// It has a carrier: something is at the other end.
    pub carrier: bool,
    /// It takes packets: a link that was just set up, or got its carrier, drops them all silently until the kernel has
    /// come to activate it (RFC 2863 `ifOperStatus` up, or unknown for links that never tell).
    pub ready: bool,
    /// It receives frames for any MAC address, because of packet sockets or by hand.
    pub promiscuous: bool,
    /// What it is: `veth`, `bridge`; `None` for hardware and loopback.
    pub kind: Option<String>,
    /// For a veth, the index of the other end; for a VLAN, of the link below. In the namespace that `peer_namespace` says.
    pub peer: Option<u32>,
    /// This namespace's own number for the namespace of the peer; `None` where that is the same one.
    pub peer_namespace: Option<i32>,
    /// The index of the bridge, bond, team or VRF that it is a part of.
    pub master: Option<u32>,
    /// Free text that somebody attached.
    pub alias: Option<String>,
    /// The largest super-packet that it is sent, IPv6 (and IPv4, on kernels that do not say that apart).
    pub gso_max_bytes: Option<u32>,
    /// The same, IPv4 (Linux 6.3).
    pub gso_ipv4_max_bytes: Option<u32>,
    /// The largest super-packet that GRO makes, IPv6 (and IPv4, on kernels that do not say that apart).
    pub gro_max_bytes: Option<u32>,
    /// The same, IPv4 (Linux 6.3).
    pub gro_ipv4_max_bytes: Option<u32>,
    /// How many transmit queues it has.
    pub transmit_queues: Option<u32>,
    /// The queueing discipline at its root.
    pub qdisc: Option<String>,
    /// Packets that a queueing discipline without a limit of its own holds (`txqueuelen`).
    pub queue_packets: Option<u32>,
    /// Its counters; `None` where the kernel gives none.
    pub stats: Option<LinkStats>,
}

/// A link's counters since it was made, from `rtnl_link_stats64`. On virtual links a super-packet counts once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStats {
    /// Packets received well.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received, with MAC headers, without FCS.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Bad packets received, all kinds.
    pub rx_errors: u64,
    /// Packets that could not be sent, all kinds.
    pub tx_errors: u64,
    /// Packets received and dropped by the stack, for want of memory or of anyone who wants them.
    pub rx_dropped: u64,
    /// Packets dropped on their way out; on a veth, because the far end's ring was full.
    pub tx_dropped: u64,
    /// Packets dropped because the device had no buffer: the ring was full.
    pub rx_missed_errors: u64,
    /// Packets dropped because the device's own memory overflowed.
    pub rx_fifo_errors: u64,
    /// Packets that came with a bad FCS.
    pub rx_crc_errors: u64,
    /// Packets dropped because no protocol wanted them or the link was inactive in a bond.
    pub rx_nohandler: u64,
}

impl Netlink {
    /// All links of the namespace.
    ///
    /// # Errors
    /// [`LinkError::Answer`], where links come and go all the time.
    pub fn links(&mut self) -> Result<Vec<Link>, LinkError> {
        let answers = self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), "list interfaces")?;
        Ok(answers.into_iter().filter_map(describe).collect())
    }

    /// The first `most` links of the namespace, and whether there are more: a user can have tens of thousands in a namespace of his own.
    ///
    /// # Errors
    /// As [`Self::links`].
    pub fn first_links(mut self, most: usize) -> Result<(Vec<Link>, bool), LinkError> {
        let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let mut answers = self.dump_first(most.saturating_add(1), message, "list interfaces")?;
        let are_more = answers.len() > most;
        answers.truncate(most);
        Ok((answers.into_iter().filter_map(describe).collect(), are_more))
    }

    /// The link named `name`.
    ///
    /// # Errors
    /// [`LinkError::NoSuchLink`].
    pub fn link_by_name(&mut self, name: &str) -> Result<Link, LinkError> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.into()));
        self.link(message, &format!("look at interface {name}"))
    }

    /// The link with index `index`.
    ///
    /// # Errors
    /// [`LinkError::NoSuchLink`].
    pub fn link_by_index(&mut self, index: u32) -> Result<Link, LinkError> {
        self.link(message_for(index), &format!("look at interface {index}"))
    }

    /// Sets how many packets a queueing discipline without a limit of its own holds (`txqueuelen`).
    ///
    /// # Errors
    /// [`LinkError::NoSuchLink`], [`LinkError::Denied`], [`LinkError::Refused`].
    pub fn set_queue_packets(&mut self, index: u32, packets: u32) -> Result<(), LinkError> {
        self.set(index, LinkAttribute::TxQueueLen(packets), &format!("set the queue length of interface {index}"))
    }

    /// The index of the link named `name`.
    ///
    /// # Errors
    /// [`LinkError::NoSuchLink`].
    pub fn index_of(&mut self, name: &str) -> Result<u32, LinkError> {
        Ok(self.link_by_name(name)?.index)
    }

    fn link(&mut self, message: LinkMessage, action: &str) -> Result<Link, LinkError> {
        let answer = self.ask(RouteNetlinkMessage::GetLink(message), action)?;
        describe(answer)
            .ok_or_else(|| LinkError::Answer { action: action.into(), problem: "it describes no interface".into() })
    }

    /// Sets link `index` up or down.
    ///
    /// # Errors
    /// [`LinkError::NoSuchLink`], [`LinkError::Denied`], [`LinkError::Refused`].
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<(), LinkError> {
        let mut message = message_for(index);
        message.header.change_mask = LinkFlags::Up;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        let state = if up { "up" } else { "down" };
        self.request(RouteNetlinkMessage::SetLink(message), 0, &format!("set interface {index} {state}"))
    }

    /// Waits until link `index` takes packets ([`Link::ready`]) or `deadline` on `CLOCK_MONOTONIC` has passed; returns
    /// whether it does. For a cable, both ends must be set up, and each be awaited.
    ///
    /// # Errors
    /// [`LinkError::NoSuchLink`].
    pub fn wait_until_ready(&mut self, index: u32, deadline: Nanos) -> Result<bool, LinkError> {
        loop {
            let ready = self.link_by_index(index)?.ready;
            if ready || monotonic() >= deadline {
                return Ok(ready);
            }
            // Rare: since Linux 6.8 the question itself has the kernel activate the link.
            sleep_until(monotonic() + Nanos::from_millis(1));
        }
    }

    /// Attaches free text (up to 255 bytes) to link `index`; empty text takes it away.
    ///
    /// # Errors
    /// [`LinkError::NoSuchLink`], [`LinkError::Denied`], [`LinkError::Refused`].
    pub fn set_alias(&mut self, index: u32, alias: &str) -> Result<(), LinkError> {
        self.set(index, LinkAttribute::IfAlias(alias.into()), &format!("set the alias of interface {index}"))
    }

    fn set(&mut self, index: u32, attribute: LinkAttribute, action: &str) -> Result<(), LinkError> {
        let mut message = message_for(index);
        message.attributes.push(attribute);
        self.request(RouteNetlinkMessage::SetLink(message), 0, action)
    }
}

fn message_for(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn describe(answer: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = answer else { return None };
    let flags = message.header.flags;
    let mut link = Link {
        index: message.header.index,
        up: flags.contains(LinkFlags::Up),
        carrier: flags.contains(LinkFlags::LowerUp),
        promiscuous: flags.contains(LinkFlags::Promisc),
        ..Link::default()
    };
    let mut state = State::Unknown;
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::OperState(operational) => state = operational,
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Mtu(bytes) => link.mtu_bytes = bytes,
            LinkAttribute::Address(bytes) => link.mac = bytes.try_into().ok(),
            LinkAttribute::Link(index) => link.peer = Some(index),
            LinkAttribute::Controller(index) => link.master = Some(index),
            LinkAttribute::LinkNetNsId(id) => link.peer_namespace = Some(id),
            LinkAttribute::IfAlias(alias) => link.alias = Some(alias),
            LinkAttribute::GsoMaxSize(bytes) => link.gso_max_bytes = Some(bytes),
            LinkAttribute::GsoIpv4MaxSize(bytes) => link.gso_ipv4_max_bytes = Some(bytes),
            LinkAttribute::GroMaxSize(bytes) => link.gro_max_bytes = Some(bytes),
            LinkAttribute::GroIpv4MaxSize(bytes) => link.gro_ipv4_max_bytes = Some(bytes),
            LinkAttribute::NumTxQueues(queues) => link.transmit_queues = Some(queues),
            LinkAttribute::Qdisc(name) => link.qdisc = Some(name),
            LinkAttribute::TxQueueLen(packets) => link.queue_packets = Some(packets),
            // The kernel counts promiscuity apart from the flag, which only shows what was set by hand.
            LinkAttribute::Promiscuity(count) => link.promiscuous |= count > 0,
            LinkAttribute::Stats64(stats) => link.stats = Some(stats.into()),
            LinkAttribute::LinkInfo(infos) => {
                link.kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    // A veth always comes to tell; until then it says unknown.
    let tells = link.kind.as_deref() == Some("veth");
    link.ready = link.up && link.carrier && (state == State::Up || (state == State::Unknown && !tells));
    Some(link)
}

impl From<Stats64> for LinkStats {
    fn from(stats: Stats64) -> Self {
        Self {
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            rx_bytes: stats.rx_bytes,
            tx_bytes: stats.tx_bytes,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
            rx_dropped: stats.rx_dropped,
            tx_dropped: stats.tx_dropped,
            rx_missed_errors: stats.rx_missed_errors,
            rx_fifo_errors: stats.rx_fifo_errors,
            rx_crc_errors: stats.rx_crc_errors,
            rx_nohandler: stats.rx_nohandler,
        }
    }
}
