//! A PostgreSQL server of a test's own: its data in a temporary folder, a socket in place of a port, ended with the test.
//!
//! The programs are those of Debian's `postgresql`. They refuse root: where the test is root, the user `postgres` runs them, or `nobody`.

use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// A machine that is busy needs some of it.
const PATIENCE: Duration = Duration::from_secs(60);
/// The role that owns everything.
const OWNER: &str = "longhaul";

/// A server.
#[derive(Debug)]
pub struct Postgres {
    folder: PathBuf,
    programs: PathBuf,
    /// Who runs it, where that is not this process's user.
    user: Option<&'static str>,
    server: Option<Child>,
}

impl Postgres {
    /// Makes and starts one.
    ///
    /// # Panics
    /// Where there is no PostgreSQL, or it does not start.
    pub fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("longhaul-postgres-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let user = (id("-u", None) == 0).then(|| if has_user("postgres") { "postgres" } else { "nobody" });
        if user.is_some() {
            let number = |flag| Some(id(flag, user));
            std::os::unix::fs::chown(&folder, number("-u"), number("-g")).unwrap();
        }
        let mut postgres = Self { folder, programs: programs(), user, server: None };
        let data = postgres.folder.join("data");
        let mut make = postgres.program("initdb");
        make.args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8", "-U", OWNER, "-D"]).arg(data);
        let made = make.output().unwrap_or_else(|error| panic!("no PostgreSQL, make deps installs it: {error}"));
        assert!(made.status.success(), "{made:?}");
        postgres.run();
        postgres
    }

    /// Its database, as a role that may do all.
    pub fn address(&self) -> String {
        self.address_as(OWNER, "postgres")
    }

    /// A database of it, as a role.
    pub fn address_as(&self, role: &str, database: &str) -> String {
        format!("postgres:///{database}?host={}&user={role}", self.folder.display())
    }

    /// What the database answers to SQL, without titles.
    ///
    /// # Panics
    /// Where it answers by an error.
    pub fn ask(&self, sql: &str) -> String {
        let mut ask = Command::new(self.programs.join("psql"));
        ask.args(["-h"]).arg(&self.folder).args([
            "-U",
            OWNER,
            "-d",
            "postgres",
            "-AtX",
            "-v",
            "ON_ERROR_STOP=1",
            "-c",
            sql,
        ]);
        let asked = ask.output().unwrap();
        assert!(asked.status.success(), "{sql}: {asked:?}");
        String::from_utf8(asked.stdout).unwrap().trim().to_owned()
    }

    /// Starts it, again after [`Postgres::stop`].
    ///
    /// # Panics
    /// Where it does not start.
    pub fn run(&mut self) {
        self.run_with(&["-c", "listen_addresses="]);
    }

    /// Starts it again: it listens at 127.0.0.1, too, and takes TLS with this certificate and its key, both PEM. Returns the port.
    ///
    /// # Panics
    /// Where it cannot be ended or does not start.
    pub fn run_with_tls(&mut self, certificate: &str, key: &str) -> u16 {
        self.stop();
        // Only its own user may read a key.
        let owner = fs::metadata(self.folder.join("data")).unwrap();
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let file = self.folder.join("data").join(name);
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).unwrap().port();
        let number = port.to_string();
        self.run_with(&["-c", "listen_addresses=127.0.0.1", "-c", "ssl=on", "-p", &number]);
        port
    }

    fn run_with(&mut self, options: &[&str]) {
        let mut server = self.program("postgres");
        server.arg("-D").arg(self.folder.join("data")).arg("-k").arg(&self.folder).args(options);
        let port = options.iter().skip_while(|option| **option != "-p").nth(1).unwrap_or(&"5432");
        let log = fs::File::create(self.folder.join("log")).unwrap();
        self.server = Some(server.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
        let begin = Instant::now();
        loop {
            let mut ready = Command::new(self.programs.join("pg_isready"));
            if ready.arg("-q").arg("-h").arg(&self.folder).args(["-U", OWNER, "-p", port]).status().unwrap().success() {
                return;
            }
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(begin.elapsed() < PATIENCE, "PostgreSQL does not start: {log}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it, and with it all connections.
    ///
    /// # Panics
    /// Where it cannot be ended.
    pub fn stop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        // The program that `setpriv` became: it answers SIGINT by a fast shutdown.
        Command::new("kill").args(["-INT", &server.id().to_string()]).status().unwrap();
        let begin = Instant::now();
        while server.try_wait().unwrap().is_none() {
            if begin.elapsed() > PATIENCE {
                server.kill().unwrap();
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// A program of the server, as its user. It ends with the thread of the test.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        if let Some(user) = self.user {
            command.args(["--reuid", user, "--regid", &id("-g", Some(user)).to_string(), "--clear-groups"]);
        }
        command.args(["--pdeathsig", "KILL", "--"]).arg(self.programs.join(name)).current_dir(&self.folder);
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Where the newest version's programs are; else they are looked for in PATH.
fn programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let number = |path: &Path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
    versions.retain(|path| path.join("bin/initdb").is_file());
    versions.sort_by_key(|path| number(path));
    versions.pop().map_or_else(PathBuf::new, |path| path.join("bin"))
}

fn has_user(name: &str) -> bool {
    Command::new("id").arg(name).output().is_ok_and(|output| output.status.success())
}

/// The number of a user, or of a user's group.
fn id(flag: &str, user: Option<&str>) -> u32 {
    let output = Command::new("id").arg(flag).args(user).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}
