//! The coordinator: who belongs to the mesh, what it tests, and what came of it. It runs no tests.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_channel::PublicKey;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::stderr_line;
use longhaul_mesh_model::admission::{Leases, MARGIN, PATIENCE, RequestId};
use longhaul_mesh_model::file::{Kind, Mesh, TestPlan};
use longhaul_mesh_model::schedule::{self, Schedule};
use longhaul_units::Nanos;

use crate::delivery::{Delivered, most_of_hour};
use crate::error::Failure;
use crate::files::{KeepOptions, KeptFiles};
use crate::folder::{Folder, Known, Members, SiteTokens, site_of};
use crate::link::{self, Answering};
use crate::store::{Archive, Measured, Measurement, TestFile, TestResult};
use crate::view::Views;
use longhaul_mesh_model::message::Message;

/// What the coordinator answers with.
struct Coordinator {
    folder: Folder,
    tokens: Known<SiteTokens>,
    members: Known<Members>,
    views: Views,
    /// One at a time: a join must not use a token twice, and a store has one writer.
    archive: Mutex<Archive>,
    /// Sites that deliver. One delivery of a site at a time: the others have their turn.
    delivering: Mutex<BTreeSet<String>>,
    files: Arc<KeptFiles>,
    /// What is leased of each shared link, by its name and direction.
    leases: Mutex<BTreeMap<(String, usize), Leases>>,
    started: Nanos,
}

/// A diagnosis that no site began for so long is not wanted any more.
pub(crate) const WANTED_NS: i64 = 24 * 3_600_000_000_000;

/// Results that are taken at once, and the longest rest after them: a site waits 10 s for its answer.
const PART: usize = 250;
const REST_MOST: Duration = Duration::from_millis(200);

/// How often files that are too old are removed.
const SWEEP: Duration = Duration::from_secs(600);

/// What to do where another program listens. Sites keep the port at which they joined.
const OCCUPIED: &str =
    "end the program that listens there (see `ss -ltnp`), or choose another port: --bind ADDRESS:PORT";

/// Who does not get a lease asks again after this.
const RETRY: Nanos = Nanos::from_secs(5);

/// The mesh of a coordinator's folder.
pub(crate) fn mesh(folder: &Folder) -> Result<(String, Mesh), Failure> {
    let text = folder.read("mesh.toml")?;
    let path = folder.file("mesh.toml");
    let mesh = Mesh::parse(&text).map_err(|error| Failure::new(format_args!("{}:{error}", path.display())))?;
    Schedule::make(&mesh).map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))?;
    Ok((text, mesh))
}

/// Answers the sites, for ever.
pub(crate) fn run(folder: &Folder, bind: &str, keep: &KeepOptions) -> Result<(), Failure> {
    let (_, mesh) = mesh(folder)?;
    let schedule = Schedule::make(&mesh).map_err(Failure::new)?;
    for line in schedule.in_words(&mesh) {
        stderr_line!("{line}");
    }
    let identity = folder.identity()?;
    let files = Arc::new(KeptFiles::new(folder, keep));
    sweep(folder, &files)?;
    let coordinator = Arc::new(answering(folder, files)?);
    let listener = TcpListener::bind(bind).map_err(|error| Failure::not_bound(bind, &error, OCCUPIED))?;
    stderr_line!("coordinator of {}, listening at {}", mesh.name, listener.local_addr().map_err(Failure::new)?);
    link::listen(&listener, &identity, &coordinator);
    Ok(())
}

/// Removes files that are too old or above a site's share, for ever, in a thread.
fn sweep(folder: &Folder, files: &Arc<KeptFiles>) -> Result<(), Failure> {
    let (folder, swept) = (folder.clone(), Arc::clone(files));
    let sweep = move || {
        while !swept.kinds().is_empty() {
            let done = mesh(&folder).and_then(|(_, mesh)| swept.sweep(&site_names(&mesh), now()));
            done.unwrap_or_else(|failure| stderr_line!("{failure}"));
            thread::park_timeout(SWEEP);
        }
    };
    let sweeper = thread::Builder::new().name("sweep".into()).spawn(sweep).map_err(Failure::new)?;
    files.swept_by(sweeper.thread().clone());
    Ok(())
}

/// All sites.
fn site_names(mesh: &Mesh) -> BTreeSet<String> {
    mesh.sites.iter().map(|site| site.name.clone()).collect()
}

