//! Runs of a receiver under background traffic: two hosts and a cable for each, no path.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use longhaul_bpf::filter::{Filter, FilterOptions};
use longhaul_filter::Following;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::ethtool;
use longhaul_kernel::link::{Address, Netlink, VethEnd};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::procfs::cpu_times;
use longhaul_kernel::signals::Stop;
use longhaul_mix::caveats::{FRAMES_REFUSED, RATE_NOT_ACHIEVED};
use longhaul_mix::{MixAmount, MixResult, Mixer, Plan, StreamReceiver, Target};
use longhaul_report::html::mix::{AtRate, Most, Run};
use longhaul_report::html::points::Problems;
use longhaul_report::html::series::{PaperReceived, Receiver, Series};
use longhaul_result::Caveat;
use longhaul_units::{BitRate, Nanos};
use longhaul_wire::probe::Cookie;

use super::WARM_UP;
use crate::caveats;
use crate::spec::{MixSeries, ReceiverKind};

/// What stops a run; its text says what and where.
type Error = Box<dyn std::error::Error + Send + Sync>;

const LINK: &str = "lan";
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 2);
const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Where the stream goes, and the TCP flow.
const PORT: u16 = 5210;
const COOKIE: Cookie = Cookie(0x6d69_7800);
/// Preamble and gap of a frame on a wire.
const PREAMBLE_AND_GAP_BYTES: f64 = 20.0;
/// Room for what arrives while the counting program has no CPU.
const BUFFER_BYTES: usize = 64 << 20;
/// A link that does not take packets after so long never will.
const PATIENCE: Nanos = Nanos::from_secs(5);
/// What a TCP flow writes at once.
const BLOCK_BYTES: usize = 128 << 10;
/// CPUs that are busy while a rate is sent, from which on one of them is full: sender and softirq then do what they can.
const FULL_CPUS: f64 = 0.9;

/// Two hosts and the cable between them.
pub(super) struct Rig {
    client: NetNamespace,
    server: NetNamespace,
    client_index: u32,
    _filter: Option<Filter>,
}

/// `series` without a point.
pub(super) fn empty(series: &MixSeries) -> Series<Run> {
    let paper_received = (series.paper_received.iter())
        .map(|(rate, taken)| PaperReceived { rate_bps: rate.0, packets_per_second: *taken })
        .collect();
    let receiver = series.receiver.name().to_owned();
    Series {
        name: series.name.clone(),
        paper: series.paper.clone(),
        changes: Vec::new(),
        hosts: Vec::new(),
        poll_interval_ns: None,
        receiver: Some(Receiver { receiver, frame_bytes: series.frame_bytes, paper_received }),
        points: Vec::new(),
    }
}

/// A point of `series` once, with the frames that follow from `seed`.
pub(super) fn run(rig: Result<&Rig, Caveat>, series: &MixSeries, rate: Option<BitRate>, seed: u64, stop: Stop) -> Run {
    let problems = Problems::default();
    let none = Run { rate_bps: rate.map(|rate| rate.0), time_ns: series.time.0, at_rate: None, most: None, problems };
    let rig = match rig {
        Ok(rig) => rig,
        Err(error) => return Run { problems: Problems::of_error(error), ..none },
    };
    let sending = Sending { rig, series, seed, stop };
    let with = |caveats| Run { problems: Problems { error: None, caveats }, ..none.clone() };
    let done = match rate {
        Some(rate) => sending.at_rate(rate).map(|(run, caveats)| Run { at_rate: Some(run), ..with(caveats) }),
        None => sending.most().map(|(run, caveats)| Run { most: Some(run), ..with(caveats) }),
    };
    let failed = |error: Error| Caveat::new(caveats::NOT_MEASURED, error.to_string(), "run as root, if you do not");
    done.unwrap_or_else(|error| Run { problems: Problems::of_error(failed(error)), ..none })
}

/// A point of `series` for a moment. What goes wrong here goes wrong again in the runs, which say it.
pub(super) fn warm_up(series: &MixSeries, rate: Option<BitRate>, seed: u64, stop: Stop) {
    if let Ok(rig) = raise(series.receiver) {
        let _ = Sending { rig: &rig, series, seed, stop }.send(rate, WARM_UP);
    }
}

