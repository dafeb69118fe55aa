//! Drops that are no losses: what is dropped arrives all the same.

use longhaul_bpf::drops::{DropOptions, Flow, HostRole};
use longhaul_kernel::packet::{PacketOptions, PacketSocket};
use longhaul_lab::{Lab, LabSpec};
use longhaul_result::Location;

use crate::hosts::{Hosts, RECEIVER_IP, Watch, watched_hosts};
use crate::sockets::receive_all;

#[test]
fn a_sniffer_that_does_not_keep_up() {
    let Some((hosts, mut watch)) = watched_hosts() else { return };
    let options = PacketOptions { receive_buffer_bytes: 4096, ..PacketOptions::default() };
    let sniffer = hosts.receiver.enter(|| PacketSocket::open(hosts.receiver_index, &options)).unwrap().unwrap();
    let socket = hosts.receiving(RECEIVER_IP);
    let sending = hosts.sending();
    for sequence in 0..50 {
        sending.send(&hosts.payload(sequence, 1000)).unwrap();
    }
    assert!(receive_all(&socket).into_iter().eq(0..50));
    assert!(sniffer.drops() > 0);
    watch.look();
    watch.print("sniffer");
    // Linux 6.18 makes no event: the sniffer had only a share of the packet.
    assert!(watch.seen.iter().all(|seen| seen.place.is_none()), "{:?}", watch.seen);
}

#[test]
fn an_emulator_on_the_way() {
    // Only for its flow.
    let Some((Hosts { flow, .. }, watch)) = watched_hosts() else { return };
    drop(watch);
    let lab = Lab::up(LabSpec::default(), longhaul_path::preset::load("lan").unwrap()).unwrap();
    let (client, server) = (lab.host("client").unwrap(), lab.host("server").unwrap());
    let hosts = Hosts {
        sender: client.namespace.try_clone().unwrap(),
        receiver: server.namespace.try_clone().unwrap(),
        sender_index: 0,
        receiver_index: 0,
        flow: Flow { port: flow.port, cookie: flow.cookie },
    };
    let mut watch = Watch::with(&hosts, &DropOptions::default()).unwrap();
    let own = DropOptions { namespace_cookie: Some(server.namespace.cookie().unwrap()), ..DropOptions::default() };
    let mut of_the_server = Watch::with(&hosts, &own).unwrap();
    let socket = hosts.receiving(server.plan.ipv4);
    let sending = hosts.sending_to(server.plan.ipv4.into());
    socket.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
    let mut buffer = [0; 2000];
    for sequence in 0..20 {
        sending.send(&hosts.payload(sequence, 1000)).unwrap();
        socket.recv(&mut buffer).unwrap();
    }
    watch.until(20);
    watch.print("emulator");
    assert!(!watch.seen.is_empty(), "the core's stack was to drop what the emulator's packet socket took");
    assert!(watch.seen.iter().all(|seen| (seen.role, seen.place) == (HostRole::Other, None)), "{:?}", watch.seen);
    assert!(watch.at(Location::Network).is_empty());
    // Who asks for one host's drops is not told of them.
    drop(socket);
    sending.send(&hosts.payload(20, 1000)).unwrap();
    let seen = of_the_server.until(1);
    assert!(seen.iter().all(|seen| seen.role == HostRole::Receiver), "{seen:?}");
    assert_eq!(seen.iter().flat_map(|seen| seen.sequences.clone()).collect::<Vec<_>>(), [20]);
}
