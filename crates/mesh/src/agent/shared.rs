//! What the threads of a site share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use longhaul_channel::{Identity, PublicKey};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::stderr_line;
use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::admission::Gate;
use longhaul_mesh_model::file::{DIAGNOSE_OVERHEAD, Mesh, OVERHEAD, TestPlan};
use longhaul_mesh_model::schedule::{Round, Schedule};
use longhaul_units::{BitRate, Nanos};

use super::Options;
use super::hung::{Hung, LASTS};
use super::outgoing::Outgoing;
use crate::coordinator::now_ns;
use crate::error::Failure;
use crate::files::DayFiles;
use crate::folder::{Belonging, Folder, Members};
use crate::link::{self, As};
use crate::store::{FileKind, Outbox, Wanted};
use longhaul_mesh_model::message::Message;

/// The file with the kinds of files that the coordinator keeps.
const KINDS: &str = "files.json";

/// A site, for all its threads.
pub(super) struct Shared {
    pub(super) folder: Folder,
    pub(super) site: String,
    pub(super) identity: Identity,
    pub(super) coordinator: Belonging,
    pub(super) options: Options,
    pub(super) outgoing: Outgoing,
    /// What is kept here of lists of lost packets and samples of TCP, whether they are delivered or not.
    files: BTreeMap<FileKind, DayFiles>,
    /// What the coordinator keeps of them.
    kinds: RwLock<Vec<FileKind>>,
    gate: Mutex<Gate>,
    hung: Mutex<Hung>,
    view: RwLock<Option<Arc<View>>>,
    wanted: RwLock<Vec<Wanted>>,
    offset_ns: AtomicI64,
}

/// The mesh as this site knows it.
pub(super) struct View {
    pub(super) state: String,
    pub(super) mesh: Mesh,
    pub(super) schedule: Schedule,
    pub(super) members: Members,
    pub(super) own: SiteId,
}

impl View {
    pub(super) fn new(state: String, mesh: Mesh, members: Members, site: &str) -> Result<Self, Failure> {
        let schedule = Schedule::make(&mesh).map_err(Failure::new)?;
        let own = mesh.site(site).ok_or_else(|| Failure::new(format_args!("the mesh has no site {site} any more")))?;
        Ok(Self { state, mesh, schedule, members, own })
    }

    fn takes_part(&self, test: &TestPlan) -> bool {
        test.pairs.iter().any(|(from, to)| *from == self.own || *to == self.own)
    }

    /// The highest rate that a test has here.
    fn rate_most(&self, test: &TestPlan) -> BitRate {
        let own = test.pairs.iter().filter(|(from, to)| *from == self.own || *to == self.own);
        own.map(|pair| self.mesh.rate_of(test, *pair)).max().unwrap_or(BitRate(0))
    }

    /// What share of this site's time the rounds take.
    fn busy(&self) -> f64 {
        let of = |round: &Round| {
            let test = &self.mesh.tests[round.test];
            let own = test.pairs.iter().filter(|(from, to)| *from == self.own || *to == self.own).count();
            let sampled = round.tests() as f64 / test.pairs.len() as f64;
            own as f64 * sampled * test.holds().as_secs_f64() / round.every.as_secs_f64()
        };
        self.schedule.rounds.iter().map(of).sum()
    }

    /// The public key of a site, if it has joined.
    pub(super) fn key_of(&self, site: SiteId) -> Option<PublicKey> {
        self.members.get(&self.mesh.of(site).name)?.parse().ok()
    }
}

impl Shared {
    pub(super) fn new(
        folder: Folder,
        coordinator: Belonging,
        identity: Identity,
        options: Options,
        outbox: Outbox,
    ) -> Self {
        let site = coordinator.site.clone();
        // Its own limit is the longest test that it may have begun before it started. Without a mesh it has begun and admitted none.
        let limits = &options.limits;
        let overhead = if limits.diagnose { DIAGNOSE_OVERHEAD } else { OVERHEAD };
        let longest = if folder.has("mesh.toml") { limits.time.saturating_add(overhead) } else { Nanos::ZERO };
        let now = monotonic();
        let gate = Gate::new(now, longest).with_share(now, limits.busy);
        let files = |kind: FileKind| {
            let (most, option) = options.keep.most(kind);
            Some((kind, DayFiles::new(folder.file(kind.name()), (most?, options.keep.keep_days), option)))
        };
        let files = FileKind::ALL.into_iter().filter_map(files).collect();
        Self {
            folder,
            site,
            identity,
            coordinator,
            options,
            outgoing: Outgoing::new(outbox),
            files,
            kinds: RwLock::default(),
            gate: Mutex::new(gate),
            hung: Mutex::default(),
            view: RwLock::default(),
            wanted: RwLock::default(),
            offset_ns: AtomicI64::new(0),
        }
    }

    /// Asks the coordinator.
    pub(super) fn ask_coordinator(&self, question: &Message) -> Result<Message, Failure> {
        let key = self.coordinator_key()?;
        link::ask(&self.coordinator.coordinator, &As::Known(&self.identity, key), question)
    }

