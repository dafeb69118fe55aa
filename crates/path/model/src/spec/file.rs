//! Path files.
//!
//! ```toml
//! name = "tokyo"
//! source = "TAPEE, figure 8"
//! [[client]]                        # hosts: name, rate, delay, queue, mtu; none means one at each end
//! rate = "10Gbit"
//! [[both]]                          # a hop of either direction
//! rate = "9.28Gbit"                 # layer = "L1" unless "L2" is said
//! queue = "64MiB"                   # or "1000p" or "unlimited"
//! delay = "250ms"
//! [[backward]]                      # a hop of one direction; [[forward]] likewise
//! jitter = { law = "uniform", stddev = "8.45us", order = "fifo" }
//! loss = { every = 30000 }          # { random = "0.01%" }, { list = "drops.txt" } or { list = [1, "9-12"] },
//!                                   # { gilbert-elliott = { p = "1%", r = "25%", h = "0%", k = "100%" } },
//!                                   # { bursts = { for = "40ms", every = "10s", lost = "100%", otherwise = "0%" } }
//! outages = [{ at = "10s", for = "50ms", every = "60s" }]
//! delay-steps = [{ at = "60s", delay = "280ms", for = "30s", every = "10m" }]   # { every = "1h", delays = ["280ms"] }
//! duplicate = "0.1%"
//! corrupt = "0.1%"
//! mtu = 1400                        # { bytes = 1400, icmp = false }: a black hole for longer packets
//! policer = { rate = "100Mbit", burst = "64KiB" }
//! coalesce = { time = "50us", count = 8 }
//! ```
//!
//! **Order.** `[[both]]` hops are those near the clients. Forward, a packet passes them in written order, then the
//! `[[forward]]` hops; backward, it passes the `[[backward]]` hops in written order, then the `[[both]]` hops in reverse.
//!
//! Each key of a hop also takes the short text of [`mod@super::value`], such as `loss = "every(30000)"`. Law `table` takes its
//! values from `file = "wan.dist"` (see [`Table::parse`]) or `quantiles = [-1.2, …]` in standard deviations.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use longhaul_units::{TOML_CROWDED, toml_crowded_at};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{one_of, shown};
use super::validate::{self, HOPS_MAX, HOSTS_MAX, LIST_MAX, Problem};
use super::value::{self, Key, Setting};
use super::{
    BurstLoss, CoalesceSpec, DelayStep, DelaySteps, HopSpec, HostSpec, JitterSpec, Law, LossSpec, MtuSpec, Outage,
    PathSpec, PolicerSpec, Probability, SpecError,
};
use crate::law::{ENTRIES_MAX, Table};

/// Gives the text of a file that a path file names (a loss list, a `.dist` table).
pub type ReadFile<'a> = &'a dyn Fn(&str) -> io::Result<String>;

/// The longest text that [`PathSpec::parse`] takes: a path with the longest loss list that is written by
/// [`PathSpec::to_toml`] still fits.
const TEXT_BYTES_MAX: usize = 128 << 20;

