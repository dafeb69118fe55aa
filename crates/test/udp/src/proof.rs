//! Proof that datagrams pass in both directions before any bulk data, so that a client cannot make a server flood another host.
//!
//! The exchange of each stream. Each datagram is one probe header, so an answer is never longer than its question:
//!
//! ```text
//! client                                                server
//!   │  hello: cookie, the token from `Accept`              │  I am the client that you talk to
//!   │ ───────────────────────────────────────────────────► │
//!   │                    challenge: cookie, a random number │  only who receives here can know it
//!   │ ◄─────────────────────────────────────────────────── │
//!   │  response: cookie, the same number                    │
//!   │ ───────────────────────────────────────────────────► │  `DataProven` over the control channel
//! ```
//!
//! The token came over the control channel, which is encrypted if there is a key, so a stranger cannot send a hello. The challenge
//! goes to the address that the hello came from, so a sender with a forged address cannot respond. That address must be the one of
//! the control peer, and a stream keeps its first one. A hello is repeated every `PROOF_RESEND` until every stream is proven. A
//! response is sent once in the first round, twice in the next, up to `RESPONSES_MOST`: otherwise a path that loses every n-th
//! packet could lose the same one in every round.

use std::net::{IpAddr, SocketAddr};

use longhaul_wire::probe::{Cookie, FIRST_RESERVED, HEADER_LEN, Probe};

/// A datagram of the proof.
pub type Datagram = [u8; HEADER_LEN];

const HELLO: u64 = FIRST_RESERVED;
const CHALLENGE: u64 = FIRST_RESERVED + 1;
const RESPONSE: u64 = FIRST_RESERVED + 2;
/// Most copies of a response in one round; after this many the next round sends one.
const RESPONSES_MOST: usize = 4;

fn datagram(cookie: Cookie, sequence: u64, number: u64) -> Datagram {
    let mut bytes = [0; HEADER_LEN];
    // The buffer has the length of the header.
    let _ = Probe { cookie, sequence, sent_ns: number }.emit(&mut bytes);
    bytes
}

/// The client's part of the proof.
#[derive(Debug, Clone)]
pub struct ClientProof {
    cookie: Cookie,
    token: u64,
    streams: u8,
    /// Number of times that the hellos were sent.
    rounds: usize,
}

impl ClientProof {
    /// For the session of `cookie`, with the token from `Accept`.
    pub fn new(cookie: Cookie, token: u64, streams: u8) -> Self {
        Self { cookie, token, streams, rounds: 0 }
    }

    /// The hello of each stream. Send them in every round.
    pub fn hellos(&mut self) -> impl Iterator<Item = (u8, Datagram)> + '_ {
        // Each round begins with another stream, for the same reason.
        let first = self.rounds % usize::from(self.streams.max(1));
        self.rounds += 1;
        let streams = (0..self.streams).cycle().skip(first).take(self.streams.into());
        streams.map(|stream| (stream, datagram(self.cookie.of(false, stream), HELLO, self.token)))
    }

    /// The answer to a datagram on `stream`, and how many copies of it to send.
    pub fn handle(&self, stream: u8, bytes: &[u8]) -> Option<(Datagram, usize)> {
        let probe = Probe::parse(bytes)?;
        let expected = probe.cookie == self.cookie.of(true, stream) && stream < self.streams;
        (expected && probe.sequence == CHALLENGE)
            .then(|| (datagram(self.cookie.of(false, stream), RESPONSE, probe.sent_ns), self.responses()))
    }
}

impl ClientProof {
    fn responses(&self) -> usize {
        self.rounds.saturating_sub(1) % RESPONSES_MOST + 1
    }
}

/// The server's part of the proof.
#[derive(Debug, Clone)]
pub struct ServerProof {
    peer: IpAddr,
    cookie: Cookie,
    token: u64,
    streams: Vec<StreamProof>,
}

#[derive(Debug, Clone)]
struct StreamProof {
    challenge: u64,
    address: Option<SocketAddr>,
    proven: bool,
}

impl ServerProof {
    /// For the client at `peer`, with one random challenge for each stream.
    pub fn new(peer: IpAddr, cookie: Cookie, token: u64, challenges: &[u64]) -> Self {
        let stream = |&challenge| StreamProof { challenge, address: None, proven: false };
        Self { peer: peer.to_canonical(), cookie, token, streams: challenges.iter().map(stream).collect() }
    }

