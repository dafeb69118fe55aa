//! What to change in a host's settings for a rate over a round trip, changing it, and changing it back.
//!
//! [`HostState::take`] reads, [`Plan::make`] decides, [`apply`] changes, and [`undo`] puts back: at any time, also after the process was killed
//! between two settings or the machine was started again, as a [`Store`] on disk remembers what was before. A value that somebody else
//! gave meanwhile is left.
//!
//! Target, host and plan are pure: no system, no clock. Source: each rule in `plan/` names its own.

mod caveats;
mod changing;
mod diagnosis;
mod drop_ins;
mod error;
mod host;
mod lock;
mod outcome;
mod place;
mod plan;
mod reading;
mod setting;
mod state;
mod target;

pub use changing::{Terms, apply, confirm, status, undo, undo_unconfirmed};
pub use diagnosis::{Diagnosis, DiagnosisError};
pub use error::TuneError;
pub use host::{HostState, LinkState, RouteState, Unread};
pub use outcome::{DropInNow, Now, Outcome, Owner, PutBack, Refused, Status};
pub use place::{HostSetting, RoutePart};
pub use plan::{ByHand, Change, Kept, Plan};
pub use setting::is_gone;
pub use state::{STATE_FOLDER, Store};
pub use target::{Cause, End, Role, Target};

use longhaul_result::Caveat;

/// Doubts about persistent settings: files that are read after longhaul's and set the same keys.
pub fn doubts_about_lasting(store: &Store, plan: &Plan) -> Vec<Caveat> {
    let keys = plan.changes.iter().filter_map(|change| match &change.place {
        HostSetting::Sysctl { key } => Some(key.clone()),
        _ => None,
    });
    let doubt = |(file, key): (std::path::PathBuf, String)| {
        let file = file.display();
        Caveat::new(
            caveats::DROP_IN_OVERRULED,
            format!("{file} also sets {key} and is read after longhaul's file"),
            format!("remove {key} from {file}"),
        )
    };
    drop_ins::later(&store.etc, &keys.collect()).into_iter().map(doubt).collect()
}

/// Doubts about settings on this host: running services that change them too.
pub fn doubts_about_others() -> Vec<Caveat> {
    let doubt = |(name, does): (&str, &str)| {
        let message = format!("{name} is running: {does}");
        Caveat::new(
            caveats::OTHER_TUNER,
            message,
            format!("put the settings into {name}'s own configuration, or stop it"),
        )
    };
    reading::running_tuners().into_iter().map(doubt).collect()
}