/// What answers them.
pub(crate) fn answering(folder: &Folder, files: Arc<KeptFiles>) -> Result<impl Answering + use<>, Failure> {
    Coordinator::new(folder, files)
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The same, as results have it.
pub(crate) fn now() -> i64 {
    i64::try_from(now_ns()).unwrap_or(i64::MAX)
}

impl Coordinator {
    fn new(folder: &Folder, files: Arc<KeptFiles>) -> Result<Self, Failure> {
        let archive = Mutex::new(Archive::open(folder.store()?)?);
        let (delivering, leases) = (Mutex::default(), Mutex::default());
        Ok(Self {
            folder: folder.clone(),
            tokens: Known::default(),
            members: Known::default(),
            views: Views::default(),
            archive,
            delivering,
            files,
            leases,
            started: monotonic(),
        })
    }

    fn archive(&self) -> MutexGuard<'_, Archive> {
        // A panic in a transaction leaves no connection: the transaction is rolled back.
        self.archive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, site: &str, key: &str) -> Result<Message, Failure> {
        let _one_at_a_time = self.archive();
        let key: PublicKey = key.parse().map_err(Failure::new)?;
        let mut members = self.folder.members()?;
        let own = self.folder.identity()?.public();
        // Two sites with one key would be one: what the second one sends would be taken for the first one's.
        if own == key || site_of(&members, key).is_some_and(|other| other != site) {
            return Err(Failure::new(
                "another host of the mesh has this key: remove the file identity of this folder, and join again",
            ));
        }
        if !self.folder.has(&format!("tokens/{site}")) {
            return Err(Failure::new("this token was used"));
        }
        // First the token: a crash between the two costs a new token, and never lets two hosts be one site.
        self.folder.remove(&format!("tokens/{site}"));
        members.insert(site.to_owned(), key.to_string());
        self.folder.put_members(&members)?;
        stderr_line!("{site} joined");
        Ok(Message::Joined { site: site.to_owned(), key: own.to_string() })
    }

    fn member(&self, peer: PublicKey, question: Message) -> Result<Message, Failure> {
        let members = self.members.members(&self.folder)?;
        let site = site_of(&members, peer).ok_or_else(|| Failure::new("this host is not a member of the mesh"))?;
        match question {
            Message::Fetch { have } => {
                let text = self.folder.read("mesh.toml")?;
                let mut hasher = DefaultHasher::new();
                (&text, &*members).hash(&mut hasher);
                let state = format!("{:016x}", hasher.finish());
                let changed = state != have;
                let (file, members) = if changed { (Some(text), Some((*members).clone())) } else { (None, None) };
                let wanted = self.archive().wanted(&site, now().saturating_sub(WANTED_NS))?;
                Ok(Message::Mesh { state, file, members, now_ns: now_ns(), wanted, files: self.files.kinds() })
            }
            Message::Deliver { results, measurements } => {
                let _one = Delivery::begin(self, &site)?;
                let (ids, not_kept) = self.take(&site, results, measurements)?;
                if not_kept > 0 {
                    stderr_line!(
                        "{site}: {not_kept} results are not its own, make no sense, or are more than the mesh makes; not kept"
                    );
                }
                // Also what is not kept is confirmed: it would come again for ever.
                Ok(Message::Confirmed { ids })
            }
            Message::DeliverFile { file } => {
                let _one = Delivery::begin(self, &site)?;
                self.take_file(&site, &file)
            }
            Message::Lease { number, test, sender, receiver } => self.lease(&site, number, &test, [&sender, &receiver]),
            Message::Release { number, unused } => {
                let view = self.views.now(&self.folder)?;
                let initiator =
                    view.mesh.site(&site).ok_or_else(|| Failure::new("this site is not in the mesh any more"))?;
                let request = RequestId { initiator, number };
                self.leases().values_mut().for_each(|leases| leases.give_back(request, unused));
                Ok(Message::Released)
            }
            _ => Err(Failure::new("the coordinator does not know this question")),
        }
    }

    /// Takes what a site delivers, as far as it makes sense, is its own, and is no more than the mesh's schedule can make. The ids of what is known, and
    /// how many of these are not kept.
    fn take(
        &self,
        site: &str,
        results: Vec<TestResult>,
        measurements: Vec<Measurement>,
    ) -> Result<(Vec<String>, usize), Failure> {
        let view = self.views.now(&self.folder)?;
        let mesh = &view.mesh;
        // A site whose clock is far ahead must not make others look old.
        let now = now();
        let most = |test: &str| most_of_hour(mesh, test);
        let (mut ids, mut kept, mut delivered) = (Vec::new(), 0, Delivered::default());
        let mut is_kept = |archive: &mut Archive, names: [&str; 3], at_ns: i64, found: Found| {
            Ok::<_, Failure>(
                delivered.has_room(mesh, names, at_ns.min(now))
                    && found.is_of_plan(mesh, names[0])
                    && is_own(mesh, archive, site, names)?,
            )
        };
        for part in results.chunks(PART) {
            ids.extend(part.iter().map(|one| one.id.clone()));
            self.part(ids.len() < results.len() + measurements.len(), |archive| {
                let mut taken = Vec::new();
                for one in part.iter().filter(|one| one.is_sound()) {
                    let found = Found::Losses { sent: one.sent };
                    if is_kept(archive, [&one.test, &one.sender, &one.receiver], one.at_ns, found)? {
                        taken.push(one.clone());
                    }
                }
                kept += taken.len() - archive.take_within((site, now), &taken, most)?.left_out;
                Ok(())
            })?;
        }
        // What only a newer coordinator knows waits for that at its site.
        let known: Vec<_> = measurements.into_iter().filter(|one| one.measured != Measured::Unknown).collect();
        for part in known.chunks(PART) {
            ids.extend(part.iter().map(|one| one.id.clone()));
            self.part(ids.len() < results.len() + known.len(), |archive| {
                let mut taken = Vec::new();
                for one in part.iter().filter(|one| one.is_sound()) {
                    let found = Found::Other(&one.measured);
                    if is_kept(archive, [&one.test, &one.sender, &one.receiver], one.at_ns, found)? {
                        taken.push(one.clone());
                    }
                }
                kept += taken.len() - archive.take_measurements_within((site, now), &taken, most)?.left_out;
                Ok(())
            })?;
        }
        let not_kept = ids.len() - kept;
        Ok((ids, not_kept))
    }

    /// Takes the file of a test, if the site was part of that and may write of it.
    fn take_file(&self, site: &str, file: &TestFile) -> Result<Message, Failure> {
        let view = self.views.now(&self.folder)?;
        let mesh = &view.mesh;
        let names = [file.test.as_str(), &file.sender, &file.receiver];
        let is_own = file.is_sound() && is_own(mesh, &mut self.archive(), site, names)?;
        let sites = site_names(mesh);
        let not_kept = match is_own {
            true => self.files.take((site, &sites), file, now())?.err().map(|no_room| no_room.0.to_string()),
            false => Some("it is not its own, or makes no sense".to_owned()),
        };
        if let Some(why) = not_kept {
            stderr_line!("{site}: a file of {} is not kept: {why}", file.of.name());
        }
        // Also what is not kept is confirmed: it would come again for ever.
        Ok(Message::Confirmed { ids: vec![file.id.clone()] })
    }

    /// Does a part of a delivery. Where more follows, it rests for as long as that took: others have their turn at the store.
    fn part<T>(&self, more: bool, work: impl FnOnce(&mut Archive) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut archive = self.archive();
        let begun = Instant::now();
        let done = work(&mut archive);
        drop(archive);
        if more {
            thread::sleep(begun.elapsed().min(REST_MOST));
        }
        done
    }

    fn delivering(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.delivering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leases(&self) -> MutexGuard<'_, BTreeMap<(String, usize), Leases>> {
        // Each of their steps is whole.
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leases what a test takes of all shared links on its way, or of none. A site has a lease for one test at a time, as it is in one.
    fn lease(&self, site: &str, number: u64, test: &str, [sender, receiver]: [&str; 2]) -> Result<Message, Failure> {
        let view = self.views.now(&self.folder)?;
        let mesh = &view.mesh;
        let unknown = || Failure::new("the mesh has no such test");
        let initiator = mesh.site(site).ok_or_else(unknown)?;
        let pair = mesh.site(sender).zip(mesh.site(receiver)).ok_or_else(unknown)?;
        let test = mesh.tests.iter().find(|plan| plan.name == test).ok_or_else(unknown)?;
        if !test.pairs.contains(&pair) || schedule::initiator(mesh, pair) != initiator {
            return Err(unknown());
        }
        let rate = test.kind.wire_rate().unwrap_or_else(|| mesh.rate_most(test, pair.0, pair.1));
        let lasts = |test: &TestPlan| Nanos(test.holds().0 + 2 * PATIENCE.0 + MARGIN.0);
        let longest = mesh.tests.iter().filter(|test| test.kind.is_throughput()).map(lasts).max().unwrap_or_default();
        let request = RequestId { initiator, number };
        let crossed = mesh.crossed(pair.0, pair.1).map(|(_, direction, link)| ((link.name.clone(), direction), link));
        let crossed: Vec<_> = crossed.collect();
        let mut all = self.leases();
        let now = monotonic();
        // Also one under the same number for another test: no honest site repeats a number.
        let is_on_the_way = |key: &(String, usize)| crossed.iter().any(|(own, _)| own == key);
        let has_another = all.iter().any(|(key, leases)| {
            leases.number_of(now, initiator).is_some_and(|leased| leased != number || !is_on_the_way(key))
        });
        if has_another {
            return Ok(Message::Busy { retry_after_ns: RETRY.0 });
        }
        let mut given = Vec::new();
        for (key, link) in crossed {
            let leases = all.entry(key.clone()).or_insert_with(|| Leases::new(link.leased(), self.started, longest));
            if leases.ask(now, request, rate, lasts(test)).is_none() {
                let waits_since = leases.waits_since(request);
                all.iter_mut()
                    .filter(|(key, _)| given.contains(*key))
                    .for_each(|(_, leases)| leases.take_back(request, waits_since));
                return Ok(Message::Busy { retry_after_ns: RETRY.0 });
            }
            given.push(key);
        }
        Ok(Message::Leased)
    }
}

/// A delivery of a site, for as long as it takes.
struct Delivery<'a>(&'a Coordinator, &'a str);

impl<'a> Delivery<'a> {
    fn begin(coordinator: &'a Coordinator, site: &'a str) -> Result<Self, Failure> {
        if !coordinator.delivering().insert(site.to_owned()) {
            return Err(Failure::new("this site delivers already"));
        }
        Ok(Self(coordinator, site))
    }
}

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        self.0.delivering().remove(self.1);
    }
}

