//! What somebody can do with the key of one site: nothing that this site could not, and nothing in another's name.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_channel::{Channel, Identity, Key, PublicKey, Role};
use longhaul_mesh_model::message::Message;
use longhaul_mesh_model::result::{Measured, Measurement, RoundTrips, TestResult};

use crate::folder::{Folder, random};
use crate::link::{self, Answering, As};
use crate::{agent, coordinator};

/// Two sites at one end of a link that has room for one test, a third at the other.
const MESH: &str = "\
name = 'three'
[[site]]
name = 'ithaca'
address = '127.0.0.1'
rate = '1Gbit'
tags = ['here']
[[site]]
name = 'geneva'
address = '127.0.0.1'
rate = '1Gbit'
tags = ['here']
[[site]]
name = 'chicago'
address = '127.0.0.1'
rate = '1Gbit'
[[link]]
name = 'cable'
between = ['@here', 'chicago']
rate = '100Mbit'
share = '10%'
[[test]]
name = 'probes'
kind = 'udp'
every = '1h'
time = '1s'
rate = '5M'
length = 1000
[[test]]
name = 'delay'
kind = 'rtt'
";

/// A coordinator's folder with three members, whose keys are all known here.
pub(crate) struct Mesh {
    pub(crate) folder: Folder,
    identities: BTreeMap<&'static str, Identity>,
}

impl Mesh {
    pub(crate) fn make(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("longhaul-mesh-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let folder = Folder::new(&path);
        folder.make().unwrap();
        folder.write("mesh.toml", MESH).unwrap();
        let identity = || Identity::from_random(random().unwrap()).unwrap();
        let identities = BTreeMap::from(["ithaca", "geneva", "chicago"].map(|site| (site, identity())));
        let members = identities.iter().map(|(site, own)| ((*site).to_owned(), own.public().to_string())).collect();
        folder.put_members(&members).unwrap();
        Self { folder, identities }
    }

    /// The public key of a member.
    pub(crate) fn key_of(&self, site: &str) -> PublicKey {
        self.identities[site].public()
    }

    /// Somebody who listens at loopback with this identity; how a question of `site` is answered.
    pub(crate) fn listen(&self, identity: Identity, answering: impl Answering) -> impl Fn(&str, Message) -> Message {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let public = identity.public();
        thread::spawn(move || link::listen(&listener, &identity, &Arc::new(answering)));
        move |site, question| link::ask(&address, &As::Known(&self.identities[site], public), &question).unwrap()
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.folder.file(""));
    }
}

pub(crate) fn result(sender: &str, receiver: &str) -> TestResult {
    TestResult {
        id: random::<16>().unwrap().iter().map(|byte| format!("{byte:02x}")).collect(),
        test: "probes".into(),
        sender: sender.into(),
        receiver: receiver.into(),
        at_ns: 1,
        sent: 100,
        lost: 100,
        at_sender: None,
        at_receiver: None,
        received_rate_bps: 0,
    }
}

fn measurement(sender: &str, receiver: &str) -> Measurement {
    let TestResult { id, sender, receiver, at_ns, .. } = result(sender, receiver);
    let test = "delay".into();
    let trips =
        RoundTrips { duration_ns: 1, sent: 1, lost: 1, quantiles: None, outages: 0, longest_outage_ns: 0, gaps_ns: 0 };
    Measurement { id, test, sender, receiver, at_ns, measured: Measured::Rtt(trips) }
}