/// The hosts of a run. They go with it.
pub(super) fn raise(receiver: ReceiverKind) -> Result<Rig, Error> {
    let (client, server) = (NetNamespace::create()?, NetNamespace::create()?);
    let end = |host, mac| VethEnd { name: LINK, namespace: Some(host), mtu_bytes: None, mac: Some(mac) };
    Netlink::open()?.create_veth(&end(&client, CLIENT_MAC), &end(&server, SERVER_MAC))?;
    let set_up = |host: &NetNamespace, own: Ipv4Addr, other: Ipv4Addr, mac| -> Result<(Netlink, u32), Error> {
        let mut netlink = host.enter(Netlink::open)??;
        let index = netlink.index_of(LINK)?;
        netlink.set_up(index, true)?;
        netlink.add_address(&Address { ifindex: index, ip: own.into(), prefix_bits: 24 })?;
        netlink.add_permanent_neighbour(index, other.into(), mac)?;
        Ok((netlink, index))
    };
    let (mut links, client_index) = set_up(&client, CLIENT, SERVER, SERVER_MAC)?;
    let (_, server_index) = set_up(&server, SERVER, CLIENT, CLIENT_MAC)?;
    if !links.wait_until_ready(client_index, monotonic().saturating_add(PATIENCE))? {
        return Err(Error::from("the veth pair does not come up"));
    }
    let filter = server.enter(|| -> Result<Option<Filter>, Error> {
        // NAPI, without which a veth takes no frames as from a driver.
        ethtool::set_features(LINK, &[("rx-gro", true)])?;
        match receiver {
            ReceiverKind::Plain => Ok(None),
            ReceiverKind::Filter => {
                let filter =
                    Filter::attach(server_index, &FilterOptions { enforce: true, ..FilterOptions::default() })?;
                Following::begin(LINK)?.tell(&filter)?;
                Ok(Some(filter))
            }
            ReceiverKind::Nftables => nftables().map(|()| None),
        }
    })??;
    Ok(Rig { client, server, client_index, _filter: filter })
}

/// NIMA's algorithm (section 4): ours, broadcast but for ARP for others, and the groups that a host with IPv6 has joined.
fn nftables() -> Result<(), Error> {
    let rules = format!(
        "table netdev nima {{ chain ingress {{ type filter hook ingress device \"{LINK}\" priority 0; policy drop; \
         ether daddr 02:00:00:00:00:02 accept; \
         ether daddr ff:ff:ff:ff:ff:ff ether type arp arp daddr ip {SERVER} accept; \
         ether daddr ff:ff:ff:ff:ff:ff ether type arp drop; \
         ether daddr ff:ff:ff:ff:ff:ff accept; \
         ether daddr {{ 01:00:5e:00:00:01, 33:33:00:00:00:01, 33:33:ff:00:00:02 }} accept; }}; }}"
    );
    let output = Command::new("nft").arg(rules).output().map_err(|error| format!("nft: {error}; install nftables"))?;
    if output.status.success() { Ok(()) } else { Err(Error::from(String::from_utf8_lossy(&output.stderr).trim())) }
}

/// What one run sends.
#[derive(Clone, Copy)]
struct Sending<'a> {
    rig: &'a Rig,
    series: &'a MixSeries,
    seed: u64,
    stop: Stop,
}

