//! The control channel: who may speak, and nobody else may read or change it.
//!
//! [`Channel`] turns messages into bytes and back, with a key or, where both ends say so aloud, without. No sockets here, and no
//! random source: bytes come in and go out as arguments.
//!
//! [`DatagramKeys`] does so for datagrams, which may be lost and overtake each other, after a handshake over such a channel.
//!
//! With a key it is the Noise protocol (<https://noiseprotocol.org/noise.html>, revision 34) as `snow` has it,
//! `Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s`: both ends prove that they know the key, and who steals it later cannot read what was
//! recorded before (§9.4, §10.4).

mod channel;
mod datagrams;
mod frame;
mod key;
mod noise;

pub use channel::{Channel, ChannelError, PREAMBLE_BYTES, Role};
pub use datagrams::{DATAGRAM_OVERHEAD_BYTES, DatagramKeys, DatagramOffer, TOKEN_BYTES, decode_secret, encode_secret};
pub use frame::{Deframer, FrameError, MAX_MESSAGE_BYTES, PROTOCOL, shown, to_frame};
pub use key::{KEY_BYTES, Key, KeyError};
