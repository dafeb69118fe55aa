//! Which followed socket a datagram is of, by its port, its peer and its own address.
//!
//! Any user can open thousands of sockets at one port and send to thousands of peers: a look-up takes the same time however many there are.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use super::Followed;

/// A socket: its number in the result, and its cookie. The first one goes before others that fit as well.
type Socket = (u32, u64);

/// The followed sockets by port.
#[derive(Debug, Default)]
pub(super) struct Ports(HashMap<u16, Port>);

/// The sockets of one port, by how well they fit a datagram.
#[derive(Debug, Default)]
struct Port {
    /// Connected, by peer.
    to: HashMap<SocketAddr, Bound>,
    /// Open, and connected to nobody.
    open: Bound,
    /// Ended, and connected to nobody.
    ended: Bound,
    /// Connected, to whomever: perhaps it was so only later.
    connected: Bound,
}

/// The first of some sockets by the address that they are bound to.
#[derive(Debug, Default)]
struct Bound {
    first: Option<Socket>,
    /// The first of those that receive at any address of the host.
    to_any: Option<Socket>,
    to: HashMap<IpAddr, Socket>,
}

impl Ports {
    pub(super) fn of<'a>(followed: impl Iterator<Item = (&'a u64, &'a Followed)>) -> Self {
        let mut ports = Self::default();
        for (cookie, one) in followed {
            let (own, socket) = (one.candidate.local, (one.number, *cookie));
            let port = ports.0.entry(own.port()).or_default();
            match one.remote() {
                Some(remote) => {
                    port.to.entry(remote).or_default().add(own.ip(), socket);
                    port.connected.add(own.ip(), socket);
                }
                None if one.ended => port.ended.add(own.ip(), socket),
                None => port.open.add(own.ip(), socket),
            }
        }
        ports
    }

    /// The cookie of the socket that fits best; `None` where it can be none of them.
    pub(super) fn find(&self, port: u16, peer: Option<SocketAddr>, local: Option<IpAddr>) -> Option<u64> {
        let port = self.0.get(&port)?;
        let to_peer = peer.and_then(|peer| port.to.get(&peer));
        let by_fit = to_peer.into_iter().chain([&port.open, &port.ended, &port.connected]);
        by_fit.filter_map(|sockets| sockets.find(local)).map(|(_, cookie)| cookie).next()
    }
}

impl Bound {
    fn add(&mut self, own: IpAddr, socket: Socket) {
        let least = |known: Option<Socket>| Some(known.map_or(socket, |known| known.min(socket)));
        self.first = least(self.first);
        if own.is_unspecified() {
            self.to_any = least(self.to_any);
        } else {
            self.to.entry(own).and_modify(|known| *known = socket.min(*known)).or_insert(socket);
        }
    }

    fn find(&self, local: Option<IpAddr>) -> Option<Socket> {
        let Some(local) = local else { return self.first };
        self.to_any.into_iter().chain(self.to.get(&local).copied()).min()
    }
}

#[cfg(test)]
mod tests {
    use longhaul_units::Nanos;

    use super::super::Before;
    use super::*;
    use crate::selection::Candidate;

    fn followed(number: u32, local: &str, remote: &str, ended: bool) -> Followed {
        let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
        Followed {
            number,
            candidate: Candidate { cookie: number.into(), local, remote, inode: 1, cgroup_id: None },
            owner: None,
            began: None,
            ended,
            first: Nanos::ZERO,
            last: Nanos::ZERO,
            drops: None,
            memory: None,
            max_used_bytes: 0,
            was_empty: true,
            before: Before::default(),
        }
    }

    /// How well a socket fits, told of each alone; `None`: not at all.
    fn rank(one: &Followed, peer: Option<SocketAddr>, local: Option<IpAddr>) -> Option<u8> {
        let own = one.candidate.local.ip();
        if local.is_some_and(|local| !own.is_unspecified() && own != local) {
            return None;
        }
        match one.remote() {
            Some(remote) if peer == Some(remote) => Some(0),
            Some(_) => Some(3),
            None if one.ended => Some(2),
            None => Some(1),
        }
    }

    #[test]
    fn it_finds_what_looking_at_each_socket_finds() {
        let locals = ["0.0.0.0:7", "10.0.0.1:7", "10.0.0.2:7", "10.0.0.1:8"];
        let remotes = ["0.0.0.0:0", "10.9.0.1:1", "10.9.0.2:1"];
        // Each set of four of the sockets that there can be.
        let kinds: Vec<(&str, &str, bool)> = locals
            .iter()
            .flat_map(|local| remotes.iter().map(move |remote| (*local, *remote)))
            .flat_map(|(local, remote)| [(local, remote, false), (local, remote, true)])
            .collect();
        let peers = [None, "10.9.0.1:1".parse().ok(), "10.9.0.3:1".parse().ok()];
        let owns = [None, "10.0.0.1".parse().ok(), "10.0.0.3".parse().ok()];
        let mut found = 0;
        for first in 0..kinds.len() {
            for second in 0..kinds.len() {
                let numbers = [first, second, (first * 7 + second) % kinds.len(), (first + second * 5) % kinds.len()];
                let sockets: HashMap<u64, Followed> = numbers
                    .iter()
                    .enumerate()
                    .map(|(at, kind)| {
                        let (local, remote, ended) = kinds[*kind];
                        (at as u64, followed(at as u32, local, remote, ended))
                    })
                    .collect();
                let ports = Ports::of(sockets.iter());
                for (peer, local) in peers.iter().flat_map(|peer| owns.iter().map(move |own| (*peer, *own))) {
                    let at_port = sockets.iter().filter(|(_, one)| one.candidate.local.port() == 7);
                    let fitting =
                        at_port.filter_map(|(cookie, one)| Some((rank(one, peer, local)?, one.number, *cookie)));
                    let expected = fitting.min().map(|(.., cookie)| cookie);
                    assert_eq!(ports.find(7, peer, local), expected, "{sockets:#?} {peer:?} {local:?}");
                    found += usize::from(expected.is_some());
                }
            }
        }
        assert!(found > 1000, "{found}");
    }
}