impl Sending<'_> {
    /// One rate, alone and then beside a TCP flow.
    fn at_rate(self, rate: BitRate) -> Result<(AtRate, Vec<Caveat>), Error> {
        let (rig, time) = (self.rig, self.series.time);
        let at = SocketAddr::from((SERVER, PORT));
        let receiver = rig.server.enter(|| StreamReceiver::start(at, COOKIE, BUFFER_BYTES))??;
        let (before, begin) = (cpu_times()?, monotonic());
        let (alone, amount) = self.send(Some(rate), time)?;
        let (after, elapsed) = (cpu_times()?, monotonic().saturating_sub(begin));
        let numbered = alone.stream.map_or(0, |stream| stream.numbered_packets);
        let received = receiver.finish(numbered)?;
        let sum = |of: fn(&longhaul_kernel::procfs::CpuTime) -> Nanos| {
            let all = |times: &[longhaul_kernel::procfs::CpuTime]| times.iter().map(|time| of(time).0).sum::<u64>();
            all(&after).saturating_sub(all(&before)) as f64 / elapsed.0.max(1) as f64
        };
        let (softirq_cpus, busy_cpus) = (sum(|time| time.softirq), sum(|time| time.busy));
        let (tcp_goodput_bps, (beside, _)) = tcp(rig, time, self.stop, || self.send(Some(rate), time))?;
        let run = AtRate {
            sent_packets_per_second: alone.packets_per_second,
            refused_packets: alone.refused_packets,
            stream_sent_packets: alone.stream.map_or(0, |stream| stream.sent_packets),
            stream_received_packets: received.counts.received_packets,
            sender_ns_per_packet: alone.cpu_ns as f64 / alone.sent_packets.max(1) as f64,
            softirq_cpus,
            busy_cpus,
            tcp_goodput_bps,
            tcp_mix_packets_per_second: beside.packets_per_second,
        };
        Ok((run, doubts(&alone, &amount, busy_cpus)))
    }

    /// As fast as it goes, and what making the frames takes of that.
    fn most(self) -> Result<(Most, Vec<Caveat>), Error> {
        let each = |result: &MixResult| result.cpu_ns as f64 / result.sent_packets.max(1) as f64;
        let plan = self.plan()?;
        let amount = amount(&plan, None, self.series.time);
        let made = Mixer::into_nothing(plan)?.run(&amount, Some(self.stop), None, |_| {})?;
        let (sent, amount) = self.send(None, self.series.time)?;
        let most = Most {
            sent_packets_per_second: sent.packets_per_second,
            refused_packets: sent.refused_packets,
            sender_ns_per_packet: each(&sent),
            making_ns_per_packet: each(&made),
        };
        Ok((most, doubts(&sent, &amount, 0.0)))
    }

    fn plan(self) -> Result<Plan, Error> {
        let target = Target {
            mac: SERVER_MAC,
            address: SERVER.into(),
            port: PORT,
            source: CLIENT.into(),
            source_port: PORT,
            cookie: COOKIE,
        };
        Ok(Plan::new(self.series.mix.clone(), self.seed, Some(target))?)
    }

    /// What was sent, and what was asked for.
    fn send(self, rate: Option<BitRate>, time: Nanos) -> Result<(MixResult, MixAmount), Error> {
        let plan = self.plan()?;
        let amount = amount(&plan, rate, time);
        let ifindex = self.rig.client_index;
        let result = self.rig.client.enter(|| -> Result<MixResult, Error> {
            Ok(Mixer::open(ifindex, plan, None, &[])?.run(&amount, Some(self.stop), None, |_| {})?)
        })??;
        Ok((result, amount))
    }
}

/// So many frames of `plan` as have this rate on a wire.
fn amount(plan: &Plan, rate: Option<BitRate>, time: Nanos) -> MixAmount {
    let bits = 8.0 * (plan.mean_bytes() + PREAMBLE_AND_GAP_BYTES);
    MixAmount { packets_per_second: rate.map(|rate| rate.0 as f64 / bits), time: Some(time), packets: None }
}

/// Caveats of what was sent while so many CPUs were busy. What the receiver refuses is a result, and so is a rate that is too much for a
/// full CPU, on which sender and softirq run. A rate that was missed although none was full is a sender that this machine did not let run.
fn doubts(sent: &MixResult, asked: &MixAmount, busy_cpus: f64) -> Vec<Caveat> {
    let is_result =
        |caveat: &Caveat| caveat.is(FRAMES_REFUSED) || caveat.is(RATE_NOT_ACHIEVED) && busy_cpus >= FULL_CPUS;
    let mut caveats = sent.caveats(asked);
    caveats.retain(|caveat| !is_result(caveat));
    caveats
}

/// Bits a second that a TCP flow brings to the server while `beside` runs; both end early by `stop`.
fn tcp<T>(rig: &Rig, time: Nanos, stop: Stop, beside: impl FnOnce() -> Result<T, Error>) -> Result<(u64, T), Error> {
    let listener = rig.server.enter(|| TcpListener::bind((SERVER, PORT)))??;
    let mut sender = rig.client.enter(|| TcpStream::connect((SERVER, PORT)))??;
    let (mut receiver, _) = listener.accept()?;
    sender.set_write_timeout(Some(Duration::from_millis(200)))?;
    let reading = thread::spawn(move || {
        let mut block = vec![0; BLOCK_BYTES];
        let (begin, mut bytes, mut last) = (monotonic(), 0_u64, monotonic());
        while let Ok(read) = receiver.read(&mut block) {
            if read == 0 {
                break;
            }
            bytes += read as u64;
            last = monotonic();
        }
        BitRate::of(bytes, last.saturating_sub(begin)).0
    });
    let end = monotonic().saturating_add(time);
    let writing = thread::spawn(move || {
        let block = vec![0; BLOCK_BYTES];
        while monotonic() < end && stop.requested().is_none() {
            match sender.write(&block) {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                }
                Err(_) => break,
            }
        }
    });
    let done = beside();
    let _ = writing.join();
    let goodput = reading.join().map_err(|_| Error::from("the reading thread panicked"))?;
    Ok((goodput, done?))
}