/// Whether a site may write results of a test with these names: it was part of it, and the mesh tests this pair so, or did and has results of it.
fn is_own(mesh: &Mesh, archive: &mut Archive, site: &str, names: [&str; 3]) -> Result<bool, Failure> {
    let [test, sender, receiver] = names;
    if sender == receiver || sender != site && receiver != site {
        return Ok(false);
    }
    let plan = mesh.tests.iter().find(|plan| plan.name == test);
    let pair = mesh.site(sender).zip(mesh.site(receiver));
    let is_planned = plan.zip(pair).is_some_and(|(plan, pair)| plan.has(pair));
    Ok(is_planned || archive.has_flow(names)?)
}

/// What a result says that a test found.
#[derive(Clone, Copy)]
enum Found<'a> {
    /// Which of so many packets were lost: `udp`.
    Losses { sent: i64 },
    /// Of another kind.
    Other(&'a Measured),
}

impl Found<'_> {
    /// Whether a test of this name finds such a thing, with so many packets. One that the mesh has no more may have found anything, but with no more
    /// packets than some test that the mesh has.
    fn is_of_plan(self, mesh: &Mesh, test: &str) -> bool {
        let fits = |plan: &TestPlan| plan.packets_most().is_none_or(|most| self.sent().unsigned_abs() <= most);
        if let Some(plan) = mesh.tests.iter().find(|plan| plan.name == test) {
            return self.is_of_kind(plan) && fits(plan);
        }
        let mut alike = mesh.tests.iter().filter(|plan| self.is_of_kind(plan)).peekable();
        alike.peek().is_none() || alike.any(fits)
    }

    fn is_of_kind(self, plan: &TestPlan) -> bool {
        match plan.kind {
            Kind::Udp { .. } => matches!(self, Self::Losses { .. }),
            Kind::Rtt => matches!(self, Self::Other(Measured::Rtt(_))),
            Kind::Tcp => matches!(self, Self::Other(Measured::Tcp(_))),
            Kind::Diagnose => matches!(self, Self::Other(Measured::Diagnose(_))),
        }
    }

    /// Packets that were sent; 0 where they are not counted.
    fn sent(self) -> i64 {
        match self {
            Self::Losses { sent } => sent,
            Self::Other(Measured::Rtt(trips)) => trips.sent,
            Self::Other(_) => 0,
        }
    }
}

