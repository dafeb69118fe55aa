//! The places of a listener: so many connections at a time, and strangers cannot keep out who proves who he is, nor can those who prove it and
//! do nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bits of an IPv6 address that tell one network from another: a host makes up the rest as it likes (RFC 4291, section 2.5.1).
const NETWORK_BITS: u32 = 64;

/// Has not shown anything yet.
const STRANGER: u8 = 0;
/// Has proven that it has a key.
const PROVEN: u8 = 1;
/// Keeps the place.
const KEPT: u8 = 2;
/// Has lost the place.
const DISPLACED: u8 = 3;

/// Connections at a time. Who is at work keeps the place; another's goes to the next where all are taken, a stranger's first.
#[derive(Debug)]
pub struct Places<T> {
    most: usize,
    next: u64,
    guests: BTreeMap<u64, Guest<T>>,
    /// Those whose work is over: their connections take their time to end.
    ending: BTreeMap<u64, Guest<T>>,
    /// Those that lost their place and have not left: each has a thread yet.
    leaving: BTreeSet<u64>,
}

#[derive(Debug)]
struct Guest<T> {
    network: IpAddr,
    standing: Arc<Standing>,
    handle: T,
}

/// What [`Places::take`] gives.
#[derive(Debug)]
pub struct Taken<T> {
    /// The number of the place, for [`Places::leave`].
    pub number: u64,
    /// What keeps the guest there.
    pub standing: Arc<Standing>,
    /// The guest that lost its place, to be closed.
    pub displaced: Option<T>,
}

/// What keeps a guest in its place: nothing at first, as it is a stranger.
#[derive(Debug, Default)]
pub struct Standing(AtomicU8);

impl Standing {
    /// The guest has proven that it has a key: it goes after all strangers.
    pub fn prove(&self) {
        self.0.fetch_max(PROVEN, Ordering::Relaxed);
    }

    /// The guest keeps the place: its work has begun.
    pub fn keep(&self) {
        self.0.fetch_max(KEPT, Ordering::Relaxed);
    }

    /// Whether it keeps the place.
    pub fn is_kept(&self) -> bool {
        self.level() == KEPT
    }

    /// Whether it has lost the place: its connection ends now.
    pub fn is_displaced(&self) -> bool {
        self.level() == DISPLACED
    }

