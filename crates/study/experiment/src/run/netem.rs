//! Linux's netem in place of longhaul's emulator: a bridge connects the ports of a lab, and each port has a netem that does what the path says
//! to the packets that leave there.
//!
//! `ip` and `tc` of iproute2 set it up: netem's options, tables and counters have no other stable interface.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::sysctl::{self, SysctlError};
use longhaul_lab::Lab;
use longhaul_path::spec::PathSpec;
use longhaul_profile::Netem;
use longhaul_result::Caveat;
use serde::Deserialize;

use crate::caveats;
use crate::folder::Folder;

const BRIDGE: &str = "bridge";
/// Letters of a program's complaint that are told.
const SAID_MOST: usize = 200;

/// What netem did at one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub(super) struct Counts {
    /// Packets that it dropped, for its loss or its limit.
    pub(super) drops: u64,
}

/// Why netem cannot be used on this machine; `None` if it can. It tries so in a network namespace of its own, which takes root.
pub fn missing() -> Option<Caveat> {
    let tried = || -> Result<(), String> {
        let namespace = NetNamespace::create().map_err(|error| error.to_string())?;
        run(&namespace, "tc", &["qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"], None)?;
        make_bridge(&namespace)
    };
    let why = tried().err()?;
    let remedy = "load the modules sch_netem and bridge, and install iproute2; a kernel of a distribution has both";
    Some(Caveat::new(caveats::NETEM_MISSING, format!("netem cannot be used on this machine: {why}"), remedy))
}

/// Connects client and server of `lab` by a bridge, with a netem in each direction.
///
/// # Errors
/// What a program or the kernel said.
pub(super) fn connect(lab: &Lab, path: &PathSpec) -> Result<(), String> {
    let netem = Netem::of_path(path, None);
    if let Some(missing) = netem.missing.first() {
        return Err(format!("netem cannot express {missing}"));
    }
    let tables = Folder::new("netem").map_err(|error| error.to_string())?;
    for (name, text) in &netem.tables {
        let file = tables.path().join(format!("{name}.dist"));
        fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    make_bridge(lab.core())?;
    run(lab.core(), "ip", &["link", "set", BRIDGE, "up"], None)?;
    for (port, options) in ports(lab)?.into_iter().zip([&netem.backward, &netem.forward]) {
        run(lab.core(), "ip", &["link", "set", &port, "master", BRIDGE], None)?;
        let mut words = vec!["qdisc", "add", "dev", &port, "root", "netem"];
        words.extend(options.iter().map(String::as_str));
        if !options.is_empty() {
            run(lab.core(), "tc", &words, Some(tables.path()))?;
        }
    }
    Ok(())
}

/// What netem did with packets to the server.
///
/// # Errors
/// What `tc` said.
pub(super) fn forward(lab: &Lab) -> Result<Counts, String> {
    let [_, port] = ports(lab)?;
    let said = run(lab.core(), "tc", &["-s", "-j", "qdisc", "show", "dev", &port, "root"], None)?;
    let qdiscs: Vec<Counts> = serde_json::from_str(&said).map_err(|error| format!("tc -s -j qdisc show: {error}"))?;
    qdiscs.first().copied().ok_or_else(|| format!("port {port} has no qdisc"))
}

/// The ports of client and server.
fn ports(lab: &Lab) -> Result<[String; 2], String> {
    let port = |host: &str| lab.host(host).map(|host| host.plan.port.clone()).map_err(|error| error.to_string());
    Ok([port("client")?, port("server")?])
}

/// A bridge that sends nothing of its own. Without STP its ports forward at once.
fn make_bridge(namespace: &NetNamespace) -> Result<(), String> {
    let words = ["link", "add", "name", BRIDGE, "type", "bridge", "stp_state", "0", "mcast_snooping", "0"];
    run(namespace, "ip", &words, None)?;
    let silent = || sysctl::write(&format!("net.ipv6.conf.{BRIDGE}.disable_ipv6"), "1");
    match namespace.enter(silent).map_err(|error| error.to_string())? {
        // A kernel without IPv6 has no such key.
        Ok(()) | Err(SysctlError::Missing { .. }) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// What `program` prints in `namespace`. `tc` looks for its tables in `tables`.
fn run(namespace: &NetNamespace, program: &str, words: &[&str], tables: Option<&Path>) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    if let Some(tables) = tables {
        command.env("TC_LIB_DIR", tables);
    }
    let output = namespace.enter(|| command.output()).map_err(|error| error.to_string())?;
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!("the program {program} is missing (iproute2)"),
        _ => format!("{program}: {error}"),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it failed without a word");
        let said = said.trim_end_matches('.');
        let said: String = said.chars().filter(|letter| !letter.is_control()).take(SAID_MOST).collect();
        return Err(format!("{program} {}: {said}", words.iter().take(3).copied().collect::<Vec<_>>().join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_tc_are_read() {
        let said = r#"[{"kind":"netem","handle":"8001:","root":true,"options":{"limit":1000},"bytes":98,"packets":1,"drops":7,"overlimits":0,"requeues":0,"backlog":0,"qlen":0}]"#;
        let qdiscs: Vec<Counts> = serde_json::from_str(said).unwrap();
        assert_eq!(qdiscs, [Counts { drops: 7 }]);
    }
}
