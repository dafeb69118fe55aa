//! How fast frames are sent, beside what others have.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;

use super::packets::received;
use super::{CPU, JUNK, mix as mix_of};
use crate::Result;
use crate::args::Plan;
use crate::child::Endpoint;
use crate::endpoint::{Role, Sent};
use crate::measure::{Sample, Variant, in_turns};
use crate::receiver::Receiver;
use crate::report::{Row, Target};

/// What the others send as well: UDP for another host, 64 bytes.
const SAME: [(&str, f64); 1] = [("udp", 1.0)];
/// Until a program has begun.
const WARM_UP: Duration = Duration::from_millis(500);

/// Ends it when dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ours(receiver: Receiver, classes: &[(&str, f64)], seconds: f64) -> Result<Sample> {
    let (cable, _filter) = receiver.raise()?;
    let role = Role::Send { mix: mix_of(64, classes), packets_per_second: None, seconds };
    let sent: Sent = Endpoint::start(&[CPU], &cable.client, &role)?.result(Duration::from_secs_f64(seconds))?;
    Ok(Sample::plain(sent.packets as f64 * 1e9 / sent.ns, json!({ "refused": sent.refused })))
}

/// Frames a second that arrive while `command` runs at the client, wherever it likes to run.
fn other(receiver: Receiver, command: &mut Command, seconds: f64) -> Result<Sample> {
    let (cable, _filter) = receiver.raise()?;
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut program = Program(cable.client.enter(|| command.spawn())??);
    sleep(WARM_UP);
    let (begin, before) = (Instant::now(), received(&cable)?);
    sleep(Duration::from_secs_f64(seconds));
    let rate = (received(&cable)? - before) as f64 / begin.elapsed().as_secs_f64();
    if let Some(status) = program.0.try_wait()? {
        return Err(format!("it ended: {status}").into());
    }
    Ok(Sample::plain(rate, json!({})))
}

/// Against the plain stack, and against a filter that drops all at once.
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
    let trafgen = || {
        let mut command = Command::new("trafgen");
        command.args(["--dev", "cable", "--cpus", "1", "--no-sock-mem", "--conf"]).arg(&config);
        command
    };
    let hping3 = || {
        let mut command = Command::new("hping3");
        command.args(["--flood", "--udp", "--destport", "9", "--data", "18", "10.98.0.2"]);
        command
    };
    let mut rows = Vec::new();
    for receiver in [Receiver::Plain, Receiver::Filter] {
        let mut variants = vec![
            Variant::new("longhaul mix", || ours(receiver, &SAME, seconds)),
            Variant::new("longhaul mix, what NIMA rejects", || ours(receiver, &JUNK, seconds)),
        ];
        let mut names = Vec::new();
        for (name, make) in [("trafgen", &trafgen as &dyn Fn() -> Command), ("hping3", &hping3)] {
            if Command::new(name).arg("--version").output().is_err() {
                eprintln!("  no reference: {name} is not installed");
                continue;
            }
            names.push(name);
            variants.push(Variant::new(name, move || other(receiver, &mut make(), seconds)));
        }
        let samples = in_turns(plan, plan.rounds, &variants)?;
        for (name, theirs) in names.into_iter().zip(&samples[2..]) {
            let title = format!("to {}, beside {name}", receiver.name());
            rows.push(Row::new(title, "frames/s", &samples[0]).beside(theirs).against(Target::RatioAtLeast(3.0)));
            let title = format!("what NIMA rejects, to {}, beside {name}'s UDP", receiver.name());
            rows.push(Row::new(title, "frames/s", &samples[1]).beside(theirs));
        }
    }
    fs::remove_dir_all(&folder)?;
    Ok(rows)
}
