//! The messages of the control protocol, and how they are cut out of a byte stream.
//!
//! ```text
//! ┌───────────────────────┬──────────────────────────────────────┐
//! │ length (32, network)  │ one message, JSON in UTF-8           │
//! └───────────────────────┴──────────────────────────────────────┘
//! ```
//!
//! JSON, for what goes over this channel is small and people read it when something is wrong; the one large thing, a report, is text
//! anyway and travels in pieces. Fields that a version does not know are ignored, types of messages that it does not know are not.

use longhaul_units::Nanos;
use longhaul_wire::probe::Cookie;
use serde::{Deserialize, Serialize};

use super::limits::Caps;
use super::tcp_proof::TcpCookie;
use super::test_parameters::TestParameters;
use crate::report::{MAX_LIST, StreamSent, bounded_list};
use longhaul_result::Caveat;

/// Name and version of the protocol.
pub const PROTOCOL: &str = "longhaul/1";
/// Longest message.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Longest text from a peer that is shown to people, characters.
const MAX_SHOWN: usize = 300;

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
        #[serde(deserialize_with = "bounded_list::<_, _, MAX_LIST>")]
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
    /// [`PROTOCOL`].
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

/// `text` of a peer, fit to be shown.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_SHOWN).collect()
}

/// The caveats of the other end, fit to be shown: bounded in number and length, without control characters.
pub(crate) fn caveats_of_peer(caveats: Vec<Caveat>) -> Vec<Caveat> {
    let one = |c: Caveat| Caveat { code: shown(&c.code), message: shown(&c.message), remedy: shown(&c.remedy) };
    caveats.into_iter().take(16).map(one).collect()
}

/// Why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is zero or beyond [`MAX_MESSAGE_BYTES`].
    #[error("a message of {0} bytes, 1 to {MAX_MESSAGE_BYTES} are allowed")]
    Length(u32),
    /// Not JSON, or no message of this protocol.
    #[error("not a message of {PROTOCOL}: {0}")]
    Json(String),
}

impl Message {
    /// The message with its length before it.
    ///
    /// # Errors
    /// It takes more than [`MAX_MESSAGE_BYTES`].
    pub fn to_frame(&self) -> Result<Vec<u8>, FrameError> {
        let mut frame = vec![0; 4];
        serde_json::to_writer(&mut frame, self).map_err(|error| FrameError::Json(error.to_string()))?;
        let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
        if length as usize > MAX_MESSAGE_BYTES {
            return Err(FrameError::Length(length));
        }
        frame[..4].copy_from_slice(&length.to_be_bytes());
        Ok(frame)
    }
}

/// Cuts messages out of a byte stream, holding at most one that is not yet whole.
#[derive(Debug, Clone, Default)]
pub struct Deframer {
    buffer: Vec<u8>,
}

impl Deframer {
    /// Takes bytes as they come, and appends the messages that are whole to `messages`.
    ///
    /// # Errors
    /// The stream is not one of messages; nothing after it can be understood.
    pub fn push(&mut self, mut bytes: &[u8], messages: &mut impl Extend<Message>) -> Result<(), FrameError> {
        while !bytes.is_empty() {
            let wanted = match self.buffer.first_chunk::<4>() {
                None => 4,
                Some(length) => 4 + checked_length(*length)?,
            };
            let (taken, rest) = bytes.split_at(bytes.len().min(wanted - self.buffer.len()));
            self.buffer.extend_from_slice(taken);
            bytes = rest;
            if self.buffer.len() == wanted {
                if wanted == 4 {
                    checked_length([self.buffer[0], self.buffer[1], self.buffer[2], self.buffer[3]])?;
                    continue;
                }
                let message = serde_json::from_slice(&self.buffer[4..]);
                let message = message.map_err(|error| FrameError::Json(shown(&error.to_string())))?;
                messages.extend([message]);
                self.buffer.clear();
            }
        }
        Ok(())
    }
}

fn checked_length(length: [u8; 4]) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(length);
    match length as usize {
        1..=MAX_MESSAGE_BYTES => Ok(length as usize),
        _ => Err(FrameError::Length(length)),
    }
}

#[cfg(test)]
mod tests {
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
        let bytes: Vec<u8> = sent.iter().flat_map(|message| message.to_frame().unwrap()).collect();
        for cut in [1, 3, 4, 5, 7, 1000] {
            let (mut deframer, mut got) = (Deframer::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                deframer.push(piece, &mut got).unwrap();
            }
            assert_eq!(got, sent);
        }
    }

    #[test]
    fn lengths_and_lists_are_bounded() {
        let push = |bytes: &[u8]| Deframer::default().push(bytes, &mut Vec::new());
        assert_eq!(push(b"GET / HTTP/1.1\r\n"), Err(FrameError::Length(0x4745_5420)));
        assert_eq!(push(&[0; 4]), Err(FrameError::Length(0)));
        assert!(matches!(push(b"\0\0\0\x02{}"), Err(FrameError::Json(_))));
        let long = Message::Report { text: "x".repeat(MAX_MESSAGE_BYTES), last: true };
        assert!(matches!(long.to_frame(), Err(FrameError::Length(_))));
        let many = Message::Finished { streams: vec![StreamSent::default(); 65] }.to_frame().unwrap();
        assert!(push(&many).unwrap_err().to_string().contains("a list of at most 64"));
    }
}
