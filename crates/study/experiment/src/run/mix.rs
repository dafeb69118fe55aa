//! Experiments about a receiver under background traffic.

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
use longhaul_mix::{MixAmount, MixResult, Mixer, StreamReceiver};
use longhaul_mix::{Plan, Target};
use longhaul_report::html::findings::Finding;
use longhaul_report::html::mix::{Most, PaperReceived, Report, Run, Series};
use longhaul_report::html::points::Point;
use longhaul_units::{BitRate, Nanos};
use longhaul_wire::probe::Cookie;

use super::Event;
use crate::spec::mix::{MOST_RUNS, MixExperiment, MixSeries, ReceiverKind};

/// What stops a run; its text says what and where.
type Error = Box<dyn std::error::Error + Send + Sync>;

const LINK: &str = "lan";
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 2);
const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Where the stream goes, and the TCP flow.
const PORT: u16 = 5210;
/// The same mix each time.
const SEED: u64 = 2005;
const COOKIE: Cookie = Cookie(0x6d69_7800);
/// Preamble and gap of a frame on a wire.
const PREAMBLE_AND_GAP_BYTES: f64 = 20.0;
/// Room for what arrives while the counting program has no CPU.
const BUFFER_BYTES: usize = 64 << 20;
/// A link that does not take packets after so long never will.
const PATIENCE: Nanos = Nanos::from_secs(5);
/// What a TCP flow writes at once.
const BLOCK_BYTES: usize = 128 << 10;

/// Two hosts and the cable between them.
struct Rig {
    client: NetNamespace,
    server: NetNamespace,
    client_index: u32,
    _filter: Option<Filter>,
}

