//! The text forms of a hop's keys, shared by path files and live changes.
//!
//! | key | text |
//! |---|---|
//! | `loss` | `none`, `random(0.01%)`, `every(30000)`, `gilbert-elliott(p,r)` or `(p,r,h,k)`, `list(1,5,9-12)`, `bursts(for,every)` or `(for,every,lost,otherwise)` |
//! | `outages` | `none`, or `at,for` or `at,for,every`, several parted by `;`: `10s,50ms,60s` |
//! | `duplicate`, `corrupt` | a probability: `0.1%`, `1e-3` |
//! | `mtu` | `none`, `bytes` or `bytes,silent`: `1400` |
//! | `policer` | `none`, `rate,burst`: `100Mbit,64KiB` |
//! | `queue` | `64MiB`, `1000p` (packets), `unlimited` |
//! | `rate` | `9.28Gbit`, `none` |
//! | `layer` | `L1`, `L2` |
//! | `delay` | `250ms` |
//! | `delay-steps` | `none`, or `at,delay`, `at,delay,for` or `at,delay,for,every`, several parted by `;`: `60s,80ms`; `random(every,delay,…)` |
//! | `jitter` | `none`, `LAW(stddev)`, `LAW(stddev,ORDER)` or `LAW(stddev,ORDER,correlation)`: `normal(8.45us,free)` |
//! | `coalesce` | `none`, `time` or `time,count`: `50us,8` |

use std::num::NonZeroU64;

use longhaul_units::{BitRate, Bytes, Nanos};

use super::error::shown;
use super::validate::LIST_MAX;
use super::{
    BurstLoss, CoalesceSpec, DelayStep, DelaySteps, HopSpec, JitterSpec, Law, Layer, LossSpec, MtuSpec, Order, Outage,
    PacketList, PolicerSpec, Probability, QueueLimit,
};

/// A key of a hop that has a value which may change while the path runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the field of HopSpec of that name")]
pub enum Key {
    Loss,
    Outages,
    Duplicate,
    Corrupt,
    Mtu,
    Policer,
    Queue,
    Rate,
    Layer,
    Delay,
    DelaySteps,
    Jitter,
    Coalesce,
}

/// A value for one [`Key`] of a hop.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "each is the field of HopSpec of that name")]
pub enum Setting {
    Loss(LossSpec),
    Outages(Vec<Outage>),
    Duplicate(Probability),
    Corrupt(Probability),
    Mtu(Option<MtuSpec>),
    Policer(Option<PolicerSpec>),
    Queue(QueueLimit),
    Rate(Option<BitRate>),
    Layer(Layer),
    Delay(Nanos),
    DelaySteps(DelaySteps),
    Jitter(Option<JitterSpec>),
    Coalesce(Option<CoalesceSpec>),
}

impl Key {
    /// Every key, in the order in which a hop uses them.
    pub const ALL: [Self; 13] = [
        Self::Loss,
        Self::Outages,
        Self::Duplicate,
        Self::Corrupt,
        Self::Mtu,
        Self::Policer,
        Self::Queue,
        Self::Rate,
        Self::Layer,
        Self::Delay,
        Self::DelaySteps,
        Self::Jitter,
        Self::Coalesce,
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Outages => "outages",
            Self::Duplicate => "duplicate",
            Self::Corrupt => "corrupt",
            Self::Mtu => "mtu",
            Self::Policer => "policer",
            Self::Queue => "queue",
            Self::Rate => "rate",
            Self::Layer => "layer",
            Self::Delay => "delay",
            Self::DelaySteps => "delay-steps",
            Self::Jitter => "jitter",
            Self::Coalesce => "coalesce",
        }
    }

    /// The key of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }

    /// Whether `hop` has another value than the default for it.
    pub fn is_set(self, hop: &HopSpec) -> bool {
        let default = HopSpec::default();
        match self {
            Self::Loss => hop.loss != default.loss,
            Self::Outages => hop.outages != default.outages,
            Self::Duplicate => hop.duplicate != default.duplicate,
            Self::Corrupt => hop.corrupt != default.corrupt,
            Self::Mtu => hop.mtu != default.mtu,
            Self::Policer => hop.policer != default.policer,
            Self::Queue => hop.queue != default.queue,
            Self::Rate => hop.rate != default.rate,
            Self::Layer => hop.layer != default.layer,
            Self::Delay => hop.delay != default.delay,
            Self::DelaySteps => hop.delay_steps != default.delay_steps,
            Self::Jitter => hop.jitter != default.jitter,
            Self::Coalesce => hop.coalesce != default.coalesce,
        }
    }

    /// Reads the text form of its value; the error says what is allowed.
    pub(crate) fn read(self, text: &str) -> Result<Setting, String> {
        let text = text.trim();
        Ok(match self {
            Self::Loss => Setting::Loss(loss(text)?),
            Self::Outages => Setting::Outages(outages(text)?),
            Self::Duplicate => Setting::Duplicate(probability(text)?),
            Self::Corrupt => Setting::Corrupt(probability(text)?),
            Self::Mtu => Setting::Mtu(mtu(text)?),
            Self::Policer => Setting::Policer(policer(text)?),
            Self::Queue => Setting::Queue(queue(text)?),
            Self::Rate => Setting::Rate(if text == "none" { None } else { Some(rate(text)?) }),
            Self::Layer => Setting::Layer(layer(text)?),
            Self::Delay => Setting::Delay(nanos(text)?),
            Self::DelaySteps => Setting::DelaySteps(delay_steps(text)?),
            Self::Jitter => Setting::Jitter(jitter(text)?),
            Self::Coalesce => Setting::Coalesce(coalesce(text)?),
        })
    }
}

