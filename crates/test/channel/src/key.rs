//! The key that both ends share, and its file.
//!
//! ```text
//! longhaul-key-1:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=
//! ```
//!
//! One line: the form's name and version, then 32 random bytes in base64 (RFC 4648 §4). Lines that are empty or begin with `#` are
//! ignored, so that a file may say whose key it is.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
const PREFIX: &str = "longhaul-key-1:";
/// Longest text looked at.
const MAX_TEXT: usize = 4096;

/// A key that both ends share. It shows itself nowhere but in [`to_text`](Self::to_text).
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

/// Why a text is no key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No line begins as one with a key does.
    #[error("no line begins with `{PREFIX}`: make a key with `longhaul key new`")]
    Prefix,
    /// More than one does.
    #[error("more than one key: keep one a file")]
    Several,
    /// What follows is not 32 bytes in base64.
    #[error("the key is damaged: not {KEY_BYTES} bytes in base64; copy the file anew")]
    Base64,
    /// All bytes are equal, which no random source gives.
    #[error("the key is not random: make one with `longhaul key new`")]
    Weak,
    /// Longer than a key file is.
    #[error("longer than {MAX_TEXT} bytes: this is no key file")]
    Length,
}

impl Key {
    /// The key of 32 bytes from the operating system's random source.
    ///
    /// # Errors
    /// They are all equal: the source was not asked.
    pub fn from_random(bytes: [u8; KEY_BYTES]) -> Result<Self, KeyError> {
        if bytes.iter().all(|byte| *byte == bytes[0]) { Err(KeyError::Weak) } else { Ok(Self(bytes)) }
    }

    /// What its file holds.
    pub fn to_text(&self) -> String {
        format!("{PREFIX}{}\n", STANDARD.encode(self.0))
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if text.len() > MAX_TEXT {
            return Err(KeyError::Length);
        }
        let mut keys = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let line = keys.next().ok_or(KeyError::Prefix)?;
        let encoded = line.strip_prefix(PREFIX).ok_or(KeyError::Prefix)?;
        if keys.next().is_some() {
            return Err(KeyError::Several);
        }
        let bytes = STANDARD.decode(encoded).map_err(|_| KeyError::Base64)?;
        Self::from_random(bytes.try_into().map_err(|_| KeyError::Base64)?)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_back() {
        let key = Key::from_random(*b"01234567890123456789012345678901").unwrap();
        assert_eq!(key.to_text(), "longhaul-key-1:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=\n");
        assert_eq!(key.to_text().parse(), Ok(key.clone()));
        assert_eq!(format!("# site A\n\n{}\r\n", key.to_text().trim()).parse(), Ok(key.clone()));
        assert_eq!(format!("{key:?}"), "Key(…)");
    }

    #[test]
    fn what_is_no_key_is_said() {
        let long = format!("{PREFIX}{}", "A".repeat(5000));
        for (text, error) in [
            ("", KeyError::Prefix),
            ("ssh-ed25519 AAAA", KeyError::Prefix),
            ("longhaul-key-1:AAAA", KeyError::Base64),
            ("longhaul-key-1:%%%", KeyError::Base64),
            ("longhaul-key-1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", KeyError::Weak),
            ("longhaul-key-1:MDEy\nlonghaul-key-1:MDEy", KeyError::Several),
            (&long, KeyError::Length),
        ] {
            assert_eq!(text.parse::<Key>(), Err(error), "{text}");
        }
    }
}