#[cfg(test)]
mod tests {
    use longhaul_mix::EngineKind;
    use longhaul_report::html::findings::Verdict;
    use longhaul_report::html::points::Repeat;

    use super::*;
    use crate::run::plan::{self, Choice};
    use crate::run::{Made, MadeAt, Ran};
    use crate::spec::Experiment;

    /// A full CPU is the receiver's limit, which is measured; an idle one while frames are due is this machine's doing.
    #[test]
    fn a_rate_that_an_idle_machine_missed_is_in_doubt() {
        let asked = MixAmount { packets_per_second: Some(1e6), time: Some(Nanos::from_millis(500)), packets: None };
        let sent = |packets_per_second: f64| MixResult {
            engine: EngineKind::LiveFrames,
            engine_note: None,
            engine_remedy: String::new(),
            duration_ns: 500_000_000,
            cpu_ns: 400_000_000,
            sent_packets: (packets_per_second / 2.0) as u64,
            sent_bytes: 0,
            refused_packets: 9,
            packets_per_second,
            l2_rate_bps: 0,
            l1_rate_bps: 0,
            classes: Vec::new(),
            stream: None,
        };
        assert!(doubts(&sent(9.5e5), &asked, 1.0).is_empty());
        assert!(doubts(&sent(9.9e5), &asked, 0.5).is_empty());
        let missed = doubts(&sent(9.5e5), &asked, 0.5);
        assert!(missed.len() == 1 && missed[0].is(RATE_NOT_ACHIEVED), "{missed:?}");
        assert!(super::super::SPOILING.iter().any(|code| missed[0].is(*code)), "such a run is made again");
    }

    /// A finding names series, and is judged by the runs of each that send as fast as it goes; runs come back from the journal as they were.
    #[test]
    fn findings_are_about_what_is_sent_as_fast_as_it_goes() {
        let nima = Experiment::load("nima").unwrap();
        let choice = Choice { quick: true, only: vec!["64 bytes".into()], ..Choice::default() };
        let plan = plan::Plan::of(&nima, &choice, 1).unwrap();
        let mut ran = Ran::new(&nima, &plan, 3);
        for planned in plan.runs() {
            let (series, repeat) = (&nima.mix[planned.series], planned.repeat);
            let net_ns = if series.receiver == ReceiverKind::Plain { 900.0 } else { 250.0 };
            let most = Most {
                sent_packets_per_second: 1e6,
                refused_packets: 0,
                sender_ns_per_packet: net_ns + 110.0 + f64::from(repeat),
                making_ns_per_packet: 110.0,
            };
            let rate = series.rate(planned.point);
            let run = Run {
                rate_bps: rate.map(|rate| rate.0),
                time_ns: series.time.0,
                at_rate: None,
                most: rate.is_none().then_some(most),
                problems: Problems::default(),
            };
            let run = Repeat { repeat, seed: 1, began_at: String::new(), emulator: None, run };
            let made = MadeAt { series: planned.series, point: planned.point, rejected: None, run };
            let line = serde_json::to_string(&Made::Mix(Box::new(made))).unwrap();
            ran.add_earlier(&plan, serde_json::from_str(&line).unwrap());
        }
        ran.average();
        assert!(ran.mix.len() == 3 && ran.mix.iter().all(|one| one.points[1].runs.len() == 3), "{:#?}", ran.mix);
        let findings = ran.findings(&nima, &plan);
        assert_eq!(findings[0].points, ["64 bytes, filter", "64 bytes, without a filter"]);
        assert!(findings[0].verdict == Verdict::Reappeared && findings[0].sure, "{:#?}", findings[0]);
        assert_eq!(findings[1].verdict, Verdict::NotDecided, "its series were not run");
    }
}