impl Setting {
    /// The key that it is a value of.
    pub fn key(&self) -> Key {
        match self {
            Self::Loss(_) => Key::Loss,
            Self::Outages(_) => Key::Outages,
            Self::Duplicate(_) => Key::Duplicate,
            Self::Corrupt(_) => Key::Corrupt,
            Self::Mtu(_) => Key::Mtu,
            Self::Policer(_) => Key::Policer,
            Self::Queue(_) => Key::Queue,
            Self::Rate(_) => Key::Rate,
            Self::Layer(_) => Key::Layer,
            Self::Delay(_) => Key::Delay,
            Self::DelaySteps(_) => Key::DelaySteps,
            Self::Jitter(_) => Key::Jitter,
            Self::Coalesce(_) => Key::Coalesce,
        }
    }

    /// Puts it into `hop`, unchecked.
    pub(crate) fn put(self, hop: &mut HopSpec) {
        match self {
            Self::Loss(loss) => hop.loss = loss,
            Self::Outages(outages) => hop.outages = outages,
            Self::Duplicate(chance) => hop.duplicate = chance,
            Self::Corrupt(chance) => hop.corrupt = chance,
            Self::Mtu(mtu) => hop.mtu = mtu,
            Self::Policer(policer) => hop.policer = policer,
            Self::Queue(limit) => hop.queue = limit,
            Self::Rate(rate) => hop.rate = rate,
            Self::Layer(layer) => hop.layer = layer,
            Self::Delay(delay) => hop.delay = delay,
            Self::DelaySteps(steps) => hop.delay_steps = steps,
            Self::Jitter(jitter) => hop.jitter = jitter,
            Self::Coalesce(coalesce) => hop.coalesce = coalesce,
        }
    }
}

const LOSS_FORMS: &str = "none, random(P), every(N), gilbert-elliott(P,R), gilbert-elliott(P,R,H,K), list(1,5,9-12), bursts(FOR,EVERY), bursts(FOR,EVERY,LOST,OTHERWISE) or a probability alone, such as 0.01%";

/// A form by its name, or the chance of `random` alone.
pub(crate) fn loss(text: &str) -> Result<LossSpec, String> {
    if text.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        let chance = probability(text)?;
        return Ok(if chance.0 == 0.0 { LossSpec::None } else { LossSpec::Random(chance) });
    }
    let unknown = || format!("{}: use {LOSS_FORMS}", shown(text));
    let (name, arguments) = call(text).ok_or_else(unknown)?;
    Ok(match (name, arguments.as_slice()) {
        ("none", []) => LossSpec::None,
        ("random", [chance]) => LossSpec::Random(probability(chance)?),
        ("every", [count]) => LossSpec::Every(count_from_1(count)?),
        ("gilbert-elliott", [p, r]) => gilbert_elliott([p, r, "0", "1"])?,
        ("gilbert-elliott", [p, r, h, k]) => gilbert_elliott([p, r, h, k])?,
        ("bursts", [lasting, every]) => bursts([lasting, every, "1", "0"])?,
        ("bursts", [lasting, every, lost, otherwise]) => bursts([lasting, every, lost, otherwise])?,
        ("list", items) => list(items.iter().copied())?,
        _ => return Err(unknown()),
    })
}

/// p, r, h, k.
pub(crate) fn gilbert_elliott(chances: [&str; 4]) -> Result<LossSpec, String> {
    let [p, r, h, k] = chances.map(probability);
    Ok(LossSpec::GilbertElliott { p: p?, r: r?, h: h?, k: k? })
}

