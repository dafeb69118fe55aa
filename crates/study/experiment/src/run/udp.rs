//! The UDP tests of an experiment.

use longhaul_lab::Lab;
use longhaul_report::html::udp_loss::{Run, Series};
use longhaul_result::Caveat;
use longhaul_session::kind;
use longhaul_udp::locate::Loss;

use super::{Event, InLab, Ran, Runner, end, lab_failed, no_report, test};
use crate::spec::UdpSeries;

impl Runner<'_> {
    /// Raises a lab and makes the tests of `series` in it; those that were made where `stop` came before the last. `ran` gets
    /// client and server as they were first seen. A test with more losses than a result lists has them saved under a name with
    /// the number of the series and its own.
    pub(super) fn run_udp(&self, (number, series): (usize, &UdpSeries), ran: &mut Ran) -> InLab<Series> {
        let mut done = Series {
            name: series.name.clone(),
            paper: series.paper.clone(),
            changes: series.changes.clone(),
            poll_interval_ns: series.poll_interval.map(|interval| interval.0),
            runs: Vec::new(),
            error: None,
            caveats: Vec::new(),
        };
        let raised = Lab::up(self.spec.clone(), series.path.clone()).and_then(|lab| {
            series.poll_interval.map_or(Ok(()), |interval| lab.poll_receiver("server", interval))?;
            Ok(lab)
        });
        let lab = match raised {
            Ok(lab) => lab,
            Err(error) => {
                (self.tell)(Event::NotMeasured(error.to_string()));
                done.error = Some(lab_failed(error));
                return InLab { series: done, emulator: None };
            }
        };
        for (test_number, rate) in (1..).zip(&series.rates) {
            if self.stop.requested().is_some() {
                break;
            }
            (self.tell)(Event::UdpBegins(*rate));
            let parameters = series.parameters(*rate);
            let mut run = Run {
                rate_bps: rate.0,
                command: (self.command)(&parameters.clone().into()),
                parameters: parameters.clone(),
                result: None,
                error: None,
                caveats: Vec::new(),
            };
            match test(&lab, "client", parameters, self.stop) {
                Ok(end) => {
                    ran.saw(&end);
                    let name = format!("losses-{number}-{test_number}");
                    let mut save = self.save_losses.map(|save| {
                        move |ending: &str, losses: &mut dyn Iterator<Item = Loss>| {
                            save(&format!("{name}{ending}"), losses)
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
            (self.tell)(Event::Udp(&run));
            done.runs.push(run);
        }
        let emulator;
        (done.caveats, emulator) = end(lab, self.spec);
        InLab { series: done, emulator }
    }
}
