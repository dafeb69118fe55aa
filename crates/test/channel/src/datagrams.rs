//! Datagrams that nobody else can read, change or insert.
//!
//! ```text
//!   0       4         8           16
//! | "LHD1" | session | sequence  | sealed payload …            | tag |
//!    4        4 (BE)    8 (BE)                                    16
//! ```
//!
//! Both ends agree on keys by a separate Noise handshake; its two messages travel over the encrypted control channel. Then each
//! datagram is a Noise message whose nonce is its sequence number (Noise §11.4, out-of-order transport messages), so lost and
//! reordered datagrams do not matter. A sender uses no number twice; the receiver must make sure that no number counts twice.
//!
//! Without a key the payload is not encrypted, and the tag is a token that the receiving end chose. This keeps out only those who
//! cannot read the traffic.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use snow::{HandshakeState, StatelessTransportState};

use super::ChannelError;
use super::key::Key;
use super::noise::{MAX_NOISE, TAG, handshake};

/// Bytes of a datagram besides its payload.
pub const DATAGRAM_OVERHEAD_BYTES: usize = HEADER_BYTES + TAG;
/// Bytes of the token that replaces the tag where there is no key.
pub const TOKEN_BYTES: usize = TAG;

const HEADER_BYTES: usize = 16;
const MAGIC: [u8; 4] = *b"LHD1";
const PROLOGUE: &[u8] = b"longhaul/1 datagrams";
/// A handshake message without payload: a public key and a tag.
const OFFER_BYTES_MOST: usize = 128;

/// The handshake of the sending end, until the other end answers.
pub struct DatagramOffer(Box<HandshakeState>);

impl std::fmt::Debug for DatagramOffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatagramOffer(…)")
    }
}

impl DatagramOffer {
    /// An offer, and the message for the other end. `random` as for [`Channel::keyed`](super::Channel::keyed): new for each offer.
    pub fn new(key: &Key, random: [u8; 32]) -> (Self, Vec<u8>) {
        // The library accepts these constants: pattern, key length, primitives.
        let mut state = handshake(true, key, PROLOGUE, random).expect("constant pattern");
        let message = write(&mut state).expect("constant length");
        (Self(Box::new(state)), message)
    }

    /// The keys, from the other end's answer.
    ///
    /// # Errors
    /// [`ChannelError::WrongKey`]: the bytes do not answer this offer.
    pub fn accept(mut self, answer: &[u8]) -> Result<DatagramKeys, ChannelError> {
        let mut payload = [0; 64];
        self.0.read_message(answer, &mut payload).map_err(|_| ChannelError::WrongKey)?;
        DatagramKeys::of(*self.0)
    }
}

/// Seals and opens the datagrams of one session in one direction.
pub struct DatagramKeys(Keys);

enum Keys {
    Noise(Box<StatelessTransportState>),
    Token([u8; TOKEN_BYTES]),
}

impl std::fmt::Debug for DatagramKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatagramKeys(…)")
    }
}

impl DatagramKeys {
    /// The keys of the receiving end, and its answer to `offer`.
    ///
    /// # Errors
    /// [`ChannelError::WrongKey`]: the offer was not made with this key.
    pub fn answer(key: &Key, random: [u8; 32], offer: &[u8]) -> Result<(Self, Vec<u8>), ChannelError> {
        let mut state = handshake(false, key, PROLOGUE, random).expect("constant pattern");
        let mut payload = [0; 64];
        state.read_message(offer, &mut payload).map_err(|_| ChannelError::WrongKey)?;
        let answer = write(&mut state).map_err(|_| ChannelError::WrongKey)?;
        Ok((Self::of(state)?, answer))
    }

    /// Without encryption: datagrams carry `token`, random bytes of the receiving end.
    pub fn plain(token: [u8; TOKEN_BYTES]) -> Self {
        Self(Keys::Token(token))
    }

    fn of(state: HandshakeState) -> Result<Self, ChannelError> {
        let state = state.into_stateless_transport_mode().map_err(|_| ChannelError::WrongKey)?;
        Ok(Self(Keys::Noise(Box::new(state))))
    }

    /// Builds `datagram` from a payload of at most 65,000 bytes. A session must not use a `sequence` twice.
    pub fn seal(&self, session: u32, sequence: u64, payload: &[u8], datagram: &mut Vec<u8>) {
        debug_assert!(payload.len() + TAG <= MAX_NOISE);
        datagram.clear();
        datagram.extend_from_slice(&MAGIC);
        datagram.extend_from_slice(&session.to_be_bytes());
        datagram.extend_from_slice(&sequence.to_be_bytes());
        match &self.0 {
            Keys::Noise(state) => {
                datagram.resize(HEADER_BYTES + payload.len() + TAG, 0);
                // The buffer has exactly this size. The one nonce that Noise reserves, 2^64 - 1, is never reached.
                let written = state.write_message(sequence, payload, &mut datagram[HEADER_BYTES..]);
                debug_assert_eq!(written, Ok(payload.len() + TAG));
            }
            Keys::Token(token) => {
                datagram.extend_from_slice(payload);
                datagram.extend_from_slice(token);
            }
        }
    }

