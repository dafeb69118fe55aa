//! What follows from a path: its delays, its bottleneck, the names of its parts.

use std::fmt;

use longhaul_units::{BitRate, Nanos};

use super::{DelaySteps, Direction, ETHERNET_HEADER_BYTES, HopSpec, HostSpec, PathEnd, PathSpec};

/// Speeds of Ethernet links (IEEE 802.3) at and above what long fat networks have, in Gbit/s.
const ETHERNET_GBIT: [u64; 6] = [10, 25, 40, 100, 200, 400];

impl PathSpec {
    /// The hops of a direction, in travelling order.
    pub fn hops(&self, direction: Direction) -> &[HopSpec] {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Backward => &self.backward,
        }
    }

    pub(crate) fn hops_mut(&mut self, direction: Direction) -> &mut Vec<HopSpec> {
        match direction {
            Direction::Forward => &mut self.forward,
            Direction::Backward => &mut self.backward,
        }
    }

    /// The hosts of an end as the file names them; empty means one with default access.
    pub fn hosts(&self, end: PathEnd) -> &[HostSpec] {
        match end {
            PathEnd::Client => &self.clients,
            PathEnd::Server => &self.servers,
        }
    }

    pub(crate) fn hosts_mut(&mut self, end: PathEnd) -> &mut Vec<HostSpec> {
        match end {
            PathEnd::Client => &mut self.clients,
            PathEnd::Server => &mut self.servers,
        }
    }

    /// The delay of the shared hops of a direction, without queues, serialization and the hosts' access hops.
    pub fn one_way_delay(&self, direction: Direction) -> Nanos {
        self.hops(direction).iter().map(|hop| hop.delay).fold(Nanos::ZERO, Nanos::saturating_add)
    }

    /// [`PathSpec::one_way_delay`] of both directions.
    pub fn round_trip(&self) -> Nanos {
        self.one_way_delay(Direction::Forward).saturating_add(self.one_way_delay(Direction::Backward))
    }

    /// The lowest rate of the shared hops of a direction, at the layer that its hop says; `None` where none has a rate.
    pub fn bottleneck(&self, direction: Direction) -> Option<BitRate> {
        self.hops(direction).iter().filter_map(|hop| hop.rate).min()
    }

    /// The rate of payload that the shared hops of a direction carry at most, in IP packets of `packet_bytes` with `payload_bytes` each; `None`
    /// where none has a rate.
    pub fn payload_rate(&self, direction: Direction, packet_bytes: u32, payload_bytes: u32) -> Option<BitRate> {
        let of_hop = |hop: &HopSpec| {
            let bytes = hop.layer.bytes_of(packet_bytes.saturating_add(ETHERNET_HEADER_BYTES));
            Some(BitRate(hop.rate?.0.saturating_mul(payload_bytes.into()) / u64::from(bytes)))
        };
        self.hops(direction).iter().filter_map(of_hop).min()
    }

    /// What the hops of a direction are called: their names, else `hop1`, `hop2`, ….
    pub fn hop_names(&self, direction: Direction) -> Vec<String> {
        let number = |(index, hop): (usize, &HopSpec)| hop.name.clone().unwrap_or_else(|| format!("hop{}", index + 1));
        self.hops(direction).iter().enumerate().map(number).collect()
    }

    /// What the hosts of an end are called: their names, else `client` or, of several, `client1`, `client2`, …. Never
    /// empty.
    pub fn host_names(&self, end: PathEnd) -> Vec<String> {
        match self.hosts(end) {
            [] => vec![end.name().to_owned()],
            [host] => vec![host.name.clone().unwrap_or_else(|| end.name().to_owned())],
            hosts => {
                let number = |(index, host): (usize, &HostSpec)| {
                    host.name.clone().unwrap_or_else(|| format!("{end}{}", index + 1))
                };
                hosts.iter().enumerate().map(number).collect()
            }
        }
    }

    /// The speed of a host's link, at L1: its own, else the least standard Ethernet speed of at least twice the
    /// fastest hop of the path (above 400 Gbit just twice); `None`, no limit, where no hop has a rate.
    ///
    /// A burst must meet the first shared queue faster than it drains, or a drop-tail queue there never fills; and
    /// slower than at once, or packets that share a time stamp would look like a burst that no wire carries.
    pub fn access_rate(&self, host: &HostSpec) -> Option<BitRate> {
        if host.rate.is_some() {
            return host.rate;
        }
        let fastest = self.forward.iter().chain(&self.backward).filter_map(|hop| hop.rate).max()?;
        let wanted = BitRate(fastest.0.saturating_mul(2));
        let standard = ETHERNET_GBIT.map(BitRate::from_gbit).into_iter().find(|speed| *speed >= wanted);
        Some(standard.unwrap_or(wanted))
    }
}

impl HopSpec {
    /// The shortest fixed delay that the hop has at any time.
    pub fn shortest_delay(&self) -> Nanos {
        self.delay_steps.delays().min().map_or(self.delay, |step| step.min(self.delay))
    }

    /// The longest fixed delay that the hop has at any time.
    pub fn longest_delay(&self) -> Nanos {
        self.delay_steps.delays().max().map_or(self.delay, |step| step.max(self.delay))
    }
}

impl DelaySteps {
    /// All delays beside the hop's own.
    fn delays(&self) -> impl Iterator<Item = Nanos> {
        let (steps, delays) = match self {
            Self::At(steps) => (&steps[..], &[][..]),
            Self::Random { delays, .. } => (&[][..], &delays[..]),
        };
        steps.iter().map(|step| step.delay).chain(delays.iter().copied())
    }
}

impl Direction {
    /// Forward, then backward.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Backward];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        }
    }
}

impl PathEnd {
    /// Client, then server.
    pub const BOTH: [Self; 2] = [Self::Client, Self::Server];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for PathEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