#[test]
fn a_stolen_key_writes_and_leases_for_its_own_site_alone() {
    let mesh = Mesh::make("stolen-hub");
    let coordinator = coordinator::answering(&mesh.folder, Arc::default()).unwrap();
    let ask = mesh.listen(mesh.folder.identity().unwrap(), coordinator);
    let mut archive = crate::store::Archive::open(&mesh.folder.file("archive")).unwrap();

    // Neither of others, nor with names that the mesh does not have, nor numbers whose sums have no room.
    let mut made_up = result("ithaca", "geneva");
    made_up.test = "made up".into();
    let mut endless = measurement("ithaca", "chicago");
    if let Measured::Rtt(trips) = &mut endless.measured {
        trips.outages = i64::MAX;
    }
    let another_kind = TestResult { test: "delay".into(), ..result("ithaca", "geneva") };
    let own = result("ithaca", "geneva");
    let results = vec![result("geneva", "chicago"), result("ithaca", "mallory"), made_up, another_kind, own];
    // Nor round trips of a test of loss, nor losses of a test of round trips.
    let another_kind = Measurement { test: "probes".into(), ..measurement("ithaca", "geneva") };
    let measurements = vec![measurement("chicago", "geneva"), endless, another_kind, measurement("ithaca", "chicago")];
    let delivered = ask("ithaca", Message::Deliver { results: results.clone(), measurements: measurements.clone() });
    assert!(matches!(delivered, Message::Confirmed { ids } if ids.len() == 9));
    assert_eq!(archive.since(0).unwrap(), results[4..], "only what ithaca was part of");
    assert_eq!(archive.measurements(0).unwrap(), measurements[3..]);
    // What a site measured for a test that the mesh has no more is late, and its own.
    mesh.folder.write("mesh.toml", &MESH.replace("'probes'", "'others'")).unwrap();
    let late = result("ithaca", "geneva");
    ask("ithaca", Message::Deliver { results: vec![late.clone()], measurements: Vec::new() });
    assert!(archive.since(0).unwrap().contains(&late));
    mesh.folder.write("mesh.toml", MESH).unwrap();

    // A part of a shared link for a test that another begins, or whose packets ithaca neither sends nor receives.
    let lease = |sender: &str, receiver: &str| {
        let (test, sender, receiver) = ("probes".to_owned(), sender.to_owned(), receiver.to_owned());
        ask("ithaca", Message::Lease { number: 7, test, sender, receiver })
    };
    for (sender, receiver) in [("geneva", "ithaca"), ("geneva", "chicago"), ("chicago", "geneva")] {
        assert!(matches!(lease(sender, receiver), Message::Refused { .. }), "{sender} to {receiver}");
    }
    assert!(!matches!(lease("ithaca", "chicago"), Message::Refused { .. }));

    // What others measured cannot be read: there is no such question. The mesh, its members' public keys among it, is for each member.
    for question in [Message::Leased, Message::Unknown, Message::Join { key: "x".into() }] {
        assert!(matches!(ask("ithaca", question), Message::Refused { .. }));
    }
    // Somebody who is no member learns nothing.
    let stranger = Identity::from_random(random().unwrap()).unwrap();
    let other = coordinator::answering(&mesh.folder, Arc::default()).unwrap();
    let fetch = Message::Fetch { have: String::new() };
    assert!(matches!(other.answer(stranger.public(), fetch), Message::Refused { .. }));
}

/// Of pairs that the mesh tests and its site is part of it writes results, of round trips in either order; of others none.
#[test]
fn a_stolen_key_writes_of_no_pair_that_the_mesh_does_not_test() {
    let mesh = Mesh::make("stolen-pairs");
    // From each end of the cable to the other: not from ithaca to geneva.
    let between = |kind: &str| format!("{kind}between = ['@here', 'chicago']\n");
    let [udp, rtt] = ["kind = 'udp'\n", "kind = 'rtt'\n"];
    mesh.folder.write("mesh.toml", &MESH.replace(udp, &between(udp)).replace(rtt, &between(rtt))).unwrap();
    let coordinator = coordinator::answering(&mesh.folder, Arc::default()).unwrap();
    let ask = mesh.listen(mesh.folder.identity().unwrap(), coordinator);
    let mut archive = crate::store::Archive::open(&mesh.folder.file("archive")).unwrap();
    let pairs = [("ithaca", "geneva"), ("geneva", "ithaca"), ("ithaca", "chicago"), ("chicago", "ithaca")];
    let results = pairs.map(|(sender, receiver)| result(sender, receiver)).to_vec();
    let measurements = pairs.map(|(sender, receiver)| measurement(sender, receiver)).to_vec();
    let delivered = ask("ithaca", Message::Deliver { results: results.clone(), measurements: measurements.clone() });
    assert!(matches!(delivered, Message::Confirmed { ids } if ids.len() == 8), "what is not kept comes no more");
    let kept = archive.since(0).unwrap();
    assert!(kept.len() == 2 && results[2..].iter().all(|one| kept.contains(one)), "{kept:?}");
    let kept = archive.measurements(0).unwrap();
    assert!(kept.len() == 2 && measurements[2..].iter().all(|one| kept.contains(one)), "{kept:?}");
}

