//! The protocol with the process that holds a lab: one JSON object a line in each direction, over an abstract socket, whose name ends
//! with its process. The lab listens in the namespace in which it was made and on each of its hosts, as abstract names belong to a network
//! namespace. Sockets of other users are no labs, whatever their names.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use longhaul_emulator::Status;
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::Process;
use longhaul_kernel::signals::Stop;
use longhaul_kernel::unix::{
    connect_abstract, is_peer_one_of, list_own, listen_abstract, listen_alone, own_names, peer_credentials,
};
use longhaul_kernel::wait::{Poller, sleep_until};
use longhaul_path::spec::Change;
use longhaul_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::lab::{Host, Lab};
use crate::lines::{read_until, write_until};
use crate::plan::HostPlan;
use crate::spec::LabSpec;

/// How long a peer may take to send a request, and to take the answer: each time in all, as the lab does nothing else meanwhile.
const LINE_PATIENCE: Nanos = Nanos::from_secs(5);
/// How long a client waits for a place among those that wait already: longer than one of them has for its request.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// So many peers that may not talk to the lab are let go between two looks for signals.
const STRANGERS_AT_ONCE: usize = 64;
/// How long an answer may take: a lab that goes down waits for its programs.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// How long a change may take: memory for a longer path comes at 4 s a GiB where the machine never had it before.
const CHANGE_PATIENCE: Duration = Duration::from_secs(300);
/// How often a lab that comes up is asked whether it has.
const ASKED_EVERY: Nanos = Nanos::from_millis(20);
/// What wakes the process that holds a lab, beside a request at [`Listener`]'s own socket: a signal, the end of what the lab is tied
/// to or of its coming up, and a request on host 0, 1, ….
const AT_OWN_SOCKET: u64 = 0;
const AT_STOP: u64 = 1;
const AT_END: u64 = 2;
const AT_HOST_0: u64 = 3;
/// Longest name of a lab. It is part of a socket's name, which has 108 bytes (unix(7)).
const NAME_BYTES_MOST: usize = 32;

/// What a lab can be asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Who and where it is.
    Info,
    /// How it does.
    Status,
    /// To change the running path: texts that [`Change::parse`] takes.
    Set(Vec<String>),
    /// To end.
    Down,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Info(Box<Info>),
    Status(Box<Status>),
    Done,
    /// It is not up yet; the process that makes it.
    ComingUp(u32),
    Refused(String),
}

/// Who and where a lab is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Info {
    /// How it was made.
    pub spec: LabSpec,
    /// Its path as a path file; live changes included.
    pub path: String,
    /// The process that holds it.
    pub pid: u32,
    /// Whether it lives in a user namespace of its own.
    pub user_namespace: bool,
    /// When it came up, RFC 3339.
    pub started_at: String,
    /// Its hosts: clients, then servers.
    pub hosts: Vec<HostInfo>,
}

/// A host of a lab.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostInfo {
    /// What it is called and where it is.
    #[serde(flatten)]
    pub plan: HostPlan,
    /// A file that opens its network namespace while the lab is up.
    pub namespace: PathBuf,
}

