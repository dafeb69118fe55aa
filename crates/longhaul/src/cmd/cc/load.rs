//! `longhaul cc load` and `longhaul cc unload`.

use crate::caveats;
use std::collections::BTreeMap;
use std::process::{Command, ExitCode};

use clap::ValueEnum;
use longhaul_bpf::congestion::{CongestionError, Control, kept, unload as unload_one};
use longhaul_congestion::{Algorithm, Settings, Variant};
use longhaul_result::Caveat;
use serde::Serialize;

use crate::cmd::cc::list::Use;
use crate::cmd::cc::{Choice, exit_code, failure};
use crate::output::{Envelope, Failure, Outcome, print_caveats, print_json, print_text, say};

/// Load congestion controls, so that any program can select them by name, such as lh_scalable
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul cc load scalable highspeed
  longhaul cc load bic --variant linux                         # as lh_bic_l
  longhaul cc load scalable --set low_window=100 --as lh_s100
  longhaul cc load vegas -- iperf3 -c server -C lh_vegas       # only while iperf3 runs")]
pub(crate) struct LoadArgs {
    /// Load the controls with these names, as `longhaul cc list` has them, or all
    #[arg(required = true, value_name = "NAME")]
    names: Vec<Choice>,
    /// Use the parameters and rules of the paper (lh_NAME) or of the Linux module (lh_NAME_l)
    #[arg(long, value_enum, default_value_t = VariantArg::Paper)]
    variant: VariantArg,
    /// Change a parameter that `longhaul cc show NAME` lists
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Give the control another name in the kernel
    #[arg(long = "as", value_name = "NAME")]
    rename: Option<String>,
    /// Print JSON
    #[arg(short = 'J', long, conflicts_with = "command")]
    json: bool,
    /// Load them only while this program runs
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Unload congestion controls; connections that use one keep it until they close
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  longhaul cc unload all")]
pub(crate) struct UnloadArgs {
    /// Unload the controls with these names, as `longhaul cc list` has them, or all
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Print JSON
    #[arg(short = 'J', long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VariantArg {
    Paper,
    Linux,
}

impl From<VariantArg> for Variant {
    fn from(variant: VariantArg) -> Self {
        match variant {
            VariantArg::Paper => Self::Paper,
            VariantArg::Linux => Self::Linux,
        }
    }
}

/// What `cc load` was asked, as the result has it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LoadParameters<'a> {
    /// Names in the kernel.
    names: Vec<&'a str>,
    /// The source of the parameters.
    #[cfg_attr(test, schemars(extend("enum" = ["paper", "linux"])))]
    variant: &'static str,
    /// Parameters that were changed.
    set: &'a [String],
}

/// What `cc load` did.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LoadResult<'a> {
    /// Controls that were loaded.
    loaded: Vec<Loaded<'a>>,
    /// Controls that were loaded before.
    already_there: Vec<String>,
}

/// A control that was loaded.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Loaded<'a> {
    /// Its name in the kernel.
    #[cfg_attr(test, schemars(regex(pattern = "^[a-z0-9_]{1,15}$")))]
    name: &'a str,
    /// The algorithm.
    algorithm: &'static str,
    /// The source of its parameters before --set.
    #[cfg_attr(test, schemars(extend("enum" = ["paper", "linux"])))]
    variant: &'static str,
    /// Each parameter as stored; `longhaul cc show` has its unit.
    parameters: BTreeMap<&'static str, u32>,
}

/// What `cc unload` was asked, as the result has it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct UnloadParameters<'a> {
    /// The names that were given.
    names: &'a [String],
}

/// What `cc unload` did.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct UnloadResult {
    /// Controls that were unloaded.
    unloaded: Vec<Unloaded>,
}

/// A control that was unloaded.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Unloaded {
    /// Its name in the kernel.
    #[cfg_attr(test, schemars(regex(pattern = "^[a-z0-9_]{1,15}$")))]
    name: String,
    /// Sockets that still use it, in all visible network namespaces.
    sockets: u64,
    /// Network namespaces whose default it still is.
    default_of_namespaces: u64,
}

