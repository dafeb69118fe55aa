//! `longhaul capture --to`: logging hosts.

use std::path::PathBuf;

use longhaul_capture::{DATAGRAM_BYTES_LEAST, DATAGRAM_BYTES_LONGEST, LogTarget, LogTargets, room_for_heads};
use longhaul_measure::client::resolve;

use crate::args::listen::in_lab;
use crate::cmd::key;
use crate::cmd::log::PORT;
use crate::output::Failure;

/// What passes everywhere: datagrams may get as short as this where longer ones do not come through.
const DATAGRAM_BYTES_SURE: usize = 1232;
/// Fields of a packet before its head.
const FIELDS_BYTES: usize = 32;

/// Where heads go over the network.
#[derive(Debug, clap::Args)]
pub(crate) struct ToArgs {
    /// Send heads to this host, where `longhaul log` runs; several take turns
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) to: Vec<String>,
    /// Encrypt them, with the key that the logging hosts have too
    #[arg(long, value_name = "FILE", conflicts_with = "no_auth", requires = "to")]
    key: Option<PathBuf>,
    /// Send them as they are, to logging hosts that let anyone
    #[arg(long, requires = "to")]
    no_auth: bool,
    /// Longest datagram, bytes of UDP payload [default: what the path's MTU allows, up to 8972]
    #[arg(long, value_name = "BYTES", requires = "to")]
    datagram: Option<usize>,
}

impl ToArgs {
    /// The logging hosts. Heads are of `snap_bytes` at most.
    pub(crate) fn targets(&self, snap_bytes: u32) -> Result<LogTargets, Failure> {
        if self.to.is_empty() {
            return Ok(LogTargets::default());
        }
        let allowed = DATAGRAM_BYTES_LEAST..=DATAGRAM_BYTES_LONGEST;
        if let Some(bytes) = self.datagram.filter(|bytes| !allowed.contains(bytes)) {
            return Err(Failure::usage(format!(
                "--datagram {bytes}: {DATAGRAM_BYTES_LEAST} to {DATAGRAM_BYTES_LONGEST}"
            )));
        }
        let room = room_for_heads(self.datagram.unwrap_or(DATAGRAM_BYTES_SURE)) - FIELDS_BYTES;
        if snap_bytes as usize > room {
            let text = format!("--snap {snap_bytes}: with --to at most {room}, as a head travels whole");
            return Err(Failure::usage(text).remedy("give a smaller --snap, or a longer --datagram"));
        }
        let key = self.key.as_deref().map(key::load).transpose()?;
        let mut targets = Vec::new();
        for name in &self.to {
            let (host, port) = host_and_port(name)?;
            let address = resolve(host, port, None).map_err(|error| {
                Failure::from_peer(error.code, format!("--to {}", error.message)).remedy(error.remedy)
            })?;
            if key.is_none() && !self.no_auth && !address.ip().is_loopback() && !in_lab() {
                return Err(Failure::usage(format!("--to {name}: beyond this machine --key FILE is needed"))
                    .remedy("make one with `longhaul key new FILE`, or say --no-auth at both ends"));
            }
            targets.push(LogTarget { name: name.clone(), address, key: key.clone() });
        }
        Ok(LogTargets { targets, datagram_bytes: self.datagram, stop: None })
    }
}

/// `HOST`, `HOST:PORT`, `[IPv6]:PORT`, or an address of IPv6 as it is.
fn host_and_port(name: &str) -> Result<(&str, u16), Failure> {
    let wrong = || Failure::usage(format!("--to {name}: HOST or HOST:PORT, IPv6 with a port as [ADDRESS]:PORT"));
    let bracketed = name.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (host, port) = match bracketed {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(wrong)?)),
        None if name.matches(':').count() == 1 => {
            name.split_once(':').map_or((name, None), |(host, port)| (host, Some(port)))
        }
        None => (name, None),
    };
    let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| wrong()))?;
    if host.is_empty() || port == 0 { Err(wrong()) } else { Ok((host, port)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_a_port() {
        let of = |name| host_and_port(name).ok();
        assert_eq!(of("log1"), Some(("log1", PORT)));
        assert_eq!(of("log1:99"), Some(("log1", 99)));
        assert_eq!(of("10.0.0.1:99"), Some(("10.0.0.1", 99)));
        assert_eq!(of("fd00::1"), Some(("fd00::1", PORT)));
        assert_eq!(of("[fd00::1]"), Some(("fd00::1", PORT)));
        assert_eq!(of("[fd00::1]:99"), Some(("fd00::1", 99)));
        for wrong in ["", ":99", "log1:", "log1:x", "log1:70000", "log1:0", "[fd00::1]99"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
