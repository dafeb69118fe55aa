//! Which packets `longhaul capture` records: `--port`, `--flow`, or an expression in pcap's language, by `--filter` or after the interface.

use std::net::SocketAddr;
use std::process::Command;

use longhaul_kernel::socket_filter::SocketFilter;

use crate::output::Failure;

/// Which packets.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct FilterArgs {
    /// Record only TCP and UDP from or to this port
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Record only packets between two endpoints, in both directions, such as 10.0.0.1:5001-10.0.0.2:443
    #[arg(long, value_name = "A:PORT-B:PORT")]
    flow: Option<String>,
    /// Record only what this pcap filter accepts, such as "tcp and net 10.0.0.0/8" (needs tcpdump, which compiles it)
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
}

impl FilterArgs {
    /// The socket filter, which keeps `snap_bytes` of each packet, and its text; empty for all packets. `words` are the expression after the
    /// interface.
    pub(crate) fn compile(&self, words: &[String], snap_bytes: u32) -> Result<(SocketFilter, String), Failure> {
        if !words.is_empty() {
            let expression = words.join(" ");
            if self.port.is_some() || self.flow.is_some() || self.filter.is_some() {
                let message = format!("\"{expression}\" is a second filter: give one");
                return Err(Failure::usage(message).remedy("put all of it into the expression, with `and`"));
            }
            return Ok((by_tcpdump(&expression, snap_bytes)?, expression));
        }
        if let Some(port) = self.port {
            return Ok((SocketFilter::port(port, snap_bytes), format!("port {port}")));
        }
        if let Some(flow) = &self.flow {
            let (a, b) = ends(flow)?;
            return Ok((SocketFilter::flow(a, b, snap_bytes), format!("flow {a}-{b}")));
        }
        match self.filter.as_deref().filter(|expression| !expression.trim().is_empty()) {
            Some(expression) => Ok((by_tcpdump(expression, snap_bytes)?, expression.into())),
            None => Ok((SocketFilter::all(snap_bytes), String::new())),
        }
    }
}

fn ends(flow: &str) -> Result<(SocketAddr, SocketAddr), Failure> {
    let wrong = || {
        Failure::usage(format!("--flow {flow}: give ADDRESS:PORT-ADDRESS:PORT, with an IPv6 address in brackets"))
            .remedy("for example --flow 10.0.0.1:5001-10.0.0.2:443")
    };
    let (a, b) = flow.split_once('-').ok_or_else(wrong)?;
    let (a, b): (SocketAddr, SocketAddr) =
        (a.trim().parse().map_err(|_| wrong())?, b.trim().parse().map_err(|_| wrong())?);
    if a.is_ipv4() != b.is_ipv4() {
        return Err(Failure::usage(format!("--flow {flow}: give two addresses of the same family")));
    }
    Ok((a, b))
}

/// Compiles `expression` for Ethernet with tcpdump. The kernel removes the outer VLAN tag before the filter sees a frame, so `vlan`
/// matches the inner tag.
fn by_tcpdump(expression: &str, snap_bytes: u32) -> Result<SocketFilter, Failure> {
    let output =
        Command::new("tcpdump").args(["-y", "EN10MB", "-ddd", "--", expression]).output().map_err(|error| {
            Failure::new("no_compiler", format!("cannot run tcpdump, which compiles filters: {error}"))
                .remedy("install tcpdump, or use --port or --flow")
        })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().rfind(|line| !line.starts_with("Warning")).unwrap_or("no reason given");
        return Err(Failure::usage(format!("filter \"{expression}\": {said}")).remedy("see pcap-filter(7)"));
    }
    SocketFilter::from_numbers(&String::from_utf8_lossy(&output.stdout), snap_bytes)
        .map_err(|error| Failure::new("filter", format!("filter \"{expression}\": {error}")))
}