/// More packets than the plan sends in the time of a test, by far, would outweigh all that others find: such a result is not kept. Nor is one of a test
/// that the mesh has no more, if it has more packets than any of those that the mesh has.
#[test]
fn a_stolen_key_writes_no_more_packets_than_a_test_sends() {
    let mesh = Mesh::make("stolen-packets");
    let coordinator = coordinator::answering(&mesh.folder, Arc::default()).unwrap();
    let ask = mesh.listen(mesh.folder.identity().unwrap(), coordinator);
    let mut archive = crate::store::Archive::open(&mesh.folder.file("archive")).unwrap();
    let losses = |sent| TestResult { sent, ..result("ithaca", "chicago") };
    let trips = |sent| {
        let mut one = measurement("ithaca", "chicago");
        if let Measured::Rtt(trips) = &mut one.measured {
            trips.sent = sent;
        }
        one
    };
    // 5 Mb/s of 1000 bytes for a second are 625 packets, ten probes a second for ten minutes 6,000.
    let most = i64::from(u32::MAX);
    let results = vec![losses(625), losses(788), losses(most)];
    let measurements = vec![trips(6_001), trips(6_701), trips(most)];
    let delivered = ask("ithaca", Message::Deliver { results: results.clone(), measurements: measurements.clone() });
    assert!(matches!(delivered, Message::Confirmed { ids } if ids.len() == 6), "what is not kept comes no more");
    assert_eq!(archive.since(0).unwrap(), results[..1]);
    assert_eq!(archive.measurements(0).unwrap(), measurements[..1]);

    let text = MESH.replace("'probes'", "'others'").replace("'delay'", "'trips'");
    mesh.folder.write("mesh.toml", &text).unwrap();
    let (late, made_up) = (losses(624), losses(most));
    let results = vec![late.clone(), made_up.clone()];
    ask("ithaca", Message::Deliver { results, measurements: vec![trips(most)] });
    let kept = archive.since(0).unwrap();
    assert!(kept.contains(&late) && !kept.contains(&made_up), "{kept:?}");
    assert_eq!(archive.measurements(0).unwrap(), measurements[..1]);
}

/// As fast as it can, with sound results of its own pair: of an hour as many are kept as the schedule makes of three rounds, and of those that a
/// site had to keep for a day.
#[test]
fn a_stolen_key_fills_no_hour_of_its_pair() {
    let mesh = Mesh::make("stolen-full");
    let coordinator = coordinator::answering(&mesh.folder, Arc::default()).unwrap();
    let ask = mesh.listen(mesh.folder.identity().unwrap(), coordinator);
    let mut archive = crate::store::Archive::open(&mesh.folder.file("archive")).unwrap();
    let hour = |hour: i64, receiver: &str| TestResult { at_ns: hour * 3_600_000_000_000, ..result("ithaca", receiver) };
    let deliver = |hours: [i64; 2], receiver: &str| {
        let results = (0..400).map(|number| hour(hours[number % 2], receiver)).collect();
        let delivered = ask("ithaca", Message::Deliver { results, measurements: Vec::new() });
        assert!(matches!(delivered, Message::Confirmed { ids } if ids.len() == 400), "what is not kept comes no more");
    };
    let mut kept = || archive.since(0).unwrap().len();
    deliver([480_000, 480_001], "geneva");
    assert_eq!(kept(), 2 * 27);
    // Those of an hour that is full already, by the store's account; and another pair, and hour.
    deliver([480_000, 480_001], "geneva");
    assert_eq!(kept(), 2 * 27);
    deliver([480_002, 480_002], "chicago");
    assert_eq!(kept(), 3 * 27);
    let trips = |_| Measurement { at_ns: 480_000 * 3_600_000_000_000, ..measurement("ithaca", "geneva") };
    let mut delay = |site: &str, count| {
        let measurements = (0..count).map(trips).collect();
        ask(site, Message::Deliver { results: Vec::new(), measurements });
        archive.measurements(0).unwrap().len()
    };
    let first = delay("ithaca", 300);
    assert!((25..200).contains(&first) && delay("ithaca", 300) == first, "{first}");
    // What its partner measured has room of its own.
    assert_eq!(delay("geneva", 1), first + 1);
}

