//! What one end of a test knows when it is over: what it sends to the other, who joins the two into a result.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::account::{Spacing, StreamReceived};
use crate::locate::evidence::of_message;
use crate::locate::{Evidence, LocationMethod, Total};
use crate::result::{Binding, ChangedCounters, SocketBuffer};
use crate::tcp::TcpEndReport;
use longhaul_result::Caveat;

/// What a stream sent, by the sender's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StreamSent {
    /// Packets handed to the socket: sequences 0 to this less one. Of a TCP flow 0.
    pub sent_packets: u64,
    /// Of a TCP flow: payload bytes handed to the socket.
    #[serde(default)]
    pub sent_bytes: u64,
    /// Departure of the first; 0 where none was sent.
    pub first_sent_ns: u64,
    /// Departure of the last.
    pub last_sent_ns: u64,
}

/// What a sender knows of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SenderReport {
    /// Each stream.
    #[serde(deserialize_with = "bounded_list::<_, _, MAX_LIST>")]
    pub streams: Vec<StreamSent>,
    /// Inter-departure times of all of them.
    pub spacing: Spacing,
    /// Drop events at this end, each stream.
    #[serde(deserialize_with = "of_message")]
    pub evidence: Vec<Evidence>,
    /// Counters of drops at this end that no event covers.
    pub totals: Vec<Total>,
    /// Whether every place of this end was seen.
    pub complete: bool,
    /// Packets that may have been dropped here all the same, at most.
    #[serde(default)]
    pub doubtful_packets: u64,
    /// How this end looked.
    pub method: LocationMethod,
    /// Every counter that changed.
    pub counters: ChangedCounters,
    /// The send buffer of each socket.
    #[serde(default)]
    pub buffer: Option<SocketBuffer>,
}

/// What a receiver knows of one direction.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ReceiverReport {
    /// Each stream.
    #[serde(deserialize_with = "bounded_list::<_, _, MAX_LIST>")]
    pub streams: Vec<StreamReceived>,
    /// Drop events at this end, each stream.
    #[serde(deserialize_with = "of_message")]
    pub evidence: Vec<Evidence>,
    /// Counters of drops at this end that no event covers.
    pub totals: Vec<Total>,
    /// Whether every place of this end was seen.
    pub complete: bool,
    /// Packets that may have been dropped here all the same, at most.
    #[serde(default)]
    pub doubtful_packets: u64,
    /// How this end looked.
    pub method: LocationMethod,
    /// Every counter that changed.
    pub counters: ChangedCounters,
    /// The receive buffer of each socket.
    #[serde(default)]
    pub buffer: Option<SocketBuffer>,
    /// The CPUs that its threads and their softirq were bound to.
    #[serde(default)]
    pub binding: Option<Binding>,
}

/// What one end knows of a test.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndReport {
    /// Where it sent.
    pub sender: Option<SenderReport>,
    /// Where it received.
    pub receiver: Option<ReceiverReport>,
    /// Of a TCP test: what it did, sending or receiving.
    #[serde(default)]
    pub tcp: Option<TcpEndReport>,
    /// The host as `longhaul host` has it; `null` where it was not looked at.
    #[serde(default)]
    pub host: serde_json::Value,
    /// Doubts of this end.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}

/// Longest list of streams in a report.
pub(crate) const MAX_LIST: usize = crate::control::MAX_STREAMS as usize;

/// Reads a list that the other end sent, of at most `MOST` elements: each may take far more memory than its text.
pub(crate) fn bounded_list<'de, D, T, const MOST: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct List<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST}")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
            let mut list = Vec::new();
            while let Some(element) = elements.next_element()? {
                if list.len() == MOST {
                    return Err(A::Error::invalid_length(MOST + 1, &self));
                }
                list.push(element);
            }
            Ok(list)
        }
    }

    deserializer.deserialize_seq(List::<T, MOST>(PhantomData))
}
