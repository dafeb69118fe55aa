//! A site: fetches the mesh, begins the tests that the schedule gives it, answers those of its partners, delivers what came of them.

mod asking;
mod beside;
mod diagnosing;
mod hung;
mod listening;
mod outgoing;
mod rounds;
mod shared;
mod standing;
mod testing;
#[cfg(test)]
mod tests;

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use longhaul_channel::shown;
use longhaul_kernel::address::at_port;
use longhaul_kernel::stderr_line;
use longhaul_mesh_model::file::{Limits, Mesh, MeshError};

use crate::coordinator::now_ns;
use crate::error::Failure;
use crate::files::KeepOptions;
use crate::folder::Folder;
use crate::link;
use crate::store::{Outbox, Wanted};
use diagnosing::Diagnosing;
use longhaul_mesh_model::message::Message;
use rounds::Rounds;
use shared::{Shared, View};
use standing::Standing;

/// How often the agenda is looked at.
const TICK: Duration = Duration::from_millis(200);

/// What to do where another program listens.
const OCCUPIED: &str =
    "end the program that listens there (see `ss -ltnp`), or change this site's `port` in the mesh file";

/// Diagnoses that the coordinator may want at a time: more than it asks for.
const WANTED_MOST: usize = 32;

/// How to run a site.
pub(crate) struct Options {
    /// What this site allows.
    pub(crate) limits: Limits,
    /// Where it listens, and for each test `longhaul serve`; without a port.
    pub(crate) bind: SocketAddr,
    /// The `longhaul` program.
    pub(crate) longhaul: PathBuf,
    /// How often it talks to the coordinator.
    pub(crate) sync: Duration,
    /// How much lists of lost packets and samples of TCP may take on the disk, and how long.
    pub(crate) keep: KeepOptions,
}

/// Runs a site, for ever.
pub(crate) fn run(folder: &Folder, options: Options) -> Result<(), Failure> {
    let belonging = folder.belonging()?;
    let identity = folder.identity()?;
    // Before anything of another one is removed.
    let _held = folder.hold()?;
    let sync = options.sync;
    testing::clean(&folder.file(""));
    let outbox = Outbox::open(&folder.file("outbox"))?;
    // What was last fetched: a site begins without its coordinator, too.
    let shared = Arc::new(Shared::new(folder.clone(), belonging.clone(), identity.clone(), options, outbox));
    for loaded in [shared.load(), shared.load_kinds()] {
        loaded.unwrap_or_else(|failure| stderr_line!("{failure}"));
    }
    let mut heard = String::new();
    while shared.view().is_none() {
        say_once(&mut heard, fetch(&shared));
        if shared.view().is_none() {
            thread::sleep(sync);
        }
    }
    let port = shared.view().map_or(0, |view| view.mesh.of(view.own).port);
    let bind = at_port(shared.options.bind, port);
    let listener = TcpListener::bind(bind).map_err(|error| Failure::not_bound(bind, &error, OCCUPIED))?;
    stderr_line!("{}: listening at {bind}", belonging.site);
    let answering = Arc::new(listening::Partner::new(Arc::clone(&shared)));
    thread::Builder::new()
        .name("listen".into())
        .spawn(move || link::listen(&listener, &identity, &answering))
        .map_err(Failure::new)?;
    let mut diagnosing = Diagnosing::new(shared.outgoing.diagnosed()?);
    let talking = Arc::clone(&shared);
    thread::Builder::new().name("coordinator".into()).spawn(move || talk(&talking, heard)).map_err(Failure::new)?;
    let (mut rounds, mut standing) = (Rounds::default(), Standing::default());
    loop {
        if let Some(view) = shared.view() {
            standing.follow(&shared, &view);
            let result = diagnosing.go_on(&shared, &view).or_else(|| rounds.go_on(&shared, &view));
            result.into_iter().for_each(|done| shared.outgoing.keep(done.result, done.file.as_ref()));
        }
        thread::sleep(TICK);
    }
}

/// Talks to the coordinator, for ever: fetches what changed, delivers what waits.
fn talk(shared: &Shared, mut heard: String) {
    let (mut written, mut failed) = (String::new(), String::new());
    loop {
        say_once(&mut heard, fetch(shared));
        say_once(&mut written, shared.outgoing.flush());
        let deliver = || {
            shared.outgoing.deliver(|question| ask(shared, question))?;
            shared.outgoing.deliver_files(&shared.kinds(), |question| ask(shared, question))
        };
        say_once(&mut failed, deliver());
        thread::sleep(shared.options.sync);
    }
}

