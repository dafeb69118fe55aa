//! The result of watching as it is printed, saved, and read back.

use longhaul_emulator::Warning;
use longhaul_session::tcp::WatchResult;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::output::Envelope;

pub(crate) const WATCH_SCHEMA: &str = "longhaul.watch/1";

pub(crate) type WatchEnvelope = Envelope<WatchParameters, WatchResult>;

/// What was asked: at most one of `pid`, `port`, `cgroup` and `command`; with none of them every connection.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WatchParameters {
    pub(crate) pid: Option<u32>,
    pub(crate) port: Option<u16>,
    pub(crate) cgroup: Option<String>,
    pub(crate) command: Option<Vec<String>>,
    pub(crate) time_ns: Option<u64>,
    pub(crate) sample_ns: u64,
    /// What the command ended with; `null` where there was none, or it did not end.
    pub(crate) exit_code: Option<u8>,
}

/// A result that was saved.
#[derive(Debug)]
pub(crate) struct SavedWatch {
    pub(crate) result: WatchResult,
    pub(crate) warnings: Vec<Warning>,
}

impl SavedWatch {
    /// Reads what was printed.
    ///
    /// # Errors
    /// Which part of it is broken.
    pub(crate) fn parse(json: &Value) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct OneWarning {
            code: String,
            message: String,
            remedy: String,
        }
        let broken = |part: &str, error: serde_json::Error| format!("its {part} is broken: {error}");
        let result = serde_json::from_value(json["result"].clone()).map_err(|error| broken("result", error))?;
        let warnings: Vec<OneWarning> =
            serde_json::from_value(json["warnings"].clone()).map_err(|error| broken("warnings", error))?;
        let warning = |w: OneWarning| Warning { code: w.code, message: w.message, remedy: w.remedy };
        Ok(Self { result, warnings: warnings.into_iter().map(warning).collect() })
    }
}
