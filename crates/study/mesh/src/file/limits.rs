//! What a site allows, whatever the mesh file says: `--allow`.

use std::fmt;

use longhaul_units::{BitRate, Nanos};

use super::error::{one_of, shown};
use super::{Kind, TestPlan};

/// A site's own limits. A site refuses tests that exceed them, as sender and as receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// The highest rate of UDP probes, payload; `None`: none are allowed.
    pub udp: Option<BitRate>,
    /// The highest rate of TCP; `None`: no tests of TCP.
    pub tcp: Option<BitRate>,
    /// Whether round trips may be measured.
    pub rtt: bool,
    /// Whether `diagnose` may run.
    pub diagnose: bool,
    /// The longest test.
    pub time: Nanos,
    /// The greatest share of the time in which throughput tests may run, 0 to 1.
    pub busy: f64,
}

impl Default for Limits {
    /// Probes as TeraGrid's and round trips; nothing that fills a link.
    fn default() -> Self {
        let udp = Some(BitRate(10_000_000));
        Self { udp, tcp: None, rtt: true, diagnose: false, time: Nanos::from_secs(60), busy: 0.5 }
    }
}

/// Why a limit is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsError(String);

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LimitsError {}

/// Which limit of a site a test exceeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The word of `--allow`.
    pub limit: &'static str,
    /// What the test asks for, and what is allowed.
    pub message: String,
}

impl Limits {
    /// Changes a limit: `udp=100M`, `tcp=1G`, `tcp=no`, `rtt=no`, `diagnose=yes`, `time=30s`, `busy=20%`.
    ///
    /// # Errors
    /// Where there is no such limit, or its value is not allowed.
    pub fn allow(&mut self, text: &str) -> Result<(), LimitsError> {
        const WORDS: [&str; 6] = ["udp", "tcp", "rtt", "diagnose", "time", "busy"];
        let (word, value) = text
            .split_once('=')
            .ok_or_else(|| LimitsError(format!("{}: use LIMIT=VALUE, such as udp=100M", shown(text))))?;
        let wrong = |what: &str| LimitsError(format!("{word}={}: use {what}", shown(value)));
        let rate = || match value {
            "no" => Ok(None),
            rate => rate.parse().map(Some).map_err(|_| wrong("a rate such as 100M, or no")),
        };
        let yes = || match value {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(wrong("yes or no")),
        };
        match word {
            "udp" => self.udp = rate()?,
            "tcp" => self.tcp = rate()?,
            "rtt" => self.rtt = yes()?,
            "diagnose" => self.diagnose = yes()?,
            "time" => self.time = value.parse().map_err(|_| wrong("a time such as 30s"))?,
            "busy" => {
                let percent = value.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
                let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
                self.busy = percent.ok_or_else(|| wrong("0% to 100%"))? / 100.0;
            }
            other => return Err(LimitsError(format!("{}: no such limit, {}", shown(other), one_of(other, WORDS)))),
        }
        Ok(())
    }

    /// Whether this site takes part in a test that has this rate at most.
    ///
    /// # Errors
    /// The limit that it exceeds.
    pub fn check(&self, test: &TestPlan, rate: BitRate) -> Result<(), Refusal> {
        let refuse = |limit, message: String| Err(Refusal { limit, message });
        match (test.kind, self.udp, self.tcp) {
            (Kind::Udp { .. }, None, _) => return refuse("udp", "this site allows no UDP probes".into()),
            (Kind::Udp { rate, .. }, Some(most), _) if rate > most => {
                return refuse("udp", format!("{rate} asked, this site allows {most}"));
            }
            (Kind::Tcp, _, None) => return refuse("tcp", "this site allows no tests of TCP".into()),
            (Kind::Tcp, _, Some(most)) if rate > most => {
                return refuse("tcp", format!("{rate} asked, this site allows {most}"));
            }
            (Kind::Rtt, ..) if !self.rtt => return refuse("rtt", "this site allows no round trips".into()),
            (Kind::Diagnose, ..) if !self.diagnose => {
                return refuse("diagnose", "this site does not allow diagnose".into());
            }
            _ => {}
        }
        if test.kind.is_throughput() && test.time > self.time {
            return refuse("time", format!("{} asked, this site allows {}", test.time, self.time));
        }
        Ok(())
    }
}