impl PathSpec {
    /// Reads the text of a path file; `read` gives the files that it names ([`super::no_files`] where there are none).
    ///
    /// # Errors
    /// The text is not TOML, or has an unknown key or a value that is not allowed.
    pub fn parse(text: &str, read: ReadFile) -> Result<Self, SpecError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(SpecError { message: format!("longer than {TEXT_BYTES_MAX} bytes"), ..SpecError::default() });
        }
        let file = File { text, read, listed_packets: Cell::new(0), table_entries: Cell::new(0) };
        if let Some(at) = toml_crowded_at(text) {
            let position = Some(file.position(at));
            return Err(SpecError { position, message: TOML_CROWDED.into(), ..SpecError::default() });
        }
        let document = DeTable::parse(text).map_err(|error| SpecError {
            position: error.span().map(|span| file.position(span.start)),
            message: super::error::one_line(error.message(), 400),
            ..SpecError::default()
        })?;
        let root = Entries { file: &file, place: String::new(), table: document.get_ref() };
        root.only(&["name", "source", "forward", "backward", "both", "client", "server"])?;
        let title = |key| root.field(key).map_or(Ok(String::new()), |field| Ok(field.text()?.to_owned()));
        let both = root.tables("both", HOPS_MAX, |entries| hop(entries, 2))?;
        let mut forward = both.clone();
        forward.extend(root.tables("forward", HOPS_MAX, |entries| hop(entries, 1))?);
        let mut backward = root.tables("backward", HOPS_MAX, |entries| hop(entries, 1))?;
        backward.extend(both.into_iter().rev());
        let spec = Self {
            name: title("name")?,
            source: title("source")?,
            forward,
            backward,
            clients: root.tables("client", HOSTS_MAX, host)?,
            servers: root.tables("server", HOSTS_MAX, host)?,
        };
        spec.validate()?;
        Ok(spec)
    }
}

/// The text that is read, for places in it.
struct File<'a> {
    text: &'a str,
    read: ReadFile<'a>,
    /// Named by the loss lists that were read.
    listed_packets: Cell<usize>,
    /// Values of the tables of jitter that were read, in each direction that has them.
    table_entries: Cell<usize>,
}

impl File<'_> {
    /// Line and column of a byte, from 1.
    fn position(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// A table and its place, such as `forward[0].loss`.
struct Entries<'a> {
    file: &'a File<'a>,
    place: String,
    table: &'a DeTable<'a>,
}

/// A value and its place.
struct Field<'a> {
    file: &'a File<'a>,
    place: String,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Entries<'a> {
    fn place_of(&self, key: &str) -> String {
        if self.place.is_empty() { key.to_owned() } else { format!("{}.{key}", self.place) }
    }

    /// Refuses every key but `allowed`.
    fn only(&self, allowed: &[&str]) -> Result<(), SpecError> {
        match self.table.keys().find(|key| !allowed.contains(&key.get_ref().as_ref())) {
            None => Ok(()),
            Some(key) => {
                let message = format!("no such key, {}", one_of(key.get_ref(), allowed));
                let error = SpecError::new(self.place_of(key.get_ref()), message);
                Err(SpecError { position: Some(self.file.position(key.span().start)), ..error })
            }
        }
    }

    fn field(&self, key: &str) -> Option<Field<'a>> {
        let value = self.table.get(key)?;
        Some(Field { file: self.file, place: self.place_of(key), value })
    }

    /// The tables of an array `[[key]]`, each read by `read`.
    fn tables<T>(
        &self,
        key: &str,
        most: usize,
        read: impl Fn(&Entries<'a>) -> Result<T, SpecError>,
    ) -> Result<Vec<T>, SpecError> {
        let Some(field) = self.field(key) else { return Ok(Vec::new()) };
        let items = field.items().ok_or_else(|| field.error(format!("use [[{key}]] tables")))?;
        if items.len() > most {
            return Err(field.error(format!("{} of them, at most {most}", items.len())));
        }
        items.iter().map(|item| read(&item.entries(&format!("use [[{key}]] tables"))?)).collect()
    }
}

impl<'a> Field<'a> {
    fn error(&self, message: impl AsRef<str>) -> SpecError {
        let position = Some(self.file.position(self.value.span().start));
        SpecError { position, ..SpecError::new(&self.place, message) }
    }

