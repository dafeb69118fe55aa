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
use serde::de::DeserializeOwned;

/// Name and version of the protocol.
pub const PROTOCOL: &str = "longhaul/1";
/// Longest message.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// A message from this length on is long.
const LONG_BYTES: usize = 16 << 10;
/// Longest text of a peer that is shown to people, characters.
const MAX_SHOWN: usize = 300;

/// Why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length is zero or above [`MAX_MESSAGE_BYTES`].
    #[error("a message has {0} bytes; 1 to {MAX_MESSAGE_BYTES} are allowed")]
    Length(u32),
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
        return Err(FrameError::Length(length));
    }
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// Cuts messages out of a byte stream. It holds at most one incomplete message.
#[derive(Debug, Clone)]
pub struct Deframer<M> {
    buffer: Vec<u8>,
    messages: PhantomData<M>,
}

impl<M> Default for Deframer<M> {
    fn default() -> Self {
        Self { buffer: Vec::new(), messages: PhantomData }
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
                let message = parse(&self.buffer[4..]);
                let message = message.map_err(|error| FrameError::Json(shown(&error.to_string())))?;
                messages.extend([message]);
                self.buffer.clear();
            }
        }
        Ok(())
    }
}

/// Reads a message. The values of a long one may take fifty times their text until it is known what they are for: one at a time, and who waits
/// longest first.
fn parse<M: DeserializeOwned>(text: &[u8]) -> serde_json::Result<M> {
    static LONG: FairMutex<()> = FairMutex::new(());
    let _one = (text.len() > LONG_BYTES).then(|| LONG.lock());
    serde_json::from_slice(text)
}

fn checked_length(length: [u8; 4]) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(length);
    match length as usize {
        1..=MAX_MESSAGE_BYTES => Ok(length as usize),
        _ => Err(FrameError::Length(length)),
    }
}

/// `text` of a peer, safe to show: one line of limited length without what a terminal obeys.
pub fn shown(text: &str) -> String {
    text.chars().map(|c| if is_obeyed(c) { ' ' } else { c }).take(MAX_SHOWN).collect()
}
