//! `udp` through the forwarder: each count and each place of loss against its log.
//!
//! Every number has to be exact, or honestly `unexplained`: never another place than the true one. Rounds have the same seeds
//! each time; with `LONGHAUL_JUDGE_SECONDS` they have random ones and go on for so long. A round that fails prints its seed, which
//! `LONGHAUL_JUDGE_SEED` repeats.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::panic::catch_unwind;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use longhaul_testing::program::Program;
use serde_json::Value;

use crate::common::forwarder::*;
use crate::common::{object, side_by_side};

const PACKETS: u64 = 1_000;
/// Rounds where no time is given.
const ROUNDS: u64 = 12;

/// What one round does.
#[derive(Debug)]
struct Round {
    ipv6: bool,
    backward: bool,
    wire: bool,
    gro: bool,
    counters: bool,
    bytes: u64,
    chances: Chances,
}

impl Round {
    fn random(random: &mut Random) -> Self {
        let mut coin = || random.below(2) == 0;
        let (ipv6, backward, wire, gro) = (coin(), coin(), coin(), coin());
        let counters = random.below(3) == 0;
        let bytes = [100, 700, 1_448, 1_448, 3_000, 8_000][random.below(6) as usize];
        let mut chance = |most: f64| if random.below(2) == 0 { 0.0 } else { random.unit() * most };
        let copy_and_damage = chance(0.02);
        // What copies packets and damages some copies leaves others whole: nothing else tells the receiver of copies.
        let copy = if copy_and_damage > 0.0 { 0.01 + 2.0 * copy_and_damage } else { chance(0.03) };
        let chances = Chances {
            lose: chance(0.03),
            copy,
            damage: chance(0.03),
            copy_and_damage,
            // Linux gives a datagram up of which a fragment comes 64 others late (net.ipv4.ipfrag_max_dist).
            delay: if bytes > 1_472 && !ipv6 { 0.0 } else { chance(0.05) },
            reorder: chance(0.05),
            lose_run: 4,
            delay_most: Duration::from_millis(2),
            ..Chances::default()
        };
        Self { ipv6, backward, wire, gro, counters, bytes, chances }
    }
}

/// Where packets were lost, and how many of them both.
#[derive(Debug, Default)]
struct Truth {
    /// By the forwarder.
    network: BTreeSet<u64>,
    /// For their damage.
    stack: BTreeSet<u64>,
    /// In the order of their arrival.
    received: Vec<u64>,
}

fn truth(log: &Log, direction: Direction, cookie: u32) -> Truth {
    let ours =
        |packet: &Packet| packet.probe.filter(|(of, number)| *of == cookie && *number < PACKETS).map(|probe| probe.1);
    let received: Vec<u64> = log.received(direction, cookie).into_iter().filter(|number| *number < PACKETS).collect();
    let arrived: BTreeSet<u64> = received.iter().copied().collect();
    let mut truth = Truth { received, ..Truth::default() };
    // Fragments come in any order only behind the forwarder: the first one is first here.
    let mut numbers = BTreeMap::new();
    for arrival in log.arrivals.iter().filter(|arrival| arrival.direction == direction && arrival.packet.is_udp()) {
        let number = match (arrival.packet.fragment, arrival.packet.datagram()) {
            (Some(fragment), Some(datagram)) => {
                if fragment.offset == 0 {
                    numbers.insert(datagram, ours(&arrival.packet));
                }
                numbers.get(&datagram).copied().flatten()
            }
            _ => ours(&arrival.packet),
        };
        let Some(number) = number.filter(|number| !arrived.contains(number)) else { continue };
        match arrival.act {
            Act::Lose => truth.network.insert(number),
            Act::Damage => {
                // A fragment whose header names another datagram is nowhere missed, nor found.
                if arrival.packet.fragment.is_some() {
                    truth.network.insert(number);
                }
                truth.stack.insert(number)
            }
            _ => false,
        };
    }
    truth
}

/// The server of a test.
fn serving(forwarder: &Forwarder) -> Program {
    let mut serve = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    serve.args(["serve", "--bind", "::", "--no-auth"]).stderr(Stdio::piped());
    let mut server = forwarder.spawn(Host::Server, &mut serve);
    let mut line = String::new();
    let mut errors = BufReader::new(server.stderr.take().unwrap());
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
    Program(server)
}