/// Says what fails when it begins to, not each time again.
fn say_once(last: &mut String, done: Result<(), Failure>) {
    match done {
        Ok(()) => last.clear(),
        Err(failure) => {
            let text = failure.to_string();
            if text != *last {
                stderr_line!("{text}");
            }
            *last = text;
        }
    }
}

fn ask(shared: &Shared, question: &Message) -> Result<Message, Failure> {
    match shared.ask_coordinator(question)? {
        Message::Refused { message } => Err(Failure::new(format_args!("the coordinator refuses: {message}"))),
        answer => Ok(answer),
    }
}

/// Fetches the mesh, and keeps it for the time in which the coordinator is away.
fn fetch(shared: &Shared) -> Result<(), Failure> {
    let have = shared.view().map_or_else(String::new, |view| view.state.clone());
    let asked = now_ns();
    let Message::Mesh { state, file, members, now_ns: theirs, wanted, files } = ask(shared, &Message::Fetch { have })?
    else {
        return Err(Failure::new("the coordinator answered something else than the mesh"));
    };
    // Its clock, as of half of the time that asking took.
    let middle = asked / 2 + now_ns() / 2;
    let offset = i128::from(theirs) - i128::from(middle);
    shared.set_offset(i64::try_from(offset).map_err(|_| Failure::new("the coordinator's clock makes no sense"))?);
    shared.set_wanted(wanted.into_iter().filter(Wanted::is_sound).take(WANTED_MOST).collect());
    shared.set_kinds(files)?;
    if let (Some(file), Some(members)) = (file, members) {
        let refused = |error: MeshError| shown(&format!("the coordinator's mesh: {error}"));
        let mesh = Mesh::parse(&file).map_err(|error| Failure::new(refused(error)))?;
        let view = View::new(state, mesh, members.clone(), &shared.site)?;
        shared.folder.write("mesh.toml", &file)?;
        shared.folder.put_members(&members)?;
        shared.say_refusals(&view);
        shared.set_view(view);
    }
    Ok(())
}

/// What answers the partners of `site`, which takes the mesh from `folder`: for tests of what it refuses.
#[cfg(test)]
pub(crate) fn answering(
    folder: &Folder,
    site: &str,
    identity: &longhaul_channel::Identity,
) -> Result<impl link::Answering, Failure> {
    Ok(listening::Partner::new(Arc::new(shared_for_tests(folder, site, identity)?)))
}

#[cfg(test)]
fn options_for_tests() -> Options {
    Options {
        limits: Limits::default(),
        bind: SocketAddr::from(([127, 0, 0, 1], 0)),
        longhaul: PathBuf::from("/nonexistent"),
        sync: Duration::from_secs(10),
        keep: KeepOptions::default(),
    }
}

/// A site that runs nothing, with the mesh that is in `folder`.
#[cfg(test)]
fn shared_for_tests(folder: &Folder, site: &str, identity: &longhaul_channel::Identity) -> Result<Shared, Failure> {
    let belonging =
        crate::folder::Belonging { site: site.into(), coordinator: String::new(), key: identity.public().to_string() };
    let outbox = Outbox::open(&folder.file("outbox"))?;
    let shared = Shared::new(folder.clone(), belonging, identity.clone(), options_for_tests(), outbox);
    shared.load()?;
    Ok(shared)
}

/// Such a site in a folder of its own, which goes with the first part, with this mesh and without members.
#[cfg(test)]
fn test_site(name: &str, mesh: &str, site: &str) -> (impl Sized + use<>, Arc<Shared>) {
    struct Gone(PathBuf);
    impl Drop for Gone {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
    let path = std::env::temp_dir().join(format!("longhaul-mesh-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let folder = Folder::new(&path);
    folder.make().unwrap();
    folder.write("mesh.toml", mesh).unwrap();
    folder.put_members(&Default::default()).unwrap();
    let identity = longhaul_channel::Identity::from_random(crate::folder::random().unwrap()).unwrap();
    let shared = shared_for_tests(&folder, site, &identity).unwrap();
    (Gone(path), Arc::new(shared))
}