/// Mean time of a burst, mean time from begin to begin, chance of loss within, chance of loss between.
pub(crate) fn bursts([lasting, every, lost, otherwise]: [&str; 4]) -> Result<LossSpec, String> {
    let (lasting, every) = (nanos(lasting)?, nanos(every)?);
    let (lost, otherwise) = (probability(lost)?, probability(otherwise)?);
    Ok(LossSpec::Bursts(BurstLoss { lasting, every, lost, otherwise }))
}

/// Numbers and ranges `a-b`, in any order. What is written twice counts twice towards the most.
pub(crate) fn list<'a>(items: impl Iterator<Item = &'a str>) -> Result<LossSpec, String> {
    let (mut ranges, mut packets) = (Vec::new(), 0usize);
    for item in items {
        let item = item.trim();
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let number = |text: &str| text.trim().parse::<u64>().ok().filter(|number| *number > 0);
        let (first, last) = (number(first).zip(number(last)))
            .filter(|(first, last)| first <= last)
            .ok_or_else(|| format!("{}: a list has packet numbers from 1 and ranges like 9-12", shown(item)))?;
        if last - first >= (LIST_MAX - packets) as u64 {
            return Err(format!("{}: a list has at most {LIST_MAX} packets", shown(item)));
        }
        packets += (last - first) as usize + 1;
        ranges.push((first, last));
    }
    Ok(LossSpec::List(PacketList::of(ranges)))
}

/// A list file: a number or range a line, `#` begins a comment.
pub(crate) fn list_file(text: &str) -> Result<LossSpec, String> {
    list(text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).filter(|line| !line.is_empty()))
}

fn outages(text: &str) -> Result<Vec<Outage>, String> {
    if text == "none" {
        return Ok(Vec::new());
    }
    text.split(';')
        .map(|one| match *one.split(',').map(str::trim).collect::<Vec<_>>() {
            [at, lasting] => Ok(Outage { at: nanos(at)?, lasting: nanos(lasting)?, every: None }),
            [at, lasting, every] => Ok(Outage { at: nanos(at)?, lasting: nanos(lasting)?, every: Some(nanos(every)?) }),
            _ => Err(format!("{}: use none, AT,FOR or AT,FOR,EVERY such as 10s,50ms,60s", shown(one))),
        })
        .collect()
}

/// `0.01%`, `1e-4`, `0.5`.
pub(crate) fn probability(text: &str) -> Result<Probability, String> {
    let number = text.trim();
    let value = match number.strip_suffix('%').map(str::trim_end) {
        // Shifting the point in the text keeps 0.01% the same number as 1e-4.
        Some(percent) if !percent.contains(['e', 'E']) => format!("{percent}e-2").parse(),
        Some(percent) => percent.parse().map(|value: f64| value / 100.0),
        None => number.parse::<f64>(),
    };
    match value {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(Probability(value.abs())),
        _ => Err(format!("{}: a probability is from 0 to 1, or 0% to 100%", shown(text))),
    }
}

pub(crate) fn rate(text: &str) -> Result<BitRate, String> {
    text.parse().map_err(|error| format!("{error}"))
}

pub(crate) fn nanos(text: &str) -> Result<Nanos, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn mtu(text: &str) -> Result<Option<MtuSpec>, String> {
    if text == "none" {
        return Ok(None);
    }
    let wrong = || format!("{}: use none, BYTES or BYTES,silent, such as 1400", shown(text));
    let (bytes, icmp) = match text.split_once(',') {
        None => (text, true),
        Some((bytes, silent)) if silent.trim() == "silent" => (bytes.trim(), false),
        Some(_) => return Err(wrong()),
    };
    Ok(Some(MtuSpec { bytes: bytes.parse().map_err(|_| wrong())?, icmp }))
}

fn policer(text: &str) -> Result<Option<PolicerSpec>, String> {
    if text == "none" {
        return Ok(None);
    }
    let wrong = || format!("{}: use none or RATE,BURST, such as 100Mbit,64KiB", shown(text));
    let (rate, burst) = text.split_once(',').ok_or_else(wrong)?;
    Ok(Some(PolicerSpec { rate: self::rate(rate.trim())?, burst: bytes(burst.trim())? }))
}

pub(crate) fn bytes(text: &str) -> Result<Bytes, String> {
    text.parse().map_err(|error| format!("{error}"))
}

