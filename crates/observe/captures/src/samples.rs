//! Frames for tests, byte by byte.

/// Ethernet from :01 to :02 with `tags` (TPID, VLAN id) and `kind`.
pub(crate) fn ethernet(tags: &[(u16, u16)], kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    for (tpid, vlan) in tags {
        frame.extend_from_slice(&tpid.to_be_bytes());
        frame.extend_from_slice(&vlan.to_be_bytes());
    }
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// IPv4 from 10.0.0.1 to 10.0.0.2 with `options` (a multiple of four bytes); `fragment` is the field with flags.
pub(crate) fn ipv4(protocol: u8, id: u16, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x40 | (5 + options.len() / 4) as u8, 0x2d];
    packet.extend_from_slice(&((20 + options.len() + payload.len()) as u16).to_be_bytes());
    packet.extend_from_slice(&id.to_be_bytes());
    packet.extend_from_slice(&fragment.to_be_bytes());
    packet.extend_from_slice(&[61, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend_from_slice(options);
    packet.extend_from_slice(payload);
    packet
}

/// IPv6 from fd00::1 to fd00::2.
pub(crate) fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x62, 0xd0, 0, 0];
    packet.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[next, 61]);
    for host in [1, 2] {
        packet.extend_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    packet.extend_from_slice(payload);
    packet
}

/// TCP from port 1000 to 2000 with sequence number 7, acknowledgment 8, window 9, `options` (a multiple of four bytes) and
/// `payload` bytes of payload.
pub(crate) fn tcp(flags: u8, options: &[u8], payload: usize) -> Vec<u8> {
    let mut segment = vec![0x03, 0xe8, 0x07, 0xd0, 0, 0, 0, 7, 0, 0, 0, 8];
    segment.extend_from_slice(&[(5 + options.len() / 4) as u8 * 16, flags, 0, 9, 0, 0, 0, 0]);
    segment.extend_from_slice(options);
    segment.resize(segment.len() + payload, 0xee);
    segment
}

/// UDP from port 1000 to 2000.
pub(crate) fn udp(payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0x03, 0xe8, 0x07, 0xd0];
    datagram.extend_from_slice(&((8 + payload.len()) as u16).to_be_bytes());
    datagram.extend_from_slice(&[0, 0]);
    datagram.extend_from_slice(payload);
    datagram
}