    fn items(&self) -> Option<Vec<Field<'a>>> {
        let array = self.value.get_ref().as_array()?;
        let item = |(index, value)| Field { file: self.file, place: format!("{}[{index}]", self.place), value };
        Some(array.iter().enumerate().map(item).collect())
    }

    fn entries(&self, otherwise: &str) -> Result<Entries<'a>, SpecError> {
        let table = self.value.get_ref().as_table().ok_or_else(|| self.error(self.not(otherwise)))?;
        Ok(Entries { file: self.file, place: self.place.clone(), table })
    }

    fn text(&self) -> Result<&'a str, SpecError> {
        self.value.get_ref().as_str().ok_or_else(|| self.error(self.not("a text in quotes")))
    }

    /// A text or a number, as text.
    fn scalar(&self) -> Result<String, SpecError> {
        Ok(match self.value.get_ref() {
            DeValue::String(text) => text.clone().into_owned(),
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_owned(),
            _ => return Err(self.error(self.not("a number"))),
        })
    }

    /// Reads a text form, so that a wrong one is reported here.
    fn read<T>(&self, text: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Result<T, SpecError> {
        read(text).map_err(|why| self.error(why))
    }

    fn not(&self, allowed: &str) -> String {
        match self.value.get_ref() {
            DeValue::Integer(number) => format!("`{number}`: {allowed}"),
            DeValue::Float(number) => format!("`{number}`: {allowed}"),
            DeValue::String(text) => format!("{}: {allowed}", shown(text)),
            DeValue::Boolean(value) => format!("`{value}`: {allowed}"),
            other => format!("{} is not allowed here: {allowed}", other.type_str()),
        }
    }

    /// The text of the file that this value names.
    fn contents(&self) -> Result<String, SpecError> {
        let name = self.text()?;
        (self.file.read)(name).map_err(|error| self.error(format!("{}: {error}", shown(name))))
    }
}

/// A hop of so many directions.
fn hop(entries: &Entries, directions: usize) -> Result<HopSpec, SpecError> {
    let mut keys = vec!["name"];
    keys.extend(Key::ALL.map(Key::name));
    entries.only(&keys)?;
    let mut hop = HopSpec { name: name(entries)?, ..HopSpec::default() };
    for key in Key::ALL {
        if let Some(field) = entries.field(key.name()) {
            setting(key, &field)?.put(&mut hop);
            if let (Key::Loss, LossSpec::List(list)) = (key, &hop.loss) {
                let listed = entries.file.listed_packets.get() + list.count();
                entries.file.listed_packets.set(listed);
                if listed > LIST_MAX {
                    return Err(field.error(format!("the lists of a path have at most {LIST_MAX} packets together")));
                }
            }
            // Each hop's table is written as text for each direction, however short the name of its file is.
            if let (Key::Jitter, Some(JitterSpec { law: Law::Table(table), .. })) = (key, &hop.jitter) {
                let read = entries.file.table_entries.get() + directions * table.quantiles().len();
                entries.file.table_entries.set(read);
                if read > ENTRIES_MAX {
                    let why = format!("the tables of both directions have at most {ENTRIES_MAX} values together");
                    return Err(field.error(why));
                }
            }
        }
    }
    validate::check_hop(&hop).map_err(|problem| entries.problem(problem))?;
    Ok(hop)
}

fn host(entries: &Entries) -> Result<HostSpec, SpecError> {
    entries.only(&["name", "rate", "delay", "queue", "mtu"])?;
    let mut host = HostSpec { name: name(entries)?, ..HostSpec::default() };
    if let Some(field) = entries.field("rate") {
        host.rate = Some(field.read(field.text()?, value::rate)?);
    }
    if let Some(field) = entries.field("delay") {
        host.delay = field.read(field.text()?, value::nanos)?;
    }
    if let Some(field) = entries.field("queue") {
        host.queue = field.read(field.text()?, value::queue)?;
    }
    if let Some(field) = entries.field("mtu") {
        let bytes = |text: &str| text.parse().map_err(|_| format!("{}: bytes, from 68 to 65535", shown(text)));
        host.mtu = Some(field.read(&field.scalar()?, bytes)?);
    }
    validate::check_host(&host).map_err(|problem| entries.problem(problem))?;
    Ok(host)
}

