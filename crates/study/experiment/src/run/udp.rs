//! The UDP tests of an experiment.

use longhaul_lab::Lab;
use longhaul_report::html::series::Series;
use longhaul_report::html::udp_loss::Run;
use longhaul_result::Caveat;
use longhaul_session::kind;
use longhaul_udp::locate::Loss;
use longhaul_units::BitRate;

use super::{Event, InLab, Ran, Runner, no_report, test};
use crate::spec::{HostSettings, UdpSeries};

impl Runner<'_> {
    /// Makes the tests of `series`. `ran` gets client and server as they were first seen. A test with more losses than a result lists has
    /// them saved under a name with the number of the series and its own.
    pub(super) fn run_udp(&self, (number, series): (usize, &UdpSeries), ran: &mut Ran) -> InLab<Run> {
        let empty = Series {
            name: series.name.clone(),
            paper: series.paper.clone(),
            changes: series.changes.clone(),
            poll_interval_ns: series.poll_interval.map(|interval| interval.0),
            runs: Vec::new(),
            error: None,
            caveats: Vec::new(),
        };
        self.run_series(
            empty,
            &series.path,
            &HostSettings::default(),
            (1..).zip(&series.rates),
            |lab, (test_number, rate)| {
                let run = self.run_udp_test(lab, series, *rate, &format!("losses-{number}-{test_number}"), ran);
                (self.tell)(Event::Udp(&run));
                run
            },
        )
    }

    fn run_udp_test(&self, lab: &Lab, series: &UdpSeries, rate: BitRate, losses_file: &str, ran: &mut Ran) -> Run {
        (self.tell)(Event::UdpBegins(rate));
        let parameters = series.parameters(rate);
        let mut run = Run {
            rate_bps: rate.0,
            command: (self.command)(&parameters.clone().into()),
            parameters: parameters.clone(),
            result: None,
            error: None,
            caveats: Vec::new(),
        };
        match test(lab, "client", parameters, self.stop) {
            Ok(end) => {
                ran.saw(&end);
                let mut save = self.save_losses.map(|save| {
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