fn or_refused(answer: Result<Message, Failure>) -> Message {
    answer.unwrap_or_else(|failure| Message::Refused { message: failure.to_string() })
}

impl Answering for Coordinator {
    fn is_member(&self, peer: PublicKey) -> bool {
        self.members.members(&self.folder).is_ok_and(|members| site_of(&members, peer).is_some())
    }

    fn answer(&self, peer: PublicKey, question: Message) -> Message {
        or_refused(self.member(peer, question))
    }

    fn tokens(&self) -> Arc<SiteTokens> {
        self.tokens.tokens(&self.folder)
    }

    fn answer_token(&self, site: &str, question: Message) -> Message {
        let Message::Join { key } = question else {
            return Message::Refused { message: "a token is for joining".into() };
        };
        or_refused(self.join(site, &key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stolen::result;

    /// As if it had run for long: it may have forgotten no lease.
    fn coordinator_of(mesh: &crate::stolen::Mesh) -> Coordinator {
        let made = Coordinator::new(&mesh.folder, Arc::default()).unwrap();
        Coordinator { started: Nanos::ZERO, ..made }
    }

    fn is_busy(answer: Message) -> bool {
        answer == Message::Busy { retry_after_ns: RETRY.0 }
    }

    #[test]
    fn a_lease_that_is_given_back_is_that_of_who_waits() {
        let mesh = crate::stolen::Mesh::make("coordinator-leases");
        let coordinator = coordinator_of(&mesh);
        let lease = |site: &str, number| coordinator.lease(site, number, "probes", [site, "chicago"]).unwrap();
        let give_back = |site: &str, number| {
            let key = mesh.key_of(site);
            assert_eq!(coordinator.member(key, Message::Release { number, unused: true }).unwrap(), Message::Released);
        };
        assert_eq!(lease("ithaca", 1), Message::Leased);
        assert_eq!(lease("ithaca", 1), Message::Leased, "the same once more");
        assert!(is_busy(lease("geneva", 1)));
        // Of another request, and of another site.
        give_back("ithaca", 2);
        give_back("geneva", 1);
        assert!(is_busy(lease("geneva", 1)));
        give_back("ithaca", 1);
        assert_eq!(lease("geneva", 1), Message::Leased);
        assert!(is_busy(lease("ithaca", 3)));
    }

    /// Either site of a pair fills its hour. What the other one measured is kept, and what has no room is counted, what came before is not.
    #[test]
    fn each_site_of_a_pair_has_room_of_its_own() {
        let mesh = crate::stolen::Mesh::make("coordinator-room");
        let coordinator = coordinator_of(&mesh);
        for (sender, receiver) in [("ithaca", "geneva"), ("geneva", "ithaca")] {
            let results = |count| (0..count).map(|_| result(sender, receiver)).collect::<Vec<_>>();
            let not_kept = |site, results| coordinator.take(site, results, Vec::new()).unwrap().1;
            // 27 of an hour; then by what the store has.
            assert_eq!([not_kept("geneva", results(40)), not_kept("geneva", results(5))], [13, 5]);
            let own = results(3);
            assert_eq!([not_kept("ithaca", own.clone()), not_kept("ithaca", own.clone())], [0, 0]);
            let kept = coordinator.archive().since(0).unwrap();
            assert!(own.iter().all(|one| kept.contains(one)));
            assert_eq!([not_kept("ithaca", results(30)), not_kept("ithaca", own)], [3 + 3, 0]);
        }
    }

    /// With the key of one site somebody asks for a part of each link. From ithaca to chicago a test crosses two of them, to geneva a third.
    #[test]
    fn a_site_has_leases_for_one_test_alone() {
        let mesh = crate::stolen::Mesh::make("coordinator-one");
        let link = |name: &str, ends: &str| {
            format!("[[link]]\nname = '{name}'\nbetween = [{ends}]\nrate = '100Mbit'\nshare = '10%'\n")
        };
        let more = [link("second", "'@here', 'chicago'"), link("campus", "'ithaca', 'geneva'")].concat();
        let text = mesh.folder.read("mesh.toml").unwrap();
        mesh.folder.write("mesh.toml", &format!("{text}{more}")).unwrap();
        let coordinator = coordinator_of(&mesh);
        let lease = |number, to| coordinator.lease("ithaca", number, "probes", ["ithaca", to]).unwrap();
        let release = |number| {
            let done = Message::Release { number, unused: false };
            assert_eq!(coordinator.member(mesh.key_of("ithaca"), done).unwrap(), Message::Released);
        };
        assert_eq!(lease(1, "chicago"), Message::Leased);
        assert_eq!(lease(1, "chicago"), Message::Leased, "the same once more");
        assert!(is_busy(lease(2, "geneva")), "of another test");
        assert!(is_busy(lease(1, "geneva")), "of another test under the same number");
        let other = coordinator.lease("geneva", 1, "probes", ["geneva", "ithaca"]).unwrap();
        assert_eq!(other, Message::Leased, "another site has its own");
        // Done with one test, a site has the next one's.
        release(1);
        assert_eq!(lease(2, "geneva"), Message::Leased);
        assert!(is_busy(lease(3, "chicago")));
        release(2);
        assert_eq!(lease(3, "chicago"), Message::Leased);
    }
}
