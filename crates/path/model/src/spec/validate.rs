//! What a path may be: the bounds that every path keeps, however it was made.

use longhaul_units::{BitRate, Bytes, Nanos};

use super::error::shown;
use super::{
    DelaySteps, Direction, HopSpec, HostSpec, JitterSpec, LossSpec, Outage, PathEnd, PathSpec, Probability, QueueLimit,
    SpecError,
};

/// The longest delay of a hop. A geostationary satellite and back is a quarter of a second; what is longer is a typing
/// error, and each second holds 1.25 GB at 10 Gb/s.
pub const DELAY_MAX: Nanos = Nanos::from_secs(10);
/// The most hops of a direction: as many as an IP packet passes with its usual TTL.
pub const HOPS_MAX: usize = 64;
/// The most hosts of an end.
pub const HOSTS_MAX: usize = 64;
/// The most packets that the loss lists of a path name.
pub const LIST_MAX: usize = 10_000_000;

/// The most that a direction's duplicates make of a packet, on average: those of hops multiply.
const COPIES_MAX: f64 = 16.0;

/// Below, one full-size packet takes longer than the longest delay.
const RATE_MIN: BitRate = BitRate(2_000);
const RATE_MAX: BitRate = BitRate(10_000_000_000_000);
const QUEUE_BYTES_MAX: Bytes = Bytes(1 << 40);
const QUEUE_PACKETS_MAX: u64 = 1_000_000_000;
const OUTAGES_MAX: usize = 1_000;
const OUTAGE_TIME_MAX: Nanos = Nanos::from_secs(30 * 86_400);
/// Longest time over which a jitter changes: a day's rhythm is the slowest that a path has by itself.
pub const CORRELATION_MAX: Nanos = Nanos::from_secs(86_400);
const DELAY_STEPS_MAX: usize = 1_000;
/// Outages and delay steps of all hops of a path. They are 480 kB; an experiment has a path for each of its 64 series, twice or three times.
const TIMES_MAX: usize = 10_000;
/// What changes more often is jitter.
const DELAY_STEPS_EVERY_MIN: Nanos = Nanos::from_micros(1);
const COALESCE_TIME_MAX: Nanos = Nanos::from_secs(1);
const COALESCE_COUNT_MAX: u64 = 1_000_000;
/// IPv4's least (RFC 791) and IP's most.
const MTU: std::ops::RangeInclusive<u32> = 68..=65_535;
const NAME_MAX: usize = 32;
const TITLE_MAX: usize = 1_000;

