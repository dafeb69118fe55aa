//! Messages to bytes and back.
//!
//! ```text
//! client: longhaul/1 keyed │ 00 30 handshake 1 │ length (16), Noise message │ …
//! server: longhaul/1 keyed │ 00 30 handshake 2 │ length (16), Noise message │ …
//!
//! client: longhaul/1 plain │ messages as they are …            where both said --no-auth
//! client: longhaul/1 known │ 00 60 handshake 1 │ …             where each end has a key of its own
//! ```
//!
//! Each side begins with 16 bytes: protocol, version, and whether it has a key. Both must send the same. The decrypted Noise
//! messages, or the bytes after the preamble, are one byte stream, which [`Deframer`] cuts into messages. A server that cannot read
//! the first handshake message answers with the length 0: the keys differ.

use std::collections::VecDeque;

use serde::Serialize;
use serde::de::DeserializeOwned;
use snow::{HandshakeState, TransportState};

use super::identity::{Identity, PublicKey};
use super::key::Key;
use super::noise::{MAX_NOISE, TAG, handshake, known_handshake};
use crate::frame::{Deframer, FrameError, PROTOCOL, to_frame};

/// Length of the preamble that each side sends first.
pub const PREAMBLE_BYTES: usize = 16;
const KEYED: &[u8; PREAMBLE_BYTES] = b"longhaul/1 keyed";
const PLAIN: &[u8; PREAMBLE_BYTES] = b"longhaul/1 plain";
const KNOWN: &[u8; PREAMBLE_BYTES] = b"longhaul/1 known";
const NAME: &[u8] = b"longhaul/";

/// Which end this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The client, which sends first.
    Client,
    /// The server, which answers.
    Server,
}

/// Why a channel cannot be used any more. The texts are for the user of this end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// The other end does not speak this protocol.
    #[error("the other end does not speak longhaul's protocol")]
    NotLonghaul,
    /// The other end speaks another version of the protocol.
    #[error("the other end speaks another version of the protocol; this end speaks {PROTOCOL}")]
    Version,
    /// The other end requires a key, this end has none.
    #[error("the other end requires a key")]
    KeyRequired,
    /// The other end has no key, this end requires one.
    #[error("the other end has no key, but this end requires one")]
    NoKeyThere,
    /// The two keys differ, or someone changed what was sent.
    #[error("the keys of the two ends differ")]
    WrongKey,
    /// A message was changed, repeated or removed between the ends.
    #[error("a message was changed between the ends")]
    Tampered,
    /// The bytes are not a message.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl ChannelError {
    /// The code, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotLonghaul => "not_longhaul",
            Self::Version => "version_mismatch",
            Self::KeyRequired => "key_required",
            Self::NoKeyThere => "key_missing",
            Self::WrongKey => "wrong_key",
            Self::Tampered => "tampered",
            Self::Frame(_) => "protocol",
        }
    }

    /// What the user can do.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NotLonghaul => "check the address and the port of the server",
            Self::Version | Self::Frame(_) => "use the same version of longhaul at both ends",
            Self::KeyRequired => "give the same `key`",
            Self::NoKeyThere => "give the other end the same `key`, or use `no_auth` at both ends",
            Self::WrongKey => "copy the key file from one end to the other",
            Self::Tampered => "try again; if it happens again, look for a middlebox that changes TCP data",
        }
    }
}

/// One end of a control channel.
///
/// Bytes from the other end go in by [`handle_bytes`](Self::handle_bytes), messages for it by [`send`](Self::send). Received
/// messages come out of [`poll_message`](Self::poll_message), bytes to send out of [`poll_transmit`](Self::poll_transmit). Messages
/// can be sent at once: they wait for the handshake. Memory: one message, one Noise message, and what was not polled.
pub struct Channel<M> {
    side: Role,
    preamble: &'static [u8; PREAMBLE_BYTES],
    stage: Stage,
    /// Who the other end is, where each has a key of its own.
    peer: Option<PublicKey>,
    /// Whether something arrived that only the other end can have encrypted.
    proven: bool,
    /// Bytes that are not yet a whole preamble or a whole Noise message.
    input: Vec<u8>,
    plaintext: Vec<u8>,
    deframer: Deframer<M>,
    messages: VecDeque<M>,
    output: Vec<u8>,
    /// Messages that wait for the handshake.
    waiting: Vec<u8>,
    failed: Option<ChannelError>,
}

enum Stage {
    Preamble(Option<Box<HandshakeState>>),
    Handshake(Box<HandshakeState>),
    Keyed(Box<TransportState>),
    Plain,
    /// After an error: nothing is received or sent any more, in particular nothing unencrypted.
    Dead,
}

