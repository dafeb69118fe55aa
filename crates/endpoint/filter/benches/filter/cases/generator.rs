//! How fast frames are sent, beside what others have.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use longhaul_testing::program::Program;
use serde_json::json;

use super::packets::received;
use super::{CPU, JUNK, OTHER_CPU, mix as mix_of};
use crate::Result;
use crate::args::Plan;
use crate::child::Endpoint;
use crate::endpoint::{Role, Sent};
use crate::measure::{Sample, Variant, in_turns, median};
use crate::receiver::Receiver;
use crate::report::{Row, Target};

/// What the others send as well: UDP for another host, 64 bytes.
const SAME: [(&str, f64); 1] = [("udp", 1.0)];
/// Where a generator of one thread is, and one of several.
const ONE: &[usize] = &[CPU];
const ALL: &[usize] = &[CPU, OTHER_CPU];
/// Until a program has begun.
const WARM_UP: Duration = Duration::from_millis(500);
/// How often a program is started again that ended by itself.
const STARTS: usize = 3;

/// From `cpus`, a thread on each.
fn ours(receiver: Receiver, cpus: &[usize], classes: &[(&str, f64)], seconds: f64) -> Result<Sample> {
    let (cable, _filter) = receiver.raise_for(cpus.len())?;
    let role = Role::Send { mix: mix_of(64, classes), packets_per_second: None, seconds };
    let sent: Sent = Endpoint::start(cpus, &cable.client, &role)?.result(Duration::from_secs_f64(seconds))?;
    Ok(Sample::plain(sent.packets as f64 * 1e9 / sent.ns, json!({ "refused": sent.refused })))
}

/// Frames a second that arrive while `command` runs at the client, wherever it likes to run. trafgen gives up now and then where an XDP
/// program is at the far end, and is started again.
fn other(receiver: Receiver, cpus: &[usize], command: &mut Command, seconds: f64) -> Result<Sample> {
    (0..STARTS)
        .map(|_| arriving(receiver, cpus, command, seconds))
        .find_map(Result::ok)
        .map_or_else(|| arriving(receiver, cpus, command, seconds), Ok)
}

fn arriving(receiver: Receiver, cpus: &[usize], command: &mut Command, seconds: f64) -> Result<Sample> {
    let (cable, _filter) = receiver.raise_for(cpus.len())?;
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut program = Program(cable.client.enter(|| command.spawn())??);
    sleep(WARM_UP);
    let (begin, before) = (Instant::now(), received(&cable)?);
    sleep(Duration::from_secs_f64(seconds));
    let rate = (received(&cable)? - before) as f64 / begin.elapsed().as_secs_f64();
    if let Some(status) = program.0.try_wait()? {
        let mut said = String::new();
        program.0.stderr.take().map(|mut errors| errors.read_to_string(&mut said)).transpose()?;
        return Err(format!("it ended, {status}: {}", said.trim()).into());
    }
    Ok(Sample::plain(rate, json!({})))
}

/// What it is called, how many CPUs it takes, and how it is run.
type Generator<'a> = (&'static str, &'static [usize], &'a dyn Fn() -> Command);

/// Against the plain stack, a filter, and XDP_DROP.
///
/// Sender and receiver share a CPU, so a rate is one over what a frame costs both. To a plain stack the far end's softirq takes 77 % of
/// what a frame of ours costs, 113 of 148 ns, and 43 % of trafgen's 472 ns (`perf record -g`, `__local_bh_enable_ip`): a generator
/// that cost nothing would come to 4.2 of trafgen's rates there. What generators are by themselves is in the last rows: ours to a far end
/// that drops at first touch, the others to whatever far end they are fastest to, as an skb that meets XDP is copied first.
pub(crate) fn mix(plan: &Plan) -> Result<Vec<Row>> {
    let seconds = plan.seconds(1.5, 0.7);
    let folder = std::env::temp_dir().join(format!("longhaul-trafgen-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let config = folder.join("udp.cfg");
    // One frame of 60 bytes for another host: the least that it can be asked for.
    fs::write(
        &config,
        "{ eth(da=02:4c:00:00:00:09, sa=02:00:00:00:00:01), ipv4(saddr=198.18.0.1, daddr=198.18.0.9), udp(sport=49152, dport=9), fill(0x61, 18) }\n",
    )?;
    // Its memory-mapped ring, past the queueing discipline: that is what it does unasked.
    let trafgen = |more: &[&str]| {
        let mut command = Command::new("trafgen");
        command.args(["--dev", "cable", "--no-sock-mem"]).args(more).arg("--conf").arg(&config);
        command
    };
    let one_cpu = || trafgen(&["--cpus", "1"]);
    let all_cpus = || trafgen(&[]);
    let hping3 = || {
        let mut command = Command::new("hping3");
        command.args(["--flood", "--udp", "--destport", "9", "--data", "18", "10.98.0.2"]);
        command
    };
    let all: [Generator<'_>; 3] =
        [("trafgen", ONE, &one_cpu), ("trafgen, all CPUs", ALL, &all_cpus), ("hping3", ONE, &hping3)];
    let is_there = |(name, _, make): &Generator<'_>| {
        let there = Command::new(make().get_program()).arg("--version").output().is_ok();
        if !there {
            eprintln!("  no reference: {name} is not installed");
        }
        there
    };
    let others: Vec<Generator<'_>> = all.into_iter().filter(is_there).collect();
    let (mut rows, mut fastest) = (Vec::new(), BTreeMap::new());
    for receiver in [Receiver::Plain, Receiver::Filter, Receiver::XdpDrop] {
        let own = |title: &str, cpus: &'static [usize], classes: &'static [(&str, f64)]| {
            let title = format!("longhaul mix{title}, to {}", receiver.name());
            Variant::new(title, move || ours(receiver, cpus, classes, seconds))
        };
        let mut variants =
            vec![own("", ONE, &SAME), own(", all CPUs", ALL, &SAME), own(", what NIMA rejects", ONE, &JUNK)];
        let own_variants = variants.len();
        // On all CPUs trafgen ends by itself where an XDP program is at the far end.
        let works = |(_, cpus, _): &&Generator<'_>| receiver == Receiver::Plain || cpus.len() == 1;
        let here: Vec<_> = others.iter().filter(works).copied().collect();
        for &(name, cpus, make) in &here {
            let name = format!("{name}, to {}", receiver.name());
            variants.push(Variant::new(name, move || other(receiver, cpus, &mut make(), seconds)));
        }
        let samples = in_turns(plan, plan.rounds, &variants)?;
        let alone = receiver == Receiver::XdpDrop;
        for (&(name, cpus, _), theirs) in here.iter().zip(&samples[own_variants..]) {
            let middle = |samples: &[Sample]| median(samples.iter().map(|sample| sample.value));
            let best = fastest.entry(name).or_insert_with(|| theirs.clone());
            if middle(theirs) > middle(best) {
                best.clone_from(theirs);
            }
            let (title, theirs) = if alone {
                (format!("alone, beside {name}"), &*best)
            } else {
                (format!("to {}, beside {name}", receiver.name()), theirs)
            };
            let own = &samples[usize::from(cpus.len() > 1)];
            rows.push(Row::new(title, "frames/s", own).beside(theirs).against(Target::RatioAtLeast(3.0)));
        }
        rows.push(Row::new(format!("to {}, all CPUs", receiver.name()), "frames/s", &samples[1]).beside(&samples[0]));
        rows.push(Row::new(format!("what NIMA rejects, to {}", receiver.name()), "frames/s", &samples[2]));
    }
    fs::remove_dir_all(&folder)?;
    Ok(rows)
}
