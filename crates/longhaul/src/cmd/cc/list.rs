//! `longhaul cc list`: the controls that the kernel has, those that can be loaded, and their use.

use crate::caveats;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use longhaul_bpf::congestion;
use longhaul_congestion::{Algorithm, Variant};
use longhaul_kernel::congestion_control::{CongestionControls, sockets_by_control};
use longhaul_kernel::namespace;
use longhaul_kernel::open_files::LookLimits;
use longhaul_result::Caveat;
use longhaul_units::Nanos;
use serde::Serialize;

use crate::output::{Envelope, Failure, NothingAsked, Outcome, print_caveats, print_json, print_text};

/// List the congestion controls that the kernel has, how many sockets use each, and those that can be loaded
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul cc list --json | jq '.result.controls[] | select(.sockets > 0)'")]
pub(crate) struct Args {
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

/// A control that is registered in the kernel.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Registered {
    /// The name by which a program selects it.
    name: String,
    /// Sockets of this network namespace use it by default.
    default: bool,
    /// Any user may select it.
    allowed: bool,
    /// TCP sockets that use it, in all visible network namespaces.
    sockets: u64,
    /// longhaul loaded it. One with a name of its own (`--as`) is recognized only while it is kept.
    ours: bool,
    /// The algorithm; `None` for the kernel's own controls, and for one of longhaul's with a name of its own.
    algorithm: Option<&'static str>,
    /// The source of its parameters; `None` where algorithm is.
    #[cfg_attr(test, schemars(extend("enum" = ["paper", "linux", null])))]
    variant: Option<&'static str>,
    /// It stays until it is unloaded; `None` where the caller has no right to see that.
    kept: Option<bool>,
}

/// A control that longhaul brings.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Loadable {
    /// The algorithm.
    algorithm: &'static str,
    /// Its name in words.
    title: &'static str,
    /// Its paper or RFC.
    source: &'static str,
    /// Its name in the kernel.
    #[cfg_attr(test, schemars(regex(pattern = "^[a-z0-9_]{1,15}$")))]
    name: String,
    /// Its name in the kernel with Linux's parameters; `None` where Linux has no such module.
    #[cfg_attr(test, schemars(regex(pattern = "^[a-z0-9_]{1,15}$")))]
    linux_variant: Option<String>,
}

/// What `cc list` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Listed {
    /// The controls that are registered in the kernel.
    controls: Vec<Registered>,
    /// The controls that longhaul brings.
    loadable: Vec<Loadable>,
    /// Why no control can be loaded here; `None` where they can.
    cannot_load_because: Option<String>,
    /// Network namespaces whose sockets were counted.
    namespaces: usize,
}

/// What may be read of the open files of processes, which can hold network namespaces.
const LOOK: LookLimits = LookLimits { files_of_process: 1 << 16, files: 1_000_000, time: Nanos::from_secs(2) };
/// So long network namespaces are looked at. One takes some 2 ms: no host needs so many, and each of its users can have them.
const TIME: Nanos = Nanos::from_secs(5);

/// How the visible network namespaces use controls.
#[derive(Debug, Default)]
pub(crate) struct Use {
    /// Namespaces that could be read.
    pub(crate) namespaces: usize,
    /// Sockets by control.
    pub(crate) sockets: BTreeMap<String, u64>,
    /// Namespaces by their default control.
    pub(crate) defaults: BTreeMap<String, u64>,
    /// Namespaces that were not read, or not found.
    pub(crate) caveats: Vec<Caveat>,
}

impl Use {
    /// Reads every visible network namespace, as far as its time allows.
    pub(crate) fn look() -> Self {
        let mut all = Self::default();
        let mut unseen: usize = 0;
        let visited = namespace::for_each_visible(LOOK, TIME, |namespace| {
            let looked = namespace.enter(|| {
                let default = CongestionControls::read().map(|controls| controls.default);
                sockets_by_control().map(|sockets| (sockets, default))
            });
            match looked {
                Ok(Ok((sockets, default))) => all.take(sockets, default.ok()),
                _ => unseen += 1,
            }
        });
        let unvisited = visited.unwrap_or_default();
        // Without CAP_SYS_ADMIN a process cannot enter even its own namespace; it need not.
        if all.namespaces == 0
            && let Ok(sockets) = sockets_by_control()
        {
            all.take(sockets, CongestionControls::read().map(|controls| controls.default).ok());
            unseen = unseen.saturating_sub(1);
        }
        if unseen > 0 || all.namespaces == 0 {
            all.caveats.push(Caveat::new(
                caveats::NAMESPACES_UNSEEN,
                format!("the sockets of {unseen} network namespaces could not be counted"),
                "run as root",
            ));
        }
        if unvisited.namespaces > 0 {
            all.caveats.push(Caveat::new(
                caveats::NAMESPACES_UNSEEN,
                format!(
                    "{} network namespaces were not looked at, as there are so many: their sockets were not counted",
                    unvisited.namespaces
                ),
                "end the programs that have so many network namespaces (lsns -t net), or take the numbers of sockets \
                 as lower bounds",
            ));
        }
        if unvisited.unread_processes > 0 {
            all.caveats.push(Caveat::new(
                caveats::NAMESPACES_UNSEEN,
                format!(
                    "not all open files of {} processes were looked at, as they have so many: sockets in network \
                     namespaces that only such files hold could not be counted",
                    unvisited.unread_processes
                ),
                "end the programs that have so many files open (ls /proc/PID/fd), or trust the other numbers",
            ));
        }
        all
    }

