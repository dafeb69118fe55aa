//! The messages of the control protocol. A version ignores unknown fields, but rejects messages of unknown types.

use std::collections::BTreeSet;

use longhaul_channel::shown;
use longhaul_result::Caveat;
use longhaul_tcp::proof::TcpCookie;
use longhaul_terms::{MAX_STREAMS, StreamSent, bounded_list};
use longhaul_units::Nanos;
use longhaul_wire::probe::Cookie;
use serde::{Deserialize, Serialize};

use super::caveats;
pub use super::error::SessionError;
use super::kind::TestParameters;
use super::limits::Caps;
pub use super::progress::Progress;

/// A message of the control protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// The first message of each side.
    Hello(Hello),
    /// Client: proposes a test.
    Propose {
        /// The test.
        parameters: TestParameters,
    },
    /// Server: the client must wait for other tests.
    Queued {
        /// Number of tests before this one.
        ahead: u32,
    },
    /// Server: the test is granted; the client must prove the data path.
    Accept(Accept),
    /// Server: the test is refused.
    Refuse(Refusal),
    /// Server: packets pass in both directions, for every stream.
    DataProven,
    /// Client: it is ready to receive, and the test begins.
    Start,
    /// Receiver: what has arrived so far.
    Progress(Progress),
    /// A sign of life.
    Alive,
    /// Stop sending now and report what was sent.
    Stop,
    /// Sender: it has stopped sending.
    Finished {
        /// What each stream sent.
        #[serde(deserialize_with = "bounded_list::<_, _, { MAX_STREAMS as usize }>")]
        streams: Vec<StreamSent>,
    },
    /// Receiver: it expects no more data.
    Drained,
    /// Server: a piece of its report; pieces come in order.
    Report {
        /// The piece.
        text: String,
        /// Whether it is the last.
        last: bool,
    },
    /// A message of a capture's log link; `longhaul-captures` has its types.
    LogLink {
        /// The message, as JSON.
        text: String,
    },
    /// The session ends with an error.
    Error(SessionError),
    /// The session ends.
    Goodbye,
}

/// What an end says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`](longhaul_channel::PROTOCOL).
    pub version: String,
    /// Random number that names the session in the logs of both ends.
    pub nonce: u64,
    /// What this end supports beyond the protocol's first form. Unknown features are ignored.
    pub features: Vec<String>,
    /// A client's: the measurement that this session is a part of. Its session before ends at once, which the server may still take for
    /// one that runs. Older servers ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measurement: Option<MeasurementId>,
}

/// Names a measurement of several sessions, one after the other. It is random and a secret of the client: who knows it can end the session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MeasurementId(pub [u64; 2]);

impl std::fmt::Debug for MeasurementId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MeasurementId(…)")
    }
}

/// A test that a server grants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accept {
    /// The granted parameters: as proposed, except where no limit was requested.
    pub parameters: TestParameters,
    /// The server's UDP port of each stream, or the one TCP port of all.
    pub data_ports: Vec<u16>,
    /// The session's cookie: its upper 24 bits count.
    pub cookie: u32,
    /// The token that the client's first datagrams must carry.
    pub token: u64,
    /// With `token`, the first bytes of each data connection.
    #[serde(default)]
    pub token_high: u64,
    /// The caps of the server.
    pub caps: Caps,
    /// The server's caveats about the conditions, such as a buffer that was not granted in full.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}

impl Accept {
    /// The session's cookie.
    pub fn session_cookie(&self) -> Cookie {
        Cookie::new(self.cookie, false, 0)
    }

    /// The first bytes of the data connections.
    pub fn tcp_cookie(&self) -> TcpCookie {
        TcpCookie::of_words(self.token_high, self.token)
    }
}

/// Why a test is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason.
    #[serde(flatten)]
    pub error: SessionError,
    /// When the client may try again; `None` if that would not help.
    pub retry_after: Option<Nanos>,
}

/// Caveats of the other end that are shown.
const CAVEATS_MOST: usize = 16;

/// The caveats of the other end, safe to show: limited in number and length, without control characters. Of many the first of each kind stays
/// before others, as each flow may raise the same one; the last then says how many are left out.
pub(crate) fn caveats_of_peer(caveats: Vec<Caveat>) -> Vec<Caveat> {
    let one = |c: Caveat| Caveat::of_error(&shown(&c.code), shown(&c.message), shown(&c.remedy));
    let (count, mut kinds) = (caveats.len(), BTreeSet::new());
    let (first, more): (Vec<_>, Vec<_>) =
        caveats.into_iter().enumerate().partition(|(_, caveat)| kinds.insert(caveat.code.clone()));
    let mut kept: Vec<_> = first.into_iter().chain(more).take(CAVEATS_MOST).collect();
    kept.sort_unstable_by_key(|(place, _)| *place);
    let left_out = (count > CAVEATS_MOST).then(|| {
        let message = format!("{} more caveats of the server are left out", count - CAVEATS_MOST);
        Caveat::new(caveats::CAVEATS_LEFT_OUT, message, "test with fewer `streams` to see all")
    });
    kept.into_iter().map(|(_, caveat)| one(caveat)).chain(left_out).collect()
}

