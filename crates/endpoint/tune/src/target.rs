//! What a host is tuned for: a rate over a round trip, its part in it, and what was found to limit it.

use std::fmt;

use longhaul_units::{BitRate, Nanos};
use serde::Serialize;

/// What the host does with most of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It sends.
    Sender,
    /// It receives.
    Receiver,
    /// It sends and receives.
    Both,
}

impl Role {
    /// It sends data.
    pub fn sends(self) -> bool {
        self != Self::Receiver
    }

    /// It receives data.
    pub fn receives(self) -> bool {
        self != Self::Sender
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sender => "sender",
            Self::Receiver => "receiver",
            Self::Both => "sender and receiver",
        })
    }
}

/// Why the rate is not reached, as a diagnosis names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cause {
    /// `receive_window`, `loss`, `shaper`, …
    pub code: String,
    /// Where: one of the locations of a loss; `None` where the diagnosis does not say.
    pub place: Option<String>,
    /// At which end; `None` for the network, or where that is not known.
    pub host: Option<End>,
    /// The least rate that it allows; `None` where that is not known.
    pub bound_bps: Option<u64>,
}

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The one that sends the data.
    Sender,
    /// The one that receives it.
    Receiver,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(if *self == Self::Sender { "sender" } else { "receiver" })
    }
}

/// Causes that are in the network whatever place a diagnosis gives: no setting of a host raises what they allow.
const OF_THE_NETWORK: [&str; 7] =
    ["link", "shaper", "policer", "queue", "competing_traffic", "ecmp_member", "middlebox_options"];

impl Cause {
    /// It is in the network, between the two hosts.
    pub fn is_of_network(&self) -> bool {
        let is_between = self.host.is_none() && self.place.as_deref().is_none_or(|place| place == "network");
        OF_THE_NETWORK.contains(&self.code.as_str()) && self.host.is_none() || (self.code == "loss" && is_between)
    }

    /// A host with this part can do something about it.
    pub fn concerns(&self, role: Role) -> bool {
        match self.host {
            None => true,
            Some(End::Sender) => role.sends(),
            Some(End::Receiver) => role.receives(),
        }
    }
}

/// What a host is tuned for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Target {
    /// The rate that one connection shall reach.
    pub rate_bps: u64,
    /// The round trip of the path without queues.
    pub rtt_ns: u64,
    /// What this host does.
    pub role: Role,
    /// What was found to limit the rate; `None` without a diagnosis.
    pub causes: Option<Vec<Cause>>,
}

impl Target {
    /// What is in flight at this rate: rate × round trip.
    pub fn in_flight_bytes(&self) -> u64 {
        BitRate(self.rate_bps).bytes_in(Nanos(self.rtt_ns))
    }

    /// The causes that a host with this part can do something about.
    pub fn own_causes(&self) -> impl Iterator<Item = &Cause> {
        self.causes.iter().flatten().filter(|cause| cause.concerns(self.role))
    }

    /// Whether one of `codes` is among those causes.
    pub fn names(&self, codes: &[&str]) -> bool {
        self.own_causes().any(|cause| codes.contains(&cause.code.as_str()))
    }

    /// The same, or there is no diagnosis that could have said otherwise.
    pub fn may_be(&self, codes: &[&str]) -> bool {
        self.causes.as_ref().is_none_or(Vec::is_empty) || self.names(codes)
    }

    /// Packets are lost at `place`.
    pub fn loses_at(&self, place: &str) -> bool {
        self.own_causes().any(|cause| cause.code == "loss" && cause.place.as_deref() == Some(place))
    }

    /// Packets are lost between the hosts.
    pub fn loses_in_network(&self) -> bool {
        self.own_causes().any(|cause| cause.code == "loss" && cause.is_of_network())
    }

    /// All causes are in the network; never without a diagnosis.
    pub fn is_bound_by_network(&self) -> bool {
        self.causes.as_ref().is_some_and(|causes| {
            let mut named = causes.iter().filter(|cause| cause.code != "none").peekable();
            named.peek().is_some() && named.all(Cause::is_of_network)
        })
    }
}
