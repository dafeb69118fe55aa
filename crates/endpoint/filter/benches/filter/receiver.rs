//! What is done to frames at the server's end of the cable.

use std::fs;
use std::process::Command;

use longhaul_bpf::filter::{Filter, FilterOptions};
use longhaul_filter::Following;
use longhaul_kernel::ethtool;

use crate::rig::{Cable, SERVER};
use crate::{Error, Result};

const LINK: &str = "cable";
/// What XDP programs do, in C: 1 is XDP_DROP and 2 XDP_PASS (<linux/bpf.h>).
const DROP: &str = "return 1;";
const PASS: &str = "return 2;";
const DROP_GROUPS: &str = "unsigned char *data = (void *)(long)ctx->data; \
    return data + 1 > (unsigned char *)(long)ctx->data_end || !(*data & 1) ? 2 : 1;";

/// How the server receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// The stack alone, with NAPI by GRO.
    Plain,
    /// longhaul's filter, enforcing.
    Filter,
    /// An XDP program that passes everything: what attaching any to a veth costs by itself.
    XdpPass,
    /// One that drops everything: the least that a frame can cost its receiver.
    XdpDrop,
    /// One that drops what is for no one MAC address, by the first byte: the least that a frame can cost a receiver who wants others.
    XdpDropGroups,
    /// nftables at netdev ingress with the rules of the paper's algorithm.
    Nftables,
    /// xdp-filter of xdp-tools, in deny mode, our MAC address and broadcast allowed.
    XdpFilter,
}

impl Receiver {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain stack",
            Self::Filter => "filter",
            Self::XdpPass => "XDP_PASS",
            Self::XdpDrop => "XDP_DROP",
            Self::XdpDropGroups => "XDP_DROP of groups",
            Self::Nftables => "nftables ingress",
            Self::XdpFilter => "xdp-filter",
        }
    }

    /// A fresh cable whose server receives so. The second value keeps it so.
    pub(crate) fn raise(self) -> Result<(Cable, Option<Filter>)> {
        self.raise_for(1)
    }

    /// The same with a queue for each of so many CPUs that send. They are there before a program is attached: queues that come later are
    /// without it (Linux 6.18).
    pub(crate) fn raise_for(self, senders: usize) -> Result<(Cable, Option<Filter>)> {
        let cable = Cable::new()?;
        if senders > 1 {
            // One way: with more queues back than the client receives by it would take no XDP frames.
            let queues = senders.to_string();
            for (host, direction) in [(&cable.server, "rx"), (&cable.client, "tx")] {
                host.enter(|| run(Command::new("ethtool").args(["--set-channels", LINK, direction, &queues])))??;
            }
        }
        let index = cable.server_index;
        let filter = cable.server.enter(|| -> Result<Option<Filter>> {
            ethtool::set_features(LINK, &[("rx-gro", true)])?;
            match self {
                Self::Plain => Ok(None),
                Self::Filter => {
                    let filter = Filter::attach(index, &FilterOptions { enforce: true, ..FilterOptions::default() })?;
                    Following::begin(LINK)?.tell(&filter)?;
                    Ok(Some(filter))
                }
                Self::XdpPass => attach(PASS).map(|()| None),
                Self::XdpDrop => attach(DROP).map(|()| None),
                Self::XdpDropGroups => attach(DROP_GROUPS).map(|()| None),
                Self::Nftables => {
                    let rules = format!(
                        "table netdev bench {{ chain ingress {{ type filter hook ingress device \"{LINK}\" priority 0; policy drop; \
                         ether daddr 02:00:00:00:00:02 accept; \
                         ether daddr ff:ff:ff:ff:ff:ff ether type arp arp daddr ip {SERVER} accept; \
                         ether daddr ff:ff:ff:ff:ff:ff ether type arp drop; \
                         ether daddr ff:ff:ff:ff:ff:ff accept; \
                         ether daddr {{ 01:00:5e:00:00:01, 33:33:00:00:00:01, 33:33:ff:00:00:02 }} accept; }}; }}"
                    );
                    run(Command::new("nft").arg(rules)).map(|()| None)
                }
                Self::XdpFilter => {
                    run(Command::new("xdp-filter")
                        .args(["load", "--policy", "deny", "--mode", "native", "--features", "ethernet", LINK]))?;
                    for mac in ["02:00:00:00:00:02", "ff:ff:ff:ff:ff:ff"] {
                        run(Command::new("xdp-filter").args(["ether", "--mode", "dst", mac]))?;
                    }
                    Ok(None)
                }
            }
        })??;
        Ok((cable, filter))
    }
}

/// Takes away what does not go with its namespace by itself.
pub(crate) fn clear(receiver: Receiver, cable: &Cable) {
    if receiver == Receiver::XdpFilter {
        let _ = cable.server.enter(|| Command::new("xdp-filter").args(["unload", LINK]).output());
    }
}

/// An XDP program that does `body` with each frame.
fn attach(body: &str) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("longhaul-bench-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (source, object) = (folder.join("bare.c"), folder.join("bare.o"));
    fs::write(
        &source,
        format!(
            "struct xdp_md {{ unsigned int data, data_end; }};\n\
             __attribute__((section(\"xdp\"), used)) int bare(struct xdp_md *ctx) {{ {body} }}\n\
             char LICENSE[] __attribute__((section(\"license\"), used)) = \"GPL\";\n"
        ),
    )?;
    let done = run(Command::new("clang").args(["-O2", "-g", "-target", "bpf", "-c", "-o"]).arg(&object).arg(&source))
        .and_then(|()| {
            run(Command::new("ip")
                .args(["link", "set", "dev", LINK, "xdpdrv", "obj"])
                .arg(&object)
                .args(["sec", "xdp"]))
        });
    fs::remove_dir_all(&folder)?;
    done
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::from(format!(
        "{}: {}{}",
        command.get_program().display(),
        String::from_utf8_lossy(&output.stderr).trim(),
        String::from_utf8_lossy(&output.stdout).trim()
    )))
}