    /// The answer to a datagram from `from`, never longer than `bytes`.
    pub fn handle(&mut self, from: SocketAddr, bytes: &[u8]) -> Option<(u8, Datagram)> {
        let probe = Probe::parse(bytes)?;
        let number = probe.cookie.stream();
        if probe.cookie != self.cookie.of(false, number) || from.ip().to_canonical() != self.peer {
            return None;
        }
        let stream = self.streams.get_mut(usize::from(number))?;
        match probe.sequence {
            HELLO if probe.sent_ns == self.token && !stream.proven => {
                let address = *stream.address.get_or_insert(from);
                let answer = datagram(self.cookie.of(true, number), CHALLENGE, stream.challenge);
                (address == from).then_some((number, answer))
            }
            RESPONSE if probe.sent_ns == stream.challenge && stream.address == Some(from) => {
                stream.proven = true;
                None
            }
            _ => None,
        }
    }

    /// The client's proven address of each stream, once all streams are proven.
    pub fn addresses(&self) -> Option<Vec<SocketAddr>> {
        self.streams.iter().map(|stream| stream.address.filter(|_| stream.proven)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: &str = "192.0.2.1:4000";

    fn pair() -> (ClientProof, ServerProof) {
        let cookie = Cookie::new(0xabcd_ef00, false, 0);
        let peer: SocketAddr = PEER.parse().unwrap();
        (ClientProof::new(cookie, 77, 2), ServerProof::new(peer.ip(), cookie, 77, &[1001, 1002]))
    }

    #[test]
    fn each_stream_is_proven_by_its_own_number() {
        let (mut client, mut server) = pair();
        let from: SocketAddr = PEER.parse().unwrap();
        for (stream, hello) in client.hellos().collect::<Vec<_>>() {
            assert_eq!(server.addresses(), None);
            let (number, challenge) = server.handle(from, &hello).unwrap();
            assert_eq!((number, challenge.len()), (stream, hello.len()));
            let (response, _) = client.handle(stream, &challenge).unwrap();
            assert!(server.handle(from, &response).is_none());
            assert!(server.handle(from, &hello).is_none(), "nothing more to prove");
        }
        assert_eq!(server.addresses(), Some(vec![from; 2]));
    }

    /// Every n-th packet of a direction is lost, in every phase. The twenty rounds are half of what there is time for.
    #[test]
    fn no_regular_loss_starves_it() {
        let from: SocketAddr = PEER.parse().unwrap();
        let cookie = Cookie::new(0xabcd_ef00, false, 0);
        for (every, phase, streams, both) in (2..=9)
            .flat_map(|every| (0..every).map(move |phase| (every, phase)))
            .flat_map(|(every, phase)| (1..=4).map(move |streams| (every, phase, streams)))
            .flat_map(|(every, phase, streams)| [false, true].map(|both| (every, phase, streams, both)))
        {
            let mut client = ClientProof::new(cookie, 77, streams);
            let challenges: Vec<u64> = (0..u64::from(streams)).collect();
            let mut server = ServerProof::new(from.ip(), cookie, 77, &challenges);
            let (mut forward, mut backward) = (phase, phase);
            let passes = |count: &mut u32, lossy: bool| {
                *count += 1;
                !lossy || !count.is_multiple_of(every)
            };
            for _ in 0..20 {
                let arrived: Vec<_> = client.hellos().filter(|_| passes(&mut forward, true)).collect();
                for (_, hello) in arrived {
                    let Some((stream, challenge)) = server.handle(from, &hello) else { continue };
                    if !passes(&mut backward, both) {
                        continue;
                    }
                    let (response, copies) = client.handle(stream, &challenge).unwrap();
                    for _ in 0..copies {
                        if passes(&mut forward, true) {
                            server.handle(from, &response);
                        }
                    }
                }
            }
            assert!(
                server.addresses().is_some(),
                "every({every}) from {phase}, {streams} streams, both directions {both}"
            );
        }
    }

    #[test]
    fn strangers_get_nothing() {
        let (mut client, mut server) = pair();
        let from: SocketAddr = PEER.parse().unwrap();
        let (_, hello) = client.hellos().next().unwrap();
        let mut forged = hello;
        forged[17] ^= 1;
        assert!(server.handle(from, &forged).is_none(), "wrong token");
        assert!(server.handle("192.0.2.2:4000".parse().unwrap(), &hello).is_none(), "not the control peer");
        assert!(server.handle(from, &hello[..17]).is_none(), "too short");
        assert!(server.handle("[::ffff:192.0.2.1]:4000".parse().unwrap(), &hello).is_some(), "mapped is the same");

        let (client, mut server) = pair();
        let (_, challenge) = server.handle(from, &hello).unwrap();
        let other: SocketAddr = "192.0.2.1:4001".parse().unwrap();
        assert!(server.handle(other, &hello).is_none(), "the first address stays");
        let (response, _) = client.handle(0, &challenge).unwrap();
        server.handle(other, &response);
        assert_eq!(server.addresses(), None, "answered from elsewhere");
        assert!(client.handle(1, &challenge).is_none() && client.handle(0, &hello).is_none());
    }
}
