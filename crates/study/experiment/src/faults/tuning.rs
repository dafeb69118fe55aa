//! What `longhaul tune` makes of a diagnosis in the lab of a fault: at both hosts it changes what the diagnosis says, and one flow is tested once
//! more, the fault still being there.

use longhaul_diagnosis::{Bound, Code, Diagnosis, KEPT};
use longhaul_kernel::new_file;
use longhaul_result::Location;
use longhaul_units::Nanos;
use serde_json::Value;

use super::making::{Doing, FaultLab};
use super::run::{Runner, diagnosis_of};
use super::score::Tuned;
use super::spec::{Form, HostName};
use crate::folder::Folder;

/// What a plan and its settings may take.
const PATIENCE: Nanos = Nanos::from_secs(20);
/// What a command takes beside the time of its test, at most.
const TEST_PATIENCE: Nanos = Nanos::from_secs(90);

impl Runner<'_> {
    /// Tunes both hosts by the diagnosis that was `said`; `None` where its first cause is at no host, or no setting fixes it.
    pub(super) fn tuned(&self, lab: &FaultLab, doing: &Doing<'_>, said: &str) -> Result<Option<Tuned>, String> {
        let diagnosis: Diagnosis = diagnosis_of(Form::Test, said)?;
        let Some(cause) = diagnosis.causes.first().filter(|cause| cause.bound.host.is_some()) else { return Ok(None) };
        let words = |error: std::io::Error| format!("tune: {error}");
        let folder = Folder::new("faults-tune").map_err(words)?;
        let file = folder.path().join("diagnosis.json");
        new_file::write(&file, said).map_err(words)?;
        let (mut settings, mut chooses_control) = (Vec::new(), false);
        let (client, server) = if doing.fault.reverse { ("receiver", "sender") } else { ("sender", "receiver") };
        for (host, role, to) in [(HostName::Client, client, lab.server()), (HostName::Server, server, lab.client())] {
            let state = folder.path().join(role);
            let to = to.to_string();
            let words = ["tune", "--json", "--apply", "--role", role, "--to", &to, "--state"].map(String::from);
            let paths = [&state, &file].map(|path| path.display().to_string());
            let ended = lab.longhaul_on(host, &[&words[..], &paths[..]].concat(), PATIENCE, self.stop);
            let said = ended.map_err(|error| error.to_string())?.success().map_err(|why| format!("tune: {why}"))?;
            let said: Value = serde_json::from_str(&said).map_err(|error| format!("tune: {error}"))?;
            let looked_at = |list: &str| said["result"][list].as_array().cloned().unwrap_or_default();
            // Also where the host's control is a good one, and the program's is the fault.
            chooses_control |= [looked_at("changes"), looked_at("kept")].concat().iter().any(|setting| {
                let place = &setting["place"];
                place["key"] == "net.ipv4.tcp_congestion_control" || place["part"] == "congestion_control"
            });
            let changes = said["result"]["changes"].as_array().into_iter().flatten();
            for change in changes.filter(|change| change["blocked"].is_null()) {
                let place = &change["place"];
                let word = |key: &str| place[key].as_str().unwrap_or_default();
                let name =
                    ["link", "key", "feature", "network", "part"].map(word).into_iter().filter(|word| !word.is_empty());
                let name = name.collect::<Vec<_>>().join(" ");
                settings.push(format!("{role}: {name} {}", change["then"].as_str().unwrap_or_default()));
            }
        }
        if settings.is_empty() {
            return Ok(None);
        }
        let mut words = self.words("tcp", doing);
        if chooses_control {
            // The program leaves it to the host, as the plan would have it.
            let at = words.iter().position(|word| word == "-C");
            at.into_iter().for_each(|at| drop(words.drain(at..at + 2)));
        }
        let said = self.longhaul(lab, &words, self.time + TEST_PATIENCE)?;
        let said: Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
        let streams = said["result"]["streams"].as_array().into_iter().flatten();
        let came_bps = streams.filter_map(|stream| stream["steady_bps"].as_u64()).sum();
        // An upper end of a price promises nothing.
        let worth_bps = if cause.worth_is_upper_end { 0 } else { cause.worth_bps.least };
        let promised_bps = diagnosis.goodput_bps.unwrap_or(0).saturating_add(worth_bps);
        let is_a_setting = is_a_setting(&cause.bound);
        let kept = came_bps as f64 >= KEPT * promised_bps as f64;
        Ok(Some(Tuned { settings, promised_bps, came_bps, kept, is_a_setting }))
    }
}

/// Whether a setting of the host fixes a cause.
fn is_a_setting(bound: &Bound) -> bool {
    match bound.code {
        Code::ReceiveWindow
        | Code::SendBuffer
        | Code::CongestionControl
        | Code::SlowStart
        | Code::MtuBlackHole
        | Code::MiddleboxOptions
        | Code::Reordering => true,
        Code::Loss | Code::Queue => match bound.place {
            None | Some(Location::ReceiverRing | Location::ReceiverBacklog | Location::ReceiverSocketBuffer) => true,
            // Queueing disciplines of the catalogue are somebody's: tc set them up.
            Some(_) => false,
        },
        _ => false,
    }
}
