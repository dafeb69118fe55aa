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
const RATES: [f64; 7] = [50e3, 100e3, 200e3, 300e3, 450e3, 600e3, 800e3];

/// Ends it when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Goodput in Gb/s of an iperf3 flow to the server, while so many frames a second come beside it.
fn flow(receiver: Receiver, rate: Option<f64>, seconds: f64) -> Result<Sample> {
    let (cable, _filter) = receiver.raise()?;
    let mut detail = json!({ "mix_frames_per_second_asked": rate });
    let role = |rate| Role::Send { mix: mix(300, &JUNK), packets_per_second: Some(rate), seconds: seconds + 1.0 };
    let sender = rate.map(|rate| Endpoint::start(&[CPU], &cable.client, &role(rate))).transpose()?;
    let goodput = iperf3(&cable, seconds)?;
    if let Some(sender) = sender {
        let sent: Sent = sender.result(Duration::from_secs_f64(seconds + 1.0))?;
        detail["mix_frames_per_second"] = json!(sent.packets as f64 * 1e9 / sent.ns);
    }
    Ok(Sample::plain(goodput, detail))
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
    let alone = flow(Receiver::Plain, None, seconds)?.value;
    let mut rate = RATES[0];
    for tried in RATES {
        rate = tried;
        let left = flow(Receiver::Plain, Some(tried), seconds)?.value;
        eprintln!("  {tried:.0} frames/s of 300 bytes leave {:.0} % of {alone:.1} Gb/s", 100.0 * left / alone);
        if left <= alone / 2.0 {
            break;
        }
    }
    let variants = [
        Variant::new("filter, mix", || flow(Receiver::Filter, Some(rate), seconds)),
        Variant::new("XDP_PASS alone", || flow(Receiver::XdpPass, None, seconds)),
        Variant::new("plain, mix", || flow(Receiver::Plain, Some(rate), seconds)),
        Variant::new("plain alone", || flow(Receiver::Plain, None, seconds)),
        Variant::new("XDP_PASS, mix", || flow(Receiver::XdpPass, Some(rate), seconds)),
    ];
    let samples = in_turns(plan, plan.rounds, &variants)?;
    let reached = median(samples[2].iter().filter_map(|sample| sample.detail["mix_frames_per_second"].as_f64()));
    Ok(vec![
        Row::new(format!("{:.0}k/s: filter", reached / 1e3), "Gb/s", &samples[0])
            .beside(&samples[1])
            .against(Target::RatioAtLeast(0.8)),
        Row::new("the same without a filter", "Gb/s", &samples[2]).beside(&samples[3]),
        Row::new("the same with XDP_PASS", "Gb/s", &samples[4]).beside(&samples[1]),
    ])
}
