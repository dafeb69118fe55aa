//! What a mix leaves of a TCP flow.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::schedule;
use serde_json::json;

use super::{CPU, OTHER_CPU, mix};
use crate::Result;
use crate::args::Plan;
use crate::child::Endpoint;
use crate::endpoint::{Role, Sent};
use crate::measure::{Sample, Variant, in_turns, median};
use crate::receiver::Receiver;
use crate::report::{Row, Target};
use crate::rig::{Cable, SERVER};

/// What switches flood and network cards let through, for others all of it: questions for addresses, and groups that nobody joined.
const FLOODED: [(&str, f64); 3] = [("arp", 50.0), ("neighbour-solicitation", 25.0), ("multicast", 25.0)];
/// What the sender writes at once, and the program reads.
const WRITE_BYTES: usize = 128 << 10;
const READ_BYTES: usize = 64;
/// Rates of the mix that are tried, frames a second: the first that costs the flow half without a filter is taken.
const RATES: [f64; 12] = [200e3, 250e3, 300e3, 400e3, 450e3, 500e3, 550e3, 600e3, 700e3, 800e3, 1000e3, 1200e3];

/// Goodput in Gb/s of a TCP flow to the server, while so many frames a second are made beside it, and sent to the server or dropped
/// where they are made.
///
/// The server is a host with one CPU, on which are the thread that takes frames from its interface (NAPI), before all programs as a
/// softirq is, its stack, and the program that reads. Whatever stands for other machines is on the other CPU: who sends the flow, what
/// takes its acknowledgements, and who sends the mix. That one does the same work in each series, so what differs is what frames cost
/// the server. The program reads in pieces so small that the server's CPU is what bounds the flow, with segmentation offload or without.
fn flow(receiver: Receiver, sends: bool, rate: f64, seconds: f64) -> Result<Sample> {
    let (cable, _filter) = receiver.raise()?;
    let before = napi_threads()?;
    in_sysfs(&cable.server, "echo 1 > /sys/class/net/cable/threaded")?;
    for thread in napi_threads()?.difference(&before) {
        let cpu = OTHER_CPU.to_string();
        for words in [["taskset", "--cpu-list", "--pid", &cpu, thread], ["chrt", "--fifo", "--pid", "1", thread]] {
            let done = Command::new(words[0]).args(&words[1..]).output()?;
            if !done.status.success() {
                return Err(format!("{}: {}", words[0], String::from_utf8_lossy(&done.stderr)).into());
            }
        }
    }
    in_sysfs(&cable.client, &format!("echo {} > /sys/class/net/cable/queues/rx-0/rps_cpus", 1 << CPU))?;
    let (mix, packets_per_second, time) = (mix(64, &FLOODED), Some(rate), seconds + 1.0);
    let role = if sends {
        Role::Send { mix, packets_per_second, seconds: time }
    } else {
        Role::Make { mix, packets_per_second, seconds: time }
    };
    let sender = Endpoint::start(&[CPU], &cable.client, &role)?;
    let goodput = flow_alone(&cable, seconds)?;
    let sent: Sent = sender.result(Duration::from_secs_f64(time))?;
    let detail = json!({
        "mix_frames_per_second_asked": rate,
        "mix_frames_per_second": sent.packets as f64 * 1e9 / sent.ns,
        "mix_refused": sent.refused,
        "mix_cpus": sent.cpu_ns / sent.ns,
    });
    Ok(Sample::plain(goodput, detail))
}

/// Process numbers of the kernel's threads that take frames from interfaces.
fn napi_threads() -> Result<BTreeSet<String>> {
    let mut threads = BTreeSet::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        // Other processes end meanwhile.
        if std::fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name.starts_with("napi/cable")) {
            threads.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(threads)
}

/// What a shell does where `/sys` is that of `namespace`.
fn in_sysfs(namespace: &NetNamespace, words: &str) -> Result<()> {
    let script = format!("mount -t sysfs sysfs /sys && {words}");
    let output = namespace.enter(|| Command::new("unshare").args(["--mount", "sh", "-c", &script]).output())??;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().into()) }
}

