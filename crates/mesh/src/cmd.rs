//! Arguments, and what each command does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, Subcommand};
use longhaul_channel::{self as channel, Key};
use longhaul_kernel::address::own_address;
use longhaul_kernel::installed::beside;
use longhaul_kernel::process::allow_many_files;
use longhaul_kernel::secret_file::read_secret;
use longhaul_mesh_model::file::{Limits, is_name};
use longhaul_mesh_model::schedule::Schedule;
use longhaul_units::Nanos;

use crate::error::Failure;
use crate::files::KeepOptions;
use crate::folder::{Belonging, Folder, random};
use crate::link::{self, As};
use crate::{agent, alarm, coordinator, shown, web};
use longhaul_mesh_model::message::Message;

/// The port of a coordinator, beside that of `longhaul serve` and of a site.
const PORT: u16 = 5212;

/// Let sites test each other all the time, and say who loses packets
#[derive(Debug, Parser)]
#[command(name = "longhaul mesh", bin_name = "longhaul mesh", version)]
#[command(max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "Example:
  longhaul mesh init --folder /var/lib/longhaul-mesh mesh.toml            # at the coordinator
  longhaul mesh run --coordinator --folder /var/lib/longhaul-mesh
  longhaul mesh join --folder site --token geneva coordinator.example     # at each site
  longhaul mesh run --folder site --allow udp=10M
  longhaul mesh status --folder /var/lib/longhaul-mesh")]
pub(crate) struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create the coordinator's folder from a mesh file, or update it from a changed one; make a token for each site that has not joined
    #[command(after_help = "Example:\n  longhaul mesh init --folder /var/lib/longhaul-mesh mesh.toml")]
    Init {
        /// Read this mesh file: sites, groups, tests
        mesh: PathBuf,
        /// Use this folder of the coordinator
        #[arg(long)]
        folder: PathBuf,
    },
    /// Let this site join a mesh, with the token that the coordinator made for it
    #[command(after_help = "Example:\n  longhaul mesh join --folder site --token geneva coordinator.example")]
    Join {
        /// Join at this coordinator: its address, and its port if it is not 5212
        coordinator: String,
        /// Use the token in this file
        #[arg(long, value_name = "FILE")]
        token: PathBuf,
        /// Create this folder for the site
        #[arg(long)]
        folder: PathBuf,
    },
    /// Run a site, or the coordinator, until Ctrl-C
    #[command(after_help = "Example:\n  longhaul mesh run --folder site --allow udp=10M --allow time=30s")]
    Run {
        /// Use this folder of the site or coordinator
        #[arg(long)]
        folder: PathBuf,
        /// Run the coordinator
        #[arg(long)]
        coordinator: bool,
        /// Listen at this address, :: for all of IPv6 and IPv4: a site at its port in the mesh file, the coordinator at
        /// port 5212 or at ADDRESS:PORT
        #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
        bind: String,
        /// Limit this site's tests: udp=RATE, tcp=RATE, time=TIME, busy=SHARE of the time, rtt=no,
        /// diagnose=yes [default: udp=10M, tcp=no, time=60s, busy=50%, rtt=yes, diagnose=no]
        #[arg(long, value_name = "LIMIT=VALUE", conflicts_with = "coordinator")]
        allow: Vec<String>,
        /// Contact the coordinator every TIME
        #[arg(long, value_name = "TIME", default_value = "10s")]
        sync: Nanos,
        #[command(flatten)]
        keep: KeepOptions,
        #[command(flatten)]
        page: web::PageOptions,
        #[command(flatten)]
        alarms: alarm::AlarmOptions,
    },
    /// Print the sites, what they delivered in the last day, and who loses packets
    #[command(after_help = "Example:\n  longhaul mesh status --folder /var/lib/longhaul-mesh")]
    Status {
        /// Use this folder of the coordinator
        #[arg(long)]
        folder: PathBuf,
        /// Print JSON
        #[arg(short = 'J', long)]
        json: bool,
    },
    /// Print loss, round trips, TCP and diagnoses between all sites, or each result between two sites
    #[command(after_help = "Example:\n  longhaul mesh show --folder /var/lib/longhaul-mesh ithaca geneva --days 7")]
    Show {
        /// Show what this site sends
        #[arg(requires = "to")]
        from: Option<String>,
        /// Show what this site receives
        to: Option<String>,
        /// Use this folder of the coordinator
        #[arg(long)]
        folder: PathBuf,
        /// Cover this many days
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=36500))]
        days: u32,
        /// Print JSON
        #[arg(short = 'J', long)]
        json: bool,
    },
}