/// All series of `experiment`, or those before `stop`; `tell` is told what happens.
pub(super) fn run(experiment: &MixExperiment, stop: Stop, tell: &dyn Fn(Event<'_>)) -> Report {
    let mut report = Report {
        title: experiment.title.clone(),
        source: experiment.source.clone(),
        note: experiment.note.clone(),
        longhaul: env!("CARGO_PKG_VERSION").to_owned(),
        series: Vec::new(),
        findings: Vec::new(),
    };
    for series in &experiment.series {
        if stop.requested().is_some() {
            break;
        }
        tell(Event::MixSeries(&series.name));
        let mut done = Series {
            name: series.name.clone(),
            paper: series.paper.clone(),
            paper_received: (series.paper_received.iter())
                .map(|(rate, taken)| PaperReceived { rate_bps: rate.0, packets_per_second: *taken })
                .collect(),
            receiver: series.receiver.name().to_owned(),
            frame_bytes: series.frame_bytes,
            runs: Vec::new(),
            most: None,
            most_runs: Vec::new(),
            error: None,
        };
        let ran = raise(series.receiver).and_then(|rig| {
            for rate in &experiment.rates {
                if stop.requested().is_some() {
                    break;
                }
                let one = measure(&rig, series, *rate, experiment.time, stop)?;
                tell(Event::Mix(&one));
                done.runs.push(one);
            }
            for _ in 0..MOST_RUNS {
                if stop.requested().is_some() {
                    break;
                }
                let most = most(&rig, series, experiment.time, stop)?;
                tell(Event::MixMost(&most));
                done.most_runs.push(most);
            }
            done.most = Most::mean(&done.most_runs);
            Ok(())
        });
        if let Err(error) = ran {
            tell(Event::NotMeasured(error.to_string()));
            done.error = Some(error.to_string());
        }
        report.series.push(done);
    }
    report.findings = judged(experiment, &report.series);
    report
}

/// What came of the findings of `experiment`.
fn judged(experiment: &MixExperiment, series: &[Series]) -> Vec<Finding> {
    let points: Vec<Point<Most>> = series.iter().map(Series::most_point).collect();
    let judge = |finding: &crate::spec::Finding| {
        // A series that a stop left out was not run.
        let place = |series: usize, _: usize| {
            let name = experiment.series.get(series).map_or_else(String::new, |series| series.name.clone());
            (name, (series < points.len()).then_some((series, 0)))
        };
        finding.asked(place).judge(|(series, _)| points.get(series))
    };
    experiment.findings.iter().map(judge).collect()
}

fn raise(receiver: ReceiverKind) -> Result<Rig, Error> {
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

/// One rate, alone and then beside a TCP flow.
fn measure(rig: &Rig, series: &MixSeries, rate: BitRate, time: Nanos, stop: Stop) -> Result<Run, Error> {
    let at = SocketAddr::from((SERVER, PORT));
    let receiver = rig.server.enter(|| StreamReceiver::start(at, COOKIE, BUFFER_BYTES))??;
    let (before, begin) = (cpu_times()?, monotonic());
    let alone = send(rig, series, rate, time, stop)?;
    let (after, elapsed) = (cpu_times()?, monotonic().saturating_sub(begin));
    let numbered = alone.stream.map_or(0, |stream| stream.numbered_packets);
    let received = receiver.finish(numbered)?;
    let sum = |of: fn(&longhaul_kernel::procfs::CpuTime) -> Nanos| {
        let all = |times: &[longhaul_kernel::procfs::CpuTime]| times.iter().map(|time| of(time).0).sum::<u64>();
        all(&after).saturating_sub(all(&before)) as f64 / elapsed.0.max(1) as f64
    };
    let (goodput_bps, beside) = tcp(rig, time, || send(rig, series, rate, time, stop))?;
    Ok(Run {
        rate_bps: rate.0,
        sent_packets_per_second: alone.packets_per_second,
        refused_packets: alone.refused_packets,
        stream_sent_packets: alone.stream.map_or(0, |stream| stream.sent_packets),
        stream_received_packets: received.counts.received_packets,
        sender_ns_per_packet: alone.cpu_ns as f64 / alone.sent_packets.max(1) as f64,
        softirq_cpus: sum(|time| time.softirq),
        busy_cpus: sum(|time| time.busy),
        tcp_goodput_bps: goodput_bps,
        tcp_mix_packets_per_second: beside.packets_per_second,
    })
}

/// As fast as it goes, and what making the frames takes of that.
fn most(rig: &Rig, series: &MixSeries, time: Nanos, stop: Stop) -> Result<Most, Error> {
    let amount = MixAmount { packets_per_second: None, time: Some(time), packets: None };
    let each = |result: &MixResult| result.cpu_ns as f64 / result.sent_packets.max(1) as f64;
    let (plan, ifindex) = (plan(series)?, rig.client_index);
    let made = Mixer::into_nothing(plan.clone())?.run(&amount, Some(stop), None, |_| {})?;
    let sent = rig.client.enter(|| -> Result<MixResult, Error> {
        Ok(Mixer::open(ifindex, plan, None, &[])?.run(&amount, Some(stop), None, |_| {})?)
    })??;
    Ok(Most {
        sent_packets_per_second: sent.packets_per_second,
        refused_packets: sent.refused_packets,
        sender_ns_per_packet: each(&sent),
        making_ns_per_packet: each(&made),
    })
}

fn plan(series: &MixSeries) -> Result<Plan, Error> {
    let target = Target {
        mac: SERVER_MAC,
        address: SERVER.into(),
        port: PORT,
        source: CLIENT.into(),
        source_port: PORT,
        cookie: COOKIE,
    };
    Ok(Plan::new(series.mix.clone(), SEED, Some(target))?)
}

fn send(rig: &Rig, series: &MixSeries, rate: BitRate, time: Nanos, stop: Stop) -> Result<MixResult, Error> {
    let plan = plan(series)?;
    let packets_per_second = Some(rate.0 as f64 / (8.0 * (plan.mean_bytes() + PREAMBLE_AND_GAP_BYTES)));
    let amount = MixAmount { packets_per_second, time: Some(time), packets: None };
    let ifindex = rig.client_index;
    let result = rig.client.enter(|| -> Result<MixResult, Error> {
        Ok(Mixer::open(ifindex, plan, None, &[])?.run(&amount, Some(stop), None, |_| {})?)
    })??;
    Ok(result)
}

/// Bits a second that a TCP flow brings to the server while `beside` runs.
fn tcp<T>(rig: &Rig, time: Nanos, beside: impl FnOnce() -> Result<T, Error>) -> Result<(u64, T), Error> {
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
        while monotonic() < end {
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
