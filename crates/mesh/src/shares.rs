//! Which connections of members stay open, so that none of them keeps another one out, nor do all others together. It holds no sockets itself.

use std::collections::BTreeMap;

use longhaul_channel::PublicKey;

use crate::error::Failure;

/// Open connections of one member: a site has a thread or two for each partner. A further one closes its oldest, so that a stolen key keeps
/// nobody out.
const OF_MEMBER: usize = 8;
/// A closed one has its thread until its question is answered, and one whose answer is written until the member has acknowledged that. With so many of
/// one member no further one is taken.
const THREADS_OF_MEMBER: usize = 2 * OF_MEMBER;

/// Connections of members.
pub(crate) struct Shares<T> {
    /// Open ones of all members at the same time.
    most: usize,
    /// Each until its thread ends, in the order in which they have proven whose they are.
    connections: Vec<Connection<T>>,
}

struct Connection<T> {
    member: PublicKey,
    /// Of its place.
    number: u64,
    /// What closes it; `None` where it was closed, or its answer is written.
    open: Option<T>,
}

impl<T> Shares<T> {
    /// Shares of `most` open connections, at least one.
    pub(crate) const fn new(most: usize) -> Self {
        Self { most, connections: Vec::new() }
    }

    /// The connection at place `number` is one of `member`, and `handle` closes it. Where this member has too many, or all have together, the
    /// oldest of the member that has the most is to be closed: its number and handle.
    ///
    /// # Errors
    /// As many threads answer this member as may.
    pub(crate) fn add(&mut self, member: PublicKey, number: u64, handle: T) -> Result<Option<(u64, T)>, Failure> {
        if self.connections.iter().filter(|one| one.member == member).count() >= THREADS_OF_MEMBER {
            return Err(Failure::new("too many questions of this member at once"));
        }
        self.connections.push(Connection { member, number, open: Some(handle) });
        let mut open = BTreeMap::<PublicKey, usize>::new();
        for one in self.connections.iter().filter(|one| one.open.is_some()) {
            *open.entry(one.member).or_default() += 1;
        }
        let most = open.values().max().copied().unwrap_or(0);
        if most <= OF_MEMBER && open.values().sum::<usize>() <= self.most {
            return Ok(None);
        }
        let mut of_most = self.connections.iter_mut().filter(|one| open.get(&one.member) == Some(&most));
        Ok(of_most.find_map(|one| Some((one.number, one.open.take()?))))
    }

    /// The answer of the connection at place `number` is written: it is not closed for others.
    pub(crate) fn answered(&mut self, number: u64) {
        for one in self.connections.iter_mut().filter(|one| one.number == number) {
            one.open = None;
        }
    }

    /// The thread of the connection at place `number` has ended.
    pub(crate) fn remove(&mut self, number: u64) {
        self.connections.retain(|one| one.number != number);
    }
}

#[cfg(test)]
mod tests {
    use longhaul_channel::Identity;

    use super::*;
    use crate::folder::random;

    fn members(count: usize) -> Vec<PublicKey> {
        (0..count).map(|_| Identity::from_random(random().unwrap()).unwrap().public()).collect()
    }

    #[test]
    fn a_ninth_of_one_member_closes_its_oldest() {
        let mut shares = Shares::new(100);
        let [own, other] = members(2)[..] else { panic!("two") };
        assert_eq!(shares.add(other, 100, ()).unwrap(), None);
        for number in 0..8 {
            assert_eq!(shares.add(own, number, ()).unwrap(), None);
        }
        for number in 8..16 {
            assert_eq!(shares.add(own, number, ()).unwrap(), Some((number - 8, ())));
        }
        // Sixteen threads answer it, eight of them for connections that were closed.
        assert!(shares.add(own, 16, ()).is_err());
        assert_eq!(shares.add(other, 101, ()).unwrap(), None);
        shares.remove(0);
        assert_eq!(shares.add(own, 16, ()).unwrap(), Some((8, ())));
    }

    /// They are on their way.
    #[test]
    fn answers_that_are_written_are_closed_for_no_other() {
        let mut shares = Shares::new(100);
        let own = members(1)[0];
        for number in 0..8 {
            assert_eq!(shares.add(own, number, ()).unwrap(), None);
        }
        (0..2).for_each(|number| shares.answered(number));
        for number in 8..10 {
            assert_eq!(shares.add(own, number, ()).unwrap(), None);
        }
        assert_eq!(shares.add(own, 10, ()).unwrap(), Some((2, ())));
        for number in 11..16 {
            assert_eq!(shares.add(own, number, ()).unwrap(), Some((number - 8, ())));
        }
        assert!(shares.add(own, 16, ()).is_err(), "sixteen in all");
    }

    /// Twenty members open as many as they can, again and again; another one has one that none of theirs closes.
    #[test]
    fn all_members_together_keep_no_other_out() {
        let mut shares = Shares::new(32);
        let hostile = members(20);
        let honest = members(1)[0];
        let mut numbers = 1_u64..;
        let mut flood = |shares: &mut Shares<u64>| {
            for member in hostile.iter().cycle().take(20 * 10) {
                let number = numbers.next().unwrap();
                if let Some((closed, _)) = shares.add(*member, number, number).unwrap() {
                    assert!(closed < 1_000_000, "the honest one is closed");
                    shares.remove(closed);
                }
            }
        };
        flood(&mut shares);
        assert_eq!(shares.connections.len(), 32);
        let closed = shares.add(honest, 1_000_000, 0).unwrap();
        assert!(closed.is_some_and(|(closed, _)| closed < 1_000_000));
        shares.remove(closed.unwrap().0);
        flood(&mut shares);
        assert_eq!(shares.connections.len(), 32);
    }

    /// With more members than there are shares, each with one, the one that came last stays.
    #[test]
    fn of_members_with_as_many_the_oldest_goes() {
        let mut shares = Shares::new(4);
        for (member, number) in members(8).into_iter().zip(0..) {
            let closed = shares.add(member, number, ()).unwrap();
            assert_eq!(closed, u64::checked_sub(number, 4).map(|oldest| (oldest, ())));
        }
    }
}