/// Why a lab cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The name is none.
    #[error("lab name `{0}`: use 1 to {NAME_BYTES_MOST} letters, digits, `-` and `_`")]
    Name(String),
    /// There is such a lab already.
    #[error("a lab `{0}` is up already; take it down (longhaul lab down --name {0}) or give another --name")]
    InUse(String),
    /// There is none.
    #[error("no lab `{0}` is up; `longhaul lab list` shows those that are")]
    NoLab(String),
    /// It is being made.
    #[error("lab `{name}` is still coming up; wait for it, or end it with `longhaul lab down --name {name}`")]
    ComingUp {
        /// The lab.
        name: String,
        /// The process that makes it.
        pid: u32,
    },
    /// The caller cannot be told from others.
    #[error(
        "your user has no number in this user namespace, so a lab cannot distinguish your commands from those of others: map it (unshare --map-root-user)"
    )]
    Nobody,
    /// The kernel does not say which there are.
    #[error("cannot look for labs: {0}")]
    Unlisted(#[source] io::Error),
    /// It refused.
    #[error("{0}")]
    Refused(String),
    /// It went away or does not answer.
    #[error("lab `{name}` does not answer: {source}")]
    Silent {
        /// The lab.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The name under which lab `name` of user `uid` listens.
fn socket_name(uid: u32, name: &str) -> Result<String, ControlError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || name.len() > NAME_BYTES_MOST || !name.bytes().all(plain) {
        return Err(ControlError::Name(name.to_owned()));
    }
    Ok(format!("{}{name}", prefix(uid)))
}

fn prefix(uid: u32) -> String {
    format!("longhaul/lab/{uid}/")
}

/// Who the caller is to others, in the user namespace that it is in now.
fn own_uid() -> Result<u32, ControlError> {
    let own = UnixStream::pair().and_then(|(one, _other)| peer_credentials(&one));
    own.ok().and_then(|peer| peer.uid).ok_or(ControlError::Nobody)
}

/// The names of the caller's labs.
///
/// # Errors
/// [`ControlError::Nobody`]; [`ControlError::Unlisted`] where the kernel does not list sockets.
pub fn list() -> Result<Vec<String>, ControlError> {
    let prefix = prefix(own_uid()?);
    let sockets = list_own(&prefix).map_err(ControlError::Unlisted)?;
    let name = |socket: &String| Some(socket.strip_prefix(&prefix)?.split('/').next()?.to_owned());
    let names: BTreeSet<String> = sockets.iter().filter_map(name).collect();
    Ok(names.into_iter().collect())
}

/// A lab's own end: whoever holds it has the name.
#[derive(Debug)]
pub struct Listener {
    name: String,
    socket: UnixListener,
}

impl Listener {
    /// Takes `name`.
    ///
    /// # Errors
    /// [`ControlError::Name`], [`ControlError::InUse`], [`ControlError::Nobody`], [`ControlError::Silent`].
    pub fn claim(name: &str) -> Result<Self, ControlError> {
        let listening = listen_alone(&socket_name(own_uid()?, name)?).and_then(without_waiting);
        let socket = listening.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ControlError::InUse(name.to_owned()),
            _ => ControlError::Silent { name: name.to_owned(), source },
        })?;
        Ok(Self { name: name.to_owned(), socket })
    }

    /// Runs `make`, which brings the lab up, and meanwhile answers that it comes up. Where somebody asks the lab to end, or a signal does,
    /// `give_up` is called, which ends this process: nothing else ends what `make` does.
    ///
    /// # Errors
    /// Where the kernel refuses to wait; `make` did not run.
    pub fn while_coming_up<T>(
        &self,
        stop: Stop,
        make: impl FnOnce() -> T,
        give_up: impl FnOnce() + Send,
    ) -> io::Result<T> {
        let own = own_uid().map_err(io::Error::other)?;
        // Its end here says to the thread that the lab is up.
        let (making, made) = UnixStream::pair()?;
        let poller = Poller::new()?;
        poller.add(&self.socket, AT_OWN_SOCKET)?;
        poller.add(stop, AT_STOP)?;
        poller.add(&made, AT_END)?;
        let answer = move || {
            loop {
                let Ok(events) = poller.wait(None) else { return };
                let events: Vec<u64> = events.collect();
                if events.contains(&AT_END) {
                    return;
                }
                if stop.requested().is_some() {
                    return give_up();
                }
                let is_known = |peer: &UnixStream| is_peer_one_of(peer, &[own, 0]);
                let Some(mut stream) = accept_known(&self.socket, is_known) else { continue };
                match read_until(&mut stream, monotonic() + LINE_PATIENCE, Some(stop.as_fd())) {
                    Ok(Request::Down) => {
                        let _ = write_until(&mut stream, &Answer::Done, monotonic() + LINE_PATIENCE);
                        return give_up();
                    }
                    Ok(_) => {
                        let answer = Answer::ComingUp(std::process::id());
                        let _ = write_until(&mut stream, &answer, monotonic() + LINE_PATIENCE);
                    }
                    Err(_) => {}
                }
            }
        };
        Ok(thread::scope(|scope| {
            scope.spawn(answer);
            let made = make();
            drop(making);
            made
        }))
    }

    /// Answers for `lab`, here and on its hosts, until somebody asks it to end, a signal does, or the other end of `tied_to` is closed, and
    /// takes it down. Obeys this process's user and root, as far as its user namespace tells them from others.
    ///
    /// # Errors
    /// Where the kernel refuses to wait.
    pub fn serve(
        &self,
        mut lab: Lab,
        user_namespace: bool,
        stop: Stop,
        tied_to: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let started_at = jiff::Timestamp::now().to_string();
        // Of a process in a user namespace of its own: root there, and nobody else has a number.
        let own = own_uid().map_err(io::Error::other)?;
        let is_known = |peer: &UnixStream| is_peer_one_of(peer, &[own, 0]);
        let on_hosts = self.listen_on_hosts(&lab, own);
        // What ends the lab, also while a request comes.
        let end = Poller::new()?;
        end.add(stop, AT_STOP)?;
        if let Some(tied_to) = tied_to {
            end.add(tied_to, AT_END)?;
        }
        let poller = Poller::new()?;
        poller.add(&self.socket, AT_OWN_SOCKET)?;
        poller.add(&end, AT_END)?;
        for (socket, key) in on_hosts.iter().zip(AT_HOST_0..) {
            poller.add(socket, key)?;
        }
        loop {
            let events: Vec<u64> = poller.wait(None)?.collect();
            if stop.requested().is_some() || events.contains(&AT_END) {
                // Nobody waits to hear of programs that would not end.
                let _ = lab.down();
                return Ok(());
            }
            // One of each socket that is ready: who floods one of them keeps no others waiting.
            for event in events {
                let on_host = event.checked_sub(AT_HOST_0).and_then(|host| on_hosts.get(host as usize));
                let Some(mut stream) = accept_known(on_host.unwrap_or(&self.socket), is_known) else { continue };
                let answer = match read_until(&mut stream, monotonic() + LINE_PATIENCE, Some(end.as_fd())) {
                    Err(_) => continue,
                    Ok(Request::Down) => {
                        let answer = match lab.down() {
                            Ok(status) => Answer::Status(Box::new(status)),
                            Err(error) => Answer::Refused(error.to_string()),
                        };
                        let _ = write_until(&mut stream, &answer, monotonic() + LINE_PATIENCE);
                        return Ok(());
                    }
                    Ok(Request::Info) => Answer::Info(Box::new(info(&lab, user_namespace, &started_at))),
                    Ok(Request::Status) => match lab.status() {
                        Ok(status) => Answer::Status(Box::new(status)),
                        Err(error) => Answer::Refused(error.to_string()),
                    },
                    Ok(Request::Set(changes)) => match set(&mut lab, &changes) {
                        Ok(()) => Answer::Done,
                        Err(error) => Answer::Refused(error),
                    },
                };
                // A client that went away misses its answer.
                let _ = write_until(&mut stream, &answer, monotonic() + LINE_PATIENCE);
            }
        }
    }

    /// Sockets by which programs on the hosts reach the lab. Without one they do not, and the lab is as good.
    fn listen_on_hosts(&self, lab: &Lab, own: u32) -> Vec<UnixListener> {
        // Nobody else can have the name: the namespace is new.
        let Ok(name) = socket_name(own, &self.name) else { return Vec::new() };
        let listen = |host: &Host| host.namespace.enter(|| listen_abstract(&name).and_then(without_waiting)).ok()?.ok();
        lab.hosts().iter().filter_map(listen).collect()
    }
}

