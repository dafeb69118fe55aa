//! What a frame costs that is dropped, and one that is not.

use std::net::UdpSocket;
use std::time::Duration;

use longhaul_kernel::clock::{monotonic, thread_cpu_time};
use longhaul_kernel::schedule;
use longhaul_kernel::udp::{ReceiveSlots, ReceiverOptions, TimestampMode, UdpReceiver};
use longhaul_units::Nanos;
use serde_json::json;

use super::{CPU, JUNK, OTHER_CPU, mix};
use crate::Result;
use crate::args::Plan;
use crate::child::Endpoint;
use crate::endpoint::{Role, Sent};
use crate::measure::{Sample, Variant, in_turns, median};
use crate::receiver::{Receiver, clear};
use crate::report::{Row, Target};
use crate::rig::{Cable, SERVER};

/// Datagrams a second that a program surely reads.
const READ_RATE: f64 = 200e3;

/// Nanoseconds of the CPU for each frame of `mix`: the time that passes while nothing else is done. What making it costs is in it, and
/// told in `making_ns`.
fn frame_ns(receiver: Receiver, mix: &str, seconds: f64) -> Result<Sample> {
    let (cable, filter) = receiver.raise()?;
    // A port where nobody reads: what comes is received and dropped there, and answered by nobody.
    let socket = cable.server.enter(|| UdpSocket::bind((SERVER, 5210)))??;
    let make = Role::Make { mix: mix.to_owned(), packets_per_second: None, seconds: seconds / 2.0 };
    let made: Sent = Endpoint::start(&[CPU], &cable.client, &make)?.result(Duration::from_secs_f64(seconds))?;
    let rx = || -> Result<u64> { received(&cable) };
    let before = rx()?;
    let role = Role::Send { mix: mix.to_owned(), packets_per_second: None, seconds };
    let sent: Sent = Endpoint::start(&[CPU], &cable.client, &role)?.result(Duration::from_secs_f64(seconds))?;
    let arrived = rx()? - before;
    clear(receiver, &cable);
    drop(socket);
    let (all, making) = (sent.ns / sent.packets as f64, made.ns / made.packets as f64);
    let dropped = filter.map(|filter| filter.counters().map(|counters| format!("{counters:?}").len())).transpose()?;
    let detail = json!({
        "frames_per_second": sent.packets as f64 * 1e9 / sent.ns,
        "sending_ns": all,
        "making_ns": making,
        "sent": sent.packets,
        "refused": sent.refused,
        "arrived": arrived,
        "counters": dropped,
    });
    Ok(Sample::plain(all, detail))
}

/// Packets that the server's interface received.
pub(super) fn received(cable: &Cable) -> Result<u64> {
    let index = cable.server_index;
    let link = cable.server.enter(|| longhaul_kernel::link::Netlink::open()?.link_by_index(index))??;
    Ok(link.stats.map_or(0, |stats| stats.rx_packets))
}

/// The same as frames a second of the CPU.
fn each_second(samples: &[Sample]) -> Vec<Sample> {
    samples.iter().map(|sample| Sample { value: 1e9 / sample.value, ..sample.clone() }).collect()
}

/// Frames that are not for the host, 64 bytes each.
pub(crate) fn reject(plan: &Plan) -> Result<Vec<Row>> {
    let seconds = plan.seconds(1.0, 0.5);
    let junk = mix(64, &JUNK);
    let mut receivers = vec![Receiver::Filter, Receiver::Plain, Receiver::Nftables];
    match Receiver::XdpFilter.raise() {
        Ok((cable, _)) => {
            clear(Receiver::XdpFilter, &cable);
            receivers.push(Receiver::XdpFilter);
        }
        Err(error) => eprintln!("  no reference: {error}"),
    }
    let variants: Vec<_> = receivers
        .iter()
        .map(|receiver| Variant::new(receiver.name(), || frame_ns(*receiver, &junk, seconds)))
        .collect();
    let samples = without_making(&in_turns(plan, plan.rounds, &variants)?);
    let ours = each_second(&samples[0]);
    let limits = [(Receiver::Plain, 3.0), (Receiver::Nftables, 1.5), (Receiver::XdpFilter, 0.95)];
    let rows = limits.into_iter().filter_map(|(receiver, limit)| {
        let at = receivers.iter().position(|one| *one == receiver)?;
        let theirs = each_second(&samples[at]);
        let name = format!("beside {}", receiver.name());
        Some(Row::new(name, "frames/CPU s", &ours).beside(&theirs).against(Target::RatioAtLeast(limit)))
    });
    Ok(rows.collect())
}