/// A key (below its hop or host) and what is wrong with its value.
pub(crate) type Problem = (&'static str, String);

impl PathSpec {
    /// Checks every bound; what [`PathSpec::parse`] returns has passed it.
    ///
    /// # Errors
    /// The first key whose value is not allowed, and what is. Hops are counted as in the path's fields, where those of
    /// `[[both]]` tables have been put into their directions.
    pub fn validate(&self) -> Result<(), SpecError> {
        for (key, text) in [("name", &self.name), ("source", &self.source)] {
            if text.chars().count() > TITLE_MAX || text.chars().any(char::is_control) {
                let message = format!("{}: one line of at most {TITLE_MAX} characters", shown(text));
                return Err(SpecError::new(key, message));
            }
        }
        let mut times = 0;
        for (direction, hops) in [(Direction::Forward, &self.forward), (Direction::Backward, &self.backward)] {
            if hops.len() > HOPS_MAX {
                return Err(SpecError::new(direction.name(), format!("{} hops, at most {HOPS_MAX}", hops.len())));
            }
            for (index, hop) in hops.iter().enumerate() {
                check_hop(hop).map_err(|(key, why)| SpecError::new(format!("{direction}[{index}].{key}"), why))?;
            }
            let mut copies = 1.0;
            for (index, hop) in hops.iter().enumerate() {
                times += hop.outages.len() + count(&hop.delay_steps);
                if times > TIMES_MAX {
                    let why =
                        format!("this hop and those before have {times} outages and delay steps, at most {TIMES_MAX}");
                    return Err(SpecError::new(format!("{direction}[{index}]"), why));
                }
                copies *= 1.0 + hop.duplicate.0;
                if copies > COPIES_MAX {
                    let why = format!(
                        "this hop and those before it turn one packet into {copies:.0}, at most {COPIES_MAX:.0}"
                    );
                    return Err(SpecError::new(format!("{direction}[{index}].duplicate"), why));
                }
            }
        }
        for (end, hosts) in [(PathEnd::Client, &self.clients), (PathEnd::Server, &self.servers)] {
            if hosts.len() > HOSTS_MAX {
                return Err(SpecError::new(end.name(), format!("{} hosts, at most {HOSTS_MAX}", hosts.len())));
            }
            for (index, host) in hosts.iter().enumerate() {
                check_host(host).map_err(|(key, why)| SpecError::new(format!("{end}[{index}].{key}"), why))?;
            }
        }
        self.check_names()
    }

    /// A name must say one thing: hops of a direction differ, hosts differ, and no hop has a host's name.
    fn check_names(&self) -> Result<(), SpecError> {
        let mut hosts = self.host_names(PathEnd::Client);
        hosts.extend(self.host_names(PathEnd::Server));
        for (index, name) in hosts.iter().enumerate() {
            if hosts[..index].contains(name) {
                return Err(SpecError::new("name", format!("{}: two hosts have this name", shown(name))));
            }
        }
        for (direction, hops) in [(Direction::Forward, &self.forward), (Direction::Backward, &self.backward)] {
            let named = || hops.iter().enumerate().filter_map(|(index, hop)| Some((index, hop.name.as_ref()?)));
            for (index, name) in named() {
                let other = if hosts.contains(name) {
                    "a host"
                } else if named().any(|(other, its)| other < index && its == name) {
                    "another hop"
                } else {
                    continue;
                };
                let key = format!("{direction}[{index}].name");
                return Err(SpecError::new(key, format!("{}: {other} has this name", shown(name))));
            }
        }
        Ok(())
    }
}

/// Checks all that concerns a hop alone.
pub(crate) fn check_hop(hop: &HopSpec) -> Result<(), Problem> {
    check_name(hop.name.as_deref())?;
    check_loss(&hop.loss).map_err(|why| ("loss", why))?;
    check_outages(&hop.outages).map_err(|why| ("outages", why))?;
    check_chance(hop.duplicate).map_err(|why| ("duplicate", why))?;
    check_chance(hop.corrupt).map_err(|why| ("corrupt", why))?;
    if let Some(mtu) = hop.mtu {
        within(mtu.bytes, *MTU.start(), *MTU.end()).map_err(|why| ("mtu", why))?;
    }
    if let Some(policer) = hop.policer {
        within(policer.rate, RATE_MIN, RATE_MAX).map_err(|why| ("policer", format!("rate {why}")))?;
        within(policer.burst, Bytes(1), QUEUE_BYTES_MAX).map_err(|why| ("policer", format!("burst {why}")))?;
    }
    check_access(hop.rate, hop.queue, hop.delay)?;
    check_delay_steps(&hop.delay_steps).map_err(|why| ("delay-steps", why))?;
    if let Some(jitter) = &hop.jitter {
        check_jitter(jitter, hop.shortest_delay()).map_err(|why| ("jitter", why))?;
    }
    if let Some(coalesce) = hop.coalesce {
        within(coalesce.time, Nanos(1), COALESCE_TIME_MAX).map_err(|why| ("coalesce", format!("time {why}")))?;
        if let Some(count) = coalesce.count {
            within(count.get(), 1, COALESCE_COUNT_MAX).map_err(|why| ("coalesce", format!("count {why}")))?;
        }
    }
    Ok(())
}

/// Checks all that concerns a host alone.
pub(crate) fn check_host(host: &HostSpec) -> Result<(), Problem> {
    check_name(host.name.as_deref())?;
    check_access(host.rate, host.queue, host.delay)?;
    if let Some(mtu) = host.mtu {
        within(mtu, *MTU.start(), *MTU.end()).map_err(|why| ("mtu", why))?;
    }
    Ok(())
}

/// What a hop and a host's access hop have in common.
fn check_access(rate: Option<BitRate>, queue: QueueLimit, delay: Nanos) -> Result<(), Problem> {
    if let Some(rate) = rate {
        within(rate, RATE_MIN, RATE_MAX).map_err(|why| ("rate", why))?;
    }
    match queue {
        QueueLimit::Unlimited => {}
        QueueLimit::Bytes(bytes) => within(bytes, Bytes(1), QUEUE_BYTES_MAX).map_err(|why| ("queue", why))?,
        QueueLimit::Packets(packets) => within(packets, 1, QUEUE_PACKETS_MAX).map_err(|why| ("queue", why))?,
    }
    within(delay, Nanos::ZERO, DELAY_MAX).map_err(|why| ("delay", why))
}

fn check_name(name: Option<&str>) -> Result<(), Problem> {
    let Some(name) = name else { return Ok(()) };
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > NAME_MAX || name.starts_with('-') || !name.chars().all(allowed) {
        let why = format!("{}: 1 to {NAME_MAX} letters, digits, `-` or `_`, not `-` first", shown(name));
        return Err(("name", why));
    }
    let numbered =
        name.strip_prefix("hop").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|c| c.is_ascii_digit()));
    if numbered || ["forward", "backward", "both"].contains(&name) {
        return Err(("name", format!("{}: means something else already", shown(name))));
    }
    Ok(())
}