pub(crate) fn run(cli: Cli) -> Result<(), Failure> {
    if matches!(cli.action, Action::Run { .. }) {
        // Each connection takes one or two. With the limit as it was there is room for fewer.
        let _ = allow_many_files();
    }
    match cli.action {
        Action::Init { mesh, folder } => init(&mesh, &Folder::new(&folder)),
        Action::Join { coordinator, token, folder } => join(&coordinator, &token, &Folder::new(&folder)),
        Action::Run { folder, coordinator: true, bind, keep, page, alarms, .. } => {
            let folder = Folder::new(&folder);
            folder.check()?;
            coordinator::mesh(&folder)?;
            folder.identity()?;
            // Two would tell each alarm twice, and lease a link twice.
            let _held = folder.hold()?;
            web::start(&folder, &page, &alarm::start(&folder, &alarms)?)?;
            coordinator::run(&folder, &with_port(&bind), &keep)
        }
        Action::Run { folder, bind, allow, sync, keep, .. } => {
            let mut limits = Limits::default();
            for text in &allow {
                limits.allow(text).map_err(|error| Failure::new(format_args!("--allow {error}")))?;
            }
            let sync = Duration::from(sync).max(Duration::from_millis(100));
            let bind = own_address(&bind).map_err(|error| {
                Failure::new(format_args!("--bind {bind}: {error}"))
                    .remedy("give an address of this host alone: the mesh file has the port")
            })?;
            let options = agent::Options { limits, bind, longhaul: longhaul()?, sync, keep };
            let folder = Folder::new(&folder);
            folder.check()?;
            agent::run(&folder, options)
        }
        Action::Status { folder, json } => shown::status(&Folder::new(&folder), json),
        Action::Show { from, to, folder, days, json } => shown::show(&Folder::new(&folder), from.zip(to), days, json),
    }
}

/// The `longhaul` that runs the tests: the one beside this program, else the one in PATH.
fn longhaul() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(Failure::new)?;
    found(&own).ok_or_else(|| {
        Failure::new("there is no longhaul beside this program, nor in PATH").remedy("install both together")
    })
}

fn found(own: &Path) -> Option<PathBuf> {
    let in_path = || {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders).map(|folder| folder.join("longhaul")).find(|file| file.is_file())
    };
    beside(own, "longhaul").or_else(in_path)
}

fn init(mesh: &Path, folder: &Folder) -> Result<(), Failure> {
    folder.make()?;
    let text = longhaul_units::read_text(mesh, 1 << 20)
        .map_err(|error| Failure::new(format_args!("cannot read {}: {error}", mesh.display())))?;
    let parsed = longhaul_mesh_model::file::Mesh::parse(&text)
        .map_err(|error| Failure::new(format_args!("{}:{error}", mesh.display())))?;
    let schedule =
        Schedule::make(&parsed).map_err(|error| Failure::new(format_args!("{}: {error}", mesh.display())))?;
    folder.write("mesh.toml", &text)?;
    folder.identity()?;
    let mut members = folder.members()?;
    // Who is no site any more is no member.
    members.retain(|site, _| parsed.site(site).is_some());
    folder.put_members(&members)?;
    let tokens = Folder::new(&folder.file("tokens"));
    tokens.make()?;
    for line in schedule.in_words(&parsed) {
        say!("{line}");
    }
    for test in &parsed.tests {
        if !test.untestable.is_empty() {
            let name = |site| &parsed.of(site).name;
            let (one, other) = test.untestable[0];
            let more = test.untestable.len() / 2;
            say!(
                "{}: {more} pairs of sites behind NAT cannot be tested, such as {} and {}",
                test.name,
                name(one),
                name(other)
            );
        }
    }
    for site in parsed.sites.iter().filter(|site| !members.contains_key(&site.name)) {
        if !tokens.has(&site.name) {
            let key = Key::from_random(random()?).map_err(Failure::new)?;
            tokens.write(&site.name, &key.to_text())?;
        }
        say!("{}: bring {} to this site; it works once", site.name, tokens.file(&site.name).display());
    }
    Ok(())
}

fn join(coordinator: &str, token: &Path, folder: &Folder) -> Result<(), Failure> {
    let text = read_secret(token, 4096).map_err(|error| Failure::of_secret(token, &error))?;
    let token: Key = text.parse().map_err(|error| Failure::new(format_args!("{}: {error}", token.display())))?;
    folder.make()?;
    if folder.has("coordinator.json") {
        return Err(Failure::new("this folder belongs to a mesh already").remedy("give another --folder"));
    }
    let identity = folder.identity()?;
    let address = with_port(coordinator);
    let question = Message::Join { key: identity.public().to_string() };
    match link::ask(&address, &As::Token(&token), &question)? {
        // It is printed on this host's terminal.
        Message::Joined { site, .. } if !is_name(&site) => Err(Failure::new(format_args!(
            "the coordinator calls this site {}, which is not a valid name",
            channel::shown(&site)
        ))),
        Message::Joined { site, key } => {
            // Whoever answered has the token: its key is the coordinator's, from now on.
            let belonging = Belonging { site: site.clone(), coordinator: address, key };
            folder.write("coordinator.json", &serde_json::to_string_pretty(&belonging).map_err(Failure::new)?)?;
            say!("this is {site}");
            Ok(())
        }
        Message::Refused { message } => Err(Failure::new(format_args!("the coordinator refuses: {message}"))),
        _ => Err(Failure::new("the coordinator answered something else")),
    }
}