    fn take(&mut self, sockets: BTreeMap<String, u64>, default: Option<String>) {
        self.namespaces += 1;
        for (name, count) in sockets {
            *self.sockets.entry(name).or_default() += count;
        }
        if let Some(default) = default {
            *self.defaults.entry(default).or_default() += 1;
        }
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    let controls = CongestionControls::read().map_err(|error| Failure::new("no_controls", error))?;
    let kept = congestion::kept().ok();
    let in_use = Use::look();
    let registered: Vec<_> =
        controls.available.iter().map(|name| describe(name, &controls, kept.as_deref(), &in_use)).collect();
    if args.json {
        let now = jiff::Timestamp::now().to_string();
        let support = congestion::require_support().err().map(|error| error.to_string());
        let result = Listed {
            controls: registered,
            loadable: Algorithm::ALL.map(loadable).into(),
            cannot_load_because: support,
            namespaces: in_use.namespaces,
        };
        print_json(&Envelope::new("longhaul.cc.list/1", now, NothingAsked {}, result, in_use.caveats));
        return Ok(ExitCode::SUCCESS);
    }
    print_text(&text(&registered));
    if let Err(error) = congestion::require_support() {
        print_text(&format!("no control can be loaded: {error}\n"));
    }
    print_caveats(&in_use.caveats);
    Ok(ExitCode::SUCCESS)
}

fn describe(name: &str, controls: &CongestionControls, kept: Option<&[String]>, in_use: &Use) -> Registered {
    let known = Algorithm::of_kernel_name(name);
    let kept = kept.map(|kept| kept.iter().any(|one| one == name));
    Registered {
        name: name.into(),
        default: controls.default == name,
        allowed: controls.allowed.iter().any(|one| one == name),
        sockets: in_use.sockets.get(name).copied().unwrap_or_default(),
        ours: known.is_some() || kept == Some(true),
        algorithm: known.map(|(algorithm, _)| algorithm.name()),
        variant: known.map(|(_, variant)| variant.name()),
        kept,
    }
}

fn loadable(algorithm: Algorithm) -> Loadable {
    Loadable {
        algorithm: algorithm.name(),
        title: algorithm.title(),
        source: algorithm.source(),
        name: algorithm.kernel_name(Variant::Paper),
        linux_variant: algorithm.has_linux_variant().then(|| algorithm.kernel_name(Variant::Linux)),
    }
}

fn text(registered: &[Registered]) -> String {
    let mut text = format!("{:<16} {:>7} {:>8}  {}\n", "control", "allowed", "sockets", "");
    for control in registered {
        let mut words = vec![if control.ours { "longhaul's".to_owned() } else { "the kernel's".to_owned() }];
        if control.ours {
            let found = Algorithm::of_kernel_name(&control.name);
            words.extend(found.map(|(algorithm, _)| algorithm.title().to_owned()));
            words.extend((control.variant == Some("linux")).then(|| "Linux's variant".to_owned()));
            words.push(match control.kept {
                Some(true) => "kept until unloaded".into(),
                Some(false) => "ends with its process".into(),
                None => "kept or not: only root can see".into(),
            });
        }
        if control.default {
            words.push("default".into());
        }
        let allowed = if control.allowed { "yes" } else { "no" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:<16} {allowed:>7} {:>8}  {}", control.name, control.sockets, words.join(", "));
    }
    let absent: Vec<_> = Algorithm::ALL
        .into_iter()
        .filter(|algorithm| registered.iter().all(|control| control.name != algorithm.kernel_name(Variant::Paper)))
        .map(Algorithm::name)
        .collect();
    if !absent.is_empty() {
        let _ = writeln!(text, "can be loaded: {}", absent.join(", "));
    }
    text
}
