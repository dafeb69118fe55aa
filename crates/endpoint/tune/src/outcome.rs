//! What became of settings that were changed.

use serde::Serialize;

use crate::place::HostSetting;

/// What happened to a setting or drop-in that was to be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is as before.
    PutBack,
    /// It was as before already.
    WasBefore,
    /// Somebody else changed it meanwhile, or it went with its interface or route; it was left.
    Left,
    /// It could not be put back.
    Failed,
}

/// A setting that was to be put back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PutBack {
    /// The setting; `None` for a drop-in.
    pub place: Option<HostSetting>,
    /// The drop-in; `None` for a setting.
    pub file: Option<String>,
    /// What became of it.
    pub outcome: Outcome,
    /// Its value before longhaul changed it; `None` for a drop-in.
    pub before: Option<String>,
    /// Its value now; `None` for a drop-in, and where it cannot be read.
    pub now: Option<String>,
    /// Why it failed; `None` where it did not.
    pub why: Option<String>,
    /// A test has changed it for its time: it can be put back afterwards.
    #[serde(skip)]
    pub is_held: bool,
}

impl PutBack {
    /// Somebody else's value was left, or it failed.
    pub fn is_not_as_before(&self) -> bool {
        matches!(self.outcome, Outcome::Left | Outcome::Failed)
    }
}

/// What has come of settings that were changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Status {
    /// When they were changed: `CLOCK_REALTIME`, since 1970.
    pub changed_at_realtime_ns: u64,
    /// The machine was started again since: settings are gone, but for those in drop-ins.
    pub rebooted: bool,
    /// The command was killed while it changed them.
    pub is_partial: bool,
    /// They are to be kept.
    pub confirmed: bool,
    /// The process that changed them; 0 once they could not be put back, so that nobody waits for it any more.
    pub pid: u32,
    /// The settings.
    pub settings: Vec<Now>,
    /// The files that make them last.
    pub drop_ins: Vec<DropInNow>,
}

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Now {
    /// The setting.
    pub place: HostSetting,
    /// Its value before longhaul changed it.
    pub before: String,
    /// The value that longhaul gave it.
    pub given: String,
    /// Its value now; `None` where it cannot be read.
    pub now: Option<String>,
    /// Whose value that is.
    pub owner: Owner,
}

/// Whose a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// longhaul gave it.
    Longhaul,
    /// It is as before.
    Before,
    /// Somebody else gave it, or it cannot be read.
    Other,
}

/// A drop-in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DropInNow {
    /// The file.
    pub file: String,
    /// Whose its contents are; `before`: it is not there.
    pub owner: Owner,
}

/// A setting that was not changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refused {
    /// The setting; it is as before.
    pub place: HostSetting,
    /// The value that it should have had.
    pub value: String,
    /// The error of the kernel, or that somebody else has set it meanwhile, that a test holds it, or that the command was asked to end.
    pub why: String,
}
