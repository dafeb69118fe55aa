//! The key that both ends share, and its file format.
//!
//! ```text
//! longhaul-key-1:MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=
//! ```
//!
//! One line: the name and version of the format, then 32 random bytes in base64 (RFC 4648 §4). Empty lines and lines that begin
//! with `#` are ignored, so a comment can say whose key it is.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
const PREFIX: &str = "longhaul-key-1:";
/// Longest text that is read, bytes.
const MAX_TEXT: usize = 4096;

/// A key that both ends share. Only [`to_text`](Self::to_text) shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

/// Why a text is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No line begins with the name of the format.
    #[error("no line begins with `{PREFIX}`: make a key with `longhaul key new`")]
    Prefix,
    /// There is more than one key.
    #[error("more than one key: keep one key in each file")]
    Several,
    /// The rest of the line is not 32 bytes in base64.
    #[error("the key is damaged: it is not {KEY_BYTES} bytes in base64; copy the file again")]
    Base64,
    /// All bytes are equal, which no random source returns.
    #[error("the key is not random: make one with `longhaul key new`")]
    Weak,
    /// The text is longer than a key file.
    #[error("longer than {MAX_TEXT} bytes: this is not a key file")]
    Length,
}

impl Key {
    /// The key of 32 bytes from the operating system's random source.
    ///
    /// # Errors
    /// The bytes are all equal: they do not come from a random source.
    pub fn from_random(bytes: [u8; KEY_BYTES]) -> Result<Self, KeyError> {
        if bytes.iter().all(|byte| *byte == bytes[0]) { Err(KeyError::Weak) } else { Ok(Self(bytes)) }
    }

    /// The text of the key file.
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
