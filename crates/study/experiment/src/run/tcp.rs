//! The TCP tests of an experiment.

use longhaul_congestion::aimd::Model;
use longhaul_lab::Lab;
use longhaul_path::spec::{Direction, LossSpec, PathSpec};
use longhaul_report::html::over_time::dropped::DroppedOverTime;
use longhaul_report::html::over_time::tcp_runs::TcpOverTime;
use longhaul_report::html::points::Problems;
use longhaul_report::html::series::Series;
use longhaul_report::html::tcp_goodput::{Flows, Run};
use longhaul_result::Caveat;
use longhaul_session::{SessionError, TestEnd, kind};
use longhaul_units::Nanos;

use super::captured::Capturing;
use super::{Ground, Hosts, Runner, hosts, no_report, steps, test};
use crate::caveats;
use crate::spec::{Emulator, Setting, TcpFlows, TcpSeries, TcpTest};

/// Goodput in parts of what the path carries, above which it has a caveat: what is read at the ends of the counted time makes less.
const CARRIED_TIMES_MOST: f64 = 1.01;

/// `series` without a point.
pub(super) fn empty(series: &TcpSeries) -> Series<Run> {
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
    /// One test, and what shares its path. `hosts` are client and server as they were first seen.
    pub(super) fn run_tcp_test(
        &self,
        ground: Result<Ground<'_>, Caveat>,
        wanted: &TcpTest,
        path: &PathSpec,
        hosts: &mut Option<Hosts>,
    ) -> Run {
        let ground = match ground {
            Ok(ground) => ground,
            Err(error) => return self.failed(wanted, path, error),
        };
        let prepared = match ground {
            Ground::Lab(lab) => self.prepare(lab, wanted),
            Ground::Real(_) => Ok((None, None)),
        };
        let (receiver, capturing) = match (prepared, &wanted.program, ground) {
            (Err(error), ..) => return self.failed(wanted, path, error),
            (Ok(_), Some(program), Ground::Lab(lab)) => {
                let run = self.failed(wanted, path, no_report());
                return match self.run_program(lab, wanted, program) {
                    Ok(program) => Run { program: Some(program), problems: Problems::default(), ..run },
                    Err(error) => Run { problems: Problems::of_error(error), ..run },
                };
            }
            (Ok(prepared), ..) => prepared,
        };
        let (stop, ipv6) = (self.stop, wanted.setting.ipv6);
        let one = |flows: &TcpFlows, dropped: &mut DroppedOverTime| {
            let mut parameters = flows.parameters.clone();
            parameters.affinity.receiver_cpus.extend(receiver);
            test(ground, (&flows.host, "server"), parameters, ipv6, stop, |live| {
                let left = live.sender.map_or(0, |now| now.dropped_data.snd_txloss);
                let there = live.progress.dropped_data;
                dropped.push(live.progress.elapsed_ns, [left, there.rcv_rxloss, there.tcp_pruning]);
            })
        };
        let mut dropped = DroppedOverTime::default();
        let (own, other) = std::thread::scope(|scope| {
            let other =
                wanted.beside.as_ref().map(|beside| scope.spawn(|| one(beside, &mut DroppedOverTime::default())));
            let own = one(&wanted.flows, &mut dropped);
            let failed = || Err(SessionError::new(caveats::LAB_FAILED.as_str(), "the other test ended early", ""));
            (own, other.map(|thread| thread.join().unwrap_or_else(|_| failed())))
        });
        if let Ok(end) = &own {
            hosts.get_or_insert_with(|| Hosts::of(end));
        }
        let omit = Nanos(wanted.flows.parameters.omit_ns);
        let steps = own.as_ref().map_or_else(|_| Vec::new(), |end| steps::of(end, omit));
        let sent = own.as_ref().ok().and_then(|end| end.local.tcp.as_ref());
        let beside = other.as_ref().and_then(|end| end.as_ref().ok()?.local.tcp.as_ref());
        let over_time = sent.and_then(|sent| TcpOverTime::of(sent, beside, &dropped));
        let began_unix_ns = sent.filter(|_| wanted.capture).and_then(|sent| TcpOverTime::began_unix_ns(sent, beside));
        let mut problems = Problems::default();
        let mut flows_of = |flows: &TcpFlows, end: Result<TestEnd, SessionError>| {
            let mut done = self.without_result(flows, ipv6);
            match end {
                Ok(end) => {
                    match kind::tcp::results(&end, false) {
                        Some((results, raised)) => {
                            done.result = Some(results.into_first());
                            problems.caveats.extend(raised);
                        }
                        None => problems.error = Some(no_report()),
                    }
                    done.parameters = end.parameters.tcp().cloned().unwrap_or(done.parameters);
                }
                Err(why) => problems.error = Some(Caveat::of_error(&why.code, why.message, why.remedy)),
            }
            done
        };
        let flows = flows_of(&wanted.flows, own);
        let beside = wanted.beside.as_ref().zip(other).map(|(beside, end)| flows_of(beside, end));
        if matches!(ground, Ground::Lab(_)) {
            problems.caveats.extend(more_than_carried(path, &wanted.setting, &flows));
        }
        // Where others share the path, its losses are theirs as well.
        let expected_bps = if beside.is_none() { expected(path, &flows) } else { None };
        let packets = match capturing.map(|capturing: Capturing| capturing.end(omit, began_unix_ns)) {
            None => None,
            Some(Ok(packets)) => Some(packets),
            Some(Err(why)) => {
                problems.caveats.push(why);
                None
            }
        };
        let path_rtt_ns = path.round_trip().0;
        Run { flows, program: None, packets, steps, over_time, beside, expected_bps, path_rtt_ns, problems }
    }

    /// What has to be done on the hosts before a test: the CPU of the receiver, and captures.
    fn prepare(&self, lab: &Lab, wanted: &TcpTest) -> Result<(Option<u16>, Option<Capturing>), Caveat> {
        let receiver = hosts::place_softirq(lab, &wanted.setting)?;
        let capturing = wanted.capture.then(|| Capturing::begin(lab, &wanted.flows.host)).transpose()?;
        Ok((receiver, capturing))
    }

    /// There was no test.
    fn failed(&self, wanted: &TcpTest, path: &PathSpec, error: Caveat) -> Run {
        Run {
            flows: self.without_result(&wanted.flows, wanted.setting.ipv6),
            program: None,
            packets: None,
            steps: Vec::new(),
            over_time: None,
            beside: wanted.beside.as_ref().map(|beside| self.without_result(beside, wanted.setting.ipv6)),
            expected_bps: None,
            path_rtt_ns: path.round_trip().0,
            problems: Problems::of_error(error),
        }
    }

    fn without_result(&self, flows: &TcpFlows, ipv6: bool) -> Flows {
        Flows {
            host: flows.host.clone(),
            command: (self.command)(&flows.parameters.clone().into(), ipv6),
            parameters: flows.parameters.clone(),
            result: None,
        }
    }
}

