//! Keys that belong to one end each: a secret, and what everybody may know of it.
//!
//! ```text
//! longhaul-identity-1:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=     a file for its owner alone
//! longhaul-site-1:Hk0Q…=                                              its public part
//! ```
//!
//! A shared key lets its holder be either end. With identities each end proves who it is, and a stolen one is one end alone.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use snow::params::DHChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};

use super::key::KeyError;

const SECRET_PREFIX: &str = "longhaul-identity-1:";
const PUBLIC_PREFIX: &str = "longhaul-site-1:";
/// Longest text that is read, bytes.
const MAX_TEXT: usize = 4096;

/// The secret of one end. Only [`to_text`](Self::to_text) shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity([u8; 32]);

/// What others know of an [`Identity`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

impl Identity {
    /// The identity of 32 bytes from the operating system's random source.
    ///
    /// # Errors
    /// The bytes are all equal: they do not come from a random source.
    pub fn from_random(bytes: [u8; 32]) -> Result<Self, KeyError> {
        if bytes.iter().all(|byte| *byte == bytes[0]) { Err(KeyError::Weak) } else { Ok(Self(bytes)) }
    }

    /// The text of its file.
    pub fn to_text(&self) -> String {
        format!("{SECRET_PREFIX}{}\n", STANDARD.encode(self.0))
    }

    /// What others may know.
    pub fn public(&self) -> PublicKey {
        PublicKey(public_part(self.0))
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl PublicKey {
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// The public part of a secret (RFC 7748).
fn public_part(secret: [u8; 32]) -> [u8; 32] {
    let mut public = [0; 32];
    // The default resolver has this curve.
    if let Some(mut curve) = DefaultResolver.resolve_dh(&DHChoice::Curve25519) {
        curve.set(&secret);
        public.copy_from_slice(curve.pubkey());
    }
    public
}

fn decoded(text: &str, prefix: &str) -> Result<[u8; 32], KeyError> {
    if text.len() > MAX_TEXT {
        return Err(KeyError::Length);
    }
    let encoded = text.trim().strip_prefix(prefix).ok_or(KeyError::Prefix)?;
    let bytes = STANDARD.decode(encoded).map_err(|_| KeyError::Base64)?;
    bytes.try_into().map_err(|_| KeyError::Base64)
}

impl FromStr for Identity {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::from_random(decoded(text, SECRET_PREFIX)?)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        decoded(text, PUBLIC_PREFIX).map(Self)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PUBLIC_PREFIX}{}", STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beside openssl-pkey(1), for the secret 1, 2, … 32.
    #[test]
    fn public_parts_are_those_of_openssl() {
        let identity = Identity::from_random(std::array::from_fn(|index| index as u8 + 1)).unwrap();
        let public = identity.public();
        assert_eq!(public.to_string(), "longhaul-site-1:B6N8vBQgk8i3VdwbEOhstCY3StFqqFPtC9/AsrhtHHw=");
        assert_eq!(public.to_string().parse(), Ok(public));
        assert_eq!(identity.to_text().parse(), Ok(identity.clone()));
        assert_eq!(format!("{identity:?}"), "Identity(…)");
    }

    #[test]
    fn what_is_no_identity_is_said() {
        assert_eq!("longhaul-key-1:AAAA".parse::<Identity>(), Err(KeyError::Prefix));
        assert_eq!("longhaul-site-1:AAAA".parse::<PublicKey>(), Err(KeyError::Base64));
        assert_eq!("x".repeat(5000).parse::<PublicKey>(), Err(KeyError::Length));
    }
}