/// Nanoseconds of CPU time that a datagram to a program costs the host, until the program has it: of the sending thread, which has the
/// softirq in it, and of the reading thread. What making it costs is in it, and told in `making_ns`.
fn read_ns(receiver: Receiver, mix: &str, seconds: f64) -> Result<Sample> {
    let (cable, _filter) = receiver.raise()?;
    let make = Role::Make { mix: mix.to_owned(), packets_per_second: Some(READ_RATE), seconds };
    let made: Sent = Endpoint::start(&[CPU], &cable.client, &make)?.result(Duration::from_secs_f64(seconds))?;
    let options = ReceiverOptions {
        receive_buffer_bytes: Some(64 << 20),
        gro: false,
        timestamps: TimestampMode::App,
        ..ReceiverOptions::default()
    };
    let socket = cable.server.enter(|| UdpReceiver::bind((SERVER, 5210).into(), &options))??;
    let reader = std::thread::spawn(move || -> Result<(u64, f64)> {
        schedule::pin_to(&[OTHER_CPU])?;
        // One a call, as most programs take them.
        let mut slots = ReceiveSlots::new(1, 2048, false);
        let (mut read, mut begin) = (0, thread_cpu_time());
        loop {
            // The first may take as long as the sender's start.
            let patience = if read == 0 { Nanos::from_secs(10) } else { Nanos::from_millis(300) };
            if socket.receive_until(&mut slots, monotonic().saturating_add(patience))? == 0 {
                return Ok((read, thread_cpu_time().saturating_sub(begin).0 as f64));
            }
            if read == 0 {
                begin = thread_cpu_time();
            }
            read += 1;
        }
    });
    let role = Role::Send { mix: mix.to_owned(), packets_per_second: Some(READ_RATE), seconds };
    let sent: Sent = Endpoint::start(&[CPU], &cable.client, &role)?.result(Duration::from_secs_f64(seconds))?;
    let (read, reading_ns) = reader.join().map_err(|_| "the reader panicked")??;
    if read + READ_RATE as u64 / 100 < sent.packets {
        return Err(format!("{read} of {} datagrams were read", sent.packets).into());
    }
    let (sending, making) = (sent.cpu_ns / sent.packets as f64, made.cpu_ns / made.packets as f64);
    let reading = reading_ns / read as f64;
    let detail = json!({ "sending_ns": sending, "making_ns": making, "reading_ns": reading, "sent": sent.packets, "read": read });
    Ok(Sample::plain(sending + reading, detail))
}

/// The same without what making a frame costs. That differs from one measurement to the next by more than what is looked for, and who
/// receives has no part in it: so it is the median of all.
fn without_making(samples: &[Vec<Sample>]) -> Vec<Vec<Sample>> {
    let making = median(samples.iter().flatten().filter_map(|sample| sample.detail["making_ns"].as_f64()));
    let without = |sample: &Sample| Sample { value: sample.value - making, ..sample.clone() };
    samples.iter().map(|samples| samples.iter().map(without).collect()).collect()
}

/// The rounds' ratios in a line.
fn spread(ours: &[Sample], theirs: &[Sample]) -> String {
    let mut ratios: Vec<f64> = ours.iter().zip(theirs).map(|(own, other)| own.value / other.value).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share).round() as usize];
    format!(
        "ratio of {} rounds: median {:.3}, half of them {:.3} to {:.3}, all {:.3} to {:.3}",
        ratios.len(),
        at(0.5),
        at(0.25),
        at(0.75),
        at(0.0),
        at(1.0)
    )
}

/// What a receiver spends on a frame of a mix, measured for so many seconds.
type Measured = fn(Receiver, &str, f64) -> Result<Sample>;

/// Datagrams for the host, 64 bytes each, to a socket: that is full, so that they end there, and that a program reads.
pub(crate) fn accept(plan: &Plan) -> Result<Vec<Row>> {
    let seconds = plan.seconds(0.5, 0.3);
    let ours = mix(64, &[("stream", 1.0)]);
    let mut rows = Vec::new();
    for (name, measured) in
        [("64 B, to a full socket", frame_ns as Measured), ("64 B, to a program", read_ns as Measured)]
    {
        let variants = [Receiver::Filter, Receiver::XdpPass].map(|receiver| {
            Variant::new(format!("{}, {name}", receiver.name()), {
                let ours = &ours;
                move || measured(receiver, ours, seconds)
            })
        });
        // A twentieth is less than what a round differs from the next by.
        let samples = without_making(&in_turns(plan, 5 * plan.rounds, &variants)?);
        eprintln!("  {name}: {}", spread(&samples[0], &samples[1]));
        rows.push(Row::new(name, "ns", &samples[0]).beside(&samples[1]).against(Target::RatioBelow(1.05)));
    }
    Ok(rows)
}