/// A long delivery rests between its parts, so that others have answers; and a site has one of them at a time.
#[test]
fn a_long_delivery_keeps_nobody_waiting() {
    let mesh = Mesh::make("stolen-busy");
    let coordinator = coordinator::answering(&mesh.folder, Arc::default()).unwrap();
    let ask = mesh.listen(mesh.folder.identity().unwrap(), coordinator);
    let ask = &ask;
    let results: Vec<_> =
        (0..3_500).map(|hour| TestResult { at_ns: hour * 3_600_000_000_000, ..result("ithaca", "geneva") }).collect();
    let deliver = |site: &str, results| ask(site, Message::Deliver { results, measurements: Vec::new() });
    let (mut fetched, mut refused, mut longest) = (0, 0, Duration::ZERO);
    thread::scope(|scope| {
        let long =
            scope.spawn(|| matches!(deliver("ithaca", results), Message::Confirmed { ids } if ids.len() == 3_500));
        while !long.is_finished() {
            let begun = Instant::now();
            assert!(matches!(ask("geneva", Message::Fetch { have: String::new() }), Message::Mesh { .. }));
            longest = longest.max(begun.elapsed());
            fetched += 1;
            refused += usize::from(matches!(deliver("ithaca", Vec::new()), Message::Refused { .. }));
            assert!(matches!(deliver("geneva", vec![result("geneva", "ithaca")]), Message::Confirmed { .. }));
        }
        assert!(long.join().unwrap());
    });
    // Fourteen parts; each answer waits for one of them at most.
    assert!(fetched >= 5 && refused >= 3, "{fetched} fetched, {refused} refused, {longest:?}");
    assert!(matches!(deliver("ithaca", Vec::new()), Message::Confirmed { .. }), "the next has its turn");
}

#[test]
fn a_stolen_key_makes_no_site_send_to_a_third_one() {
    let mesh = Mesh::make("stolen-site");
    let chicago = agent::answering(&mesh.folder, "chicago", &mesh.identities["chicago"]).unwrap();
    let ask = mesh.listen(mesh.identities["chicago"].clone(), chicago);
    let test = |site: &str, test: &str, sender: &str, receiver: &str| {
        let (test, sender, receiver) = (test.to_owned(), sender.to_owned(), receiver.to_owned());
        ask(site, Message::Ask { number: 7, test, sender, receiver })
    };
    // In another's name, between two others, with a site that the mesh does not have, and where the other begins.
    for (sender, receiver) in [
        ("geneva", "chicago"),
        ("chicago", "geneva"),
        ("ithaca", "geneva"),
        ("ithaca", "mallory"),
        ("chicago", "ithaca"),
    ] {
        let answer = test("ithaca", "probes", sender, receiver);
        assert!(matches!(answer, Message::Refused { .. }), "{sender} to {receiver}: {answer:?}");
        let answer = test("ithaca", "delay", sender, receiver);
        assert!(matches!(answer, Message::Refused { .. }), "{sender} to {receiver}: {answer:?}");
    }
    assert!(matches!(test("ithaca", "flood", "ithaca", "chicago"), Message::Refused { .. }), "no test of the mesh");
    // Its own test is another matter: chicago has just started, and says when it may.
    assert!(matches!(test("ithaca", "probes", "ithaca", "chicago"), Message::Busy { .. }));
}

/// A coordinator that answers: its address, and its public key.
fn coordinator_of(mesh: &Mesh) -> (SocketAddr, PublicKey) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let identity = mesh.folder.identity().unwrap();
    let public = identity.public();
    let coordinator = coordinator::answering(&mesh.folder, Arc::default()).unwrap();
    thread::spawn(move || link::listen(&listener, &identity, &Arc::new(coordinator)));
    (address, public)
}

