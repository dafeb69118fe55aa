use std::collections::BTreeSet;
use std::fmt::Write;

use super::*;

/// A mesh of sites with that many behind NAT, and tests as written.
fn mesh(sites: usize, nat: usize, rest: &str) -> Mesh {
    let mut text = "name = \"m\"\n".to_owned();
    for site in 0..sites {
        let tag = if site.is_multiple_of(2) { "even" } else { "odd" };
        let _ = write!(
            text,
            "[[site]]\nname = \"s{site}\"\naddress = \"192.0.2.1\"\nrate = \"10Gbit\"\ntags = [\"{tag}\"]\n"
        );
        if site < nat {
            text.push_str("nat = true\n");
        }
    }
    Mesh::parse(&(text + rest)).unwrap()
}

fn probes(every: &str, time: &str, more: &str) -> String {
    format!("[[test]]\nname = \"probes\"\nkind = \"udp\"\nevery = \"{every}\"\ntime = \"{time}\"\n{more}\n")
}

/// 249,500 tests of 35 s, in slots of 40 s: 998 slots, 11.1 h.
#[test]
fn five_hundred_sites_take_eleven_hours() {
    let mesh = mesh(500, 0, &probes("14h", "35s", ""));
    let schedule = Schedule::make(&mesh).unwrap();
    let said = "probes: 249500 tests of 35s in 998 slots take 11.1 h of every 14.0 h";
    assert_eq!(schedule.in_words(&mesh), [said]);
}