fn check_loss(loss: &LossSpec) -> Result<(), String> {
    match loss {
        LossSpec::None | LossSpec::Every(_) => Ok(()),
        LossSpec::Random(chance) => check_chance(*chance),
        LossSpec::GilbertElliott { p, r, h, k } => {
            [p, r, h, k].into_iter().try_for_each(|chance| check_chance(*chance))
        }
        LossSpec::Bursts(bursts) => {
            within(bursts.every, Nanos::from_micros(1), OUTAGE_TIME_MAX).map_err(|why| format!("every {why}"))?;
            within(bursts.lasting, Nanos(1), bursts.every).map_err(|why| format!("for {why}"))?;
            [bursts.lost, bursts.otherwise].into_iter().try_for_each(check_chance)
        }
        LossSpec::List(list) => {
            if list.count() > LIST_MAX {
                return Err(format!("a list of {} packets, at most {LIST_MAX}", list.count()));
            }
            if list.ranges().first().is_some_and(|(first, _)| *first == 0) {
                return Err("a list has packet numbers from 1".into());
            }
            Ok(())
        }
    }
}

fn check_outages(outages: &[Outage]) -> Result<(), String> {
    if outages.len() > OUTAGES_MAX {
        return Err(format!("{} outages, at most {OUTAGES_MAX}", outages.len()));
    }
    for outage in outages {
        within(outage.at, Nanos::ZERO, OUTAGE_TIME_MAX).map_err(|why| format!("at {why}"))?;
        within(outage.lasting, Nanos(1), OUTAGE_TIME_MAX).map_err(|why| format!("for {why}"))?;
        if let Some(every) = outage.every {
            within(every, outage.lasting, OUTAGE_TIME_MAX).map_err(|why| format!("every {why}"))?;
        }
    }
    Ok(())
}

/// The steps, or the delays that are changed between.
fn count(steps: &DelaySteps) -> usize {
    match steps {
        DelaySteps::At(steps) => steps.len(),
        DelaySteps::Random { delays, .. } => delays.len(),
    }
}

fn check_delay_steps(steps: &DelaySteps) -> Result<(), String> {
    let least = match steps {
        DelaySteps::At(_) => 0,
        DelaySteps::Random { .. } => 1,
    };
    let count = count(steps);
    if count < least || count > DELAY_STEPS_MAX {
        return Err(format!("{count} delays, from {least} to {DELAY_STEPS_MAX}"));
    }
    match steps {
        DelaySteps::At(steps) => steps.iter().try_for_each(|step| {
            within(step.at, Nanos::ZERO, OUTAGE_TIME_MAX).map_err(|why| format!("at {why}"))?;
            within(step.delay, Nanos::ZERO, DELAY_MAX).map_err(|why| format!("delay {why}"))?;
            if let Some(lasting) = step.lasting {
                within(lasting, Nanos(1), OUTAGE_TIME_MAX).map_err(|why| format!("for {why}"))?;
            }
            let least = step.lasting.map_or(DELAY_STEPS_EVERY_MIN, |lasting| lasting.max(DELAY_STEPS_EVERY_MIN));
            step.every
                .map_or(Ok(()), |every| within(every, least, OUTAGE_TIME_MAX))
                .map_err(|why| format!("every {why}"))
        }),
        DelaySteps::Random { every, delays } => {
            within(*every, DELAY_STEPS_EVERY_MIN, OUTAGE_TIME_MAX).map_err(|why| format!("every {why}"))?;
            delays
                .iter()
                .try_for_each(|&delay| within(delay, Nanos::ZERO, DELAY_MAX))
                .map_err(|why| format!("delays {why}"))
        }
    }
}

fn check_chance(chance: Probability) -> Result<(), String> {
    if (0.0..=1.0).contains(&chance.0) {
        return Ok(());
    }
    Err(format!("`{}`: a probability is from 0 to 1, or 0% to 100%", chance.0))
}

/// The mean stays as asked only where no packet would have to leave before it came.
fn check_jitter(jitter: &JitterSpec, delay: Nanos) -> Result<(), String> {
    within(jitter.stddev, Nanos::ZERO, DELAY_MAX)?;
    if let Some(correlation) = jitter.correlation {
        within(correlation, Nanos(1), CORRELATION_MAX).map_err(|why| format!("correlation {why}"))?;
    }
    let reach = jitter.law.reach_below();
    // Half a nanosecond: what rounding the parts of a split delay may cost.
    if jitter.stddev.0 as f64 * reach <= delay.0 as f64 + 0.5 {
        return Ok(());
    }
    let most = Nanos((delay.0 as f64 / reach) as u64);
    Err(format!(
        "stddev `{}`: at most {most} for law {} around a delay of {delay}, or packets would leave before they came",
        jitter.stddev, jitter.law
    ))
}

fn within<T: PartialOrd + std::fmt::Display>(value: T, least: T, most: T) -> Result<(), String> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(format!("`{value}`: from {least} to {most}"))
}
