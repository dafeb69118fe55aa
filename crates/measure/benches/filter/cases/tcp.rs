//! What a mix leaves of a TCP flow.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::{CPU, JUNK, mix};
use crate::args::Plan;
use crate::child::Endpoint;
use crate::endpoint::{Role, Sent};
use crate::measure::{Sample, Variant, in_turns, median};
use crate::receiver::Receiver;
use crate::report::{Row, Target};
use crate::rig::{Cable, SERVER};
use crate::{Error, Result};

/// Rates of the mix that are tried, frames a second: the first that costs the flow half without a filter is taken.
const RATES: [f64; 6] = [300e3, 600e3, 900e3, 1200e3, 1600e3, 2000e3];

/// Ends it when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Goodput in Gb/s of an iperf3 flow to the server, while so many frames a second are made beside it, and sent to the server or dropped
/// where they are made: so the sender of the mix, which would be another machine, costs both as much.
fn flow(receiver: Receiver, sends: bool, rate: f64, seconds: f64) -> Result<Sample> {
    let (cable, _filter) = receiver.raise()?;
    let (mix, packets_per_second, time) = (mix_text(), Some(rate), seconds + 1.0);
    let role = if sends {
        Role::Send { mix, packets_per_second, seconds: time }
    } else {
        Role::Make { mix, packets_per_second, seconds: time }
    };
    let sender = Endpoint::start(&[CPU], &cable.client, &role)?;
    let goodput = iperf3(&cable, seconds)?;
    let sent: Sent = sender.result(Duration::from_secs_f64(time))?;
    let detail = json!({
        "mix_frames_per_second_asked": rate,
        "mix_frames_per_second": sent.packets as f64 * 1e9 / sent.ns,
        "mix_refused": sent.refused,
        "mix_cpus": sent.cpu_ns / sent.ns,
    });
    Ok(Sample::plain(goodput, detail))
}

fn mix_text() -> String {
    if let Ok(t) = std::env::var("LHMIX") {
        let (classes, size) = t.split_once('@').unwrap();
        let c: Vec<(&str, f64)> = classes
            .split(',')
            .map(|c| {
                let (k, w) = c.split_once(':').unwrap();
                (k, w.parse().unwrap())
            })
            .collect();
        return mix(size.parse().unwrap(), &c);
    }
    mix(300, &JUNK)
}

fn iperf3(cable: &Cable, seconds: f64) -> Result<f64> {
    let mut server = cable.server.enter(|| {
        Command::new("iperf3").args(["--server", "--one-off", "--forceflush"]).stdout(Stdio::piped()).spawn()
    })??;
    let output = server.stdout.take().expect("piped");
    let _server = Server(server);
    let mut lines = BufReader::new(output).lines();
    lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("listening"))).ok_or("iperf3 does not listen")??;
    let (to, time) = (SERVER.to_string(), seconds.to_string());
    let output = cable.client.enter(|| Command::new("iperf3").args(["-c", &to, "-t", &time, "--json"]).output())??;
    let result: Value = serde_json::from_slice(&output.stdout)?;
    let rate = result["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok(rate.ok_or_else(|| Error::from(format!("iperf3: {}", result["error"])))? / 1e9)
}

/// With the filter under a mix, beside XDP_PASS without one; and what the same mix leaves without a filter.
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
    ];
    let samples = in_turns(plan, plan.rounds, &variants)?;
    let reached = median(samples[2].iter().filter_map(|sample| sample.detail["mix_frames_per_second"].as_f64()));
    Ok(vec![
        Row::new(format!("{:.0}k/s: filter", reached / 1e3), "Gb/s", &samples[0])
            .beside(&samples[1])
            .against(Target::RatioAtLeast(0.8)),
        Row::new("the same without a filter", "Gb/s", &samples[2]).beside(&samples[3]).against(Target::RatioBelow(0.5)),
        Row::new("the same with XDP_PASS", "Gb/s", &samples[4]).beside(&samples[1]),
    ])
}
