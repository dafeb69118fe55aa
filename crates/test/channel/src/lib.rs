//! The control channel: both ends prove that they have the key, and nobody else can read or change the messages.
//!
//! [`Channel`] turns messages into bytes and back: with a key or, if both ends ask for it, without. It has no sockets and no random
//! source: bytes are arguments and results.
//!
//! [`DatagramKeys`] does the same for datagrams, which can be lost and reordered, after a handshake over such a channel.
//!
//! With a key the channel speaks the Noise protocol (<https://noiseprotocol.org/noise.html>, revision 34) as `snow` implements it,
//! `Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s`: both ends prove that they have the key, and a key that is stolen later does not decrypt
//! recorded traffic (§9.4, §10.4).
//!
//! Where each end has an [`Identity`], it speaks `Noise_IK_25519_ChaChaPoly_BLAKE2s`: the client knows whom it talks to, and the server
//! learns who the client is.
//!
//! [`Places`] bounds the connections of a listener so that neither strangers nor idle holders of a key keep out who has one.

mod channel;
mod datagrams;
mod frame;
mod identity;
mod key;
mod noise;
mod places;

pub use channel::{Channel, ChannelError, PREAMBLE_BYTES, Role};
pub use datagrams::{DATAGRAM_OVERHEAD_BYTES, DatagramKeys, DatagramOffer, TOKEN_BYTES, decode_secret, encode_secret};
pub use frame::{Deframer, FrameError, MAX_MESSAGE_BYTES, PROTOCOL, parse, shown, to_frame};
pub use identity::{Identity, PublicKey};
pub use key::{KEY_BYTES, Key, KeyError};
pub use places::{Places, Standing, Taken};
