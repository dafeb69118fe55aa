//! Cuts messages out of a byte stream.
//!
//! ```text
//! ┌───────────────────────┬──────────────────────────────────────┐
//! │ length (32, network)  │ one message, JSON in UTF-8           │
//! └───────────────────────┴──────────────────────────────────────┘
//! ```
//!
//! JSON, because messages are small and people read them when something is wrong.

use std::marker::PhantomData;

use longhaul_units::is_obeyed;
use parking_lot::FairMutex;
use serde::Serialize;
use serde::de::{DeserializeOwned, Error};

/// Name and version of the protocol.
pub const PROTOCOL: &str = "longhaul/1";
/// Longest message.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// Longest message of an end that is not trusted: it says who it is and what it wants. A capture names all its interfaces in some KiB.
pub(crate) const STRANGER_MESSAGE_BYTES: usize = LONG_BYTES;
/// A message of more is long.
const LONG_BYTES: usize = 16 << 10;
/// What the values of a message may take until it is known what they are for, and of a long one. Of a delivery of a mesh they take 4 MiB, of the
/// last message of a log link 5 MiB.
const VALUES_BYTES: usize = 512 << 10;
const LONG_VALUES_BYTES: usize = 16 << 20;
/// Of that, an object, a list, and a further value of either: serde holds them in lists with room for four, and some once more as JSON.
const OBJECT_BYTES: usize = 1024;
const LIST_BYTES: usize = 512;
const VALUE_BYTES: usize = 256;
/// Longest text of a peer that is shown to people, characters.
const MAX_SHOWN: usize = 300;

/// Why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is zero or above what is allowed: [`MAX_MESSAGE_BYTES`], and less of strangers.
    #[error("a message has {0} bytes; 1 to {1} are allowed")]
    Length(u32, usize),
    /// Not JSON, or not a message of this protocol.
    #[error("not a message of {PROTOCOL}: {0}")]
    Json(String),
}

/// The message after its length.
///
/// # Errors
/// The message is longer than [`MAX_MESSAGE_BYTES`].
pub fn to_frame<M: Serialize>(message: &M) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message).map_err(|error| FrameError::Json(error.to_string()))?;
    let length = u32::try_from(frame.len() - 4).unwrap_or(u32::MAX);
    if length as usize > MAX_MESSAGE_BYTES {
        return Err(FrameError::Length(length, MAX_MESSAGE_BYTES));
    }
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// Cuts messages out of a byte stream. It holds at most one incomplete message.
#[derive(Debug, Clone)]
pub struct Deframer<M> {
    buffer: Vec<u8>,
    /// Longest message.
    most: usize,
    messages: PhantomData<M>,
}

impl<M> Default for Deframer<M> {
    fn default() -> Self {
        Self { buffer: Vec::new(), most: MAX_MESSAGE_BYTES, messages: PhantomData }
    }
}

impl<M> Deframer<M> {
    /// For an end that has proven nothing: its messages are short.
    pub(crate) fn of_stranger() -> Self {
        Self { most: STRANGER_MESSAGE_BYTES, ..Self::default() }
    }

    /// Long messages may come from now on.
    pub(crate) fn trust(&mut self) {
        self.most = MAX_MESSAGE_BYTES;
    }
}

impl<M: DeserializeOwned> Deframer<M> {
    /// Takes bytes as they arrive, and appends the complete messages to `messages`.
    ///
    /// # Errors
    /// The bytes are not a message; nothing after them can be understood.
    pub fn push(&mut self, mut bytes: &[u8], messages: &mut impl Extend<M>) -> Result<(), FrameError> {
        while !bytes.is_empty() {
            let wanted = match self.buffer.first_chunk::<4>() {
                None => 4,
                Some(length) => 4 + checked_length(*length, self.most)?,
            };
            let (taken, rest) = bytes.split_at(bytes.len().min(wanted - self.buffer.len()));
            self.buffer.extend_from_slice(taken);
            bytes = rest;
            if self.buffer.len() == wanted {
                if wanted == 4 {
                    checked_length([self.buffer[0], self.buffer[1], self.buffer[2], self.buffer[3]], self.most)?;
                    continue;
                }
                let message = parse(&self.buffer[4..]);
                let message = message.map_err(|error| FrameError::Json(shown(&error.to_string())))?;
                messages.extend([message]);
                self.buffer.clear();
            }
        }
        Ok(())
    }
}