/// The goodput that the response function of the flow's control says, where the path loses packets at a rate and the control has one:
/// its mean window at that loss, each mean round trip, in payload.
fn expected(path: &PathSpec, flows: &Flows) -> Option<u64> {
    let loss: f64 = path.forward.iter().map(|hop| rate_of(&hop.loss)).sum();
    let [stream] = flows.result.as_ref()?.streams.as_slice() else { return None };
    let control = stream.congestion_control.strip_prefix("lh_").unwrap_or(&stream.congestion_control);
    let rtt = Nanos(stream.mean_rtt_ns?);
    if loss <= 0.0 || rtt == Nanos::ZERO {
        return None;
    }
    let packets = Model::named(control).ok()?.window_at(loss, rtt);
    Some((packets * stream.mss_bytes as f64 * 8.0 / rtt.as_secs_f64()) as u64)
}

/// That the flows have more goodput than the slowest hop carries, if they have: packets that came behind a lost one are read once it came again, those of
/// the omitted time as well. Of netem it is not known which bytes it counts.
fn more_than_carried(path: &PathSpec, setting: &Setting, flows: &Flows) -> Option<Caveat> {
    let result = flows.result.as_ref()?;
    if flows.parameters.omit_ns == 0 || setting.emulator == Emulator::Netem {
        return None;
    }
    let largest = result.streams.iter().map(|stream| stream.mss_bytes).max()?;
    let payload_bytes = u32::try_from(largest).ok().filter(|bytes| *bytes > 0)?;
    let time_stamps = if setting.hosts.timestamps == Some(false) { 0 } else { 12 };
    let headers = time_stamps + if setting.ipv6 { 60 } else { 40 };
    let carried = path.payload_rate(Direction::Forward, payload_bytes.saturating_add(headers), payload_bytes)?;
    let [goodput, most] = [result.goodput_bps, carried.0].map(|bps| bps as f64);
    (goodput > most * CARRIED_TIMES_MOST).then(|| {
        let why = format!(
            "goodput of {:.1} Mb/s exceeds the path's rate of {:.1}: data that was queued before the measured time was counted",
            goodput / 1e6,
            most / 1e6
        );
        Caveat::new(caveats::MORE_THAN_CARRIED, why, "give the test a longer `time`, or another `omit`")
    })
}