/// 300 connections that say nothing: where there are no more places, theirs go to who has a key.
#[test]
fn strangers_keep_no_member_out() {
    let mesh = Mesh::make("stolen-strangers");
    let (address, public) = coordinator_of(&mesh);
    let strangers: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    let known = As::Known(&mesh.identities["ithaca"], public);
    let fetch = Message::Fetch { have: String::new() };
    let answer = link::ask(&address.to_string(), &known, &fetch).unwrap();
    assert!(matches!(answer, Message::Mesh { .. }), "{answer:?}");
    drop(strangers);
}

/// A connection that proves by the first part of a long message who it is, and then says no more. `None` where it is closed before.
fn silent(address: SocketAddr, mut channel: Channel<Message>) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(&channel.poll_transmit()?).ok()?;
    while !channel.is_established() {
        let mut bytes = [0; 1024];
        let length = stream.read(&mut bytes).ok().filter(|length| *length > 0)?;
        channel.handle_bytes(&bytes[..length]).ok()?;
    }
    channel.send(&Message::Refused { message: "x".repeat(200_000) }).unwrap();
    stream.write_all(channel.poll_transmit()?.get(..100_000)?).ok()?;
    Some(stream)
}

/// A stolen key opens more connections than there are places: each closes one of its own.
#[test]
fn a_member_keeps_no_other_out() {
    let mesh = Mesh::make("stolen-places");
    let (address, public) = coordinator_of(&mesh);
    let silent: Vec<_> = (0..200)
        .map(|_| silent(address, Channel::to_known(&mesh.identities["ithaca"], &public, random().unwrap())))
        .collect();
    let known = As::Known(&mesh.identities["chicago"], public);
    for _ in 0..5 {
        let answer = link::ask(&address.to_string(), &known, &Message::Fetch { have: String::new() }).unwrap();
        assert!(matches!(answer, Message::Mesh { .. }), "{answer:?}");
    }
    drop(silent);
}