impl<M> std::fmt::Debug for Channel<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("side", &self.side).field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl<M: Serialize + DeserializeOwned> Channel<M> {
    /// A channel that proves and requires `key`. `random`: 32 bytes from the operating system's random source, new for every
    /// channel; with repeated bytes the encryption is broken.
    pub fn keyed(side: Role, key: &Key, random: [u8; 32]) -> Self {
        // The library accepts these constants: pattern, key length, primitives.
        let handshake = handshake(side == Role::Client, key, KEYED, random).expect("constant pattern");
        Self::new(side, KEYED, Stage::Preamble(Some(Box::new(handshake))))
    }

    /// A channel without authentication or encryption, for `--no-auth`.
    pub fn plain(side: Role) -> Self {
        let mut channel = Self::new(side, PLAIN, Stage::Preamble(None));
        if side == Role::Server {
            channel.deframer = Deframer::of_stranger();
        }
        channel
    }

    /// A client that has a key of its own and talks to the holder of `theirs` alone. `random` as for [`keyed`](Self::keyed).
    pub fn to_known(own: &Identity, theirs: &PublicKey, random: [u8; 32]) -> Self {
        let handshake = known_handshake(own, Some(theirs), KNOWN, random).expect("constant pattern");
        Self::new(Role::Client, KNOWN, Stage::Preamble(Some(Box::new(handshake))))
    }

    /// A server that has a key of its own; [`peer`](Self::peer) then says who the client is.
    pub fn from_known(own: &Identity, random: [u8; 32]) -> Self {
        let handshake = known_handshake(own, None, KNOWN, random).expect("constant pattern");
        let mut channel = Self::new(Role::Server, KNOWN, Stage::Preamble(Some(Box::new(handshake))));
        channel.deframer = Deframer::of_stranger();
        channel
    }

    /// Takes long messages from now on, where this end is a server [without a key](Self::plain) or [of anybody's](Self::from_known): until then a
    /// message has 16 KiB at most.
    pub fn trust(&mut self) {
        self.deframer.trust();
    }

    /// Who the other end is, once the handshake is over, where each end has a key of its own. A handshake can be replayed: see
    /// [`is_proven`](Self::is_proven).
    pub fn peer(&self) -> Option<PublicKey> {
        self.peer
    }

    /// Whether the handshake is over: to who began it, the other end has proven that it has its key.
    pub fn is_keyed(&self) -> bool {
        matches!(self.stage, Stage::Keyed(_))
    }

    /// Whether the other end has proven that it has its key: it has encrypted something for this connection.
    pub fn is_proven(&self) -> bool {
        self.proven
    }

    fn new(side: Role, preamble: &'static [u8; PREAMBLE_BYTES], stage: Stage) -> Self {
        let mut channel = Self {
            side,
            preamble,
            stage,
            peer: None,
            proven: false,
            input: Vec::new(),
            plaintext: Vec::new(),
            deframer: Deframer::default(),
            messages: VecDeque::new(),
            output: Vec::new(),
            waiting: Vec::new(),
            failed: None,
        };
        if side == Role::Client {
            channel.put_preamble();
            if let Stage::Preamble(Some(handshake)) = &mut channel.stage {
                // A first message without payload has a constant length, and the buffer has room for it.
                put_handshake(handshake, &mut channel.output).expect("constant length");
            }
        }
        channel
    }

    fn put_preamble(&mut self) {
        self.output.extend_from_slice(self.preamble);
    }

