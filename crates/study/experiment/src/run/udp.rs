//! The UDP tests of an experiment.

use longhaul_lab::Lab;
use longhaul_report::html::series::Series;
use longhaul_report::html::udp_loss::Run;
use longhaul_result::Caveat;
use longhaul_session::kind;
use longhaul_udp::UdpParameters;
use longhaul_udp::locate::Loss;

use super::{Hosts, Place, Runner, no_report, test};
use crate::spec::{HostSettings, UdpSeries};

/// `series` without a point.
pub(super) fn empty(series: &UdpSeries) -> Series<Run> {
    Series {
        name: series.name.clone(),
        paper: series.paper.clone(),
        changes: series.changes.clone(),
        poll_interval_ns: series.poll_interval.map(|interval| interval.0),
        points: Vec::new(),
    }
}

/// Where the runs of `series` take place.
pub(super) fn place(series: &UdpSeries) -> Place<'_> {
    Place { path: &series.path, hosts: &HostSettings::LIKE_A_LAB, poll_interval: series.poll_interval }
}

impl Runner<'_> {
    /// One test. `hosts` are client and server as they were first seen. Losses that are more than a result lists are saved under the name
    /// `losses_file`.
    pub(super) fn run_udp_test(
        &self,
        lab: Result<&Lab, Caveat>,
        parameters: &UdpParameters,
        losses_file: Option<&str>,
        hosts: &mut Option<Hosts>,
    ) -> Run {
        let mut run = Run {
            rate_bps: parameters.rate().map_or(0, |rate| rate.0),
            command: (self.command)(&parameters.clone().into()),
            parameters: parameters.clone(),
            result: None,
            error: None,
            caveats: Vec::new(),
        };
        let lab = match lab {
            Ok(lab) => lab,
            Err(error) => return Run { error: Some(error), ..run },
        };
        match test(lab, "client", parameters.clone(), self.stop) {
            Ok(end) => {
                hosts.get_or_insert_with(|| Hosts::of(&end));
                let mut save = self.save_losses.zip(losses_file).map(|(save, losses_file)| {
                    move |ending: &str, losses: &mut dyn Iterator<Item = Loss>| {
                        save(&format!("{losses_file}{ending}"), losses)
                    }
                });
                let save = save.as_mut().map(|save| save as &mut kind::udp::SaveLosses<'_>);
                match kind::udp::results(&end, save) {
                    Some((results, caveats)) => {
                        (run.result, run.caveats) = (Some(results.into_first()), caveats);
                        run.parameters = end.parameters.udp().cloned().unwrap_or(run.parameters);
                    }
                    None => run.error = Some(no_report()),
                }
            }
            Err(error) => run.error = Some(Caveat::of_error(&error.code, error.message, error.remedy)),
        }
        run
    }
}
