//! `longhaul cc load` and `longhaul cc unload`.

use std::process::{Command, ExitCode};

use clap::ValueEnum;
use longhaul_bpf::congestion::{CongestionError, Control, kept, unload as unload_one};
use longhaul_congestion::{Algorithm, Settings, Variant};
use longhaul_result::Caveat;
use serde_json::{Map, Value, json};

use crate::cmd::cc::list::Use;
use crate::cmd::cc::{Choice, failure};
use crate::output::{Envelope, Failure, Outcome, print_caveats, print_json, print_text};

/// Load congestion controls: any program of any user can then select them by name (lh_scalable)
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  longhaul cc load scalable highspeed
  longhaul cc load bic --variant linux                         # as lh_bic_l
  longhaul cc load scalable --set low_window=100 --as lh_s100
  longhaul cc load vegas -- iperf3 -c server -C lh_vegas       # only while that runs")]
pub(crate) struct LoadArgs {
    /// A name from `longhaul cc list`, or all
    #[arg(required = true, value_name = "NAME")]
    names: Vec<Choice>,
    /// Whose parameters and rules: the paper's, or those of the Linux module (lh_NAME_l)
    #[arg(long, value_enum, default_value_t = VariantArg::Paper)]
    variant: VariantArg,
    /// Change a parameter that `longhaul cc show NAME` lists
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Another name in the kernel
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
    /// A name as in `longhaul cc list`, or all
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
            // Who wants all wants those that are missing.
            Err(CongestionError::AlreadyThere { name }) if all => already.push(name),
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
        let parameters =
            json!({ "names": names(&wanted), "variant": Variant::from(args.variant).name(), "set": args.set });
        let result =
            json!({ "loaded": loaded.iter().map(|one| described(one)).collect::<Vec<_>>(), "already_there": already });
        print_json(&Envelope::new("longhaul.cc.load/1", started_at, parameters, result, Vec::new()));
        return Ok(ExitCode::SUCCESS);
    }
    for settings in loaded {
        print_text(&format!("{:<16} {}\n", settings.name(), settings.algorithm().title()));
    }
    for name in already {
        print_text(&format!("{name:<16} was there\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Holds the controls while `command` runs; its exit code is ours. Killed, this process takes them with it.
fn while_running(wanted: &[Settings], all: bool, command: &[String]) -> Outcome {
    let mut held = Vec::new();
    for settings in wanted {
        match Control::load(settings) {
            Ok(control) => held.push(control),
            Err(CongestionError::AlreadyThere { .. }) if all => {}
            Err(error) => return Err(failure(&error)),
        }
    }
    let status = Command::new(&command[0])
        .args(&command[1..])
        .status()
        .map_err(|error| Failure::new("no_command", format!("cannot run {}: {error}", command[0])).exit(127))?;
    drop(held);
    // Ended by a signal, as shells say it.
    let signal = std::os::unix::process::ExitStatusExt::signal(&status).map(|signal| 128 + signal);
    Ok(ExitCode::from(status.code().or(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// What the arguments ask for.
fn settings(args: &LoadArgs) -> Result<Vec<Settings>, Failure> {
    let variant = Variant::from(args.variant);
    let mut algorithms: Vec<Algorithm> = Vec::new();
    for name in &args.names {
        let these = match name {
            // Of all that have it.
            Choice::All => {
                Algorithm::ALL.into_iter().filter(|one| variant == Variant::Paper || one.has_linux_module()).collect()
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

fn names(wanted: &[Settings]) -> Vec<&str> {
    wanted.iter().map(Settings::name).collect()
}

fn described(settings: &Settings) -> Value {
    let parameters = settings.algorithm().parameters().iter().zip(settings.values());
    let parameters: Map<String, Value> =
        parameters.map(|(parameter, value)| (parameter.name.to_owned(), json!(value))).collect();
    json!({
        "name": settings.name(),
        "algorithm": settings.algorithm().name(),
        "variant": settings.variant().name(),
        "parameters": parameters,
    })
}

pub(crate) fn unload(args: UnloadArgs) -> Outcome {
    let started_at = jiff::Timestamp::now().to_string();
    let there = kept().map_err(|error| failure(&error))?;
    let mut wanted: Vec<String> = Vec::new();
    for name in &args.names {
        if name == "all" {
            wanted.extend(there.iter().cloned());
        } else {
            // A control's own name stands for the paper's variant, unless something else has just that name.
            let ours = name.parse::<Algorithm>().map(|algorithm| algorithm.kernel_name(Variant::Paper));
            wanted.push(if there.contains(name) { name.clone() } else { ours.unwrap_or_else(|_| name.clone()) });
        }
    }
    wanted.sort_unstable();
    wanted.dedup();
    // Before anything goes, so that a wrong name changes nothing.
    if let Some(missing) = wanted.iter().find(|name| !there.contains(name)) {
        return Err(failure(&CongestionError::NotKept { name: missing.clone() })
            .remedy(format!("loaded: {}", if there.is_empty() { "none".into() } else { there.join(", ") })));
    }
    let in_use = Use::look();
    let mut caveats = in_use.caveats.clone();
    let mut unloaded = Vec::new();
    for name in wanted {
        let count = |counts: &std::collections::BTreeMap<String, u64>| counts.get(&name).copied().unwrap_or_default();
        let (sockets, defaults) = (count(&in_use.sockets), count(&in_use.defaults));
        unload_one(&name).map_err(|error| failure(&error))?;
        caveats.extend(still_used(&name, sockets, defaults));
        unloaded.push(json!({ "name": name, "sockets": sockets, "default_of_namespaces": defaults }));
    }
    if args.json {
        let parameters = json!({ "names": args.names });
        let result = json!({ "unloaded": unloaded });
        print_json(&Envelope::new("longhaul.cc.unload/1", started_at, parameters, result, caveats));
        return Ok(ExitCode::SUCCESS);
    }
    for one in unloaded {
        print_text(&format!("{} unloaded\n", one["name"].as_str().unwrap_or_default()));
    }
    print_caveats(&caveats);
    Ok(ExitCode::SUCCESS)
}

/// What uses a control that was unloaded.
fn still_used(name: &str, sockets: u64, defaults: u64) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    if sockets > 0 {
        let (noun, verb) = if sockets == 1 { ("socket", "uses") } else { ("sockets", "use") };
        caveats.push(Caveat {
            code: "still_in_use".into(),
            message: format!("{sockets} {noun} still {verb} {name}"),
            remedy: "they keep it until they close; its programs go with the last".into(),
        });
    }
    if defaults > 0 {
        caveats.push(Caveat {
            code: "still_default".into(),
            message: format!("{name} is still the default of {defaults} network namespace(s)"),
            remedy: "choose another there: sysctl net.ipv4.tcp_congestion_control".into(),
        });
    }
    caveats
}
