//! What sites and their coordinator say to each other. A newer one may say what an older one does not know: [`Message::Unknown`].

use serde::{Deserialize, Serialize};

use crate::folder::Members;
use crate::store::{Measurement, TestResult, Wanted};

/// Results in a delivery at most, so that it stays far below the longest message.
pub(crate) const DELIVERY_MOST: u32 = 500;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Message {
    /// A site with a token tells its public key.
    Join { key: String },
    /// It belongs to the mesh from now on, under this name; this is the coordinator's public key.
    Joined { site: String, key: String },
    /// A site asks for the mesh, unless it has this one.
    Fetch { have: String },
    /// The mesh: a name for this state of it, its file, its members, and the coordinator's time. Without file and members: nothing has changed.
    /// And the diagnoses that this site should begin.
    Mesh {
        state: String,
        file: Option<String>,
        members: Option<Members>,
        now_ns: u64,
        #[serde(default)]
        wanted: Vec<Wanted>,
    },
    /// A site delivers results.
    Deliver {
        results: Vec<TestResult>,
        #[serde(default)]
        measurements: Vec<Measurement>,
    },
    /// They are on the coordinator's disk. Others stay at the site: a newer coordinator may know their kind.
    Confirmed { ids: Vec<String> },
    /// A site asks the coordinator for a part of the shared links that a test crosses.
    Lease { number: u64, test: String, sender: String, receiver: String },
    /// It has it, for the time of the test, or until it says [`Message::Release`].
    Leased,
    /// A site asks another for a test.
    Ask { number: u64, test: String, sender: String, receiver: String },
    /// It listens at this port with this key, for this test alone.
    Granted { port: u16, key: String },
    /// It is in another test, or a shared link is full.
    Busy { retry_after_ns: u64 },
    /// The test is over, or will not be.
    Release { number: u64 },
    /// Done.
    Released,
    /// It will not do that; why.
    Refused { message: String },
    /// Something that only a newer longhaul knows.
    #[serde(other)]
    Unknown,
}
