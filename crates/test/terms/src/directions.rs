//! The results of both directions of a test.

use serde::Serialize;

/// The results of a test. The result of a test in one direction is not nested.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Directions<R> {
    /// One direction was tested.
    One(Box<R>),
    /// Both directions were tested at once.
    Both {
        /// From client to server.
        forward: Box<R>,
        /// From server to client.
        backward: Box<R>,
    },
}

impl<R> Directions<R> {
    /// The results of both directions: `result` gets `true` for the direction from server to client, and returns `None` where there
    /// is no result. `None` if there is none at all.
    pub fn of(mut result: impl FnMut(bool) -> Option<R>) -> Option<Self> {
        match (result(false).map(Box::new), result(true).map(Box::new)) {
            (Some(forward), Some(backward)) => Some(Self::Both { forward, backward }),
            (Some(one), None) | (None, Some(one)) => Some(Self::One(one)),
            (None, None) => None,
        }
    }

    /// The only result, or the one of the direction from client to server.
    pub fn into_first(self) -> R {
        match self {
            Self::One(result) | Self::Both { forward: result, .. } => *result,
        }
    }

    /// Calls `work` with the result of each direction.
    pub fn each(&mut self, mut work: impl FnMut(&mut R)) {
        match self {
            Self::One(result) => work(result),
            Self::Both { forward, backward } => {
                work(forward);
                work(backward);
            }
        }
    }
}
