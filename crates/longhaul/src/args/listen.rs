//! The address at which `serve` and `log` listen, and the clients that they accept.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use longhaul_channel::Key;
use longhaul_kernel::address::own_address;
use longhaul_peer::control::any_of_family;

use crate::args::key;
use crate::output::Failure;

/// Set by `lab exec`, `lab shell` and `lab try` on the hosts of a lab, all of which are on this machine. Users set `LONGHAUL_LAB`
/// themselves, elsewhere, to name a lab: that one says nothing of where a process runs.
const HOST_VARIABLE: &str = "LONGHAUL_HOST";

#[derive(Debug, clap::Args)]
pub(crate) struct Listen {
    /// Listen at this address [default: 127.0.0.1; in a lab, all addresses]
    #[arg(short = 'B', long, value_name = "ADDRESS", value_parser = own_address)]
    bind: Option<SocketAddr>,
    /// Accept only clients that have this key; encrypt
    #[arg(long, value_name = "FILE", conflicts_with = "no_auth")]
    key: Option<PathBuf>,
    /// Accept any client, without encryption
    #[arg(long)]
    no_auth: bool,
}

/// The checked options.
pub(crate) struct Listening {
    /// Without a port.
    pub(crate) address: SocketAddr,
    pub(crate) key: Option<Key>,
    /// Whoever can connect may as well change this host: the client has the key, or is on a host of the same lab.
    pub(crate) is_trusted: bool,
}

impl Listen {
    /// # Errors
    /// Unknown clients could connect and `--no-auth` is not given; the key file cannot be read.
    pub(crate) fn check(&self) -> Result<Listening, Failure> {
        let in_lab = in_lab();
        let default = if in_lab { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::LOCALHOST.into() };
        let address = self.bind.unwrap_or(SocketAddr::new(default, 0));
        let key = self.key.as_deref().map(key::load).transpose()?;
        let is_trusted = key.is_some() || in_lab;
        if !is_trusted && !address.ip().is_loopback() && !self.no_auth {
            return Err(Failure::usage(format!(
                "--bind {}: other hosts reach this address, so it needs --key FILE",
                address.ip()
            ))
            .remedy("make a key with `longhaul key new FILE` and copy it to both hosts, or use --no-auth at both"));
        }
        Ok(Listening { address, key, is_trusted })
    }
}

/// Why `address` cannot be bound. `who`: the kind of program that may occupy it.
pub(crate) fn not_bound(address: SocketAddr, error: &io::Error, who: &str) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::AddrNotAvailable => {
            let all = any_of_family(&[address]);
            format!("give an address of this host (see `ip address`), or --bind {all} for all of them")
        }
        ErrorKind::PermissionDenied => "choose another --port, above 1023, or run as root".to_owned(),
        _ => format!("is another {who} running there? choose another --port or --bind"),
    };
    Failure::new("not_bound", format!("cannot listen at {address}: {error}")).remedy(remedy)
}

/// Whether this process runs on a host of a lab.
pub(crate) fn in_lab() -> bool {
    std::env::var_os(HOST_VARIABLE).is_some()
}
