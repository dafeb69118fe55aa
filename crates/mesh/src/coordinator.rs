//! The coordinator: who belongs to the mesh, what it tests, and what came of it. It runs no tests.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_channel::{Key, PublicKey};
use longhaul_mesh_model::file::Mesh;
use longhaul_mesh_model::schedule::Schedule;

use crate::error::Failure;
use crate::folder::{Folder, site_of};
use crate::link::{self, Answering};
use crate::message::Message;
use crate::store::Archive;

/// What the coordinator answers with.
struct Coordinator {
    folder: Folder,
    /// One at a time: a join must not use a token twice, and SQLite has one writer.
    archive: Mutex<Archive>,
}

/// The mesh of a coordinator's folder.
pub(crate) fn mesh(folder: &Folder) -> Result<(String, Mesh), Failure> {
    let text = folder.read("mesh.toml")?;
    let path = folder.file("mesh.toml");
    let mesh = Mesh::parse(&text).map_err(|error| Failure::new(format_args!("{}:{error}", path.display())))?;
    Schedule::make(&mesh).map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))?;
    Ok((text, mesh))
}

/// Answers the sites, for ever.
pub(crate) fn run(folder: &Folder, bind: &str) -> Result<(), Failure> {
    let (_, mesh) = mesh(folder)?;
    let schedule = Schedule::make(&mesh).map_err(Failure::new)?;
    for line in schedule.in_words(&mesh) {
        eprintln!("{line}");
    }
    let identity = folder.identity()?;
    let archive = Mutex::new(Archive::open(&folder.file("archive"))?);
    let listener = TcpListener::bind(bind).map_err(|error| {
        Failure::new(format_args!("cannot listen at {bind}: {error}")).remedy("give another --bind")
    })?;
    eprintln!("coordinator of {}, listening at {}", mesh.name, listener.local_addr().map_err(Failure::new)?);
    let coordinator = Arc::new(Coordinator { folder: folder.clone(), archive });
    link::listen(&listener, &identity, &coordinator);
    Ok(())
}

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

impl Coordinator {
    fn archive(&self) -> MutexGuard<'_, Archive> {
        // A transaction that a panic left is rolled back by the next.
        self.archive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, site: &str, key: &str) -> Result<Message, Failure> {
        let _one_at_a_time = self.archive();
        let key: PublicKey = key.parse().map_err(Failure::new)?;
        let mut members = self.folder.members()?;
        if !self.folder.has(&format!("tokens/{site}")) {
            return Err(Failure::new("this token was used"));
        }
        // First the token: a crash between the two costs a new token, and never lets two hosts be one site.
        self.folder.remove(&format!("tokens/{site}"));
        members.insert(site.to_owned(), key.to_string());
        self.folder.put_members(&members)?;
        eprintln!("{site} joined");
        Ok(Message::Joined { site: site.to_owned(), key: self.folder.identity()?.public().to_string() })
    }

    fn member(&self, peer: PublicKey, question: Message) -> Result<Message, Failure> {
        let members = self.folder.members()?;
        let site = site_of(&members, peer).ok_or_else(|| Failure::new("this host is no member of the mesh"))?;
        match question {
            Message::Fetch { have } => {
                let (text, _) = mesh(&self.folder)?;
                let mut hasher = DefaultHasher::new();
                (&text, &members).hash(&mut hasher);
                let state = format!("{:016x}", hasher.finish());
                let changed = state != have;
                let (file, members) = if changed { (Some(text), Some(members)) } else { (None, None) };
                Ok(Message::Mesh { state, file, members, now_ns: now_ns() })
            }
            Message::Deliver { results } => {
                // A site writes of tests that it was part of, and of no others.
                let own = |result: &&crate::store::TestResult| {
                    result.is_sound() && (result.sender == site || result.receiver == site)
                };
                let (good, bad): (Vec<_>, Vec<_>) = results.into_iter().partition(|result| own(&result));
                if !bad.is_empty() {
                    eprintln!("{site}: {} results are not its own or make no sense; not kept", bad.len());
                }
                self.archive().take(&good)?;
                // Also what is not kept is confirmed: it would come again for ever.
                Ok(Message::Confirmed { ids: good.into_iter().chain(bad).map(|result| result.id).collect() })
            }
            _ => Err(Failure::new("the coordinator does not know this question")),
        }
    }
}

fn or_refused(answer: Result<Message, Failure>) -> Message {
    answer.unwrap_or_else(|failure| Message::Refused { message: failure.to_string() })
}

impl Answering for Coordinator {
    fn answer(&self, peer: PublicKey, question: Message) -> Message {
        or_refused(self.member(peer, question))
    }

    fn tokens(&self) -> Vec<(String, Key)> {
        self.folder.tokens()
    }

    fn answer_token(&self, site: &str, question: Message) -> Message {
        let Message::Join { key } = question else {
            return Message::Refused { message: "a token is for joining".into() };
        };
        or_refused(self.join(site, &key))
    }
}
