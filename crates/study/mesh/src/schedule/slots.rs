//! Which tests run beside each other.

use std::collections::HashMap;
use std::slice;

use longhaul_units::BitRate;

use crate::file::{LINKS_MOST, Mesh, TestPlan};
use crate::sample::SiteId;

/// Tests that run at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slot {
    /// From sender to receiver.
    pub pairs: Vec<(SiteId, SiteId)>,
}

/// `pairs` in the order of the circle method: neighbours in the order have no site in common, as far as that can be.
pub(super) fn circle(pairs: &[(SiteId, SiteId)], sites: usize) -> Vec<(SiteId, SiteId)> {
    // With an even number of sites the last one stands still, the others turn.
    let turning = (sites - usize::from(sites.is_multiple_of(2))) as u32;
    let round = |from: SiteId, to: SiteId| {
        let (from, to) = (u32::from(from.0), u32::from(to.0));
        if from == turning {
            2 * to % turning
        } else if to == turning {
            2 * from % turning
        } else {
            (from + to) % turning
        }
    };
    let mut ordered = pairs.to_vec();
    ordered.sort_by_key(|(from, to)| (round(*from, *to), from > to, *from, *to));
    ordered
}

/// Slots that are looked at for room on shared links: so many for any plan, and so many more for each of its pairs. Pairs that cross two links take
/// seven each. Once all looks are used up, each remaining pair that crosses a link gets a slot of its own.
const LOOKS_SURE: usize = 1 << 20;
const LOOKS_A_PAIR: usize = 64;
/// Loads of shared links that are kept, one for each slot up to the last in which a link carries a test: 64 MiB. It is enough where one test at a time
/// crosses 64 links, from 250 sites to 250 others and back. Once they are used up, nothing is looked at any more.
const LOADS_MOST: usize = 1 << 23;

// `Shared::full` has a bit for each link and direction.
const _: () = assert!(2 * LINKS_MOST <= u128::BITS as usize);

/// Puts each pair into the first slot where both sites and all shared links have room.
pub(super) fn fill(mesh: &Mesh, test: &TestPlan, pairs: &[(SiteId, SiteId)]) -> Vec<Slot> {
    fill_within(mesh, test, pairs, LOOKS_SURE + LOOKS_A_PAIR * pairs.len(), LOADS_MOST)
}

/// The same with so many looks for room on shared links, and so many loads of them that are kept.
pub(super) fn fill_within(
    mesh: &Mesh,
    test: &TestPlan,
    pairs: &[(SiteId, SiteId)],
    looks: usize,
    loads: usize,
) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    // Which slots a site is in, a bit each.
    let mut busy: Vec<Vec<u64>> = vec![Vec::new(); mesh.sites.len()];
    let none = vec![Vec::new(); mesh.links.len() * 2];
    let mut shared = Shared { loads: none, full: HashMap::new(), looks, loads_left: loads };
    for (from, to) in pairs {
        let crossed: Vec<Crossed> =
            mesh.crossed(*from, *to).map(|(link, direction, shared)| (link * 2 + direction, shared.leased())).collect();
        let load = if crossed.is_empty() { 0 } else { load(mesh, test, *from, *to) };
        let ends = [usize::from(from.0), usize::from(to.0)];
        let slot = shared.first_free(&crossed, load, &busy[ends[0]], &busy[ends[1]]).unwrap_or(slots.len());
        if slots.len() <= slot {
            slots.resize_with(slot + 1, Slot::default);
        }
        slots[slot].pairs.push((*from, *to));
        for end in ends {
            let words = &mut busy[end];
            if words.len() <= slot / 64 {
                words.resize(slot / 64 + 1, 0);
            }
            words[slot / 64] |= 1 << (slot % 64);
        }
        crossed.iter().for_each(|(link, _)| shared.add(*link, slot, load));
    }
    slots
}

/// A link and direction that a pair crosses, by its number among both of all links, and what it may carry.
type Crossed = (usize, BitRate);

/// What the slots carry over shared links.
struct Shared {
    /// Of each link and direction, slot by slot.
    loads: Vec<Vec<u64>>,
    /// No slot before this has room for such a load over these links, a bit each: slots only fill. Without it each pair would look at all slots
    /// of full links, or of links that are full by turns.
    full: HashMap<(u128, u64), usize>,
    /// Slots that may still be looked at.
    looks: usize,
    /// Loads that may still be kept.
    loads_left: usize,
}

impl Shared {
    /// The first slot in which neither end is, by the slots that `one` and `other` are in, and that has room for `load` over all links that are
    /// `crossed`. `None` where no more slots may be looked at.
    fn first_free(&mut self, crossed: &[Crossed], load: u64, one: &[u64], other: &[u64]) -> Option<usize> {
        let mut first = 0;
        for link in crossed {
            first = first.max(self.first_room(0, slice::from_ref(link), load)?);
        }
        if crossed.len() > 1 {
            first = self.first_room(first, crossed, load)?;
        }
        let word = |words: &[u64], index: usize| words.get(index).copied().unwrap_or(0);
        for index in first / 64.. {
            let mut free = !(word(one, index) | word(other, index));
            if index == first / 64 {
                free &= u64::MAX << (first % 64);
            }
            while free != 0 {
                let slot = index * 64 + free.trailing_zeros() as usize;
                if self.has_room(slot, crossed, load)? {
                    return Some(slot);
                }
                free &= free - 1;
            }
        }
        unreachable!("a slot after the last has room")
    }

    /// The first slot from `from` on that has room, whoever is in it; none before `from` has.
    fn first_room(&mut self, from: usize, crossed: &[Crossed], load: u64) -> Option<usize> {
        let links = crossed.iter().fold(0, |links, (link, _)| links | 1_u128 << link);
        let known = self.full.get(&(links, load)).copied();
        let mut slot = known.map_or(from, |known| known.max(from));
        let found = loop {
            match self.has_room(slot, crossed, load) {
                Some(false) => slot += 1,
                found => break found,
            }
        };
        if known != Some(slot) {
            self.full.insert((links, load), slot);
        }
        found.map(|_| slot)
    }

    /// Adds `load` to what a link carries in a slot. Where nobody may look at it any more, it is not kept.
    fn add(&mut self, link: usize, slot: usize, load: u64) {
        let loads = &mut self.loads[link];
        let more = (slot + 1).saturating_sub(loads.len());
        match self.loads_left.checked_sub(more) {
            Some(left) if self.looks > 0 => {
                self.loads_left = left;
                loads.resize(loads.len() + more, 0);
                loads[slot] = loads[slot].saturating_add(load);
            }
            _ => self.looks = 0,
        }
    }

    fn has_room(&mut self, slot: usize, crossed: &[Crossed], load: u64) -> Option<bool> {
        if crossed.is_empty() {
            return Some(true);
        }
        self.looks = self.looks.checked_sub(1)?;
        Some(crossed.iter().all(|(link, most)| {
            let carried = self.loads[*link].get(slot).copied().unwrap_or(0);
            carried == 0 || carried.saturating_add(load) <= most.0
        }))
    }
}

/// What a test takes of a link.
fn load(mesh: &Mesh, test: &TestPlan, from: SiteId, to: SiteId) -> u64 {
    test.kind.wire_rate().unwrap_or_else(|| mesh.rate_most(test, from, to)).0
}
