//! The UDP tests of an experiment.

use longhaul_path::spec::PathSpec;
use longhaul_report::html::over_time::udp::Departures;
use longhaul_report::html::over_time::udp_runs::UdpOverTime;
use longhaul_report::html::points::Problems;
use longhaul_report::html::series::Series;
use longhaul_report::html::udp_loss::Run;
use longhaul_result::Caveat;
use longhaul_session::{TestEnd, kind};
use longhaul_udp::caveats::ARRIVALS_IN_BATCHES;
use longhaul_udp::locate::Loss;
use longhaul_udp::{UdpParameters, attribution};
use longhaul_units::Nanos;

use super::exact::Passed;
use super::{Ground, Hosts, Runner, hosts, no_report, test};
use crate::spec::{UdpSeries, UdpTest};

/// `series` without a point.
pub(super) fn empty(series: &UdpSeries) -> Series<Run> {
    let (hosts, poll_interval_ns) = hosts::shared(series.tests.iter().map(|test| &test.setting));
    Series {
        name: series.name.clone(),
        paper: series.paper.clone(),
        changes: series.changes.clone(),
        hosts,
        poll_interval_ns,
        receiver: None,
        points: Vec::new(),
    }
}

impl Runner<'_> {
    /// One test. `hosts` are client and server as they were first seen. Losses that are more than a result lists are saved under the name
    /// `losses_file`.
    pub(super) fn run_udp_test(
        &self,
        ground: Result<Ground<'_>, Caveat>,
        wanted: &UdpTest,
        path: &PathSpec,
        losses_file: Option<&str>,
        hosts: &mut Option<Hosts>,
    ) -> Run {
        let UdpTest { setting, parameters, .. } = wanted;
        // Where the emulator sleeps as long as it may, so does the sender.
        let no_spin = parameters.no_spin || self.spec.wake_interval > Nanos::ZERO;
        let parameters = &UdpParameters { no_spin, ..parameters.clone() };
        let mut run = Run {
            rate_bps: wanted.rate().0,
            command: (self.command)(&parameters.clone().into(), setting.ipv6),
            parameters: parameters.clone(),
            result: None,
            problems: Problems::default(),
            exactness: None,
            between: wanted.between.pair().cloned(),
            over_time: None,
        };
        let ground = match ground {
            Ok(ground) => ground,
            Err(error) => return Run { problems: Problems::of_error(error), ..run },
        };
        let lab = if let Ground::Lab(lab) = ground { Some(lab).filter(|_| wanted.exact) } else { None };
        let before = match lab.map(|lab| Passed::of(lab, setting.emulator)).transpose() {
            Ok(before) => before,
            Err(error) => return Run { problems: Problems::of_error(error), ..run },
        };
        match test(ground, wanted.between.hosts(), parameters.clone(), setting.ipv6, self.stop, |_| {}) {
            Ok(end) => {
                match before.zip(lab).map(|(before, lab)| before.until_now(lab, path, setting.emulator, &end)) {
                    Some(Ok(exactness)) => run.exactness = Some(exactness),
                    Some(Err(error)) => return Run { problems: Problems::of_error(error), ..run },
                    None => {}
                }
                hosts.get_or_insert_with(|| Hosts::of(&end));
                run.over_time = over_time(&end);
                let mut save = self.save_losses.zip(losses_file).map(|(save, losses_file)| {
                    move |ending: &str, losses: &mut dyn Iterator<Item = Loss>| {
                        save(&format!("{losses_file}{ending}"), losses)
                    }
                });
                let save = save.as_mut().map(|save| save as &mut kind::udp::SaveLosses<'_>);
                match kind::udp::results(&end, save) {
                    Some((results, caveats)) => {
                        (run.result, run.problems.caveats) = (Some(results.into_first()), caveats);
                        // What the experiment asks for is no doubt about it.
                        let is_polled = setting.poll_interval.is_some() && setting.poll_at.hosts().contains(&"server");
                        let batches = is_polled || self.spec.wake_interval > Nanos::ZERO;
                        let asked = |caveat: &Caveat| batches && caveat.is(ARRIVALS_IN_BATCHES);
                        run.problems.caveats.retain(|caveat| !asked(caveat));
                        run.parameters = end.parameters.udp().cloned().unwrap_or(run.parameters);
                    }
                    None => run.problems.error = Some(no_report()),
                }
            }
            Err(error) => run.problems.error = Some(Caveat::of_error(&error.code, error.message, error.remedy)),
        }
        run
    }
}

/// Packets by when they left; `None` where the sender or the receiver did not report.
fn over_time(end: &TestEnd) -> Option<UdpOverTime> {
    let (sender, receiver) = end.udp_reports(false)?;
    let mut departures = Departures::to_keep(&sender.streams)?;
    attribution(sender, receiver).losses().for_each(|loss| departures.lose(&loss));
    Some(departures.kept())
}
