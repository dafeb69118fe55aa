//! Random, mutated and truncated frames by the million: the program and its naive twin agree on each.

use std::collections::BTreeMap;

use longhaul_bpf::filter::{Cast, Class, FilterCounters, FilterOptions, Reason, SizeRange, Tally, Verdicts};

use crate::cable::Cable;
use crate::frames::*;
use crate::naive::classify;
use crate::world::World;

/// xorshift64*: the same frames each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }

    fn of<T: Copy>(&mut self, these: &[T]) -> T {
        these[self.below(these.len())]
    }
}

/// Bytes that mean something somewhere are likelier than others.
fn frame(random: &mut Random) -> Vec<u8> {
    let macs = [
        OUR_MAC,
        OUR_MAC,
        OTHER_MAC,
        EVERYBODY,
        [0x33, 0x33, 0, 0, 0, 1],
        [1, 0, 0x5e, 0, 0, 1],
        [1, 0x80, 0xc2, 0, 0, 0],
        group_of(OUR_IPV6).0,
        group_of(OTHER_IPV6).0,
    ];
    let to = random.of(&macs);
    let v4 = [
        OUR_IP,
        OTHER_IP,
        PEER_IP,
        std::net::Ipv4Addr::BROADCAST,
        std::net::Ipv4Addr::UNSPECIFIED,
        std::net::Ipv4Addr::new(224, 0, 0, 1),
        std::net::Ipv4Addr::new(127, 0, 0, 9),
        std::net::Ipv4Addr::new(10, 97, 0, 255),
    ];
    let v6 = [OUR_IPV6, OTHER_IPV6, "ff02::1".parse().unwrap(), group_of(OUR_IPV6).1];
    let port = random.of(&[9, 67, 68, 546, 547, 5353]);
    let icmp = random.of(&[1, 2, 128, 130, 132, 133, 134, 135, 135, 135, 136, 137, 138, 143]);
    let transport = match random.below(4) {
        0 => udp(port, random.0 as usize % 40),
        1 => tcp(port),
        2 => icmpv6(icmp, random.of(&v6)),
        _ => (0..random.below(48)).map(|_| random.next() as u8).collect(),
    };
    let mut frame = match random.below(8) {
        0 => arp(to, random.of(&[1, 1, 2, 3]), random.of(&v4), random.of(&v4)),
        1 | 2 => {
            let fragment = random.of(&[0, 0, 0, 0x4000, 0x2000, 0x0007, 0x8000]);
            ipv4(to, random.of(&v4), random.of(&[17, 6, 1, 2, 47]), fragment, &transport)
        }
        3 | 4 => {
            let mut next = random.of(&[17, 6, 58, 58, 59, 50]);
            let mut payload = transport;
            for _ in 0..random.of(&[0, 0, 0, 1, 2, 6, 7]) {
                let kind = random.of(&[0, 43, 44, 51, 60]);
                let units = random.of(&[0, 0, 0, 1, 2, 255]);
                let mut extension = vec![next, units];
                let bytes = match kind {
                    44 => 8,
                    51 => 4 * (usize::from(units) + 2),
                    _ => 8 * (usize::from(units) + 1),
                };
                extension.resize(bytes, 0);
                if kind == 44 {
                    extension[2..4].copy_from_slice(&random.of(&[0_u16, 0, 1, 6, 0x51, 0xfff8]).to_be_bytes());
                }
                extension.extend(payload);
                (payload, next) = (extension, kind);
                if payload.len() > 2500 {
                    break;
                }
            }
            ipv6(to, random.of(&v6), next, &payload)
        }
        5 => {
            let mut payload = vec![random.of(&[0xaa, 0xaa, 0xff, 0xe0, 0xf0, 0x42, 0x11]); 2];
            payload.push(3);
            payload.extend(random.of(&[[0, 0, 0x0c], [0, 0xe0, 0x2b], [8, 0, 7], [0, 0, 0], [1, 2, 3]]));
            payload
                .extend(random.of(&[0x2000_u16, 0x2003, 0x010b, 0x00bb, 0x809b, 0x80f3, 0x8137, 0x8138]).to_be_bytes());
            payload.extend([0; 20]);
            ieee(to, &payload)
        }
        6 => {
            let kinds =
                [0x8137, 0x8138, 0x809b, 0x80f3, 0x88cc, 0x888e, 0x88f7, 0x8809, 0x88a2, 1500, 1501, 0x5ff, 0x600];
            ethernet(to, random.of(&kinds), &[random.0 as u8; 46])
        }
        _ => {
            let mut bytes: Vec<u8> = (0..14 + random.below(200)).map(|_| random.next() as u8).collect();
            bytes[..6].copy_from_slice(&to);
            bytes
        }
    };
    for _ in 0..random.of(&[0, 0, 0, 1, 2, 3]) {
        frame = tagged(&frame, random.of(&[0x8100, 0x88a8, 0x9100]), random.of(&[0, 0xe000, 1, 0xe064, 4095]));
    }
    if random.below(3) == 0 {
        frame.truncate(14 + random.below(frame.len() - 13));
    }
    for _ in 0..random.of(&[0, 0, 1, 2, 8]) {
        let at = random.below(frame.len());
        frame[at] = random.of(&[0, 1, 0xff, 0x45, 0x60, random.0 as u8]);
    }
    frame.truncate(3000);
    frame
}