    /// Opens a datagram of `session` into `payload`. Returns its sequence number, or `None` if the other end did not make it.
    pub fn open(&self, session: u32, datagram: &[u8], payload: &mut Vec<u8>) -> Option<u64> {
        let (header, sealed) = datagram.split_first_chunk::<HEADER_BYTES>()?;
        let length = sealed.len().checked_sub(TAG)?;
        if header[..4] != MAGIC || header[4..8] != session.to_be_bytes() {
            return None;
        }
        let sequence = u64::from_be_bytes(header[8..].try_into().ok()?);
        match &self.0 {
            Keys::Noise(state) => {
                payload.resize(length, 0);
                let read = state.read_message(sequence, sealed, payload).ok()?;
                (read == length).then_some(sequence)
            }
            Keys::Token(token) => {
                // All bytes are compared, so that the time does not depend on them.
                let differ = sealed[length..].iter().zip(token).fold(0, |differ, (a, b)| differ | (a ^ b));
                payload.clear();
                payload.extend_from_slice(&sealed[..length]);
                (differ == 0).then_some(sequence)
            }
        }
    }
}

/// Bytes of a handshake or a token as text (base64, RFC 4648 §4).
pub fn encode_secret(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes of such a text; `None` if it is not base64 or too long.
pub fn decode_secret(text: &str) -> Option<Vec<u8>> {
    if text.len() > 4 * OFFER_BYTES_MOST.div_ceil(3) { None } else { STANDARD.decode(text).ok() }
}

fn write(state: &mut HandshakeState) -> Result<Vec<u8>, snow::Error> {
    let mut message = vec![0; OFFER_BYTES_MOST];
    let length = state.write_message(&[], &mut message)?;
    message.truncate(length);
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(first: u8) -> Key {
        let mut bytes = *b"01234567890123456789012345678901";
        bytes[0] = first;
        Key::from_random(bytes).unwrap()
    }

    fn pair() -> (DatagramKeys, DatagramKeys) {
        let (offer, message) = DatagramOffer::new(&key(1), [3; 32]);
        let (receiving, answer) = DatagramKeys::answer(&key(1), [4; 32], &message).unwrap();
        (offer.accept(&answer).unwrap(), receiving)
    }

    #[test]
    fn datagrams_open_in_any_order_and_only_whole() {
        let token = [9; TOKEN_BYTES];
        for (sending, receiving) in [pair(), (DatagramKeys::plain(token), DatagramKeys::plain(token))] {
            let (mut datagrams, mut payload) = (Vec::new(), Vec::new());
            for sequence in 0..10_u64 {
                let mut datagram = Vec::new();
                sending.seal(7, sequence, format!("payload {sequence}").as_bytes(), &mut datagram);
                assert_eq!(datagram.len(), 9 + DATAGRAM_OVERHEAD_BYTES);
                datagrams.push(datagram);
            }
            for sequence in [9, 0, 5, 5, 1_u64] {
                let datagram = &datagrams[sequence as usize];
                assert_eq!(receiving.open(7, datagram, &mut payload), Some(sequence));
                assert_eq!(payload, format!("payload {sequence}").as_bytes());
                assert_eq!(receiving.open(8, datagram, &mut payload), None, "another session's");
                for length in 0..datagram.len() {
                    assert_eq!(receiving.open(7, &datagram[..length], &mut payload), None, "cut to {length}");
                }
                let last = datagram.len() - 1;
                let mut changed = datagram.clone();
                changed[last] ^= 1;
                assert_eq!(receiving.open(7, &changed, &mut payload), None, "its tag is another");
            }
        }
    }

    #[test]
    fn with_a_key_nothing_shows_and_nothing_can_be_changed() {
        let (sending, receiving) = pair();
        let (mut datagram, mut payload) = (Vec::new(), Vec::new());
        sending.seal(1, 2, b"10.1.2.3 talks to 10.4.5.6", &mut datagram);
        assert!(!datagram.windows(8).any(|window| window == b"10.1.2.3"));
        for at in 0..datagram.len() {
            let mut changed = datagram.clone();
            changed[at] ^= 0x10;
            assert_eq!(receiving.open(1, &changed, &mut payload), None, "byte {at}");
        }
        // Another key, or a wrong offer.
        let (_, message) = DatagramOffer::new(&key(2), [3; 32]);
        assert_eq!(DatagramKeys::answer(&key(1), [4; 32], &message).unwrap_err(), ChannelError::WrongKey);
        assert_eq!(DatagramKeys::answer(&key(1), [4; 32], b"").unwrap_err(), ChannelError::WrongKey);
        let (offer, _) = DatagramOffer::new(&key(1), [3; 32]);
        assert_eq!(offer.accept(&[0; 48]).unwrap_err(), ChannelError::WrongKey);
    }
}
