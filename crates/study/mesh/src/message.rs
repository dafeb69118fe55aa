//! What sites and their coordinator say to each other, in JSON. A newer one may say what an older one does not know: [`Message::Unknown`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::result::{FileKind, Measurement, TestFile, TestResult, Wanted};

/// Public keys by site.
pub type Members = BTreeMap<String, String>;

/// Results in a delivery at most, so that it stays far below the longest message.
pub const DELIVERY_MOST: u32 = 500;

/// A question, or its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Message {
    /// A site with a token wants to belong to the mesh.
    Join {
        /// Its public key.
        key: String,
    },
    /// It belongs to the mesh from now on.
    Joined {
        /// The name that it has there.
        site: String,
        /// The coordinator's public key.
        key: String,
    },
    /// A site asks for the mesh.
    Fetch {
        /// The state that it has.
        have: String,
    },
    /// The mesh.
    Mesh {
        /// Names this state of it.
        state: String,
        /// Its file; `None`: as before.
        file: Option<String>,
        /// Its members; `None`: as before.
        members: Option<Members>,
        /// The coordinator's time: nanoseconds since 1970.
        now_ns: u64,
        /// The diagnoses that this site should begin.
        #[serde(default)]
        wanted: Vec<Wanted>,
        /// The kinds of files that the coordinator keeps; an older one keeps none.
        #[serde(default)]
        files: Vec<FileKind>,
    },
    /// A site delivers results.
    Deliver {
        /// Of kind `udp`.
        results: Vec<TestResult>,
        /// Of other kinds.
        #[serde(default)]
        measurements: Vec<Measurement>,
    },
    /// A site delivers the file of a test, whose kind is one that the coordinator keeps.
    DeliverFile {
        /// The file.
        file: TestFile,
    },
    /// They are on the coordinator's disk. Others stay at the site: a newer coordinator may know their kind.
    Confirmed {
        /// Which.
        ids: Vec<String>,
    },
    /// A site asks the coordinator for a part of the shared links that a test crosses.
    Lease {
        /// Names the request: random.
        number: u64,
        /// The test's name.
        test: String,
        /// The site that sends.
        sender: String,
        /// The site that receives.
        receiver: String,
    },
    /// It has it, for the time of the test, or until it says [`Message::Release`].
    Leased,
    /// A site asks another for a test.
    Ask {
        /// Names the request: random.
        number: u64,
        /// The test's name.
        test: String,
        /// The site that sends.
        sender: String,
        /// The site that receives.
        receiver: String,
    },
    /// It listens for this test alone.
    Granted {
        /// At this port.
        port: u16,
        /// With this key.
        key: String,
    },
    /// It is in another test, or a shared link is full.
    Busy {
        /// Not before this time is over.
        retry_after_ns: u64,
    },
    /// The test is over, or will not be.
    Release {
        /// The request that it was asked with.
        number: u64,
        /// Whether the test did not begin: the lease was of no use. An older longhaul does not say.
        #[serde(default)]
        unused: bool,
    },
    /// Done.
    Released,
    /// It will not do that.
    Refused {
        /// Why.
        message: String,
    },
    /// Something that only a newer longhaul knows.
    #[serde(other)]
    Unknown,
}