impl Entries<'_> {
    fn problem(&self, (key, why): Problem) -> SpecError {
        match self.field(key) {
            Some(field) => field.error(why),
            None => SpecError::new(self.place_of(key), why),
        }
    }
}

fn name(entries: &Entries) -> Result<Option<String>, SpecError> {
    entries.field("name").map(|field| Ok(field.text()?.to_owned())).transpose()
}

/// A key's value: the short text, or the long form of those keys that have one.
fn setting(key: Key, field: &Field) -> Result<Setting, SpecError> {
    match (key, field.value.get_ref()) {
        (Key::Duplicate | Key::Corrupt, _) => field.read(&field.scalar()?, |text| key.read(text)),
        (Key::Mtu, DeValue::Table(_)) => mtu(field).map(|mtu| Setting::Mtu(Some(mtu))),
        (Key::Mtu, DeValue::Integer(_)) => field.read(&field.scalar()?, |text| key.read(text)),
        (Key::Loss, DeValue::Table(_)) => loss(field).map(Setting::Loss),
        (Key::Outages, DeValue::Array(_)) => {
            let items = field.items().unwrap_or_default();
            items.iter().map(outage).collect::<Result<_, _>>().map(Setting::Outages)
        }
        (Key::Policer, DeValue::Table(_)) => policer(field).map(|policer| Setting::Policer(Some(policer))),
        (Key::DelaySteps, DeValue::Array(_)) => {
            let items = field.items().unwrap_or_default();
            let steps = items.iter().map(delay_step).collect::<Result<_, _>>();
            steps.map(|steps| Setting::DelaySteps(DelaySteps::At(steps)))
        }
        (Key::DelaySteps, DeValue::Table(_)) => random_delays(field).map(Setting::DelaySteps),
        (Key::Jitter, DeValue::Table(_)) => jitter(field).map(|jitter| Setting::Jitter(Some(jitter))),
        (Key::Coalesce, DeValue::Table(_)) => coalesce(field).map(|batch| Setting::Coalesce(Some(batch))),
        (_, DeValue::String(text)) => field.read(text, |text| key.read(text)),
        _ => Err(field.error(field.not(match key {
            Key::Loss => {
                r#""none", { random = "0.01%" }, { every = 30000 }, { gilbert-elliott = { p, r } }, { list } or { bursts = { for, every } }"#
            }
            Key::Outages => r#"[{ at = "10s", for = "50ms", every = "60s" }]"#,
            Key::Mtu => r#"1400, { bytes = 1400, icmp = false } or "none""#,
            Key::Policer => r#"{ rate = "100Mbit", burst = "64KiB" } or "none""#,
            Key::Queue => r#"a text such as "64MiB", "1000p" or "unlimited""#,
            Key::Rate => r#"a text such as "9.28Gbit""#,
            Key::Layer => r#""L1" or "L2""#,
            Key::DelaySteps => r#"[{ at = "60s", delay = "80ms" }], { every = "1h", delays = ["80ms"] } or "none""#,
            Key::Jitter => r#"{ law = "normal", stddev = "8.45us", order = "fifo" } or "none""#,
            Key::Coalesce => r#"{ time = "50us", count = 8 } or "none""#,
            Key::Delay | Key::Duplicate | Key::Corrupt => r#"a text such as "250ms""#,
        }))),
    }
}

