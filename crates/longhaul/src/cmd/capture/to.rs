//! `longhaul capture --to`: logging hosts.

use std::path::PathBuf;

use longhaul_capture::{
    DATAGRAM_BYTES_LEAST, DATAGRAM_BYTES_LONGEST, LogTarget, LogTargets, room_for_snippets, start as start_log,
};
use longhaul_peer::client::{Source, reachable, resolve};
use longhaul_session::SessionError;

use crate::args::key;
use crate::args::listen::in_lab;
use crate::cmd::log::PORT;
use crate::output::Failure;

/// Passes everywhere. Datagrams get as short as this where longer ones do not arrive.
const DATAGRAM_BYTES_SURE: usize = 1232;
/// Bytes that a packet's fields take before its snippet.
const FIELDS_BYTES: usize = 32;

/// Where to send header snippets.
#[derive(Debug, clap::Args)]
pub(crate) struct ToArgs {
    /// Send header snippets to this host, which runs `longhaul log`; several hosts get datagrams in turn
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) to: Vec<String>,
    /// Encrypt with this key; the logging hosts need the same one
    #[arg(long, value_name = "FILE", conflicts_with = "no_auth", requires = "to")]
    key: Option<PathBuf>,
    /// Send without encryption, to logging hosts that accept any client
    #[arg(long, requires = "to")]
    no_auth: bool,
    /// Send datagrams of at most this UDP payload [default: what the path's MTU allows, up to 8972]
    #[arg(long, value_name = "BYTES", requires = "to")]
    datagram: Option<usize>,
}

impl ToArgs {
    /// The logging hosts, for snippets of at most `snap_bytes`.
    pub(crate) fn targets(&self, snap_bytes: u32) -> Result<LogTargets, Failure> {
        if self.to.is_empty() {
            return Ok(LogTargets::default());
        }
        let allowed = DATAGRAM_BYTES_LEAST..=DATAGRAM_BYTES_LONGEST;
        if let Some(bytes) = self.datagram.filter(|bytes| !allowed.contains(bytes)) {
            return Err(Failure::usage(format!(
                "--datagram {bytes}: give {DATAGRAM_BYTES_LEAST} to {DATAGRAM_BYTES_LONGEST}"
            )));
        }
        let room = room_for_snippets(self.datagram.unwrap_or(DATAGRAM_BYTES_SURE)) - FIELDS_BYTES;
        if snap_bytes as usize > room {
            let text = format!("--snap {snap_bytes}: with --to at most {room}, as a snippet must fit into a datagram");
            return Err(Failure::usage(text).remedy("use a smaller --snap or a larger --datagram"));
        }
        let key = self.key.as_deref().map(key::load).transpose()?;
        let mut targets = Vec::new();
        for name in &self.to {
            let (host, port) = host_and_port(name)?;
            let address = resolve(host, port, None)
                .and_then(|addresses| reachable(&addresses, Source::default(), None, start_log))
                .map_err(|error| Failure::from(SessionError { message: format!("--to {}", error.message), ..error }))?;
            if key.is_none() && !self.no_auth && !address.ip().is_loopback() && !in_lab() {
                return Err(Failure::usage(format!("--to {name}: another machine needs --key FILE"))
                    .remedy("make a key with `longhaul key new FILE`, or use --no-auth at both ends"));
            }
            targets.push(LogTarget { name: name.clone(), address, key: key.clone() });
        }
        Ok(LogTargets { targets, datagram_bytes: self.datagram, stop: None })
    }
}

/// Splits `HOST`, `HOST:PORT`, `[IPv6]:PORT`, or a bare IPv6 address.
fn host_and_port(name: &str) -> Result<(&str, u16), Failure> {
    let wrong = || Failure::usage(format!("--to {name}: give HOST or HOST:PORT, with an IPv6 address in brackets"));
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
