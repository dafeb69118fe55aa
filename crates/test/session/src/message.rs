//! The messages of the control protocol. Fields that a version does not know are ignored, types of messages that it does not know are not.

use longhaul_channel::{ChannelError, shown};
use longhaul_result::Caveat;
use longhaul_tcp::proof::TcpCookie;
use longhaul_terms::{MAX_STREAMS, StreamSent, bounded_list};
use longhaul_units::Nanos;
use longhaul_wire::probe::Cookie;
use serde::{Deserialize, Serialize};

use super::limits::Caps;
use super::test_parameters::TestParameters;

/// A message of the control protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// The first of each side.
    Hello(Hello),
    /// Client: what test I want.
    Propose {
        /// The test.
        parameters: TestParameters,
    },
    /// Server: you wait, so many tests are before you.
    Queued {
        /// Tests before this one.
        ahead: u32,
    },
    /// Server: go on to prove the data path.
    Accept(Accept),
    /// Server: no test.
    Refuse(Refusal),
    /// Server: packets pass both ways, for every stream.
    DataProven,
    /// Client: ready to receive; the test begins.
    Start,
    /// Receiver: what arrived so far.
    Progress(Progress),
    /// Nothing to say, but there.
    Alive,
    /// Stop sending now and account for what was sent.
    Stop,
    /// Sender: that was all.
    Finished {
        /// What each stream sent.
        #[serde(deserialize_with = "bounded_list::<_, _, { MAX_STREAMS as usize }>")]
        streams: Vec<StreamSent>,
    },
    /// Receiver: nothing more is expected.
    Drained,
    /// Server: a piece of its report, in order.
    Report {
        /// The piece.
        text: String,
        /// Whether it is the last.
        last: bool,
    },
    /// Of a capture's log link, whose messages `longhaul-captures` knows.
    LogLink {
        /// One of them, as JSON.
        text: String,
    },
    /// I give up, and why.
    Error(SessionError),
    /// All is said.
    Goodbye,
}

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`](longhaul_channel::PROTOCOL).
    pub version: String,
    /// Random; names the session in the logs of both ends.
    pub nonce: u64,
    /// What this end can do beyond the protocol's first form; unknown ones are ignored.
    pub features: Vec<String>,
}

/// A test that a server grants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accept {
    /// What is granted: as proposed but where no limit was asked for.
    pub parameters: TestParameters,
    /// The server's UDP port of each stream, or the one TCP port of all.
    pub data_ports: Vec<u16>,
    /// The session's cookie: its upper 24 bits count.
    pub cookie: u32,
    /// What the client's first datagrams must carry.
    pub token: u64,
    /// Of a TCP test, with `token`: what each data connection begins with.
    #[serde(default)]
    pub token_high: u64,
    /// What the server allows.
    pub caps: Caps,
    /// What the server has to say about the conditions, such as a buffer that was not granted in full.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}

impl Accept {
    /// The session's cookie.
    pub fn session_cookie(&self) -> Cookie {
        Cookie::new(self.cookie, false, 0)
    }

    /// What the data connections of a TCP test begin with.
    pub fn tcp_cookie(&self) -> TcpCookie {
        TcpCookie::of_words(self.token_high, self.token)
    }
}

/// Why there is no test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason.
    #[serde(flatten)]
    pub error: SessionError,
    /// When to try again; `None` where that would not help.
    pub retry_after: Option<Nanos>,
}

/// What a receiver has got so far, for live lines. Sums over its streams, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Since the first packet came, by the receiver's clock.
    pub elapsed_ns: u64,
    /// Packets received, each once.
    pub received_packets: u64,
    /// Packets missing so far, of those that should have come.
    pub missing_packets: u64,
    /// Further copies.
    pub duplicate_packets: u64,
    /// Reordered packets.
    pub reordered_packets: u64,
    /// Payload bytes received, each packet once.
    pub payload_bytes: u64,
}

/// Why a session ended without a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct SessionError {
    /// For programs.
    pub code: String,
    /// What is the matter, in one line.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl SessionError {
    /// An error.
    pub fn new(code: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), remedy: remedy.into() }
    }

    /// What a peer sent, fit to be shown: one line of bounded length without control characters.
    pub fn of_peer(self) -> Self {
        Self { code: shown(&self.code), message: shown(&self.message), remedy: shown(&self.remedy) }
    }
}

impl From<ChannelError> for SessionError {
    fn from(error: ChannelError) -> Self {
        Self::new(error.code(), error.to_string(), error.remedy())
    }
}

/// The caveats of the other end, fit to be shown: bounded in number and length, without control characters.
pub(crate) fn caveats_of_peer(caveats: Vec<Caveat>) -> Vec<Caveat> {
    let one = |c: Caveat| Caveat { code: shown(&c.code), message: shown(&c.message), remedy: shown(&c.remedy) };
    caveats.into_iter().take(16).map(one).collect()
}

#[cfg(test)]
mod tests {
    use longhaul_channel::{Deframer, FrameError, MAX_MESSAGE_BYTES, to_frame};

    use super::*;

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
    fn lengths_and_lists_are_bounded() {
        let push = |bytes: &[u8]| Deframer::<Message>::default().push(bytes, &mut Vec::new());
        assert_eq!(push(b"GET / HTTP/1.1\r\n"), Err(FrameError::Length(0x4745_5420)));
        assert_eq!(push(&[0; 4]), Err(FrameError::Length(0)));
        assert!(matches!(push(b"\0\0\0\x02{}"), Err(FrameError::Json(_))));
        let long = Message::Report { text: "x".repeat(MAX_MESSAGE_BYTES), last: true };
        assert!(matches!(to_frame(&long), Err(FrameError::Length(_))));
        let many = to_frame(&Message::Finished { streams: vec![StreamSent::default(); 65] }).unwrap();
        assert!(push(&many).unwrap_err().to_string().contains("a list of at most 64"));
    }
}
