//! The forms of `longhaul diagnose` that make no test, in the lab of a fault: one TCP test is the connection of a program, and it is looked at
//! by the kernel of the sender, by that of the receiver, and by a capture on the sender.

use longhaul_units::Nanos;

use super::making::{Doing, FaultLab};
use super::run::{Asked, Event, Runner, WITHOUT_TEST, diagnosis_of};
use super::score::Cell;
use super::spec::{Fault, HostName};
use crate::capture;
use crate::folder::Folder;

/// What a test takes beside its time, where packets of its start are lost.
const SETTLE: Nanos = Nanos::from_secs(8);
/// What a command takes beside the time that it is given, at most.
const PATIENCE: Nanos = Nanos::from_secs(60);

impl Runner<'_> {
    /// Diagnoses each of `faults` with each seed by the forms that make no test, or those before a stop: a cell for each form.
    pub fn observe(&self, faults: &[(Fault, Nanos)]) -> Vec<Cell> {
        let mut cells = Vec::new();
        for (fault, rtt) in faults {
            (self.tell)(Event::Begins(fault, *rtt));
            for seed in self.seeds.clone() {
                let doing = Doing { fault, rtt: *rtt, seed, faulty: true, spec: self.spec };
                let Asked { answer, void_runs } = self.ask(&doing, &|lab| self.observed(lab, &doing), |_, _| Ok(()));
                if self.stop.requested().is_some() {
                    return cells;
                }
                let said = answer.and_then(|(said, ())| serde_json::from_str(&said).map_err(|error| error.to_string()));
                let said: Result<[String; 3], String> = said;
                for (number, form) in WITHOUT_TEST.into_iter().enumerate() {
                    let cell = Cell::new(fault, *rtt, seed, fault.measured_at(*rtt).copied()).by(form, fault);
                    let diagnosis = said.as_ref().map_err(String::clone).and_then(|said| {
                        self.keep(&doing, form, &said[number])?;
                        diagnosis_of(form, &said[number])
                    });
                    let cell = match diagnosis {
                        Ok(diagnosis) => cell.judged(&diagnosis),
                        Err(why) => cell.failed(why),
                    };
                    let cell = cell.with_void_runs(if number == 0 { void_runs } else { 0 });
                    (self.tell)(Event::Diagnosed(&cell));
                    cells.push(cell);
                }
            }
        }
        cells
    }

    /// What the three forms say of one test, as a list in JSON.
    fn observed(&self, lab: &FaultLab, doing: &Doing<'_>) -> Result<String, String> {
        let failed = |error: super::MakingError| error.to_string();
        let sends = if doing.fault.reverse { HostName::Server } else { HostName::Client };
        let rate = doing.fault.rate.0.to_string();
        let words = |words: &[&str]| -> Vec<String> {
            ["diagnose"]
                .iter()
                .chain(words)
                .chain(&["--json", "--rate", &rate])
                .map(|word| (*word).to_owned())
                .collect()
        };
        let folder = Folder::new("faults-observed").map_err(|error| error.to_string())?;
        let capturing = lab.on(sends, || capture::start(folder.path(), "sender")).map_err(failed)?;
        let capturing = capturing.map_err(|error| format!("capture: {error}"))?;
        let (serving, time) = (lab.serving().to_string(), (self.time + SETTLE).to_string());
        let at_server = lab.begin_longhaul(HostName::Server, &words(&["--watch", &serving, "-t", &time]));
        let at_server = at_server.map_err(failed)?;
        let test: Vec<String> = ["--".to_owned(), lab.program()].into_iter().chain(self.words("tcp", doing)).collect();
        let at_client = self.longhaul(lab, &[words(&[]), test].concat(), self.time + PATIENCE);
        let at_server = at_server.ended(self.time + PATIENCE, Some(self.stop)).map_err(|error| error.to_string());
        drop(capturing.stop());
        let at_server = at_server.and_then(super::Ended::success).map_err(|why| format!("at the server: {why}"))?;
        let at_client = at_client.map_err(|why| format!("at the client: {why}"))?;
        let trace = words(&["trace", &folder.path().display().to_string()]);
        let packets = lab.longhaul_on(HostName::Client, &trace, PATIENCE, self.stop).map_err(failed)?.success()?;
        let ends = if doing.fault.reverse { [at_server, at_client] } else { [at_client, at_server] };
        let [sender, receiver] = ends;
        serde_json::to_string(&[sender, receiver, packets]).map_err(|error| error.to_string())
    }
}