/// A listener that accepts who is there.
fn without_waiting(socket: UnixListener) -> io::Result<UnixListener> {
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The next connection of one who `is_known`, if there is one. Others before it are let go, but no more than [`STRANGERS_AT_ONCE`] at a time.
fn accept_known(socket: &UnixListener, is_known: impl FnMut(&UnixStream) -> bool) -> Option<UnixStream> {
    (0..STRANGERS_AT_ONCE).map_while(|_| Some(socket.accept().ok()?.0)).find(is_known)
}

fn set(lab: &mut Lab, changes: &[String]) -> Result<(), String> {
    let changes: Vec<Change> =
        changes.iter().map(|text| Change::parse(text)).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    lab.set(&changes).map_err(|error| error.to_string())
}

fn info(lab: &Lab, user_namespace: bool, started_at: &str) -> Info {
    let pid = std::process::id();
    let place = |namespace: &NetNamespace| {
        let fd = namespace.as_fd().as_raw_fd();
        PathBuf::from(format!("/proc/{pid}/fd/{fd}"))
    };
    Info {
        spec: lab.spec().clone(),
        path: lab.path().to_toml(),
        pid,
        user_namespace,
        started_at: started_at.to_owned(),
        hosts: lab
            .hosts()
            .iter()
            .map(|host| HostInfo { plan: host.plan.clone(), namespace: place(&host.namespace) })
            .collect(),
    }
}

/// Another process's lab.
#[derive(Debug, Clone)]
pub struct Client {
    name: String,
    /// Its socket's name, which may have an ending.
    socket: String,
    uid: u32,
}

impl Client {
    /// The lab called `name`, whether or not it is up.
    ///
    /// # Errors
    /// [`ControlError::Name`], [`ControlError::Nobody`].
    pub fn new(name: &str) -> Result<Self, ControlError> {
        let uid = own_uid()?;
        Ok(Self { name: name.to_owned(), socket: socket_name(uid, name)?, uid })
    }

    /// Who and where it is. Waits for one that comes up, 30 s at most.
    ///
    /// # Errors
    /// Any [`ControlError`].
    pub fn info(&self) -> Result<Info, ControlError> {
        let deadline = monotonic() + Nanos::from(ANSWER_PATIENCE);
        loop {
            match self.info_now() {
                Err(ControlError::ComingUp { .. }) if monotonic() < deadline => sleep_until(monotonic() + ASKED_EVERY),
                answer => return answer,
            }
        }
    }

    /// Who and where it is now.
    ///
    /// # Errors
    /// Any [`ControlError`].
    pub fn info_now(&self) -> Result<Info, ControlError> {
        match self.ask(&Request::Info)? {
            Answer::Info(info) => Ok(*info),
            _ => Err(self.confused()),
        }
    }

    /// How it does.
    ///
    /// # Errors
    /// Any [`ControlError`].
    pub fn status(&self) -> Result<Status, ControlError> {
        match self.ask(&Request::Status)? {
            Answer::Status(status) => Ok(*status),
            _ => Err(self.confused()),
        }
    }

    /// Changes the running path: all of `changes` or none.
    ///
    /// # Errors
    /// Any [`ControlError`].
    pub fn set(&self, changes: Vec<String>) -> Result<(), ControlError> {
        match self.ask(&Request::Set(changes))? {
            Answer::Done => Ok(()),
            _ => Err(self.confused()),
        }
    }

    /// Takes it down and returns its last status once its process has ended; `None` where it was still coming up.
    ///
    /// # Errors
    /// Any [`ControlError`].
    pub fn down(&self) -> Result<Option<Status>, ControlError> {
        let silent = |source| ControlError::Silent { name: self.name.clone(), source };
        let pid = match self.info_now() {
            Ok(info) => info.pid,
            Err(ControlError::ComingUp { pid, .. }) => pid,
            Err(error) => return Err(error),
        };
        let process = Process::open(pid).map_err(silent)?;
        let status = match self.ask(&Request::Down)? {
            Answer::Status(status) => Some(*status),
            Answer::Done => None,
            _ => return Err(self.confused()),
        };
        if let Some(process) = process {
            let deadline = monotonic() + Nanos::from(ANSWER_PATIENCE);
            if !process.wait_until_gone(deadline).map_err(silent)? {
                return Err(silent(io::Error::new(io::ErrorKind::TimedOut, "its process has not ended yet")));
            }
        }
        Ok(status)
    }

    fn ask(&self, request: &Request) -> Result<Answer, ControlError> {
        let silent = |source| ControlError::Silent { name: self.name.clone(), source };
        let none = || ControlError::NoLab(self.name.clone());
        let sockets = own_names(&self.socket).map_err(ControlError::Unlisted)?;
        let connected = connect_abstract(sockets.first().ok_or_else(none)?, CONNECT_PATIENCE);
        let mut stream = connected.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => none(),
            _ => silent(error),
        })?;
        // It may have ended since, and another user have taken its name.
        if peer_credentials(&stream).map_err(silent)?.uid != Some(self.uid) {
            return Err(none());
        }
        let patience = if matches!(request, Request::Set(_)) { CHANGE_PATIENCE } else { ANSWER_PATIENCE };
        let deadline = monotonic() + Nanos::from(patience);
        write_until(&mut stream, request, deadline).map_err(silent)?;
        match read_until(&mut stream, deadline, None).map_err(silent)? {
            Answer::Refused(why) => Err(ControlError::Refused(why)),
            Answer::ComingUp(pid) => Err(ControlError::ComingUp { name: self.name.clone(), pid }),
            answer => Ok(answer),
        }
    }

    fn confused(&self) -> ControlError {
        let source = io::Error::new(io::ErrorKind::InvalidData, "an answer to another question");
        ControlError::Silent { name: self.name.clone(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Peers that may not talk to the lab are let go at once, so many at a time that a signal has its turn.
    #[test]
    fn strangers_keep_nobody_from_a_lab() {
        let name = format!("lab-strangers-{}", std::process::id());
        let socket = without_waiting(listen_abstract(&name).unwrap()).unwrap();
        // They wait to be accepted also where the other end is closed.
        let knock = |times: usize| (0..times).for_each(|_| drop(connect_abstract(&name, Duration::ZERO).unwrap()));
        knock(STRANGERS_AT_ONCE);
        let mut strangers = 0;
        let last = |_: &UnixStream| {
            strangers += 1;
            strangers == STRANGERS_AT_ONCE
        };
        assert!(accept_known(&socket, last).is_some());
        assert!(accept_known(&socket, |_| true).is_none(), "nobody is there any more");
        knock(STRANGERS_AT_ONCE + 1);
        assert!(accept_known(&socket, |_| false).is_none());
        assert!(accept_known(&socket, |_| true).is_some());
    }
}