/// Another number of them with `LONGHAUL_FILTER_FRAMES`.
#[test]
fn the_program_and_its_naive_twin_agree() {
    let Some(cable) = Cable::lay() else { return };
    let frames = std::env::var("LONGHAUL_FILTER_FRAMES").map_or(1_000_000, |text| text.parse().unwrap());
    let filter = cable.filter(&FilterOptions { enforce: true, ..FilterOptions::default() });
    let world = World::of(&cable);
    assert!(world.joined.len() >= 3, "{:?}", world.joined);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut expected: BTreeMap<_, Tally> = BTreeMap::new();
    let before = filter.counters().unwrap();
    cable.inside(|| {
        for number in 0..frames {
            let frame = frame(&mut random);
            let twin = classify(&world, &frame);
            let (dropped, _) = filter.try_frame(&frame, 1).unwrap();
            assert_eq!(dropped, twin.2.rejects(), "frame {number}: {twin:?} {frame:02x?}");
            // With FCS.
            let wire_bytes = frame.len() as u32 + 4;
            let has =
                |range: &SizeRange| (range.least_bytes..=range.most_bytes.unwrap_or(u32::MAX)).contains(&wire_bytes);
            let size = SizeRange::ALL.iter().position(has).unwrap();
            let tally = expected.entry((twin, size)).or_default();
            *tally = tally.plus(Tally { packets: 1, bytes: frame.len() as u64 });
            if number % 1000 == 999 || number == frames - 1 {
                agrees(&expected, &filter.counters().unwrap(), &before);
            }
        }
    });
    let seen: std::collections::BTreeSet<Reason> = expected.keys().map(|((.., reason), _)| *reason).collect();
    println!("{frames} frames: {} combinations, {} reasons", expected.len(), seen.len());
    assert!(seen.len() >= 20 || frames < 10_000, "{seen:?}");
}

/// What a frame is by the twin, and the number of its range of sizes.
type Kind = ((Class, Cast, Reason), usize);

/// All that was counted is what the twin says, frames and bytes: by class and cast, by size and by reason.
fn agrees(expected: &BTreeMap<Kind, Tally>, counters: &FilterCounters, before: &FilterCounters) {
    let twin = |chosen: &dyn Fn(&Kind) -> bool| {
        let these = expected.iter().filter(|(kind, _)| chosen(kind));
        these.fold(Tally::default(), |sum, (_, tally)| sum.plus(*tally))
    };
    let since = |now: Tally, was: Tally| Tally { packets: now.packets - was.packets, bytes: now.bytes - was.bytes };
    for reason in Reason::ALL {
        let seen = since(counters.reason(reason), before.reason(reason));
        assert_eq!(seen, twin(&|((.., one), _)| *one == reason), "{reason:?}");
    }
    let both = |now: Verdicts, was: Verdicts, chosen: &dyn Fn(&Kind) -> bool, what: &str| {
        let seen = [since(now.accepted, was.accepted), since(now.rejected, was.rejected)];
        let of = |rejects: bool| twin(&|kind| chosen(kind) && kind.0.2.rejects() == rejects);
        assert_eq!(seen, [of(false), of(true)], "{what}");
    };
    for class in Class::ALL {
        for cast in Cast::ALL {
            let (now, was) = (counters.protocol(class, cast), before.protocol(class, cast));
            both(now, was, &|kind| (kind.0.0, kind.0.1) == (class, cast), &format!("{class:?} {cast:?}"));
        }
    }
    for (number, range) in SizeRange::ALL.iter().enumerate() {
        both(counters.size(number), before.size(number), &|kind| kind.1 == number, &format!("{range:?}"));
    }
}
