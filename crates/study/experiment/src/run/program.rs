//! A run of another program over the path of a point.

use std::fmt::Display;
use std::fs;
use std::net::IpAddr;
use std::process::Stdio;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::sysctl;
use longhaul_kernel::wait::sleep_until;
use longhaul_lab::Lab;
use longhaul_report::html::tcp_goodput::ProgramRun;
use longhaul_result::Caveat;
use longhaul_units::Nanos;

use super::{Runner, lab_failed};
use crate::caveats;
use crate::spec::{Program, TcpTest};

/// How long a server has to listen.
const PATIENCE: Nanos = Nanos::from_secs(5);
const LOOK: Nanos = Nanos::from_millis(20);
const CONTROL: &str = "net.ipv4.tcp_congestion_control";
/// Of the others only the first network namespace may make one its default (`tcp_set_default_congestion_control` of the kernel).
const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";

impl Runner<'_> {
    /// Runs `program` between the hosts of `lab`, which use the congestion control of `wanted`.
    pub(super) fn run_program(&self, lab: &Lab, wanted: &TcpTest, program: &Program) -> Result<ProgramRun, Caveat> {
        let failed = |why: String| {
            Caveat::new(caveats::PROGRAM_FAILED, why, "try it by hand with `longhaul lab up` and `lab exec`")
        };
        let (client, server) = (lab.host(&wanted.flows.host), lab.host("server"));
        let (client, server) =
            (client.map_err(|error| lab_failed(&error))?, server.map_err(|error| lab_failed(&error))?);
        if let Some(step) = wanted.flows.parameters.congestion.first() {
            for host in [client, server] {
                let own = format!("lh_{}", step.name);
                let set = || {
                    sysctl::write(CONTROL, &step.name).or_else(|error| sysctl::write(CONTROL, &own).map_err(|_| error))
                };
                let done = host.namespace.enter(set).map_err(|error| lab_failed(&error))?;
                done.map_err(|error| {
                    failed(format!("congestion control {}: {}", step.name, not_set(&step.name, error)))
                })?;
            }
        }
        let ip: IpAddr = if wanted.setting.ipv6 { server.plan.ipv6.into() } else { server.plan.ipv4.into() };
        let of_shell = |command: &str| ["sh".to_owned(), "-c".to_owned(), command.replace("{server}", &ip.to_string())];
        let mut serving = None;
        if let Some(command) = &program.server {
            let words = of_shell(command);
            let started = self.programs.start(&server.namespace, &words, Stdio::null);
            let running = serving.insert(started.map_err(|error| failed(format!("{command}: {error}")))?);
            let deadline = monotonic() + PATIENCE;
            while !server.namespace.enter(listens).map_err(|error| lab_failed(&error))? {
                if running.has_ended() || monotonic() >= deadline {
                    return Err(failed(format!("{command}: it does not listen")));
                }
                sleep_until(monotonic() + LOOK);
            }
        }
        let words = of_shell(&program.client);
        let ended = self.programs.run(&client.namespace, &words, program.time, Some(self.stop));
        drop(serving);
        let of_client = |why: String| failed(format!("{}: {why}", program.client));
        let ended = ended.map_err(|error| of_client(error.to_string()))?;
        let took = ended.took;
        let output = ended.success().map_err(of_client)?;
        let said = program.parser.read(&output, took).map_err(of_client)?;
        Ok(ProgramRun {
            command: program.client.clone(),
            parser: program.parser.to_string(),
            bytes: said.bytes,
            duration_ns: Nanos::from_secs_f64(said.seconds).0,
            goodput_bps: (said.bytes as f64 * 8.0 / said.seconds.max(1e-9)) as u64,
            retransmits: said.retransmits,
        })
    }
}

/// Why `control` is not the default of a lab's host.
fn not_set(control: &str, error: impl Display) -> String {
    match sysctl::read(ALLOWED) {
        Ok(allowed) if !allowed.split_whitespace().any(|one| one == control) => {
            format!(
                "{ALLOWED} does not have it, so no lab's host may use it by default: sysctl -w {ALLOWED}='{allowed} {control}'"
            )
        }
        _ => error.to_string(),
    }
}

/// Whether any TCP socket of this network listens.
fn listens() -> bool {
    let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
    let text: String = tables.iter().filter_map(|table| fs::read_to_string(table).ok()).collect();
    // The state of a socket that listens (TCP_LISTEN).
    text.lines().any(|line| line.split_ascii_whitespace().nth(3) == Some("0A"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel says, "Operation not permitted", helps nobody: its list does.
    #[test]
    fn who_may_not_use_a_control_is_told_how_to_allow_it() {
        let error = "Operation not permitted";
        let Ok(allowed) = sysctl::read(ALLOWED) else {
            println!("skipped: there is no {ALLOWED} in this network namespace");
            return;
        };
        let told = not_set("none", error);
        assert!(told.starts_with("net.ipv4.tcp_allowed_congestion_control does not have it"), "{told}");
        let command = format!("sysctl -w net.ipv4.tcp_allowed_congestion_control='{allowed} none'");
        assert!(told.ends_with(&command), "{told}");
        // A name in the list is a word of it, and what is wrong with it is something else.
        let one = allowed.split_whitespace().next().unwrap();
        assert_eq!(not_set(one, error), error);
        assert!(not_set(&one[1..], error).ends_with(&format!(" {}'", &one[1..])), "{one}");
    }
}