/// As many members as fill all places, with as many connections as each may have, leave room for another one.
#[test]
fn members_together_keep_no_other_out() {
    struct Open;
    impl Answering for Open {
        fn is_member(&self, _peer: PublicKey) -> bool {
            true
        }
        fn answer(&self, _peer: PublicKey, _question: Message) -> Message {
            Message::Released
        }
    }
    let mesh = Mesh::make("stolen-together");
    let (identity, listener) = (mesh.folder.identity().unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let (public, address) = (identity.public(), listener.local_addr().unwrap());
    thread::spawn(move || link::listen(&listener, &identity, &Arc::new(Open)));
    let others: Vec<Identity> = (0..16).map(|_| Identity::from_random(random().unwrap()).unwrap()).collect();
    let silent: Vec<_> = others
        .iter()
        .flat_map(|own| (0..8).map(move |_| silent(address, Channel::to_known(own, &public, random().unwrap()))))
        .collect();
    let known = As::Known(&mesh.identities["chicago"], public);
    for _ in 0..5 {
        let answer = link::ask(&address.to_string(), &known, &Message::Leased);
        assert!(matches!(answer, Ok(Message::Released)), "{answer:?}");
    }
    drop(silent);
}

/// Whoever has a token that nobody used opens more connections than there are places, proves the token by each, and then says no more.
#[test]
fn a_token_keeps_no_member_out() {
    let mesh = Mesh::make("stolen-token");
    let token = Key::from_random(random().unwrap()).unwrap();
    let tokens = Folder::new(&mesh.folder.file("tokens"));
    tokens.make().unwrap();
    tokens.write("tokyo", &token.to_text()).unwrap();
    let (address, public) = coordinator_of(&mesh);
    let silent: Vec<_> =
        (0..200).map(|_| silent(address, Channel::keyed(Role::Client, &token, random().unwrap()))).collect();
    let known = As::Known(&mesh.identities["chicago"], public);
    for _ in 0..5 {
        let answer = link::ask(&address.to_string(), &known, &Message::Fetch { have: String::new() });
        assert!(matches!(answer, Ok(Message::Mesh { .. })), "{answer:?}");
    }
    drop(silent);
}

/// A token lets a new host join, not one that is a member, nor the coordinator: the two would be one.
#[test]
fn nobody_joins_with_the_key_of_another() {
    let mesh = Mesh::make("stolen-join");
    let token = Key::from_random(random().unwrap()).unwrap();
    let tokens = Folder::new(&mesh.folder.file("tokens"));
    tokens.make().unwrap();
    tokens.write("ithaca", &token.to_text()).unwrap();
    let (address, public) = coordinator_of(&mesh);
    let join = |key: PublicKey| {
        let question = Message::Join { key: key.to_string() };
        link::ask(&address.to_string(), &As::Token(&token), &question).unwrap()
    };
    for key in [mesh.identities["chicago"].public(), public] {
        assert!(matches!(join(key), Message::Refused { .. }));
    }
    // The token is there still; a host that joins again may keep its key.
    let own = mesh.identities["ithaca"].public();
    assert!(matches!(join(own), Message::Joined { site, .. } if site == "ithaca"));
    assert_eq!(mesh.folder.members().unwrap().len(), 3);
}

/// A short question to the coordinator of a large mesh, which does not read its file for each; when that changes, the next one is answered by it.
#[test]
fn many_questions_to_a_large_mesh_cost_little() {
    let mesh = Mesh::make("stolen-large");
    let sites: String = (0..300)
        .map(|number| format!("[[site]]\nname = 's{number}'\naddress = '127.0.0.1'\nrate = '1Gbit'\n"))
        .collect();
    let tests: String = (0..8)
        .map(|number| {
            format!(
                "[[test]]\nname = 't{number}'\nkind = 'udp'\nevery = '720h'\ntime = '1s'\npairs = 100\nrate = '1k'\n"
            )
        })
        .collect();
    let large = format!("{}{sites}{tests}", MESH.replace("every = '1h'", "every = '720h'\npairs = 100"));
    mesh.folder.write("mesh.toml", &large).unwrap();
    let coordinator = coordinator::answering(&mesh.folder, Arc::default()).unwrap();
    let ask = mesh.listen(mesh.folder.identity().unwrap(), coordinator);
    let release = || ask("ithaca", Message::Release { number: 1, unused: false });
    let begun = Instant::now();
    assert_eq!(release(), Message::Released);
    let first = begun.elapsed();
    let begun = Instant::now();
    (0..20).for_each(|_| assert!(matches!(release(), Message::Released)));
    assert!(begun.elapsed() < 5 * first, "the first took {first:?}, 20 more {:?}", begun.elapsed());
    mesh.folder.write("mesh.toml", &large.replace("name = 'ithaca'", "name = 'albany'")).unwrap();
    assert!(matches!(release(), Message::Refused { .. }), "ithaca is in the mesh no more");
}

/// Questions that take long, of a member who asks forty at once: a few are answered at a time, and another member has its turn.
#[test]
fn a_member_has_few_threads() {
    #[derive(Default)]
    struct Slow {
        now: AtomicUsize,
        most: AtomicUsize,
    }
    struct Shared(Arc<Slow>);
    impl Answering for Shared {
        fn is_member(&self, _peer: PublicKey) -> bool {
            true
        }
        fn answer(&self, _peer: PublicKey, question: Message) -> Message {
            if matches!(question, Message::Leased) {
                self.0.most.fetch_max(self.0.now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                thread::sleep(Duration::from_secs(3));
                self.0.now.fetch_sub(1, Ordering::Relaxed);
            }
            Message::Confirmed { ids: Vec::new() }
        }
    }
    let mesh = Mesh::make("stolen-threads");
    let slow = Arc::new(Slow::default());
    let (identity, answering) = (mesh.folder.identity().unwrap(), Shared(Arc::clone(&slow)));
    let (public, listener) = (identity.public(), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || link::listen(&listener, &identity, &Arc::new(answering)));
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| link::ask(&address, &As::Known(&mesh.identities["ithaca"], public), &Message::Leased));
        }
        while slow.now.load(Ordering::Relaxed) < 8 {
            thread::sleep(Duration::from_millis(5));
        }
        let fetch = Message::Fetch { have: String::new() };
        let answer = link::ask(&address, &As::Known(&mesh.identities["chicago"], public), &fetch);
        assert!(matches!(answer, Ok(Message::Confirmed { .. })), "{answer:?}");
    });
    let most = slow.most.load(Ordering::Relaxed);
    assert!((8..=16).contains(&most), "{most} at once");
}