fn loss(field: &Field) -> Result<LossSpec, SpecError> {
    const KINDS: [&str; 5] = ["random", "every", "gilbert-elliott", "list", "bursts"];
    let entries = field.entries("")?;
    entries.only(&KINDS)?;
    let mut kinds = KINDS.into_iter().filter_map(|kind| entries.field(kind).map(|field| (kind, field)));
    let (Some((kind, inner)), None) = (kinds.next(), kinds.next()) else {
        return Err(field.error("one of random, every, gilbert-elliott, list and bursts"));
    };
    match kind {
        "random" => Ok(LossSpec::Random(inner.read(&inner.scalar()?, value::probability)?)),
        "every" => Ok(LossSpec::Every(inner.read(&inner.scalar()?, value::count_from_1)?)),
        "gilbert-elliott" => {
            let chances = inner.entries("use { p, r, h, k }")?;
            chances.only(&["p", "r", "h", "k"])?;
            let chance = |key, default: Option<&str>| match (chances.field(key), default) {
                (Some(field), _) => {
                    let text = field.scalar()?;
                    // Read here for its place in the file, once more where all four are joined.
                    field.read(&text, value::probability).map(|_| text)
                }
                (None, Some(default)) => Ok(default.to_owned()),
                (None, None) => Err(inner.error(format!("{key} is missing, a probability"))),
            };
            let [p, r, h, k] =
                [chance("p", None)?, chance("r", None)?, chance("h", Some("0"))?, chance("k", Some("1"))?];
            inner.read("", |_| value::gilbert_elliott([&p, &r, &h, &k]))
        }
        "bursts" => {
            let parts = inner.entries("use { for, every, lost, otherwise }")?;
            parts.only(&["for", "every", "lost", "otherwise"])?;
            let [lasting, every] = ["for", "every"].map(|key| {
                let field = parts.field(key).ok_or_else(|| inner.error(format!("{key} is missing, a time")))?;
                field.read(field.text()?, value::nanos)
            });
            let [lost, otherwise] =
                [("lost", Probability(1.0)), ("otherwise", Probability(0.0))].map(|(key, default)| {
                    parts.field(key).map_or(Ok(default), |f| f.read(&f.scalar()?, value::probability))
                });
            Ok(LossSpec::Bursts(BurstLoss { lasting: lasting?, every: every?, lost: lost?, otherwise: otherwise? }))
        }
        _ => match inner.items() {
            Some(items) => {
                let items = items.iter().map(Field::scalar).collect::<Result<Vec<_>, _>>()?;
                inner.read("", |_| value::list(items.iter().map(String::as_str)))
            }
            None => inner.read(&inner.contents()?, value::list_file),
        },
    }
}