    fn level(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T> Places<T> {
    /// Places for `most` connections.
    pub const fn new(most: usize) -> Self {
        Self { most, next: 0, guests: BTreeMap::new(), ending: BTreeMap::new(), leaving: BTreeSet::new() }
    }

    /// A place for a connection from `address`, with what closes it. Where all are taken a stranger goes: of the network with the most
    /// strangers, the one that came first. So who floods a listener from one address closes his own connections, and who floods it from many
    /// has to open as many as there are places before a new one is closed. Without a stranger, one goes that has proven its key and begun
    /// nothing, chosen alike. `None` where all keep their places, and in a [crowd](Self::is_crowded).
    pub fn take(&mut self, address: IpAddr, handle: T) -> Option<Taken<T>> {
        if self.is_crowded() {
            return None;
        }
        let displaced =
            if self.guests.len() < self.most { None } else { Some(displace(&mut self.guests, &mut self.leaving)?) };
        self.next += 1;
        let standing = Arc::<Standing>::default();
        let guest = Guest { network: network(address), standing: Arc::clone(&standing), handle };
        self.guests.insert(self.next, guest);
        Some(Taken { number: self.next, standing, displaced })
    }

    /// The work of the guest at place `number` is over: it gives the place back, and has its time to end the connection. As many as there are places
    /// may do so; where there are more, one is returned, to be closed: the oldest of the network that has the most of them. So they keep no
    /// connection out, and none of those that take places ends one of them. One that has proven nothing stays where it is, as a stranger.
    pub fn end(&mut self, number: u64) -> Option<T> {
        if self.guests.get(&number)?.standing.level() == STRANGER {
            return None;
        }
        let guest = self.guests.remove(&number)?;
        // What it proved was for its work.
        guest.standing.0.store(STRANGER, Ordering::Relaxed);
        let displaced =
            if self.ending.len() < self.most { None } else { displace(&mut self.ending, &mut self.leaving) };
        self.ending.insert(number, guest);
        displaced
    }

    /// Whether as many as there are places were displaced and have not [left](Self::leave): the next one has to wait for them.
    pub fn is_crowded(&self) -> bool {
        self.leaving.len() >= self.most
    }

    /// Gives a place back. One that was displaced does so when its thread ends.
    pub fn leave(&mut self, number: u64) {
        self.guests.remove(&number);
        self.ending.remove(&number);
        self.leaving.remove(&number);
    }

    /// What closes each connection that has a place.
    pub fn handles(&self) -> impl Iterator<Item = &T> {
        self.guests.values().map(|guest| &guest.handle)
    }
}

/// Has one of `guests` leave: of the network with the most of the lowest level the one that came first. `None` where all keep their places.
fn displace<T>(guests: &mut BTreeMap<u64, Guest<T>>, leaving: &mut BTreeSet<u64>) -> Option<T> {
    let mut networks: HashMap<(u8, IpAddr), (usize, u64)> = HashMap::new();
    for (number, guest) in &*guests {
        let level = guest.standing.level();
        if level < KEPT {
            networks.entry((level, guest.network)).or_insert((0, *number)).0 += 1;
        }
    }
    // The first number of a network is its smallest: they are in order.
    let ranked = networks.into_iter().map(|((level, _), (count, first))| (level, usize::MAX - count, first));
    let (.., first) = ranked.min()?;
    let guest = guests.remove(&first)?;
    guest.standing.0.store(DISPLACED, Ordering::Relaxed);
    leaving.insert(first);
    Some(guest.handle)
}

/// Whose address this is: one IPv4 address, or one network of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (u128::BITS - NETWORK_BITS))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 16;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// The number of who is displaced, where the handle is that number.
    fn take(places: &mut Places<u64>, address: IpAddr) -> Option<Taken<u64>> {
        let number = places.next + 1;
        places.take(address, number)
    }

    #[test]
    fn who_floods_from_one_address_closes_his_own() {
        let mut places = Places::new(MOST);
        let known = take(&mut places, address(1)).unwrap();
        known.standing.keep();
        let waiting = take(&mut places, address(2)).unwrap();
        let mut displaced = Vec::new();
        for _ in 0..100 {
            displaced.extend(take(&mut places, address(3)).unwrap().displaced.inspect(|number| places.leave(*number)));
        }
        assert_eq!(places.handles().count(), MOST);
        assert_eq!(displaced, (3..3 + 100 - (MOST as u64 - 2)).collect::<Vec<_>>());
        assert!(places.handles().any(|number| *number == known.number));
        assert!(places.handles().any(|number| *number == waiting.number));
    }

    #[test]
    fn who_floods_from_many_addresses_closes_the_oldest() {
        let mut places = Places::new(MOST);
        for last in 0..MOST as u8 {
            take(&mut places, address(last)).unwrap();
        }
        let client = take(&mut places, address(200)).unwrap();
        for last in 0..MOST as u8 - 1 {
            take(&mut places, address(100 + last)).unwrap();
            assert!(places.handles().any(|number| *number == client.number), "closed by the {last}th after it");
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_stranger() {
        let mut places = Places::new(MOST);
        let waiting = take(&mut places, address(1)).unwrap();
        for host in 0..100_u16 {
            let taken = take(&mut places, IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, host))).unwrap();
            taken.displaced.into_iter().for_each(|number| places.leave(number));
        }
        assert!(places.handles().any(|number| *number == waiting.number));
        // An IPv4 address that a socket of both families shows is that address.
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), address(1));
    }

    #[test]
    fn who_is_known_keeps_the_place() {
        let mut places = Places::new(MOST);
        let known: Vec<Taken<u64>> = (0..MOST).map(|_| take(&mut places, address(1)).unwrap()).collect();
        known.iter().for_each(|taken| taken.standing.keep());
        assert!(take(&mut places, address(2)).is_none());
        places.leave(known[0].number);
        assert!(take(&mut places, address(2)).unwrap().displaced.is_none());
    }

    /// Somebody with the key holds as many connections as there are places, and does nothing.
    #[test]
    fn who_has_the_key_and_begins_nothing_goes_after_all_strangers() {
        let mut places = Places::new(MOST);
        let idle: Vec<Taken<u64>> = (0..MOST - 2).map(|_| take(&mut places, address(1)).unwrap()).collect();
        idle.iter().for_each(|taken| taken.standing.prove());
        let at_work = take(&mut places, address(1)).unwrap();
        at_work.standing.keep();
        at_work.standing.prove();
        let stranger = take(&mut places, address(2)).unwrap();
        let client = take(&mut places, address(3)).unwrap();
        assert_eq!(client.displaced, Some(stranger.number));
        client.standing.prove();
        places.leave(stranger.number);
        for oldest in idle {
            let another = take(&mut places, address(1)).unwrap();
            another.standing.prove();
            assert_eq!(another.displaced, Some(oldest.number));
            places.leave(oldest.number);
        }
        assert!([client, at_work].iter().all(|kept| places.handles().any(|number| *number == kept.number)));
    }

    /// Who holds the key may draw out the ends of connections whose work is over.
    #[test]
    fn who_has_done_its_work_keeps_nobody_out() {
        let mut places = Places::new(MOST);
        let at_work = take(&mut places, address(1)).unwrap();
        at_work.standing.keep();
        let mut closed = Vec::new();
        let client = take(&mut places, address(2)).unwrap();
        for _ in 0..10 * MOST {
            let another = take(&mut places, address(1)).unwrap();
            another.standing.prove();
            another.standing.keep();
            assert_eq!(another.displaced, None);
            closed.extend(places.end(another.number).inspect(|number| places.leave(*number)));
        }
        assert_eq!(closed, (3..3 + 9 * MOST as u64).collect::<Vec<_>>(), "the oldest of them");
        assert!([&client, &at_work].iter().all(|kept| places.handles().any(|number| *number == kept.number)));
    }

    /// Strangers at the address of a client whose last message is on its way.
    #[test]
    fn no_stranger_ends_who_has_done_its_work() {
        let mut places = Places::new(MOST);
        let done = take(&mut places, address(1)).unwrap();
        done.standing.prove();
        assert!(places.end(done.number).is_none());
        let mut strangers = Vec::new();
        for _ in 0..10 * MOST {
            let stranger = take(&mut places, address(1)).unwrap();
            stranger.displaced.into_iter().for_each(|number| places.leave(number));
            // Nor by an end of its own.
            assert!(places.end(stranger.number).is_none());
            strangers.push(stranger);
        }
        assert!(!done.standing.is_displaced());
        assert_eq!(strangers.iter().filter(|stranger| !stranger.standing.is_displaced()).count(), MOST);
        // Others whose work is over are few until one of another address goes, and it is theirs.
        let known = |places: &mut Places<u64>| {
            let another = take(places, address(2)).unwrap();
            another.displaced.into_iter().for_each(|number| places.leave(number));
            another.standing.keep();
            places.end(another.number)
        };
        assert!((1..MOST).all(|_| known(&mut places).is_none()));
        assert!((0..MOST).all(|_| known(&mut places).is_some_and(|number| number != done.number)));
        assert!(!done.standing.is_displaced());
    }

    #[test]
    fn who_has_lost_its_place_does_not_keep_it() {
        let mut places = Places::new(1);
        let first = take(&mut places, address(1)).unwrap();
        assert_eq!(take(&mut places, address(2)).unwrap().displaced, Some(first.number));
        first.standing.prove();
        first.standing.keep();
        assert!(first.standing.is_displaced() && !first.standing.is_kept());
        assert_eq!(places.end(first.number), None);
        assert!(places.is_crowded());
    }

    /// A thread may take its time to end.
    #[test]
    fn those_that_lost_their_place_are_not_without_number() {
        let mut places = Places::new(MOST);
        let taken: Vec<_> = (0..100).map_while(|_| take(&mut places, address(1))).collect();
        assert_eq!((taken.len(), places.is_crowded()), (2 * MOST, true));
        places.leave(taken[0].number);
        assert!(!places.is_crowded() && take(&mut places, address(1)).is_some());
        taken.iter().for_each(|taken| places.leave(taken.number));
        assert_eq!(places.handles().count(), 1);
    }
}
