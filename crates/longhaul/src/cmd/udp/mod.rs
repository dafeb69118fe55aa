//! `longhaul udp`.

pub(crate) mod live;

use std::path::PathBuf;

use longhaul_report::html::over_time::udp::{Departures, Report};
use longhaul_report::parquet::{write_losses, write_packets};
use longhaul_report::saved::{UDP_SCHEMA, UdpAsked};
use longhaul_report::text;
use longhaul_session::kind::udp::SaveLosses;
use longhaul_session::{TestEnd, kind};
use longhaul_terms::{Affinity, Amount, SoftirqPlacement};
use longhaul_udp::locate::Loss;
use longhaul_udp::{Pace, ReceiveSettings, Timestamps, UdpParameters, attribution};
use longhaul_units::{BitRate, Bytes, Nanos};

use crate::args::marks::Marks;
use crate::args::quantity::{count, length, seconds};
use crate::cmd::test::{TestArgs, no_report, nothing_sent, word};
use crate::cmd::udp::live::Live;
use crate::output::{Failure, Outcome};

/// Payload of a packet of at most 1500 bytes on IPv4 or IPv6, with room for a tunnel's header.
const DEFAULT_PAYLOAD: u32 = 1448;

const EXAMPLES: &str = "\
Example:
  longhaul udp server -b 2400M -w 1M --wire -t 10s
  longhaul udp server -b 2400M -w 2M --softirq same    # receiver and its softirq on one CPU
  longhaul udp server -b 1G --html page.html           # losses over time, in figures that zoom
  longhaul udp server -R -b 1G -i 1s -o monday         # the server sends; keep the result
  longhaul udp server -b 100M --wire --timestamps kernel --each-packet -o monday   # arrival times
  longhaul show monday

`longhaul docs udp-results` explains each number of the result.";

/// Send UDP to a host; say where each lost packet was lost
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Send this many payload bits per second and stream (0: as fast as possible)
    #[arg(short = 'b', long, aliases = ["bandwidth", "bitrate"], value_name = "RATE", default_value = "1M", conflicts_with = "spacing")]
    rate: BitRate,
    /// Send one packet every TIME, instead of at a rate
    #[arg(long, value_name = "TIME")]
    spacing: Option<Nanos>,
    /// Send this many payload bytes per packet, including 18 bytes of probe header
    #[arg(short = 'l', long, value_name = "BYTES", default_value_t = DEFAULT_PAYLOAD, value_parser = length)]
    length: u32,
    /// Send for this time
    #[arg(short = 't', long, value_name = "TIME", default_value = "10s", conflicts_with_all = ["bytes", "packets"], value_parser = seconds)]
    time: Nanos,
    /// Send this many payload bytes, over all streams
    #[arg(short = 'n', long, value_name = "SIZE", conflicts_with = "packets")]
    bytes: Option<Bytes>,
    /// Send this many packets, over all streams
    #[arg(short = 'k', long, value_name = "COUNT", value_parser = count)]
    packets: Option<u64>,
    /// Send this many streams in parallel
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1)]
    streams: u8,
    /// Set the socket buffers at both ends
    ///
    /// Without -w a receiver has room for 20 ms of the rate, as far as the kernel allows.
    #[arg(short = 'w', long, value_name = "SIZE")]
    sockbuf: Option<Bytes>,
    /// Send and receive each packet alone, without UDP_SEGMENT and UDP_GRO
    #[arg(long)]
    wire: bool,
    /// Set "don't fragment": a packet that is longer than the path's MTU is lost
    ///
    /// Without --df the kernel fragments a packet if it knows that the path's MTU is smaller.
    #[arg(long)]
    df: bool,
    #[command(flatten)]
    marks: Marks,
    /// Send this many packets back to back
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    burst: u32,
    /// Sleep between packets instead of polling the clock: less CPU time, but packets leave 20 to 50 us late
    #[arg(long)]
    no_spin: bool,
    /// Run sender, receiver and the receiver's softirq on these CPUs, such as 0,1,0
    #[arg(short = 'A', long, value_name = "SENDER[,RECEIVER[,SOFTIRQ]]", value_delimiter = ',')]
    affinity: Vec<u16>,
    /// Run the receiver and its softirq on the same CPU, or on two (split), by RPS
    ///
    /// The receiving host sets rps_cpus of its interface, so longhaul must run as root there. The NIC's interrupts stay on the CPUs of
    /// their affinity (see `longhaul host`); RPS moves the work of the stack that follows them.
    #[arg(long, value_name = "HOW", value_parser = word::<SoftirqPlacement>(&["same", "split"]))]
    softirq: Option<SoftirqPlacement>,
    /// Take arrival times in the application, in the kernel, or from the NIC
    #[arg(long, value_name = "WHERE", default_value = "app", value_parser = word::<Timestamps>(&["app", "kernel", "nic"]))]
    timestamps: Timestamps,
    /// Save the result in this folder: result.json, and losses.parquet if it has more than 10,000 runs of losses
    #[arg(short = 'o', long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Also save one row per received packet, in packets.parquet
    #[arg(long, requires = "output")]
    each_packet: bool,
    #[command(flatten)]
    test: TestArgs,
}