    /// Handles bytes from the other end.
    ///
    /// # Errors
    /// The channel is unusable. Send what [`poll_transmit`](Self::poll_transmit) still returns, then close the connection.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> Result<(), ChannelError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.take(bytes).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), ChannelError> {
        while !bytes.is_empty() {
            if let Stage::Plain = self.stage {
                self.deframer.push(bytes, &mut self.messages)?;
                return Ok(());
            }
            let wanted = match (&self.stage, self.input.first_chunk::<2>()) {
                (Stage::Preamble(_), _) => PREAMBLE_BYTES,
                (_, None) => 2,
                (_, Some(length)) => 2 + usize::from(u16::from_be_bytes(*length)),
            };
            let (taken, rest) = bytes.split_at(bytes.len().min(wanted - self.input.len()));
            self.input.extend_from_slice(taken);
            bytes = rest;
            if let Stage::Preamble(_) = self.stage
                && !NAME.starts_with(&self.input[..self.input.len().min(NAME.len())])
            {
                return Err(ChannelError::NotLonghaul);
            }
            // A length of 0 needs no further bytes; any other length does.
            let whole = self.input.len() == wanted && (wanted != 2 || self.input[..2] == [0, 0]);
            if whole {
                let input = std::mem::take(&mut self.input);
                self.take_unit(&input)?;
                self.input = input;
                self.input.clear();
            }
        }
        Ok(())
    }

    /// A preamble, or a Noise message with its length.
    fn take_unit(&mut self, unit: &[u8]) -> Result<(), ChannelError> {
        match std::mem::replace(&mut self.stage, Stage::Dead) {
            Stage::Preamble(handshake) => {
                if self.side == Role::Server {
                    self.put_preamble();
                }
                self.stage = match (handshake, self.check_preamble(unit)?) {
                    (Some(handshake), ()) => Stage::Handshake(handshake),
                    (None, ()) => Stage::Plain,
                };
                if let Stage::Plain = self.stage {
                    self.output.append(&mut self.waiting);
                }
            }
            Stage::Handshake(mut handshake) => {
                let mut payload = [0; 64];
                if handshake.read_message(&unit[2..], &mut payload).is_err() {
                    if self.side == Role::Server {
                        self.output.extend_from_slice(&[0, 0]);
                    }
                    return Err(ChannelError::WrongKey);
                }
                if self.side == Role::Server {
                    put_handshake(&mut handshake, &mut self.output).map_err(|_| ChannelError::WrongKey)?;
                }
                self.peer = handshake.get_remote_static().and_then(PublicKey::of);
                let mut transport = handshake.into_transport_mode().map_err(|_| ChannelError::WrongKey)?;
                encrypt(&mut transport, &std::mem::take(&mut self.waiting), &mut self.output);
                self.stage = Stage::Keyed(Box::new(transport));
            }
            Stage::Keyed(mut transport) => {
                self.plaintext.resize(MAX_NOISE, 0);
                let length =
                    transport.read_message(&unit[2..], &mut self.plaintext).map_err(|_| ChannelError::Tampered)?;
                self.proven = true;
                self.deframer.push(&self.plaintext[..length], &mut self.messages)?;
                self.stage = Stage::Keyed(transport);
            }
            stage @ (Stage::Plain | Stage::Dead) => self.stage = stage,
        }
        Ok(())
    }

    fn check_preamble(&self, theirs: &[u8]) -> Result<(), ChannelError> {
        if theirs == self.preamble {
            Ok(())
        } else if theirs == PLAIN {
            Err(ChannelError::NoKeyThere)
        } else if theirs == KEYED || theirs == KNOWN {
            Err(if self.preamble == PLAIN { ChannelError::KeyRequired } else { ChannelError::WrongKey })
        } else {
            Err(ChannelError::Version)
        }
    }

    /// Queues a message to be sent.
    ///
    /// # Errors
    /// The message is too long; the channel stays usable. After an error of [`handle_bytes`](Self::handle_bytes) messages are
    /// discarded.
    pub fn send(&mut self, message: &M) -> Result<(), FrameError> {
        let frame = to_frame(message)?;
        match &mut self.stage {
            Stage::Keyed(transport) => encrypt(transport, &frame, &mut self.output),
            Stage::Plain => self.output.extend_from_slice(&frame),
            Stage::Preamble(_) | Stage::Handshake(_) => self.waiting.extend_from_slice(&frame),
            Stage::Dead => {}
        }
        Ok(())
    }

    /// The next message from the other end. With a key, the sender of the message has that key.
    pub fn poll_message(&mut self) -> Option<M> {
        self.messages.pop_front()
    }

    /// All bytes that are to be sent to the other end.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        (!self.output.is_empty()).then(|| std::mem::take(&mut self.output))
    }

    /// Whether the other end has answered the handshake. With a key, it has then proven that it has the key (at the server: once a
    /// message arrived).
    pub fn is_established(&self) -> bool {
        matches!(self.stage, Stage::Keyed(_) | Stage::Plain) && self.failed.is_none()
    }
}

fn put_handshake(handshake: &mut HandshakeState, output: &mut Vec<u8>) -> Result<(), snow::Error> {
    let mut message = [0; 128];
    let length = handshake.write_message(&[], &mut message)?;
    output.extend_from_slice(&(length as u16).to_be_bytes());
    output.extend_from_slice(&message[..length]);
    Ok(())
}

/// Appends `plaintext` as Noise messages.
fn encrypt(transport: &mut TransportState, plaintext: &[u8], output: &mut Vec<u8>) {
    for piece in plaintext.chunks(MAX_NOISE - TAG) {
        let length = piece.len() + TAG;
        let start = output.len();
        output.extend_from_slice(&(length as u16).to_be_bytes());
        output.resize(start + 2 + length, 0);
        // The buffer has exactly this size, and 2^64 messages are never reached.
        let written = transport.write_message(piece, &mut output[start + 2..]);
        debug_assert_eq!(written, Ok(length));
    }
}