    /// The same for the lease of a test, which goes on without it: half of the gate's patience is for that, half for the partner.
    pub(super) fn ask_for_lease(&self, question: &Message) -> Result<Message, Failure> {
        let key = self.coordinator_key()?;
        let ends = Instant::now() + LASTS / 2;
        link::ask_until(ends, &self.coordinator.coordinator, 0, &As::Known(&self.identity, key), question)
    }

    fn coordinator_key(&self) -> Result<PublicKey, Failure> {
        let key = self.coordinator.key.parse();
        key.map_err(|error| Failure::new(format_args!("coordinator.json: {error}")))
    }

    /// Reads the mesh that was fetched before.
    pub(super) fn load(&self) -> Result<(), Failure> {
        if self.folder.has("mesh.toml") {
            let mesh = Mesh::parse(&self.folder.read("mesh.toml")?).map_err(Failure::new)?;
            let view = View::new(String::new(), mesh, self.folder.members()?, &self.site)?;
            self.set_view(view);
        }
        Ok(())
    }

    pub(super) fn view(&self) -> Option<Arc<View>> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_view(&self, view: View) {
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(view));
    }

    /// The files of this kind; `None`: none are kept here.
    pub(super) fn files(&self, kind: FileKind) -> Option<&DayFiles> {
        self.files.get(&kind)
    }

    /// The kinds of files that the coordinator keeps.
    pub(super) fn kinds(&self) -> Vec<FileKind> {
        self.kinds.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether files of this kind are kept here or by the coordinator.
    pub(super) fn wants(&self, kind: FileKind) -> bool {
        self.files.contains_key(&kind) || self.kinds().contains(&kind)
    }

    /// Remembers the kinds, also for a start without the coordinator.
    pub(super) fn set_kinds(&self, kinds: Vec<FileKind>) -> Result<(), Failure> {
        if kinds != self.kinds() {
            self.folder.write(KINDS, &serde_json::to_string(&kinds).map_err(Failure::new)?)?;
            *self.kinds.write().unwrap_or_else(PoisonError::into_inner) = kinds;
        }
        Ok(())
    }

    /// Reads the kinds that the coordinator kept when it was asked last.
    pub(super) fn load_kinds(&self) -> Result<(), Failure> {
        if self.folder.has(KINDS) {
            let kinds = serde_json::from_str(&self.folder.read(KINDS)?);
            let kinds = kinds.map_err(|error| Failure::new(format_args!("{KINDS}: {error}")))?;
            *self.kinds.write().unwrap_or_else(PoisonError::into_inner) = kinds;
        }
        Ok(())
    }

    /// Diagnoses that the coordinator wants.
    pub(super) fn wanted(&self) -> Vec<Wanted> {
        self.wanted.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_wanted(&self, wanted: Vec<Wanted>) {
        *self.wanted.write().unwrap_or_else(PoisonError::into_inner) = wanted;
    }

    pub(super) fn set_offset(&self, offset_ns: i64) {
        self.offset_ns.store(offset_ns, Ordering::Relaxed);
    }

    /// The coordinator's time, as far as this site knows it. It only says when to ask: gates decide by steady clocks.
    pub(super) fn mesh_time(&self) -> Nanos {
        Nanos(now_ns().saturating_add_signed(self.offset_ns.load(Ordering::Relaxed)))
    }

    pub(super) fn hung(&self) -> MutexGuard<'_, Hung> {
        // Each of its steps is whole.
        self.hung.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn gate(&self) -> MutexGuard<'_, Gate> {
        // Each of its steps is whole.
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which tests this site takes no part in, and whether the others leave it enough time.
    pub(super) fn say_refusals(&self, view: &View) {
        for test in view.mesh.tests.iter().filter(|test| view.takes_part(test)) {
            if let Err(refusal) = self.options.limits.check(test, view.rate_most(test)) {
                stderr_line!("{}: refused, {} (--allow {}=…)", test.name, refusal.message, refusal.limit);
            }
        }
        let (busy, most) = (view.busy(), self.options.limits.busy);
        if busy > most {
            let [busy, most] = [busy, most].map(|share| share * 100.0);
            stderr_line!(
                "the mesh wants {busy:.0} % of this site's time for tests, it gives {most:.0} %: some will not run (--allow busy=…)"
            );
        }
        for (one, other) in view.mesh.tests.iter().flat_map(|test| &test.untestable) {
            if one < other && (*one == view.own || *other == view.own) {
                let name = |site: &SiteId| &view.mesh.of(*site).name;
                stderr_line!("{} and {} cannot be tested: nobody can connect to either", name(one), name(other));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{shared_for_tests, test_site};

    #[test]
    fn a_site_that_never_had_a_mesh_has_forgotten_no_test() {
        let site = |name| format!("[[site]]\nname = '{name}'\naddress = '127.0.0.1'\nrate = '1Gbit'\n");
        let test = "[[test]]\nname = 'delay'\nkind = 'rtt'\n";
        let (_folder, again) = test_site("shared-new", &format!("name = 'two'\n{}{}{test}", site("a"), site("b")), "a");
        again.folder.remove("mesh.toml");
        let new = shared_for_tests(&again.folder, "a", &again.identity).unwrap();
        let soon = monotonic().saturating_add(Nanos::from_secs(10));
        assert!(new.gate().is_idle(soon) && !again.gate().is_idle(soon));
    }
}