pub(crate) fn load(args: LoadArgs) -> Outcome {
    let wanted = settings(&args)?;
    let all = args.names.contains(&Choice::All);
    if !args.command.is_empty() {
        return while_running(&wanted, all, &args.command);
    }
    let started_at = jiff::Timestamp::now().to_string();
    let (mut loaded, mut already) = (Vec::new(), Vec::new());
    for settings in &wanted {
        match Control::load(settings).and_then(Control::keep) {
            Ok(()) => loaded.push(settings),
            // `all` loads the missing ones only.
            Err(CongestionError::AlreadyThere { name }) if all => already.push(name),
            Err(CongestionError::NoRates { .. }) if all => {}
            Err(error) => {
                let before = loaded.iter().map(|settings: &&Settings| settings.name()).collect::<Vec<_>>().join(", ");
                let failed = failure(&error);
                return Err(if before.is_empty() {
                    failed
                } else {
                    failed.remedy(format!("loaded before it: {before}"))
                });
            }
        }
    }
    if args.json {
        let parameters = LoadParameters {
            names: wanted.iter().map(Settings::name).collect(),
            variant: Variant::from(args.variant).name(),
            set: &args.set,
        };
        let loaded = loaded.iter().map(|one| described(one)).collect();
        let result = LoadResult { loaded, already_there: already };
        print_json(&Envelope::new("longhaul.cc.load/1", started_at, parameters, result, Vec::new()));
        return Ok(ExitCode::SUCCESS);
    }
    for settings in loaded {
        print_text(&format!("{:<16} {}\n", settings.name(), settings.algorithm().title()));
    }
    for name in already {
        print_text(&format!("{name:<16} was already loaded\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Loads the controls while `command` runs, and returns its exit code. The controls end with this process, even if it is killed.
fn while_running(wanted: &[Settings], all: bool, command: &[String]) -> Outcome {
    let mut held = Vec::new();
    for settings in wanted {
        match Control::load(settings) {
            Ok(control) => held.push(control),
            Err(CongestionError::AlreadyThere { .. } | CongestionError::NoRates { .. }) if all => {}
            Err(error) => return Err(failure(&error)),
        }
    }
    let names: Vec<&str> = wanted.iter().map(Settings::name).collect();
    // Who does not know the name would measure the host's default.
    say(format_args!(
        "{} uses {} only if it asks for it by this name; longhaul cc use {} -- {} ... gives it to any program",
        command[0],
        names.join(", "),
        names.first().unwrap_or(&"NAME"),
        command[0],
    ));
    let status = Command::new(&command[0]).args(&command[1..]).status();
    drop(held);
    exit_code(command, status)
}

/// What the arguments ask for.
fn settings(args: &LoadArgs) -> Result<Vec<Settings>, Failure> {
    let variant = Variant::from(args.variant);
    let mut algorithms: Vec<Algorithm> = Vec::new();
    for name in &args.names {
        let these = match name {
            // All that have the variant.
            Choice::All => {
                Algorithm::ALL.into_iter().filter(|one| variant == Variant::Paper || one.has_linux_variant()).collect()
            }
            Choice::One(algorithm) => vec![*algorithm],
        };
        for algorithm in these {
            if !algorithms.contains(&algorithm) {
                algorithms.push(algorithm);
            }
        }
    }
    if algorithms.len() > 1 && (!args.set.is_empty() || args.rename.is_some()) {
        return Err(Failure::usage("--set and --as are for one control at a time"));
    }
    algorithms
        .into_iter()
        .map(|algorithm| {
            let mut settings = Settings::new(algorithm, variant)?;
            args.set.iter().try_for_each(|assignment| settings.set(assignment))?;
            args.rename.iter().try_for_each(|name| settings.rename(name))?;
            Ok(settings)
        })
        .collect::<Result<_, _>>()
        .map_err(|error: longhaul_congestion::SettingsError| Failure::usage(error))
}

fn described(settings: &Settings) -> Loaded<'_> {
    let parameters = settings.algorithm().parameters().iter().zip(settings.values());
    Loaded {
        name: settings.name(),
        algorithm: settings.algorithm().name(),
        variant: settings.variant().name(),
        parameters: parameters.map(|(parameter, value)| (parameter.name, *value)).collect(),
    }
}

pub(crate) fn unload(args: UnloadArgs) -> Outcome {
    let started_at = jiff::Timestamp::now().to_string();
    let there = kept().map_err(|error| failure(&error))?;
    let mut wanted: Vec<String> = Vec::new();
    for name in &args.names {
        if name == "all" {
            wanted.extend(there.iter().cloned());
        } else {
            // The name of an algorithm means the paper's variant, unless a loaded control has that very name.
            let ours = name.parse::<Algorithm>().map(|algorithm| algorithm.kernel_name(Variant::Paper));
            wanted.push(if there.contains(name) { name.clone() } else { ours.unwrap_or_else(|_| name.clone()) });
        }
    }
    wanted.sort_unstable();
    wanted.dedup();
    // Checked before any is unloaded, so that a wrong name changes nothing.
    if let Some(missing) = wanted.iter().find(|name| !there.contains(name)) {
        return Err(failure(&CongestionError::NotKept { name: missing.clone() })
            .remedy(format!("loaded: {}", if there.is_empty() { "none".into() } else { there.join(", ") })));
    }
    let in_use = Use::look();
    let mut caveats = in_use.caveats.clone();
    let mut unloaded = Vec::new();
    for name in wanted {
        let count = |counts: &BTreeMap<String, u64>| counts.get(&name).copied().unwrap_or_default();
        let (sockets, defaults) = (count(&in_use.sockets), count(&in_use.defaults));
        unload_one(&name).map_err(|error| failure(&error))?;
        caveats.extend(still_used(&name, sockets, defaults));
        unloaded.push(Unloaded { name, sockets, default_of_namespaces: defaults });
    }
    if args.json {
        let parameters = UnloadParameters { names: &args.names };
        let result = UnloadResult { unloaded };
        print_json(&Envelope::new("longhaul.cc.unload/1", started_at, parameters, result, caveats));
        return Ok(ExitCode::SUCCESS);
    }
    for one in unloaded {
        print_text(&format!("{} unloaded\n", one.name));
    }
    print_caveats(&caveats);
    Ok(ExitCode::SUCCESS)
}

/// Caveats about a control that was unloaded and is still used.
fn still_used(name: &str, sockets: u64, defaults: u64) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    if sockets > 0 {
        let (noun, verb) = if sockets == 1 { ("socket", "uses") } else { ("sockets", "use") };
        caveats.push(Caveat::new(
            caveats::STILL_IN_USE,
            format!("{sockets} {noun} still {verb} {name}"),
            "they keep it until they close; the kernel frees it with the last",
        ));
    }
    if defaults > 0 {
        caveats.push(Caveat::new(
            caveats::STILL_DEFAULT,
            format!("{name} is still the default of {defaults} network namespace(s)"),
            "choose another there: sysctl net.ipv4.tcp_congestion_control",
        ));
    }
    caveats
}
