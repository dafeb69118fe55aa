//! `snow` with the random source as an argument.

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};

use super::identity::{Identity, PublicKey};
use super::key::{KEY_BYTES, Key};

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
/// The initiator knows the responder's key, and the responder learns the initiator's (§7.5).
const KNOWN_PATTERN: &str = "Noise_IK_25519_ChaChaPoly_BLAKE2s";

/// Longest Noise message (§3).
pub(super) const MAX_NOISE: usize = 65_535;
/// Bytes that encryption adds.
pub(super) const TAG: usize = 16;

/// A handshake whose ephemeral key is made of `random`. It fails if the ends do not have the same `prologue` and key.
pub(super) fn handshake(
    initiator: bool,
    key: &Key,
    prologue: &[u8],
    random: [u8; 32],
) -> Result<HandshakeState, snow::Error> {
    let builder = Builder::with_resolver(PATTERN.parse()?, Box::new(Resolver { random }))
        .psk(0, key.bytes())?
        .prologue(prologue)?;
    if initiator { builder.build_initiator() } else { builder.build_responder() }
}

/// The same where each end has a key of its own. `theirs`: the responder's, which the initiator knows.
pub(super) fn known_handshake(
    own: &Identity,
    theirs: Option<&PublicKey>,
    prologue: &[u8],
    random: [u8; 32],
) -> Result<HandshakeState, snow::Error> {
    let builder = Builder::with_resolver(KNOWN_PATTERN.parse()?, Box::new(Resolver { random }))
        .local_private_key(own.bytes())?
        .prologue(prologue)?;
    match theirs {
        Some(theirs) => builder.remote_public_key(theirs.bytes())?.build_initiator(),
        None => builder.build_responder(),
    }
}

/// The primitives of `snow` itself, except the random source.
struct Resolver {
    random: [u8; KEY_BYTES],
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.random))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Returns its bytes once: this pattern makes one ephemeral key and asks for nothing else. A second call fails; bytes are never
/// repeated.
struct Once(Option<[u8; KEY_BYTES]>);

impl Random for Once {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        let bytes = self.0.take().filter(|bytes| bytes.len() == dest.len()).ok_or(snow::Error::Rng)?;
        dest.copy_from_slice(&bytes);
        Ok(())
    }
}
