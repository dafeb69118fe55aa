//! Which hosts get a frame: the one that it is for, or all others, each once and after one passage of the sender's link.

use std::net::UdpSocket;

use crate::common::datagrams::{Sink, Source};
use crate::common::{SERVER_V4, alone, assert_faithful, hop, lab, on, settled, unprivileged};

const DATAGRAMS: u64 = 300;
const BROADCASTS: u64 = 40;

#[test]
fn frames_go_where_they_are_for() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    let lab = lab("[[client]]\n[[client]]\n[[both]]\nrate = '1Gbit'\ndelay = '2ms'");
    let arrived = |name: &str| hop(&settled(&lab), name).counters.arrived.packets;
    // The server says nothing.
    let sink = Sink::new(&lab, "server", SERVER_V4);
    let mut source = Source::new(&lab, "client1", SERVER_V4, 500, 5);
    source.send_until(DATAGRAMS, &sink, 100);
    assert_eq!(["client1.up", "forward.hop1", "server.down"].map(arrived), [DATAGRAMS; 3]);
    assert_eq!(["client2.up", "client2.down", "client1.down"].map(arrived), [0; 3]);
    sink.finish().assert_complete(DATAGRAMS);

    on(&lab, "client1", || {
        let socket = UdpSocket::bind("10.77.1.1:0").unwrap();
        socket.set_broadcast(true).unwrap();
        (0..BROADCASTS).for_each(|_| assert_eq!(socket.send_to(b"all", "10.77.255.255:9").unwrap(), 3));
    });
    let sum = DATAGRAMS + BROADCASTS;
    assert_eq!(["client1.up", "forward.hop1", "server.down"].map(arrived), [sum; 3]);
    assert_eq!(["client2.up", "client2.down", "client1.down"].map(arrived), [0, BROADCASTS, 0]);
    assert_faithful(&settled(&lab));
}