/// Gb/s that the server's program reads.
fn flow_alone(cable: &Cable, seconds: f64) -> Result<f64> {
    let listener = cable.server.enter(|| TcpListener::bind((SERVER, 5211)))??;
    let mut sender = cable.client.enter(|| TcpStream::connect((SERVER, 5211)))??;
    let (mut receiver, _) = listener.accept()?;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let writing = std::thread::spawn(move || -> Result<()> {
        schedule::pin_to(&[CPU])?;
        sender.set_write_timeout(Some(Duration::from_millis(100)))?;
        let block = [0; WRITE_BYTES];
        while Instant::now() < end {
            // A full buffer is tried again.
            let _ = sender.write(&block);
        }
        Ok(())
    });
    let reading = std::thread::spawn(move || -> Result<f64> {
        schedule::pin_to(&[OTHER_CPU])?;
        receiver.set_read_timeout(Some(Duration::from_millis(500)))?;
        let (mut piece, mut bytes, begin) = ([0; READ_BYTES], 0_u64, Instant::now());
        let mut reads = 0_u64;
        // The clock costs as much as a read.
        while !reads.is_multiple_of(64) || Instant::now() < end {
            bytes += receiver.read(&mut piece).unwrap_or(0) as u64;
            reads += 1;
        }
        Ok(bytes as f64 * 8.0 / begin.elapsed().as_secs_f64() / 1e9)
    });
    let goodput = reading.join().map_err(|_| "the reader panicked")??;
    writing.join().map_err(|_| "the writer panicked")??;
    Ok(goodput)
}

/// With the filter under a mix, beside XDP_PASS without one; and what the same mix leaves without a filter.
///
/// Frames of a mix cost the server something before any program sees them: they lie in another CPU's cache. On a machine whose stack is
/// so fast that it takes a million frames a second to halve the flow, that is 29 % of its CPU, and no filter can keep 0.8. So what
/// the cheapest program leaves stands beside it.
pub(crate) fn goodput(plan: &Plan) -> Result<Vec<Row>> {
    let seconds = plan.seconds(2.0, 1.0);
    let mut rate = RATES[0];
    for tried in RATES {
        rate = tried;
        let made = flow(Receiver::Plain, false, rate, seconds)?.value;
        let sent = flow(Receiver::Plain, true, rate, seconds)?;
        eprintln!("  {tried:.0} frames/s leave {:.0} % of {made:.1} Gb/s {}", 100.0 * sent.value / made, sent.detail);
        if sent.value <= made / 2.0 {
            break;
        }
    }
    let variants = [
        Variant::new("filter, mix", || flow(Receiver::Filter, true, rate, seconds)),
        Variant::new("XDP_PASS alone", || flow(Receiver::XdpPass, false, rate, seconds)),
        Variant::new("plain, mix", || flow(Receiver::Plain, true, rate, seconds)),
        Variant::new("plain alone", || flow(Receiver::Plain, false, rate, seconds)),
        Variant::new("XDP_PASS, mix", || flow(Receiver::XdpPass, true, rate, seconds)),
        Variant::new("XDP_DROP of the mix", || flow(Receiver::XdpDropGroups, true, rate, seconds)),
    ];
    let samples = in_turns(plan, plan.rounds, &variants)?;
    let reached = median(samples[2].iter().filter_map(|sample| sample.detail["mix_frames_per_second"].as_f64()));
    Ok(vec![
        Row::new(format!("{:.0}k/s: filter", reached / 1e3), "Gb/s", &samples[0])
            .beside(&samples[1])
            .against(Target::RatioAtLeast(0.8)),
        Row::new("the same without a filter", "Gb/s", &samples[2]).beside(&samples[3]).against(Target::RatioBelow(0.5)),
        Row::new("the same with XDP_PASS", "Gb/s", &samples[4]).beside(&samples[1]),
        Row::new("what dropping by the first byte leaves", "Gb/s", &samples[5]).beside(&samples[1]),
        Row::new("filter, of that", "Gb/s", &samples[0]).beside(&samples[5]),
    ])
}