#[test]
fn no_site_is_twice_in_a_slot_and_each_pair_has_one() {
    for (sites, nat) in [(2, 0), (3, 0), (7, 2), (10, 0), (25, 1)] {
        let mesh = mesh(sites, nat, &probes("6h", "10s", ""));
        let schedule = Schedule::make(&mesh).unwrap();
        let round = &schedule.rounds[0];
        let slots = round.slots_of(&mesh, 0);
        assert_eq!(slots.len(), round.slots);
        let mut seen = BTreeSet::new();
        for slot in &slots {
            let busy: BTreeSet<SiteId> = slot.pairs.iter().flat_map(|(from, to)| [*from, *to]).collect();
            assert_eq!(busy.len(), slot.pairs.len() * 2);
            seen.extend(slot.pairs.iter().copied());
        }
        assert_eq!(seen, mesh.tests[0].pairs.iter().copied().collect());
        // As good as it can be where nobody is behind NAT.
        if nat == 0 {
            assert_eq!(slots.len(), 2 * if sites.is_multiple_of(2) { sites - 1 } else { sites }, "{sites}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let text = |more: &str| mesh(30, 0, &probes("1h", "60s", more));
    let refused = Schedule::make(&text("")).unwrap_err().to_string();
    let ScheduleError::DoesNotFit { pairs, .. } = Schedule::make(&text("")).unwrap_err();
    let said = "the tests do not fit: probes: 870 tests take 1.0 h of every 1.0 h; together they fill 105 % of the time, 85 % are allowed";
    assert!(refused.starts_with(said), "{refused}");
    // What it proposes fits.
    let sampled = text(&format!("pairs = {pairs}"));
    let schedule = Schedule::make(&sampled).unwrap();
    let round = &schedule.rounds[0];
    assert!(round.rounds_for_all > 1, "{round:?}");
    // And in that many rounds all pairs have their turn.
    let all: BTreeSet<_> = (0..round.rounds_for_all as u64)
        .flat_map(|number| round.slots_of(&sampled, number))
        .flat_map(|slot| slot.pairs)
        .collect();
    assert_eq!(all.len(), 870);
}

/// 1 Gb/s of which 50 % may be taken, 35 % by leases: three tests of 100 Mb/s in each direction beside each other.
#[test]
fn shared_links_are_not_filled() {
    let link = "[[link]]\nname = \"l\"\nbetween = [\"@even\", \"@odd\"]\nrate = \"1Gbit\"\nshare = \"50%\"\n";
    let mesh = mesh(20, 0, &format!("{link}{}", probes("6h", "10s", "rate = \"100M\"\nlength = 1250")));
    let schedule = Schedule::make(&mesh).unwrap();
    let mut most = 0;
    for slot in schedule.rounds[0].slots_of(&mesh, 0) {
        for direction in 0..2 {
            let crossing = |(from, to): &&(SiteId, SiteId)| mesh.links[0].direction(*from, *to) == Some(direction);
            most = most.max(slot.pairs.iter().filter(crossing).count());
        }
    }
    assert_eq!(most, 3);
}

/// One test at a time crosses the link. In each direction 62,500 pairs that each
/// looked at all slots of those before them would look two thousand million times.
#[test]
fn a_full_link_is_not_searched_for_each_pair() {
    let link = "[[link]]\nname = \"l\"\nbetween = [\"@even\", \"@odd\"]\nrate = \"1Gbit\"\nshare = \"20%\"\n";
    let mesh = mesh(500, 0, &format!("{link}{}", probes("720h", "5s", "rate = \"100M\"\nlength = 1250")));
    let schedule = Schedule::make(&mesh).unwrap();
    assert_eq!(schedule.rounds[0].slots, 62_500, "250 sites to 250, one after the other");
}

/// One test at a time crosses two of three links, in each direction. A pair over the first two finds no slot in which neither is full, though each
/// has room in half of all slots: looks at all of them would be five hundred million.
#[test]
fn links_that_are_full_by_turns_are_not_searched_for_each_pair() {
    let class = |site: usize| match site % 20 {
        0..4 => 'p',
        4..8 => 'r',
        8..13 => 'q',
        _ => 'x',
    };
    let mut rest = String::new();
    for group in ["q", "px", "rx", "pr", "prx"] {
        let members = (0..500).filter(|site| group.contains(class(*site))).map(|site| format!("\"s{site}\""));
        let members = members.collect::<Vec<_>>().join(", ");
        let _ = write!(rest, "[[group]]\nname = \"{group}\"\nmembers = [{members}]\n");
    }
    for group in ["px", "rx", "pr"] {
        let name = format!("[[link]]\nname = \"of-{group}\"\n");
        let _ = write!(rest, "{name}between = [\"{group}\", \"q\"]\nrate = \"2Mbit\"\nshare = \"100%\"\n");
    }
    let more = "rate = \"1M\"\nlength = 1250\nbetween = [\"prx\", \"q\"]";
    let mesh = mesh(500, 0, &format!("{rest}{}", probes("720h", "1s", more)));
    let pairs = slots::circle(&mesh.tests[0].pairs, 500);
    assert_eq!(pairs.len(), 93_750);
    // With more looks it would need no fewer slots.
    assert_eq!(slots::fill_within(&mesh, &mesh.tests[0], &pairs, 8 * pairs.len(), usize::MAX).len(), 46_875);
}

/// Whether `pair` has room beside those of `slot`.
fn has_room(mesh: &Mesh, slot: &Slot, pair: (SiteId, SiteId)) -> bool {
    let load = |(from, to): (SiteId, SiteId)| mesh.rate_most(&mesh.tests[0], from, to).0;
    let is_apart = |(from, to): &(SiteId, SiteId)| [*from, *to].iter().all(|site| *site != pair.0 && *site != pair.1);
    slot.pairs.iter().all(is_apart)
        && mesh.crossed(pair.0, pair.1).all(|(_, direction, link)| {
            let crossing = slot.pairs.iter().filter(|(from, to)| link.direction(*from, *to) == Some(direction));
            let carried: u64 = crossing.map(|pair| load(*pair)).sum();
            carried == 0 || carried + load(pair) <= link.leased().0
        })
}

#[test]
fn each_pair_is_in_the_first_slot_with_room() {
    for case in 0..8_usize {
        let mut rest = String::new();
        for (link, rate) in ["1Gbit", "2Gbit", "300Mbit", "5Gbit", "700Mbit"].iter().enumerate() {
            for end in 0..2 {
                let is_there = |site: &usize| (site * site * (link + 3) + site * (case + 1) * 5 + link) / 8 % 3 == end;
                let members =
                    (0..14).filter(is_there).map(|site| format!("\"s{site}\"")).collect::<Vec<_>>().join(", ");
                let _ = write!(rest, "[[group]]\nname = \"g{link}{end}\"\nmembers = [{members}]\n");
            }
            let between = format!("between = [\"g{link}0\", \"g{link}1\"]");
            let _ = write!(rest, "[[link]]\nname = \"l{link}\"\n{between}\nrate = \"{rate}\"\nshare = \"50%\"\n");
        }
        let mesh = mesh(14, 0, &(rest + "[[test]]\nname = \"t\"\nkind = \"tcp\"\nevery = \"6h\"\ntime = \"10s\"\n"));
        let pairs = slots::circle(&mesh.tests[0].pairs, 14);
        let mut expected: Vec<Slot> = Vec::new();
        for pair in &pairs {
            match expected.iter_mut().find(|slot| has_room(&mesh, slot, *pair)) {
                Some(slot) => slot.pairs.push(*pair),
                None => expected.push(Slot { pairs: vec![*pair] }),
            }
        }
        assert_eq!(slots::fill(&mesh, &mesh.tests[0], &pairs), expected, "{case}");
        // Where too much would have to be looked at, or to be kept, there are more slots; nothing else changes.
        for (looks, loads) in [(300, usize::MAX), (usize::MAX, 20)] {
            let hasty = slots::fill_within(&mesh, &mesh.tests[0], &pairs, looks, loads);
            let mut seen = BTreeSet::new();
            for slot in &hasty {
                let mut before = Slot::default();
                for pair in &slot.pairs {
                    assert!(has_room(&mesh, &before, *pair) && seen.insert(*pair), "{case}: {pair:?} in {slot:?}");
                    before.pairs.push(*pair);
                }
            }
            assert!(seen.len() == pairs.len() && hasty.len() > expected.len(), "{case}: {} slots", hasty.len());
        }
    }
}

#[test]
fn a_site_behind_nat_begins_both_directions() {
    let mesh = mesh(4, 1, &probes("1h", "10s", ""));
    let schedule = Schedule::make(&mesh).unwrap();
    let counts: Vec<usize> = (0..4).map(|site| schedule.rounds[0].of_site(&mesh, 0, SiteId(site)).len()).collect();
    // Site 0 begins its three tests and the three that it receives; the others begin two each.
    assert_eq!(counts, [6, 2, 2, 2]);
}
