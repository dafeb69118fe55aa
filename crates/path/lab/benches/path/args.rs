//! The command line.

use crate::cases;
use crate::endpoint::Role;
use crate::{Error, NAME, PACKAGE, Result};

/// The first argument of this program where it is an endpoint; the second is the role.
pub(crate) const ENDPOINT: &str = "--endpoint";
/// Rounds of which the median is taken.
const ROUNDS: usize = 5;
/// The same, where time matters more.
const ROUNDS_QUICK: usize = 3;

/// What this program was started for.
pub(crate) enum Invocation {
    Measure(Args),
    Endpoint(Box<Role>),
    Help,
    NotABenchmark,
}

/// What to measure.
#[derive(Debug, Clone, Default)]
pub(crate) struct Args {
    /// Cases whose names contain one of these; empty: all.
    pub(crate) filters: Vec<String>,
    /// Fewer rounds, and shorter ones.
    pub(crate) quick: bool,
    /// Rounds, where asked for.
    pub(crate) rounds: Option<usize>,
}

/// How long a case may take.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The case's name, for progress.
    pub(crate) case: &'static str,
    /// Of how many rounds the median is taken.
    pub(crate) rounds: usize,
    /// The same for cases that take minutes.
    pub(crate) long_rounds: usize,
    /// Whether rounds are to be short.
    pub(crate) quick: bool,
}

impl Args {
    /// # Errors
    /// Where an argument is unknown.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Invocation> {
        let mut args = Self::default();
        let mut is_benchmark = false;
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                ENDPOINT => {
                    let role = arguments.next().ok_or("--endpoint takes a role")?;
                    return Ok(Invocation::Endpoint(serde_json::from_str(&role)?));
                }
                // What cargo passes to every benchmark.
                "--bench" => is_benchmark = true,
                "--quick" => args.quick = true,
                "--rounds" => {
                    let rounds = arguments.next().and_then(|text| text.parse().ok()).filter(|rounds| *rounds > 0);
                    args.rounds = Some(rounds.ok_or("--rounds takes a number of at least 1")?);
                }
                "-h" | "--help" => return Ok(Invocation::Help),
                flag if flag.starts_with('-') => {
                    return Err(Error::from(format!("unknown argument `{flag}`\n{}", help())));
                }
                filter => args.filters.push(filter.to_owned()),
            }
        }
        if !is_benchmark {
            return Ok(Invocation::NotABenchmark);
        }
        if let Some(filter) = args.filters.iter().find(|f| !cases::ALL.iter().any(|case| case.name.contains(&***f))) {
            return Err(Error::from(format!("no case has `{filter}` in its name\n{}", help())));
        }
        Ok(Invocation::Measure(args))
    }

    /// Whether the case is to be measured.
    pub(crate) fn wants(&self, case: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| case.contains(filter))
    }

    /// How to measure it.
    pub(crate) fn plan(&self, case: &'static str) -> Plan {
        let (rounds, long_rounds) = if self.quick { (ROUNDS_QUICK, 1) } else { (ROUNDS, ROUNDS) };
        Plan {
            case,
            rounds: self.rounds.unwrap_or(rounds),
            long_rounds: self.rounds.unwrap_or(long_rounds),
            quick: self.quick,
        }
    }
}

impl Plan {
    /// `full` seconds, or `quick` ones.
    pub(crate) fn seconds(&self, full: f64, quick: f64) -> f64 {
        if self.quick { quick } else { full }
    }
}

/// What may be asked.
pub(crate) fn help() -> String {
    let mut text = format!(
        "cargo bench -p {PACKAGE} --bench {NAME} [-- [FILTER…] [--quick] [--rounds N]]\n\n\
         FILTER is a part of a case's name:\n",
    );
    for case in cases::ALL {
        text += &format!("  {:<12} {}\n", case.name, case.about);
    }
    text
}