/// Reads a message. While it is read its values take memory: at most 512 KiB, for a long message 16 MiB. One long message is read at a time, the
/// one that waits longest first; strangers cannot send long ones. A text within a message is read in the same way.
///
/// # Errors
/// It is none, or has too many values.
pub fn parse<M: DeserializeOwned>(text: &[u8]) -> serde_json::Result<M> {
    static LONG: FairMutex<()> = FairMutex::new(());
    let is_long = text.len() > LONG_BYTES;
    let most = if is_long { LONG_VALUES_BYTES } else { VALUES_BYTES };
    if values_bytes(text) > most {
        return Err(serde_json::Error::custom("it has too many values"));
    }
    let _one = is_long.then(|| LONG.lock());
    serde_json::from_slice(text)
}

/// What the values of a JSON text may take until it is known what they are for. What is no JSON has some number, too.
fn values_bytes(text: &[u8]) -> usize {
    let (mut sum, mut in_text, mut is_escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' => sum += OBJECT_BYTES,
            b'[' => sum += LIST_BYTES,
            b',' => sum += VALUE_BYTES,
            _ => {}
        }
    }
    sum
}

fn checked_length(length: [u8; 4], most: usize) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(length);
    if (1..=most).contains(&(length as usize)) { Ok(length as usize) } else { Err(FrameError::Length(length, most)) }
}

/// `text` of a peer, safe to show: one line of limited length without what a terminal obeys.
pub fn shown(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) { ' ' } else { c }).take(MAX_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of two bytes takes more than a hundred.
    #[test]
    fn a_message_has_no_more_values_than_it_needs() {
        let refused = |text: String| match parse::<serde_json::Value>(text.as_bytes()) {
            Ok(_) => false,
            Err(error) => {
                assert_eq!(error.to_string(), "it has too many values");
                true
            }
        };
        let list = |value: &str, count: usize| format!("[{}0]", format!("{value},").repeat(count));
        let (objects, lists) =
            (LONG_VALUES_BYTES / (OBJECT_BYTES + VALUE_BYTES), VALUES_BYTES / (LIST_BYTES + VALUE_BYTES));
        assert!(!refused(list(r#"{"":1}"#, objects - 1)) && refused(list(r#"{"":1}"#, objects + 1)));
        assert!(!refused(list("[]", lists - 1)) && refused(list("[]", lists + 1)));
        assert!(refused(list(&format!("{}{}", "[".repeat(100), "]".repeat(100)), 5_000)));
        // What stands in a text is none.
        assert!(!refused(format!(r#"["\\","\"{}",1]"#, "[{,".repeat(300_000))));
    }

    #[test]
    fn messages_of_a_stranger_are_short() {
        let long = |bytes: usize| to_frame(&"a".repeat(bytes - 2)).unwrap();
        let mut messages: Vec<String> = Vec::new();
        let mut deframer = Deframer::of_stranger();
        for _ in 0..2 {
            assert_eq!(deframer.push(&long(STRANGER_MESSAGE_BYTES), &mut messages), Ok(()));
        }
        // Nothing of it is kept: the length alone says so.
        let refused = deframer.clone().push(&long(STRANGER_MESSAGE_BYTES + 1)[..4], &mut messages).unwrap_err();
        assert_eq!(refused.to_string(), "a message has 16385 bytes; 1 to 16384 are allowed");
        deframer.trust();
        assert_eq!(deframer.push(&long(MAX_MESSAGE_BYTES), &mut messages), Ok(()));
        assert_eq!(messages.len(), 3);
    }
}
