//! Which tests run beside each other.

use std::collections::HashMap;

use longhaul_units::BitRate;

use crate::file::{Mesh, TestPlan};
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

/// Puts each pair into the first slot where both sites and all shared links have room.
pub(super) fn fill(mesh: &Mesh, test: &TestPlan, pairs: &[(SiteId, SiteId)]) -> Vec<Slot> {
    let mut slots: Vec<Slot> = Vec::new();
    // Which slots a site is in, a bit each.
    let mut busy: Vec<Vec<u64>> = vec![Vec::new(); mesh.sites.len()];
    // What each slot carries over each link and direction.
    let mut loads: Vec<Vec<u64>> = vec![Vec::new(); mesh.links.len() * 2];
    // No slot before this has room for such a load over a link: slots only fill. Without it each pair would look at all slots of a full link.
    let mut full: HashMap<(usize, u64), usize> = HashMap::new();
    for (from, to) in pairs {
        let mut crossed: Vec<(usize, u64, BitRate)> = mesh
            .crossed(*from, *to)
            .map(|(link, direction, shared)| (link * 2 + direction, 0, shared.leased()))
            .collect();
        if !crossed.is_empty() {
            let load = load(mesh, test, *from, *to);
            crossed.iter_mut().for_each(|part| part.1 = load);
        }
        let fits = |slot: usize, (link, load, most): &(usize, u64, BitRate)| {
            loads[*link].get(slot).is_none_or(|carried| carried.saturating_add(*load) <= most.0 || *carried == 0)
        };
        let mut first = 0;
        for part in &crossed {
            let until = full.entry((part.0, part.1)).or_default();
            while !fits(*until, part) {
                *until += 1;
            }
            first = first.max(*until);
        }
        let ends = [usize::from(from.0), usize::from(to.0)];
        let has_room = |slot: usize| crossed.iter().all(|part| fits(slot, part));
        let slot = first_free(first, &busy[ends[0]], &busy[ends[1]], has_room);
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
        for (link, load, _) in crossed {
            if loads[link].len() <= slot {
                loads[link].resize(slot + 1, 0);
            }
            loads[link][slot] = loads[link][slot].saturating_add(load);
        }
    }
    slots
}

/// The first slot from `first` on in which neither site is, and that `has_room`.
fn first_free(first: usize, one: &[u64], other: &[u64], has_room: impl Fn(usize) -> bool) -> usize {
    let word = |words: &[u64], index: usize| words.get(index).copied().unwrap_or(0);
    for index in first / 64.. {
        let mut free = !(word(one, index) | word(other, index));
        if index == first / 64 {
            free &= u64::MAX << (first % 64);
        }
        while free != 0 {
            let slot = index * 64 + free.trailing_zeros() as usize;
            if has_room(slot) {
                return slot;
            }
            free &= free - 1;
        }
    }
    unreachable!("a slot after the last has room")
}

/// What a test takes of a link.
fn load(mesh: &Mesh, test: &TestPlan, from: SiteId, to: SiteId) -> u64 {
    test.kind.wire_rate().unwrap_or_else(|| mesh.rate_most(test, from, to)).0
}