/// Who is no member has room for a question, not for a message of 1 MiB.
#[test]
fn a_stranger_sends_little() {
    let mesh = Mesh::make("stolen-long");
    let (address, public) = coordinator_of(&mesh);
    let (stranger, member) = (Identity::from_random(random().unwrap()).unwrap(), &mesh.identities["ithaca"]);
    let long = Message::Refused { message: "x".repeat(200_000) };
    let ask = |own| link::ask(&address.to_string(), &As::Known(own, public), &long).map_err(|error| error.to_string());
    assert!(matches!(ask(member), Ok(Message::Refused { .. })), "a member is answered");
    let answer = ask(&stranger);
    assert!(answer.is_err(), "{answer:?}");
}

/// Who it is, is looked up once, in however many pieces its words come.
#[test]
fn a_stranger_is_looked_up_once() {
    struct Counting(Arc<AtomicUsize>);
    impl Answering for Counting {
        fn is_member(&self, _peer: PublicKey) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            false
        }
        fn answer(&self, _peer: PublicKey, _question: Message) -> Message {
            Message::Released
        }
    }
    let mesh = Mesh::make("stolen-look");
    let looks = Arc::new(AtomicUsize::new(0));
    let (identity, answering) = (mesh.folder.identity().unwrap(), Counting(Arc::clone(&looks)));
    let (public, listener) = (identity.public(), TcpListener::bind("127.0.0.1:0").unwrap());
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    thread::spawn(move || link::listen(&listener, &identity, &Arc::new(answering)));
    let stranger = Identity::from_random(random().unwrap()).unwrap();
    let mut channel = Channel::<Message>::to_known(&stranger, &public, random().unwrap());
    let hear = |channel: &mut Channel<Message>, mut stream: &TcpStream| {
        let mut bytes = [0; 1024];
        let length = stream.read(&mut bytes).unwrap();
        assert!(length > 0 && channel.handle_bytes(&bytes[..length]).is_ok());
    };
    stream.set_nodelay(true).unwrap();
    stream.write_all(&channel.poll_transmit().unwrap()).unwrap();
    while !channel.is_established() {
        hear(&mut channel, &stream);
    }
    channel.send(&Message::Refused { message: "x".repeat(1_000) }).unwrap();
    for byte in channel.poll_transmit().unwrap() {
        stream.write_all(&[byte]).unwrap();
    }
    let answer = loop {
        match channel.poll_message() {
            Some(answer) => break answer,
            None => hear(&mut channel, &stream),
        }
    };
    assert_eq!((answer, looks.load(Ordering::Relaxed)), (Message::Released, 1));
}

/// A word at a time keeps a connection open no longer than none.
#[test]
fn a_stranger_that_dawdles_is_closed() {
    let mesh = Mesh::make("stolen-slow");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (identity, coordinator) =
        (mesh.folder.identity().unwrap(), coordinator::answering(&mesh.folder, Arc::default()).unwrap());
    thread::spawn(move || link::listen(&listener, &identity, &Arc::new(coordinator)));
    let mut stranger = TcpStream::connect(address).unwrap();
    let begin = Instant::now();
    // The preamble of the protocol has 16 bytes.
    while stranger.write_all(b"l").is_ok() && begin.elapsed() < Duration::from_secs(30) {
        stranger.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        if matches!(stranger.read(&mut [0]), Ok(0)) {
            break;
        }
    }
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
}

/// What another end says is one line, and nothing that a terminal obeys.
#[test]
fn a_refusal_is_shown_as_text() {
    struct Rude;
    impl Answering for Rude {
        fn is_member(&self, _peer: PublicKey) -> bool {
            true
        }
        fn answer(&self, _peer: PublicKey, _question: Message) -> Message {
            Message::Refused { message: "no\n\u{1b}[2Jchicago joined\u{9b}1m".into() }
        }
    }
    let mesh = Mesh::make("stolen-rude");
    let ask = mesh.listen(mesh.folder.identity().unwrap(), Rude);
    let Message::Refused { message } = ask("ithaca", Message::Leased) else { panic!("no refusal") };
    assert!(!message.contains(char::is_control) && message.starts_with("no "), "{message:?}");
}
