//! Drops by filters: netfilter, tc, XDP.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Command;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{TC_INGRESS, TcHookBuilder, Xdp, XdpFlags};
use longhaul_bpf::drops::HostRole;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_result::Location;

use crate::hosts::{Hosts, RECEIVER_IP, Watch, watched_hosts};
use crate::skeleton::HooksSkelBuilder;
use crate::sockets::receive_all;

/// Runs a command in a host; says `skipped` and gives `false` where the machine cannot.
pub(crate) fn run(host: &NetNamespace, command: &str) -> bool {
    let mut words = command.split(' ');
    let output = host.enter(|| Command::new(words.next().unwrap()).args(words).output()).unwrap();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            longhaul_testing::skipped!("`{command}`: {}", String::from_utf8_lossy(&output.stderr).trim());
            false
        }
        Err(error) => {
            longhaul_testing::no_judge!("`{command}`: {error}; install it");
            false
        }
    }
}

fn drops_the_flow(hosts: &Hosts, watch: &mut Watch, what: &str, expected: Location) {
    let socket = hosts.receiving(RECEIVER_IP);
    for sequence in 0..20 {
        // At the output hook sending fails with EPERM.
        let _ = hosts.sending().send(&hosts.payload(sequence, 200));
    }
    watch.until(20);
    watch.print(what);
    assert!(receive_all(&socket).is_empty(), "{what}");
    assert!(watch.at(expected).into_iter().eq(0..20), "{what}: {:?}", watch.seen);
    assert!(watch.seen.iter().all(|seen| seen.unit_packets == 1));
}

fn nftables(hook: &str) -> Option<(Hosts, Watch)> {
    let (hosts, watch) = watched_hosts()?;
    let host = if hook == "input" { &hosts.receiver } else { &hosts.sender };
    let done = run(host, "nft add table inet t")
        && run(host, &format!("nft add chain inet t c {{ type filter hook {hook} priority 0 ; }}"))
        && run(host, &format!("nft add rule inet t c udp dport {} drop", hosts.flow.port));
    done.then_some((hosts, watch))
}

#[test]
fn nftables_at_the_receiver() {
    let Some((hosts, mut watch)) = nftables("input") else { return };
    drops_the_flow(&hosts, &mut watch, "nft input", Location::ReceiverFilter);
}

#[test]
fn nftables_at_the_sender() {
    let Some((hosts, mut watch)) = nftables("output") else { return };
    drops_the_flow(&hosts, &mut watch, "nft output", Location::SenderStack);
    assert!(watch.seen.iter().all(|seen| seen.role == HostRole::Sender), "{:?}", watch.seen);
}

/// Attaches one of the programs of `tests/hooks`, which drop the flow, to the receiver's device.
fn hooked(what: &str, attach: impl FnOnce(&Hooks<'_>, i32) -> libbpf_rs::Result<()> + Send) {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    let mut object = MaybeUninit::uninit();
    let mut open = HooksSkelBuilder::default().open(&mut object).unwrap();
    open.maps.rodata_data.as_deref_mut().unwrap().port = hosts.flow.port;
    let skeleton = open.load().unwrap();
    let hooks = Hooks { xdp: skeleton.progs.xdp_drop.as_fd(), tc: skeleton.progs.tc_drop.as_fd() };
    let ifindex = hosts.receiver_index as i32;
    if let Err(error) = hosts.receiver.enter(|| attach(&hooks, ifindex)).unwrap() {
        return longhaul_testing::skipped!("{what}: {error}");
    }
    drops_the_flow(&hosts, &mut watch, what, Location::ReceiverFilter);
}

struct Hooks<'a> {
    xdp: BorrowedFd<'a>,
    tc: BorrowedFd<'a>,
}

#[test]
fn tc_at_the_receiver() {
    hooked("tc ingress", |hooks, ifindex| {
        let mut hook = TcHookBuilder::new(hooks.tc).ifindex(ifindex).handle(1).priority(1).hook(TC_INGRESS);
        hook.create()?.attach().map(drop)
    });
}

#[test]
fn xdp_in_the_driver() {
    hooked("XDP native", |hooks, ifindex| Xdp::new(hooks.xdp).attach(ifindex, XdpFlags::DRV_MODE));
}

#[test]
fn xdp_generic() {
    hooked("XDP generic", |hooks, ifindex| Xdp::new(hooks.xdp).attach(ifindex, XdpFlags::SKB_MODE));
}
