//! What a result has no room for: which packets were lost, and samples of TCP.

use serde::{Deserialize, Serialize};

use super::is_head_sound;

/// Bytes of a file at most, so that a message with one stays below the longest message (1 MiB): 10,000 runs of lost packets take some 100 kB.
pub const FILE_BYTES_MOST: usize = 512 << 10;
/// The same in letters of base64.
const CONTENT_LETTERS_MOST: usize = FILE_BYTES_MOST.div_ceil(3) * 4;

/// What a file beside a result has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A row for each run of packets that a UDP test lost.
    Losses,
    /// `TCP_INFO` of both ends of a TCP test over time.
    Samples,
    /// A kind that only a newer longhaul knows.
    #[serde(other)]
    Unknown,
}

impl FileKind {
    /// The kinds that this longhaul knows.
    pub const ALL: [Self; 2] = [Self::Losses, Self::Samples];

    /// Its name, which is also that of its folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::Losses => "losses",
            Self::Samples => "samples",
            Self::Unknown => "unknown",
        }
    }
}

/// A Parquet file on its way from the site that began the test to the coordinator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestFile {
    /// What it has.
    pub of: FileKind,
    /// That of the test's result: 32 hexadecimal digits.
    pub id: String,
    /// The test's name in the mesh.
    pub test: String,
    /// The site that sent.
    pub sender: String,
    /// The site that received.
    pub receiver: String,
    /// When the test began: nanoseconds since 1970, as in its result.
    pub at_ns: i64,
    /// The file in base64 (RFC 4648 §4).
    pub content: String,
}

impl TestFile {
    /// Whether it can be a file of a test: it comes from another host. What is in it must be looked into, too.
    pub fn is_sound(&self) -> bool {
        is_head_sound(&self.id, [&self.test, &self.sender, &self.receiver], self.at_ns)
            && FileKind::ALL.contains(&self.of)
            && self.content.len() <= CONTENT_LETTERS_MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> TestFile {
        TestFile {
            of: FileKind::Losses,
            id: "0123456789abcdef0123456789abcdef".into(),
            test: "probes".into(),
            sender: "ithaca".into(),
            receiver: "geneva".into(),
            at_ns: 5,
            content: "UEFSMQ==".into(),
        }
    }

    /// The id becomes the name of a file: it cannot be a path.
    #[test]
    fn what_is_no_file_of_a_test_is_refused() {
        assert!(file().is_sound());
        let changes: [fn(&mut TestFile); 8] = [
            |file| file.id = "../../../../etc/0123456789abcdef".into(),
            |file| file.id = "0123456789abcdef0123456789abcde/".into(),
            |file| file.id = String::new(),
            |file| file.sender = "\u{1b}[2J".into(),
            |file| file.test = "x".repeat(41),
            |file| file.at_ns = -1,
            |file| file.of = FileKind::Unknown,
            |file| file.content = "A".repeat(CONTENT_LETTERS_MOST + 1),
        ];
        for change in changes {
            let mut file = file();
            change(&mut file);
            assert!(!file.is_sound(), "{:?}", file.id);
        }
    }

    #[test]
    fn a_kind_of_a_newer_longhaul_is_read() {
        let text = serde_json::to_string(&file()).unwrap();
        assert_eq!(serde_json::from_str::<TestFile>(&text).unwrap(), file());
        let newer = text.replace("losses", "packets");
        assert_eq!(serde_json::from_str::<TestFile>(&newer).unwrap().of, FileKind::Unknown);
    }
}
