//! What an emulator does: a super-packet taken off one cable goes on over another with its offload state, and the far
//! stack takes it as good.

use std::net::UdpSocket;
use std::time::Duration;

use crate::cable::{
    LEFT_IP, LEFT_MAC, PLAIN, RIGHT_IP, RIGHT_MAC, address, connect, next_frame, segmenting_socket, silent_host,
    socket_in, unprivileged,
};

#[test]
fn a_super_packet_goes_on_with_good_checksums() {
    if unprivileged() {
        return;
    }
    let (client, middle, server) = (silent_host(), silent_host(), silent_host());
    let (client_index, in_index) = connect(&client, &middle, "lhk-c", "lhk-in");
    let (out_index, server_index) = connect(&middle, &server, "lhk-out", "lhk-s");
    address(&client, client_index, LEFT_IP, RIGHT_IP, RIGHT_MAC);
    address(&server, server_index, RIGHT_IP, LEFT_IP, LEFT_MAC);
    let receiver = server.enter(|| UdpSocket::bind((RIGHT_IP, 5210))).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (port_in, port_out) = (socket_in(&middle, in_index), socket_in(&middle, out_index));

    let payload: Vec<u8> = (0..10_000_u32).map(|i| (i / 1000) as u8).collect();
    segmenting_socket(&client, LEFT_IP, 1000).send_to(&payload, (RIGHT_IP, 5210)).unwrap();
    let (received, bytes) = next_frame(&port_in);
    port_out.send(&received.vnet, &[&bytes[..3000], &bytes[3000..]]).unwrap();

    let mut datagram = [0; 2000];
    for i in 0..10 {
        let (length, from) = receiver.recv_from(&mut datagram).unwrap();
        assert_eq!((length, from.ip()), (1000, LEFT_IP.into()));
        assert!(datagram[..1000].iter().all(|byte| *byte == i));
    }

    // Without its offload state the same bytes are one datagram that is too long for the link.
    assert!(port_out.send(&PLAIN, &[&bytes]).is_err());
}
