//! Why a session ended without a result.

use longhaul_channel::{ChannelError, shown};
use serde::{Deserialize, Serialize};

/// The code of a refusal of a test that is longer than the server allows.
pub const TOO_LONG: &str = "test_too_long";

/// Why a session ended without a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct SessionError {
    /// The code, for programs.
    pub code: String,
    /// What is wrong, in one line.
    pub message: String,
    /// What the user can do.
    pub remedy: String,
}

impl SessionError {
    /// Creates an error.
    pub fn new(code: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), remedy: remedy.into() }
    }

    /// An error that a peer sent, safe to show: one line of limited length without control characters.
    pub fn of_peer(self) -> Self {
        Self { code: shown(&self.code), message: shown(&self.message), remedy: shown(&self.remedy) }
    }
}

impl From<ChannelError> for SessionError {
    fn from(error: ChannelError) -> Self {
        Self::new(error.code(), error.to_string(), error.remedy())
    }
}