#[cfg(test)]
mod tests {
    use longhaul_channel::{Deframer, FrameError, MAX_MESSAGE_BYTES, to_frame};
    use longhaul_tcp::{CongestionStep, TcpParameters, Transfers, WindowAuto};
    use longhaul_terms::Affinity;
    use longhaul_udp::{ReceiveSettings, UdpParameters};

    use super::*;

    /// What the limits of a test allow: short messages have few values.
    #[test]
    fn the_largest_proposals_and_ends_are_read() {
        let cpus = vec![8191; MAX_STREAMS.into()];
        let (sender_cpus, receiver_cpus, softirq_cpus) = (cpus.clone(), cpus.clone(), cpus.clone());
        let affinity = Affinity { sender_cpus, receiver_cpus, softirq_cpus, softirq: None };
        let step = CongestionStep { name: "cubic".into(), duration_ns: Some(1) };
        let tcp = TcpParameters {
            congestion: vec![step; 64],
            window_auto: Some(WindowAuto { rtt_ns: 1, rate_goal_bps: 1 }),
            transfers: Some(Transfers { bytes: 1, every_ns: 1 }),
            affinity: affinity.clone(),
            ..TcpParameters::default()
        };
        let irq_cpus = Some(cpus.into_iter().map(u32::from).collect());
        let receive = ReceiveSettings { irq_cpus, ..ReceiveSettings::default() };
        let udp = UdpParameters { affinity, receive, ..UdpParameters::default() };
        let messages = [
            Message::Propose { parameters: tcp.into() },
            Message::Propose { parameters: udp.into() },
            Message::Finished { streams: vec![StreamSent::default(); MAX_STREAMS.into()] },
        ];
        for message in messages {
            let text = serde_json::to_vec(&message).unwrap();
            assert!(text.len() < 16 << 10, "{} bytes", text.len());
            assert_eq!(longhaul_channel::parse::<Message>(&text).unwrap(), message);
        }
    }

    #[test]
    fn messages_survive_any_cutting() {
        let refusal = Refusal { error: SessionError::new("busy", "a", "b"), retry_after: Some(Nanos::from_secs(3)) };
        let sent = [
            Message::Propose { parameters: TestParameters::default() },
            Message::Refuse(refusal),
            Message::Finished { streams: vec![StreamSent::default(); 3] },
            Message::Goodbye,
        ];
        let bytes: Vec<u8> = sent.iter().flat_map(|message| to_frame(message).unwrap()).collect();
        for cut in [1, 3, 4, 5, 7, 1000] {
            let (mut deframer, mut got) = (Deframer::<Message>::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                deframer.push(piece, &mut got).unwrap();
            }
            assert_eq!(got, sent);
        }
    }

    #[test]
    fn no_kind_of_caveat_of_a_peer_is_lost_behind_many_of_another() {
        let caveat = |code: &str, flow: usize| Caveat::of_error(code, format!("flow {flow}"), "");
        let mut sent: Vec<_> = (0..64).map(|flow| caveat("not_drained", flow)).collect();
        sent.push(caveat("samples_thinned", 0));
        sent.extend((0..64).map(|flow| caveat("not_paced", flow)));
        let kept = caveats_of_peer(sent.clone());
        let codes: Vec<_> = kept.iter().map(|caveat| caveat.code.as_str()).collect();
        assert_eq!(codes[..14], ["not_drained"; 14]);
        assert_eq!(codes[14..], ["samples_thinned", "not_paced", "caveats_left_out"]);
        assert!(kept[16].message.starts_with("113 more"), "{}", kept[16].message);
        // Few stay as they are.
        assert_eq!(caveats_of_peer(sent[..16].to_vec()), sent[..16]);
        let hostile = (0..100_000).map(|kind| caveat(&format!("code_{kind}"), 0)).collect();
        assert_eq!(caveats_of_peer(hostile).len(), 17);
    }

    #[test]
    fn lengths_and_lists_are_bounded() {
        let push = |bytes: &[u8]| Deframer::<Message>::default().push(bytes, &mut Vec::new());
        assert_eq!(push(b"GET / HTTP/1.1\r\n"), Err(FrameError::Length(0x4745_5420, MAX_MESSAGE_BYTES)));
        assert_eq!(push(&[0; 4]), Err(FrameError::Length(0, MAX_MESSAGE_BYTES)));
        assert!(matches!(push(b"\0\0\0\x02{}"), Err(FrameError::Json(_))));
        let long = Message::Report { text: "x".repeat(MAX_MESSAGE_BYTES), last: true };
        assert!(matches!(to_frame(&long), Err(FrameError::Length(..))));
        let many = to_frame(&Message::Finished { streams: vec![StreamSent::default(); 65] }).unwrap();
        assert!(push(&many).unwrap_err().to_string().contains("a list of at most 64 elements"));
    }
}