fn outage(field: &Field) -> Result<Outage, SpecError> {
    let entries = field.entries(r#"{ at = "10s", for = "50ms", every = "60s" }"#)?;
    entries.only(&["at", "for", "every"])?;
    let time = |key| entries.field(key).map(|field| field.read(field.text()?, value::nanos)).transpose();
    let missing = |key| field.error(format!("{key} is missing, a time"));
    Ok(Outage {
        at: time("at")?.ok_or_else(|| missing("at"))?,
        lasting: time("for")?.ok_or_else(|| missing("for"))?,
        every: time("every")?,
    })
}

fn delay_step(field: &Field) -> Result<DelayStep, SpecError> {
    let entries = field.entries(r#"{ at = "60s", delay = "80ms", for = "30s", every = "10m" }"#)?;
    entries.only(&["at", "delay", "for", "every"])?;
    let time = |key| entries.field(key).map(|field| field.read(field.text()?, value::nanos)).transpose();
    let missing = |key| field.error(format!("{key} is missing, a time"));
    Ok(DelayStep {
        at: time("at")?.ok_or_else(|| missing("at"))?,
        delay: time("delay")?.ok_or_else(|| missing("delay"))?,
        lasting: time("for")?,
        every: time("every")?,
    })
}

fn random_delays(field: &Field) -> Result<DelaySteps, SpecError> {
    let entries = field.entries("")?;
    entries.only(&["every", "delays"])?;
    let every = entries.field("every").ok_or_else(|| field.error("every is missing, a time"))?;
    let list = entries.field("delays").ok_or_else(|| field.error("delays is missing, a list of times"))?;
    let items = list.items().ok_or_else(|| list.error(list.not("a list of times")))?;
    let delays = items.iter().map(|item| item.read(item.text()?, value::nanos)).collect::<Result<_, _>>()?;
    Ok(DelaySteps::Random { every: every.read(every.text()?, value::nanos)?, delays })
}

fn mtu(field: &Field) -> Result<MtuSpec, SpecError> {
    let entries = field.entries("")?;
    entries.only(&["bytes", "icmp"])?;
    let bytes = entries.field("bytes").ok_or_else(|| field.error("bytes is missing, such as bytes = 1400"))?;
    let number = |text: &str| text.parse().map_err(|_| format!("{}: a number of bytes", shown(text)));
    let icmp = match entries.field("icmp").map(|field| (field.value.get_ref(), field)) {
        None => true,
        Some((DeValue::Boolean(icmp), _)) => *icmp,
        Some((_, field)) => return Err(field.error(field.not("true or false"))),
    };
    Ok(MtuSpec { bytes: bytes.read(&bytes.scalar()?, number)?, icmp })
}

fn policer(field: &Field) -> Result<PolicerSpec, SpecError> {
    let entries = field.entries("")?;
    entries.only(&["rate", "burst"])?;
    let part =
        |key, such_as| entries.field(key).ok_or_else(|| field.error(format!("{key} is missing, such as {such_as}")));
    let (rate, burst) = (part("rate", r#"rate = "100Mbit""#)?, part("burst", r#"burst = "64KiB""#)?);
    Ok(PolicerSpec { rate: rate.read(rate.text()?, value::rate)?, burst: burst.read(burst.text()?, value::bytes)? })
}

fn jitter(field: &Field) -> Result<JitterSpec, SpecError> {
    let entries = field.entries("")?;
    entries.only(&["law", "stddev", "order", "correlation", "file", "quantiles"])?;
    let missing = |what: &str| field.error(format!("{what} is missing"));
    let law_field = entries.field("law").ok_or_else(|| missing("law"))?;
    let law = match (law_field.text()?, entries.field("file"), entries.field("quantiles")) {
        ("table", Some(file), None) => {
            let table = Table::parse(&file.contents()?).map_err(|error| file.error(error.to_string()))?;
            Law::Table(Arc::new(table))
        }
        ("table", None, Some(quantiles)) => {
            let items = quantiles.items().ok_or_else(|| quantiles.error(quantiles.not("a list of numbers")))?;
            let number = |item: &Field| {
                let read = |text: &str| text.parse().map_err(|_| format!("{}: a number", shown(text)));
                item.read(&item.scalar()?, read)
            };
            let values = items.iter().map(number).collect::<Result<Vec<f64>, _>>()?;
            Law::Table(Arc::new(Table::new(values).map_err(|error| quantiles.error(error.to_string()))?))
        }
        ("table", ..) => return Err(field.error("law table needs one of file and quantiles")),
        (name, None, None) => Law::named(name)
            .ok_or_else(|| law_field.error(format!("{}: use one of {}", shown(name), Law::NAMES.join(", "))))?,
        _ => return Err(field.error("file and quantiles belong to law table")),
    };
    let stddev = entries.field("stddev").ok_or_else(|| missing("stddev, a time,"))?;
    let order = entries.field("order").map(|field| field.read(field.text()?, value::order)).transpose()?;
    let correlation = entries.field("correlation").map(|field| field.read(field.text()?, value::nanos)).transpose()?;
    let stddev = stddev.read(stddev.text()?, value::nanos)?;
    Ok(JitterSpec { law, stddev, order: order.unwrap_or_default(), correlation })
}

fn coalesce(field: &Field) -> Result<CoalesceSpec, SpecError> {
    let entries = field.entries("")?;
    entries.only(&["time", "count"])?;
    let time = entries.field("time").ok_or_else(|| field.error("time is missing, such as time = \"50us\""))?;
    let count = entries.field("count").map(|field| field.read(&field.scalar()?, value::count_from_1)).transpose()?;
    Ok(CoalesceSpec { time: time.read(time.text()?, value::nanos)?, count })
}