pub(crate) fn queue(text: &str) -> Result<QueueLimit, String> {
    let text = text.trim();
    let wrong = || format!("{}: use bytes (64MiB), packets (1000p) or unlimited", shown(text));
    if text == "unlimited" {
        return Ok(QueueLimit::Unlimited);
    }
    if let Some(packets) = text.strip_suffix('p') {
        return packets.trim_end().parse().map(QueueLimit::Packets).map_err(|_| wrong());
    }
    text.parse::<Bytes>().map(QueueLimit::Bytes).map_err(|_| wrong())
}

fn layer(text: &str) -> Result<Layer, String> {
    match text {
        "L1" => Ok(Layer::L1),
        "L2" => Ok(Layer::L2),
        _ => Err(format!("{}: use L1 or L2", shown(text))),
    }
}

fn delay_steps(text: &str) -> Result<DelaySteps, String> {
    let wrong = || {
        format!(
            "{}: use none, AT,DELAY, AT,DELAY,FOR or AT,DELAY,FOR,EVERY, several separated by `;`, or random(EVERY,DELAY,…)",
            shown(text)
        )
    };
    if text == "none" {
        return Ok(DelaySteps::default());
    }
    if let Some((name, arguments)) = call(text)
        && name == "random"
    {
        let (every, delays) = arguments.split_first().filter(|(_, delays)| !delays.is_empty()).ok_or_else(wrong)?;
        let delays = delays.iter().map(|delay| nanos(delay)).collect::<Result<_, _>>()?;
        return Ok(DelaySteps::Random { every: nanos(every)?, delays });
    }
    let step = |text: &str| {
        let parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let (at, delay, lasting, every) = match *parts {
            [at, delay] => (at, delay, None, None),
            [at, delay, lasting] => (at, delay, Some(lasting), None),
            [at, delay, lasting, every] => (at, delay, Some(lasting), Some(every)),
            _ => return Err(wrong()),
        };
        let (lasting, every) = (lasting.map(nanos).transpose()?, every.map(nanos).transpose()?);
        Ok(DelayStep { at: nanos(at)?, delay: nanos(delay)?, lasting, every })
    };
    text.split(';').map(step).collect::<Result<_, _>>().map(DelaySteps::At)
}

fn jitter(text: &str) -> Result<Option<JitterSpec>, String> {
    let unknown = || {
        format!(
            "{}: use none, LAW(STDDEV), LAW(STDDEV,ORDER) or LAW(STDDEV,ORDER,CORRELATION), {LAW_NAMES}; a table needs a path file",
            shown(text)
        )
    };
    let (name, arguments) = call(text).ok_or_else(unknown)?;
    if let ("none", []) = (name, arguments.as_slice()) {
        return Ok(None);
    }
    let law = Law::named(name).ok_or_else(unknown)?;
    let (stddev, order, correlation) = match *arguments {
        [stddev] => (stddev, Order::default(), None),
        [stddev, order] => (stddev, self::order(order)?, None),
        [stddev, order, correlation] => (stddev, self::order(order)?, Some(nanos(correlation)?)),
        _ => return Err(unknown()),
    };
    Ok(Some(JitterSpec { law, stddev: nanos(stddev)?, order, correlation }))
}

const LAW_NAMES: &str = "LAW one of normal, uniform, pareto, paretonormal and ORDER fifo or free";

pub(crate) fn order(text: &str) -> Result<Order, String> {
    match text {
        "fifo" => Ok(Order::Fifo),
        "free" => Ok(Order::Free),
        _ => Err(format!("{}: use fifo or free", shown(text))),
    }
}

fn coalesce(text: &str) -> Result<Option<CoalesceSpec>, String> {
    if text == "none" {
        return Ok(None);
    }
    Ok(Some(match text.split_once(',') {
        None => CoalesceSpec { time: nanos(text)?, count: None },
        Some((time, count)) => CoalesceSpec { time: nanos(time)?, count: Some(count_from_1(count)?) },
    }))
}

pub(crate) fn count_from_1(text: &str) -> Result<NonZeroU64, String> {
    text.trim().parse().map_err(|_| format!("{}: a whole number from 1", shown(text)))
}

/// `name(a,b)` as its name and arguments, `name` as itself without any.
fn call(text: &str) -> Option<(&str, Vec<&str>)> {
    let Some((name, rest)) = text.split_once('(') else {
        return Some((text, Vec::new()));
    };
    let inner = rest.strip_suffix(')')?.trim();
    let arguments = if inner.is_empty() { Vec::new() } else { inner.split(',').map(str::trim).collect() };
    Some((name.trim_end(), arguments))
}
