//! The first bytes of a TCP connection say which stream of which test it is.
//!
//! ```text
//! ┌──────────┬───────────┬───────────┬────────┬──────┬──────────────┐
//! │ "lhtc"   │ version 1 │ direction │ stream │ zero │ cookie       │
//! │ 32       │ 8         │ 8         │ 8      │ 8    │ 128          │
//! └──────────┴───────────┴───────────┴────────┴──────┴──────────────┘
//! ```
//!
//! Direction 0 is forward (the client sends), 1 is backward. The cookie came over the control channel, which is encrypted if there
//! is a key, so nobody else knows it. TCP's handshake has proven that the other end receives at its address, which must be that of
//! the control peer. The server sends nothing before, a stream has one connection, and any other connection is closed.

use std::net::IpAddr;

/// Number of bytes that a data connection begins with.
pub const TCP_HELLO_BYTES: usize = 24;

/// What the first bytes begin with. No message of a control connection does.
pub const MAGIC: [u8; 5] = *b"lhtc\x01";

/// A number that only the two ends of a session know.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpCookie(pub [u8; 16]);

impl std::fmt::Debug for TcpCookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TcpCookie(…)")
    }
}

/// A stream of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TcpStreamId {
    /// Whether the server sends on it.
    pub backward: bool,
    /// Its number within its direction.
    pub stream: u8,
}

impl TcpCookie {
    /// The cookie of two random numbers.
    pub fn of_words(high: u64, low: u64) -> Self {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        Self(bytes)
    }

    /// The first bytes that the client sends on the connection of `id`.
    pub fn hello(&self, id: TcpStreamId) -> [u8; TCP_HELLO_BYTES] {
        let mut bytes = [0; TCP_HELLO_BYTES];
        bytes[..5].copy_from_slice(&MAGIC);
        bytes[5] = id.backward.into();
        bytes[6] = id.stream;
        bytes[8..].copy_from_slice(&self.0);
        bytes
    }

    /// The stream that `bytes` name; `None` if they are not of this session.
    fn parse(&self, bytes: &[u8]) -> Option<TcpStreamId> {
        let bytes: &[u8; TCP_HELLO_BYTES] = bytes.try_into().ok()?;
        // All bytes are compared, so that the time does not depend on them.
        let different = bytes[8..].iter().zip(&self.0).fold(0, |sum, (a, b)| sum | (a ^ b));
        let known = bytes[..5] == MAGIC && bytes[5] <= 1 && bytes[7] == 0 && different == 0;
        known.then_some(TcpStreamId { backward: bytes[5] == 1, stream: bytes[6] })
    }
}

/// The server's part: connections that are still missing.
#[derive(Debug, Clone)]
pub struct TcpProof {
    peer: IpAddr,
    cookie: TcpCookie,
    missing: Vec<TcpStreamId>,
}

impl TcpProof {
    /// Waits for `streams` connections from `peer` in each requested direction.
    pub fn new(peer: IpAddr, cookie: TcpCookie, streams: u8, forward: bool, backward: bool) -> Self {
        let directions = [(false, forward), (true, backward)];
        let wanted = directions.into_iter().filter(|(_, wanted)| *wanted);
        let missing = wanted.flat_map(|(backward, _)| (0..streams).map(move |stream| TcpStreamId { backward, stream }));
        Self { peer: peer.to_canonical(), cookie, missing: missing.collect() }
    }

    /// The stream of a connection from `from` that begins with `bytes`; `None` if it is to be closed.
    pub fn handle(&mut self, from: IpAddr, bytes: &[u8]) -> Option<TcpStreamId> {
        let id = self.cookie.parse(bytes).filter(|_| from.to_canonical() == self.peer)?;
        let place = self.missing.iter().position(|missing| *missing == id)?;
        Some(self.missing.swap_remove(place))
    }

    /// Whether all connections have arrived.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stream_is_taken_once_and_strangers_are_not() {
        let cookie = TcpCookie::of_words(7, 0xfeed);
        let peer: IpAddr = [192, 0, 2, 1].into();
        let mut proof = TcpProof::new(peer, cookie, 2, true, true);
        let id = |backward, stream| TcpStreamId { backward, stream };
        let hello = cookie.hello(id(false, 0));
        for at in 0..TCP_HELLO_BYTES {
            let mut forged = hello;
            forged[at] ^= 0x40;
            assert_eq!(proof.handle(peer, &forged), None, "byte {at}");
        }
        assert_eq!(proof.handle(peer, &hello[..23]), None);
        assert_eq!(proof.handle([192, 0, 2, 2].into(), &hello), None, "not the control peer");
        assert_eq!(proof.handle(peer, &cookie.hello(id(false, 2))), None, "no such stream");
        for id in [id(true, 1), id(false, 0), id(false, 1)] {
            assert_eq!(proof.handle("::ffff:192.0.2.1".parse().unwrap(), &cookie.hello(id)), Some(id));
            assert_eq!(proof.handle(peer, &cookie.hello(id)), None, "twice");
            assert!(!proof.is_complete());
        }
        assert_eq!(proof.handle(peer, &cookie.hello(id(true, 0))), Some(id(true, 0)));
        assert!(proof.is_complete());
    }
}