/// A coordinator's address with its port, [`PORT`] where it has none. One of IPv6 with a port stands in brackets, as in `[2001:db8::1]:5212`.
fn with_port(address: &str) -> String {
    let (host, port) = match address.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None if address.matches(':').count() > 1 => (address, None),
        None => address.split_once(':').map_or((address, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or_else(|| PORT.to_string(), str::to_owned);
    // A zone that is the name of an interface is looked up, which does not work in brackets.
    if host.contains(':') && !host.contains('%') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::net::ToSocketAddrs;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// It would go on for ever.
    #[test]
    fn a_second_coordinator_of_a_folder_ends_at_once() {
        let mesh = crate::stolen::Mesh::make("held-hub");
        mesh.folder.identity().unwrap();
        let _held = mesh.folder.hold().unwrap();
        let folder = mesh.folder.name();
        let words = ["longhaul mesh", "run", "--coordinator", "--bind", "127.0.0.1:0", "--folder", &folder];
        let cli = Cli::parse_from(words);
        let (say, said) = channel();
        thread::spawn(move || say.send(run(cli).map_err(|failure| failure.to_string())));
        let refused = said.recv_timeout(Duration::from_secs(10)).expect("it ends").unwrap_err();
        assert!(refused.contains("another longhaul mesh run has the folder"), "{refused}");
    }

    #[test]
    fn a_coordinator_has_a_port_whether_it_is_given_or_not() {
        for (given, meant) in [
            ("192.0.2.1", "192.0.2.1:5212"),
            ("192.0.2.1:99", "192.0.2.1:99"),
            ("hub.example", "hub.example:5212"),
            ("hub.example:99", "hub.example:99"),
            ("::", "[::]:5212"),
            ("2001:db8::1", "[2001:db8::1]:5212"),
            ("[2001:db8::1]", "[2001:db8::1]:5212"),
            ("[2001:db8::1]:99", "[2001:db8::1]:99"),
        ] {
            assert_eq!(with_port(given), meant, "{given}");
        }
        // Loopback is the first interface of each network namespace.
        for zoned in ["fe80::1%lo", "[fe80::1%lo]:5212", "[fe80::1%1]"] {
            let found = with_port(zoned).to_socket_addrs().unwrap().next().unwrap();
            assert_eq!(found.to_string(), "[fe80::1%1]:5212", "{zoned}");
        }
    }

    /// `longhaul serve` takes only an address, and would answer no test.
    #[test]
    fn a_site_listens_at_an_address_alone() {
        for wrong in ["192.0.2.1:5213", "[::]", "localhost", "fe80::1"] {
            let cli = Cli::parse_from(["longhaul mesh", "run", "--bind", wrong, "--folder", "/nonexistent"]);
            let refused = run(cli).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("--bind {wrong}: ")) && refused.contains("alone"), "{refused}");
        }
    }

    /// Who has read it can join in this site's place.
    #[test]
    fn a_token_that_others_may_read_is_refused() {
        let mesh = crate::stolen::Mesh::make("token-mode");
        let (token, site) = (mesh.folder.file("geneva"), mesh.folder.file("site"));
        fs::write(&token, Key::from_random(random().unwrap()).unwrap().to_text()).unwrap();
        let refused = |mode| {
            fs::set_permissions(&token, Permissions::from_mode(mode)).unwrap();
            // Nobody listens there.
            join("127.0.0.1:1", &token, &Folder::new(&site)).unwrap_err().to_string()
        };
        for mode in [0o666, 0o644, 0o640] {
            let said = refused(mode);
            assert!(said.contains(&format!("{mode:04o}")) && said.contains("chmod 600") && !site.exists(), "{said}");
        }
        assert!(!refused(0o600).contains("0600"));
        assert!(site.exists());
    }

    /// Beside a program in a folder of everybody's anybody may have put one.
    #[test]
    fn the_program_of_the_tests_is_one_of_the_same_owner() {
        let mesh = crate::stolen::Mesh::make("beside");
        let (own, neighbour) = (mesh.folder.file("longhaul-mesh"), mesh.folder.file("longhaul"));
        for program in [&own, &neighbour] {
            fs::write(program, "").unwrap();
            fs::set_permissions(program, Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(found(&own), Some(neighbour.clone()));
        fs::set_permissions(&neighbour, Permissions::from_mode(0o757)).unwrap();
        assert_ne!(found(&own), Some(neighbour.clone()));
        fs::set_permissions(&neighbour, Permissions::from_mode(0o755)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&neighbour, Some(12_345), None).unwrap();
            assert_ne!(found(&own), Some(neighbour.clone()));
        }
    }
}