/// Runs a round and returns packets lost and packets `unexplained`; `None` where this user may not.
fn judge(seed: u64) -> Option<(Round, u64, u64)> {
    let mut random = Random::new(seed);
    let round = Round::random(&mut random);
    let plan = match round.backward {
        false => Plan { forward: round.chances, seed, gro: round.gro, ..Plan::default() },
        true => Plan { backward: round.chances, seed, gro: round.gro, ..Plan::default() },
    };
    let forwarder = Forwarder::up(plan)?;
    let serving = serving(&forwarder);
    let server = if round.ipv6 { Host::Server.ipv6() } else { Host::Server.ipv4() };
    let mut udp = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    udp.args(["udp", &server.to_string(), "--no-auth", "--json", "-k", &PACKETS.to_string()]);
    udp.args(["-l", &round.bytes.to_string(), "-b", &(round.bytes * 8 * 5_000).to_string()]);
    udp.args(["--collect", if round.counters { "counters" } else { "bpf" }]);
    udp.args(round.wire.then_some("--wire")).args(round.backward.then_some("-R"));
    let output = forwarder.output(Host::Client, &mut udp);
    drop(serving);
    let log = forwarder.finish();
    let name = format!("LONGHAUL_JUDGE_SEED={seed}: {round:?}");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let printed = object(&output.stdout);
    let result = &printed["result"];
    let name = format!("{name}\n{:#}\n{}", result["loss_reasons"], printed["caveats"]);
    assert_eq!(log.missed, 0, "{name}");
    assert!(log.departures.iter().all(|departure| !departure.refused), "{name}");

    let direction = if round.backward { Direction::Backward } else { Direction::Forward };
    let bulk = |arrival: &&Arrival| {
        arrival.direction == direction && arrival.packet.probe.is_some_and(|probe| probe.1 < PACKETS)
    };
    let cookie = log.arrivals.iter().find(bulk).unwrap().packet.probe.unwrap().0;
    let truth = truth(&log, direction, cookie);
    let name = format!("{name}{}", damages(&log, direction, cookie, &truth, &result["losses"]));
    let count = |key: &str| result[key].as_u64().unwrap();
    let unique: BTreeSet<u64> = truth.received.iter().copied().collect();
    let at = |place: &str| result["loss_by_location"][place].as_u64().unwrap();
    let unread = at("receiver_socket_buffer");
    assert_eq!(count("sent_packets"), PACKETS, "{name}");
    // A busy reader's buffer has no room for damaged ones either. Counters do not say which.
    let full = numbers_at(result, "receiver_socket_buffer");
    let of_stack = truth.stack.len() as u64;
    let damaged =
        if round.counters { 0..=of_stack.min(unread) } else { damaged_of(&full, &truth)..=damaged_of(&full, &truth) };
    let whole = count("received_packets") + unread;
    // Where there are copies, what the socket dropped may have been one of them: that is told as unexplained.
    let reasons = result["loss_reasons"].as_array().unwrap().iter();
    let open = reasons.filter(|reason| {
        reason["location"] == "unexplained" && reason["reason"].as_str().unwrap().starts_with("SO_MEMINFO")
    });
    let open: u64 = open.map(|reason| reason["packets"].as_u64().unwrap()).sum();
    let expected = (unique.len() as u64 + damaged.start()).saturating_sub(open)..=unique.len() as u64 + damaged.end();
    assert!(expected.contains(&whole), "{whole} of {expected:?}: {name}");
    if unread + open == 0 {
        judge_order(&truth.received, result, &name);
    }

    // Fragments may be lost in both directions at once, and damaged ones may be missed or found.
    let lost = count("lost_packets");
    let told = [at("network"), at("receiver_stack"), at("unexplained"), unread];
    assert_eq!(told.iter().sum::<u64>(), lost, "no other place: {name}");
    // A damaged number names another packet: of the two, the stack's is told as the network's, and the other way round.
    let renamed: BTreeSet<u64> = log
        .departed(direction)
        .filter(|(departure, packet)| departure.damage.is_some_and(|(at, _)| packet.names_its_probe(at)))
        .filter_map(|(_, packet)| packet.probe.filter(|probe| probe.0 == cookie).map(|probe| probe.1))
        .collect();
    let only = |one: &BTreeSet<u64>, other: &BTreeSet<u64>| (one - other).len() as u64;
    for (told, own, other) in [(told[0], &truth.network, &truth.stack), (told[1], &truth.stack, &truth.network)] {
        let (own, only, names) = (own.len() as u64, only(own, other), renamed.len() as u64);
        assert!(told <= own + names, "more than there are: {told} of {own}, renamed {renamed:?}: {name}");
        let most = told + at("unexplained") + damaged.end() + names;
        assert!(most >= only, "too few: {told} of {own}, renamed {renamed:?}: {name}");
    }
    for loss in result["losses"].as_array().unwrap() {
        let first = loss["first_sequence"].as_u64().unwrap();
        for number in first..first + loss["packets"].as_u64().unwrap() {
            let right = match loss["location"].as_str().unwrap() {
                "network" => truth.network.contains(&number) || renamed.contains(&number),
                "receiver_stack" => truth.stack.contains(&number) || loss["reason"].as_str().unwrap().contains("CSUM"),
                _ => true,
            };
            assert!(right, "{number}: {loss}: {name}");
        }
    }
    Some((round, lost, at("unexplained")))
}