/// Share of the packets that are lost by themselves; 0 where losses come in bursts, which no response function knows.
fn rate_of(loss: &LossSpec) -> f64 {
    match loss {
        LossSpec::Random(probability) => probability.0,
        LossSpec::Every(each) => 1.0 / each.get() as f64,
        LossSpec::None | LossSpec::GilbertElliott { .. } | LossSpec::Bursts(_) | LossSpec::List(_) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longhaul_result::CaveatCode;
    use longhaul_tcp::{TcpEndReport, TcpParameters, TcpResult, TcpStreamReport};

    use super::super::spoiling;
    use super::*;
    use crate::spec::Experiment;

    /// Flows of a goodput in segments of `mss_bytes`.
    fn flows(goodput_mbit: u64, mss_bytes: u64) -> Flows {
        let parameters = TcpParameters { omit_ns: 1_000_000_000, ..TcpParameters::default() };
        let end = |sends| TcpEndReport {
            streams: vec![TcpStreamReport { sends, ..TcpStreamReport::default() }],
            ..TcpEndReport::default()
        };
        let mut result = TcpResult::assemble(&parameters, false, false, &end(true), &end(false)).unwrap().result;
        (result.goodput_bps, result.streams[0].mss_bytes) = (goodput_mbit * 1_000_000, mss_bytes);
        Flows { host: "client".into(), command: String::new(), parameters, result: Some(result) }
    }

    /// Another try may be spared that.
    #[test]
    fn a_window_that_could_not_be_spoils_a_run() {
        let run = |code: CaveatCode| {
            let caveats = vec![Caveat::new(code, String::new(), "")];
            let flows = flows(100, 1448);
            Run {
                flows,
                program: None,
                packets: None,
                steps: Vec::new(),
                over_time: None,
                beside: None,
                expected_bps: None,
                path_rtt_ns: 0,
                problems: Problems { error: None, caveats },
            }
        };
        assert!(spoiling(&run(longhaul_tcp::caveats::IMPOSSIBLE_WINDOW)).is_some());
        assert!(spoiling(&run(caveats::MORE_THAN_CARRIED)).is_none(), "it is doubtful, and counts");
    }

    /// Of 1875 Mb/s at L1 full packets of 9000 bytes carry 8948 in 9038 bytes: 1856.3 Mb/s; those of 1500 carry 1448 in 1538: 1765.3.
    #[test]
    fn more_goodput_than_the_path_carries_is_doubted() {
        let text = "title = 'x'\npath = 'amsterdam-sandiego'\nchange = ['rate=1875Mbit']\n\
                    [[tcp]]\nname = 'x'\ncongestion = ['reno']\n";
        let path = &Experiment::parse(text, Path::new("")).unwrap().path;
        let usual = Setting::default();
        for (goodput_mbit, mss_bytes) in [(1856, 8948), (1870, 8948), (1765, 1448), (1782, 1448)] {
            assert_eq!(more_than_carried(path, &usual, &flows(goodput_mbit, mss_bytes)), None, "{goodput_mbit}");
        }
        let doubt = more_than_carried(path, &usual, &flows(1945, 8948)).unwrap();
        assert!(doubt.message.starts_with("goodput of 1945.0 Mb/s exceeds the path's rate of 1856.3:"), "{doubt:?}");
        assert!(more_than_carried(path, &usual, &flows(1784, 1448)).is_some());
        let mut whole = flows(1945, 8948);
        whole.parameters.omit_ns = 0;
        assert_eq!(more_than_carried(path, &usual, &whole), None, "nothing was before");
        let netem = Setting { emulator: Emulator::Netem, ..Setting::default() };
        assert_eq!(more_than_carried(path, &netem, &flows(1945, 8948)), None);
    }
}