impl Args {
    fn parameters(&self) -> Result<UdpParameters, Failure> {
        let amount = match (self.bytes, self.packets) {
            (Some(bytes), _) => Amount::Bytes(bytes.0),
            (None, Some(packets)) => Amount::Packets(packets),
            (None, None) => Amount::DurationNs(self.time.0),
        };
        let pace = match (self.spacing, self.rate) {
            (Some(gap), _) => Pace::SpacingNs(gap.0),
            (None, BitRate(0)) => Pace::Unlimited,
            (None, rate) => Pace::RateBps(rate.0),
        };
        if self.affinity.len() > 3 {
            let given = self.affinity.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
            return Err(Failure::usage(format!("-A {given}: give one CPU each for sender, receiver and softirq")));
        }
        let cpu = |place: usize| self.affinity.get(place).copied().into_iter().collect();
        let parameters = UdpParameters {
            amount,
            pace,
            payload_bytes: self.length,
            streams: self.streams,
            direction: self.test.direction()?,
            sockbuf_bytes: self.sockbuf.map(|size| size.0),
            wire: self.wire,
            dont_fragment: self.df,
            traffic_class: self.marks.traffic_class(),
            burst_packets: self.burst,
            no_spin: self.no_spin,
            interval_ns: self.test.interval_ns(),
            timestamps: self.timestamps,
            affinity: Affinity {
                sender_cpus: cpu(0),
                receiver_cpus: cpu(1),
                softirq_cpus: cpu(2),
                softirq: self.softirq,
            },
            receive: ReceiveSettings::default(),
            each_packet: self.each_packet,
            collect: self.test.collect,
        };
        parameters.validate()?;
        Ok(parameters)
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    let mut live = Live::default();
    let tested = args.test.run(args.parameters()?, args.output, |progress, lines| live.take(progress, lines))?;
    let mut save = tested.folder.as_ref().map(|folder| {
        // If the losses are too many to list, a file has them.
        move |ending: &str, all: &mut dyn Iterator<Item = Loss>| {
            let name = format!("losses{ending}.parquet");
            folder.write(&name, |file| write_losses(file, all)).map(|()| name)
        }
    });
    let save = save.as_mut().map(|save| save as &mut SaveLosses<'_>);
    let (mut results, mut caveats) = kind::udp::results(&tested.end, save).ok_or_else(|| no_report(&tested.end))?;
    let mut sent_packets = 0;
    results.each(|result| {
        sent_packets += result.sent_packets;
        result.latency = tested.latency;
    });
    if sent_packets == 0 {
        return Err(nothing_sent(&caveats));
    }
    if let Some(folder) = tested.folder.as_ref().filter(|_| args.each_packet) {
        caveats.extend(kind::udp::save_packets(&tested.end, &mut results, &mut |ending, packets| {
            let name = format!("packets{ending}.parquet");
            let packets = packets.iter().copied();
            folder.write(&name, |file| write_packets(file, args.timestamps, packets)).map(|()| name)
        }));
    }
    let udp = tested.end.parameters.udp().cloned().unwrap_or_default();
    let asked = UdpAsked { host: args.test.reach.host, address: tested.address, udp };
    let title = format!("UDP to {}", asked.host);
    let (client_sends, payload_bytes) = (asked.udp.direction.client_sends(), asked.udp.payload_bytes);
    let text = |asked: &UdpAsked, results: &_| text::udp::report(&asked.udp, results);
    tested.report(UDP_SCHEMA, (title, asked), results, caveats, text, |end, results, tested| {
        let departures = [false, true].map(|backward| departures(end, backward));
        Report { tested, results, payload_bytes, departures, client_sends }.html()
    })
}

/// Packets of a direction over time; `None` where it was not tested, or the server was lost.
fn departures(end: &TestEnd, backward: bool) -> Option<Departures> {
    let (sender, receiver) = end.udp_reports(backward)?;
    let mut departures = Departures::of(&sender.streams)?;
    attribution(sender, receiver).losses().for_each(|loss| departures.lose(&loss));
    Some(departures)
}