/// The numbers of packets that were lost at a place.
fn numbers_at(result: &Value, place: &str) -> BTreeSet<u64> {
    let losses = result["losses"].as_array().unwrap().iter().filter(|loss| loss["location"] == place);
    losses
        .flat_map(|loss| {
            let [first, packets] = ["first_sequence", "packets"].map(|name| loss[name].as_u64().unwrap());
            first..first + packets
        })
        .collect()
}

/// How many of these the stack would have dropped.
fn damaged_of(numbers: &BTreeSet<u64>, truth: &Truth) -> u64 {
    (numbers & &truth.stack).len() as u64
}

/// For a reader of a failure: of each damaged datagram that the result does not find at the stack, which byte of the frame was damaged, and
/// what was received though its fate says otherwise.
fn damages(log: &Log, direction: Direction, cookie: u32, truth: &Truth, losses: &Value) -> String {
    let mut places = BTreeMap::new();
    for loss in losses.as_array().unwrap() {
        let first = loss["first_sequence"].as_u64().unwrap();
        (first..first + loss["packets"].as_u64().unwrap()).for_each(|number| {
            places.insert(number, loss);
        });
    }
    let mut said = String::new();
    for (departure, packet) in log.departed(direction).filter(|(departure, _)| departure.damage.is_some()) {
        // Of a fragment the first one of its datagram tells.
        let first = log.arrivals.iter().map(|arrival| &arrival.packet);
        let first = first.filter(|first| packet.fragment.is_some() && first.datagram() == packet.datagram());
        let probe = first.chain([packet]).filter_map(|packet| packet.probe).find(|probe| probe.0 == cookie);
        let Some((_, number)) = probe.filter(|probe| probe.1 < PACKETS) else { continue };
        let place = places.get(&number).map_or("received", |loss| loss["location"].as_str().unwrap());
        let expected = if truth.received.contains(&number) { "received" } else { "receiver_stack" };
        if place != expected {
            let at = packet.begins;
            said += &format!("\n{number} is {place}: {:?} of {at:?}, {:?}", departure.damage, packet.fragment);
        }
    }
    said
}

/// Duplicates and reordered packets by RFC 4737 §3.3, of what was received until the last packet that was new: then the test may end.
fn judge_order(received: &[u64], result: &Value, name: &str) {
    let (mut seen, mut next, mut copies, mut late_copies, mut reordered) = (BTreeSet::new(), 0, 0, 0, 0);
    for &number in received {
        if !seen.insert(number) {
            late_copies += 1;
            continue;
        }
        (copies, late_copies) = (copies + late_copies, 0);
        if number < next {
            reordered += 1;
        } else {
            next = number + 1;
        }
    }
    let duplicates = result["duplicate_packets"].as_u64().unwrap();
    assert!((copies..=copies + late_copies).contains(&duplicates), "{duplicates} of {copies} + {late_copies}: {name}");
    assert_eq!(result["reordered_packets"].as_u64().unwrap(), reordered, "{name}");
}

#[test]
fn udp_tells_what_the_forwarder_did() {
    let _shared = side_by_side();
    let number = |key: &str| std::env::var(key).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("LONGHAUL_JUDGE_SEED") {
        println!("{:?}", judge(seed));
        return;
    }
    let end = number("LONGHAUL_JUDGE_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let first = if end.is_some() { now } else { 1 };
    let seeds = (first..).take_while(|seed| end.map_or(*seed <= ROUNDS, |end| Instant::now() < end));
    // By method: rounds, packets lost, unexplained.
    let mut sums = BTreeMap::new();
    let mut failed = Vec::new();
    for seed in seeds {
        let Ok(judged) = catch_unwind(|| judge(seed)) else {
            failed.push(seed);
            continue;
        };
        let Some((round, lost, unexplained)) = judged else { return };
        let method = if round.counters { "counters" } else { "bpf" };
        let (rounds, all, unknown) =
            sums.entry((method, round.chances.damage + round.chances.copy_and_damage > 0.0)).or_insert((0, 0, 0));
        (*rounds, *all, *unknown) = (*rounds + 1, *all + lost, *unknown + unexplained);
    }
    for ((method, damage), (rounds, lost, unexplained)) in &sums {
        println!("{method}, damage {damage}: {rounds} rounds, {lost} packets lost, {unexplained} unexplained");
        // Where nothing was damaged, drop events leave nothing open but what the kernel skipped.
        assert!(*method != "bpf" || *damage || unexplained * 20 <= *lost, "{sums:?}");
    }
    assert!(failed.is_empty(), "rounds with these seeds failed: {failed:?}");
}
