//! From the text to a mesh.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_units::{BitRate, Nanos, TOML_CROWDED, toml_crowded_at};
use toml::de::DeTable;

use super::error::{MeshError, one_of, shown};
use super::reader::{Field, Table, position};
use super::{Kind, Mesh, SharedLink, Site, TestPlan, share_of};
use crate::sample::SiteId;

/// A file that is longer is none.
const TEXT_BYTES_MOST: usize = 1 << 20;
/// Sites at most: a full mesh of more takes days a round.
const SITES_MOST: usize = 1000;
const GROUPS_MOST: usize = 200;
pub(crate) const LINKS_MOST: usize = 64;
const TESTS_MOST: usize = 32;
/// Of all tests together: four tests of all pairs of the largest mesh.
const PAIRS_MOST: usize = 4_000_000;
/// Shared links on one path. More would be slow to schedule.
const CROSSED_MOST: usize = 8;
/// Addresses and tags of a site, members of a group as written.
const ADDRESSES_MOST: usize = 8;
const TAGS_MOST: usize = 32;
const NAME_LETTERS_MOST: usize = 40;
/// The port of a site's agent, beside that of `longhaul serve`.
const PORT: u16 = 5213;
/// What TeraGrid's probes lasted.
const TIME: Nanos = Nanos::from_secs(60);
const TIME_MOST: Nanos = Nanos::from_secs(3600);
/// Of `rtt`: what one result covers. An hour has six, and a lost one is a lost sixth.
const RTT_TIME: Nanos = Nanos::from_secs(600);
const RTT_TIME_LEAST: Nanos = Nanos::from_secs(5);
/// Rounds: not so often that nothing else runs, not so seldom that a file is a mistake.
const EVERY: std::ops::RangeInclusive<Nanos> = Nanos::from_secs(10)..=Nanos::from_secs(30 * 24 * 3600);
const SHARE: f64 = 0.05;
/// TeraGrid's probes were 90 an hour, in 60 s; these are 100 a second of 1250 bytes.
const UDP_RATE: BitRate = BitRate(1_000_000);
const UDP_LENGTH: u32 = 1250;

type Members = BTreeMap<String, BTreeSet<SiteId>>;

impl Mesh {
    /// Reads a mesh file.
    ///
    /// # Errors
    /// The text is not TOML, lacks a key, or has an unknown key or a value that is not allowed.
    pub fn parse(text: &str) -> Result<Self, MeshError> {
        if text.len() > TEXT_BYTES_MOST {
            return Err(MeshError::new("mesh", format!("longer than {TEXT_BYTES_MOST} bytes")));
        }
        if let Some(at) = toml_crowded_at(text) {
            return Err(MeshError { position: Some(position(text, at)), ..MeshError::new("", TOML_CROWDED) });
        }
        let document = DeTable::parse(text).map_err(|error| MeshError {
            position: error.span().map(|span| position(text, span.start)),
            ..MeshError::new("", error.message().split_whitespace().collect::<Vec<_>>().join(" "))
        })?;
        let root = Table::root(text, document.get_ref());
        root.only(&["name", "site", "group", "link", "test"])?;
        let name = name(&root.needed("name", "\"teragrid\"")?)?;
        let mut sites: Vec<Site> = Vec::new();
        for table in root.tables("site", SITES_MOST)? {
            let read = site(&table)?;
            if sites.iter().any(|site| site.name == read.name) {
                return Err(twice(&table, &read.name));
            }
            sites.push(read);
        }
        if sites.len() < 2 {
            return Err(root.error(format!("{} [[site]] tables: a mesh has two sites or more", sites.len())));
        }
        let members = groups(&root, &sites)?;
        let links = named(&root, "link", LINKS_MOST, |table| link(table, &members), |link| &link.name)?;
        let mut mesh = Self { name, sites, links, tests: Vec::new() };
        let mut pairs = 0;
        let read = |table: &Table| {
            let test = test(table, &members, &mesh)?;
            pairs += test.pairs.len() + test.untestable.len();
            if pairs > PAIRS_MOST {
                return Err(table.error(format!(
                    "the tests up to here have {pairs} pairs of sites: {PAIRS_MOST} at most, test smaller groups"
                )));
            }
            Ok(test)
        };
        let tests = named(&root, "test", TESTS_MOST, read, |test| &test.name)?;
        mesh.tests = tests;
        Ok(mesh)
    }
}

fn twice(table: &Table, name: &str) -> MeshError {
    let error = || format!("{} is there twice: give each a name of its own", shown(name));
    table.field("name").map_or_else(|| table.error(error()), |field| field.error(error()))
}

/// Tables that have names, each once.
fn named<'a, T>(
    root: &Table<'a>,
    key: &str,
    most: usize,
    mut read: impl FnMut(&Table<'a>) -> Result<T, MeshError>,
    name: impl Fn(&T) -> &String,
) -> Result<Vec<T>, MeshError> {
    let mut all: Vec<T> = Vec::new();
    for table in root.tables(key, most)? {
        let item = read(&table)?;
        if all.iter().any(|other| name(other) == name(&item)) {
            return Err(twice(&table, name(&item)));
        }
        all.push(item);
    }
    Ok(all)
}

/// Whether a site or a test can have this name.
pub fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= NAME_LETTERS_MOST
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

fn name(field: &Field) -> Result<String, MeshError> {
    let text = field.string()?;
    if is_name(text) {
        return Ok(text.to_owned());
    }
    let what = "1 to 40 letters, digits, `.`, `_`, `-`, the first a letter or digit";
    Err(field.error(format!("{}: use {what}", shown(text))))
}

fn site(table: &Table) -> Result<Site, MeshError> {
    table.only(&["name", "address", "port", "rate", "tags", "nat"])?;
    let name = name(&table.needed("name", "\"cornell\"")?)?;
    let nat = table.field("nat").map_or(Ok(false), |field| field.truth())?;
    let mut addresses = Vec::new();
    if let Some(field) = table.field("address") {
        for (field, text) in field.strings(ADDRESSES_MOST)? {
            // It becomes an argument of programs, so it is nothing but an address or a name.
            let allowed = |c: char| c.is_ascii_alphanumeric() || ".:-".contains(c);
            let good = (1..=253).contains(&text.len()) && text.chars().all(allowed) && !text.starts_with('-');
            if !good {
                return Err(field.error(format!("{}: use an address or the name of a host", shown(text))));
            }
            addresses.push(text.to_owned());
        }
    }
    if addresses.is_empty() && !nat {
        return Err(
            table.error("needs address, such as address = \"192.0.2.1\"; or nat = true if nobody can connect to it")
        );
    }
    let rate: BitRate = table.needed("rate", "\"10Gbit\"")?.parsed()?;
    if rate.0 < 1_000 {
        return Err(table.error(format!("rate {rate}: use 1kbit or more")));
    }
    let port = table.field("port").map_or(Ok(u64::from(PORT)), |field| field.number(1, 65_535))? as u16;
    let mut tags = Vec::new();
    if let Some(field) = table.field("tags") {
        for (field, _) in field.strings(TAGS_MOST)? {
            tags.push(self::name(&field)?);
        }
    }
    Ok(Site { name, addresses, port, rate, tags, nat })
}

/// All that a group can be called, with its members: sites, `@tag`, groups, `all`.
fn groups(root: &Table, sites: &[Site]) -> Result<Members, MeshError> {
    let mut members = Members::new();
    for (site, id) in sites.iter().zip(0..) {
        members.entry(site.name.clone()).or_default().insert(SiteId(id));
        members.entry("all".into()).or_default().insert(SiteId(id));
        for tag in &site.tags {
            members.entry(format!("@{tag}")).or_default().insert(SiteId(id));
        }
    }
    for table in root.tables("group", GROUPS_MOST)? {
        table.only(&["name", "members"])?;
        let name = name(&table.needed("name", "\"core\"")?)?;
        if members.contains_key(&name) {
            return Err(twice(&table, &name));
        }
        let mut own = BTreeSet::new();
        for (field, text) in table.needed("members", "[\"cornell\", \"@east\"]")?.strings(SITES_MOST)? {
            own.extend(group(&field, text, &members)?);
        }
        members.insert(name, own);
    }
    Ok(members)
}

fn group(field: &Field, text: &str, members: &Members) -> Result<BTreeSet<SiteId>, MeshError> {
    members.get(text).cloned().ok_or_else(|| {
        let known = members.keys().map(String::as_str);
        field.error(format!("{}: no such site, @tag or group above, {}", shown(text), one_of(text, known)))
    })
}

/// `between`: one group or two.
fn between(table: &Table, members: &Members) -> Result<Option<Vec<BTreeSet<SiteId>>>, MeshError> {
    let Some(field) = table.field("between") else { return Ok(None) };
    let names = field.strings(2)?;
    let sets: Vec<_> = names.iter().map(|(field, text)| group(field, text, members)).collect::<Result<_, _>>()?;
    Ok(Some(sets))
}

fn link(table: &Table, members: &Members) -> Result<SharedLink, MeshError> {
    table.only(&["name", "between", "rate", "share"])?;
    let name = name(&table.needed("name", "\"atlantic\"")?)?;
    let needed = table.needed("between", "[\"core\", \"@europe\"]")?;
    let Some([one, other]) = between(table, members)?.and_then(|sets| <[_; 2]>::try_from(sets).ok()) else {
        return Err(needed.error("use two groups: the link lies between them"));
    };
    if one.intersection(&other).next().is_some() {
        return Err(needed.error("a site is at both ends of the link: use groups without a common member"));
    }
    let rate: BitRate = table.needed("rate", "\"10Gbit\"")?.parsed()?;
    Ok(SharedLink::new(name, &[one, other], rate, share(table)?))
}

fn share(table: &Table) -> Result<f64, MeshError> {
    let Some(field) = table.field("share") else { return Ok(SHARE) };
    let text = field.string()?;
    let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    match percent {
        Some(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err(field.error(format!("{}: use above 0% and 100% at most, such as \"5%\"", shown(text)))),
    }
}

fn test(table: &Table, members: &Members, mesh: &Mesh) -> Result<TestPlan, MeshError> {
    let kind_field = table.needed("kind", "\"udp\"")?;
    let kind_name = kind_field.string()?;
    let common = ["name", "kind", "between", "every", "time", "share", "pairs"];
    let (kind, keys): (Kind, Vec<&str>) = match kind_name {
        "udp" => {
            let keys = [&common[..], &["rate", "length"]].concat();
            let rate = table.field("rate").map_or(Ok(UDP_RATE), |field| field.parsed())?;
            let length = table.field("length").map_or(Ok(u64::from(UDP_LENGTH)), |field| field.number(64, 8900))?;
            (Kind::Udp { rate, length: length as u32 }, keys)
        }
        "rtt" => (Kind::Rtt, vec!["name", "kind", "between", "time"]),
        "tcp" => (Kind::Tcp, common.to_vec()),
        "diagnose" => (Kind::Diagnose, vec!["name", "kind", "between", "time", "share"]),
        other => {
            let allowed = one_of(other, ["udp", "rtt", "tcp", "diagnose"]);
            return Err(kind_field.error(format!("{}: {allowed}", shown(other))));
        }
    };
    table.only(&keys)?;
    let name = name(&table.needed("name", "\"probes\"")?)?;
    let every = match (kind, table.field("every")) {
        (Kind::Rtt | Kind::Diagnose, _) => None,
        (_, None) => return Err(table.error("needs every, such as every = \"1h\"")),
        (_, Some(field)) => {
            let every: Nanos = field.parsed()?;
            if !EVERY.contains(&every) {
                return Err(field.error(format!("{every}: use 10s to 720h")));
            }
            Some(every)
        }
    };
    let time = time(table, kind)?;
    let sets = between(table, members)?.unwrap_or_else(|| vec![members["all"].clone()]);
    let (from, to) = (&sets[0], sets.last().unwrap_or(&sets[0]));
    let mut pairs = Vec::with_capacity(2 * from.len() * to.len());
    for one in from {
        for other in to.iter().filter(|other| *other != one) {
            pairs.extend([(*one, *other), (*other, *one)]);
        }
    }
    pairs.sort_unstable();
    pairs.dedup();
    let closed = |(from, to): &(SiteId, SiteId)| mesh.of(*from).nat && mesh.of(*to).nat;
    let (untestable, mut pairs): (Vec<_>, Vec<_>) = pairs.into_iter().partition(closed);
    if kind == Kind::Rtt {
        // A round trip has both directions.
        pairs.retain(|(from, to)| from < to);
    }
    if pairs.is_empty() {
        return Err(table.error("has no pair that can be tested: name two sites or more, and not all behind NAT"));
    }
    let sample = match table.field("pairs") {
        None => None,
        Some(field) => Some(field.number(1, 1_000_000)? as usize).filter(|sample| *sample < pairs.len()),
    };
    let test = TestPlan { name, kind, pairs, untestable, every, time, share: share(table)?, sample };
    check_rate(table, &test, mesh)?;
    check_links(table, &test, mesh)?;
    Ok(test)
}

/// How long a test takes.
fn time(table: &Table, kind: Kind) -> Result<Nanos, MeshError> {
    let (default, least) = match kind {
        Kind::Rtt => (RTT_TIME, RTT_TIME_LEAST),
        // longhaul diagnose takes no less.
        Kind::Diagnose => (TIME, Nanos::from_secs(5)),
        Kind::Udp { .. } | Kind::Tcp => (TIME, Nanos::from_secs(1)),
    };
    let Some(field) = table.field("time") else { return Ok(default) };
    let time: Nanos = field.parsed()?;
    if !(least..=TIME_MOST).contains(&time) {
        return Err(field.error(format!("{time}: use {least} to 1h")));
    }
    Ok(time)
}

/// A path over too many shared links is refused, with the pair.
fn check_links(table: &Table, test: &TestPlan, mesh: &Mesh) -> Result<(), MeshError> {
    let is_crowded = |(from, to): &&(SiteId, SiteId)| mesh.crossed(*from, *to).nth(CROSSED_MOST).is_some();
    let crowded = if mesh.links.len() > CROSSED_MOST { test.pairs.iter().find(is_crowded) } else { None };
    crowded.map_or(Ok(()), |(from, to)| {
        let [count, most] = [mesh.crossed(*from, *to).count(), CROSSED_MOST];
        let (from, to) = (&mesh.of(*from).name, &mesh.of(*to).name);
        Err(table.error(format!(
            "the path from {from} to {to} crosses {count} shared links, {most} at most: leave out fast ones"
        )))
    })
}

/// A rate that exceeds the share of a link is refused, with the pair.
fn check_rate(table: &Table, test: &TestPlan, mesh: &Mesh) -> Result<(), MeshError> {
    let (Kind::Udp { rate, .. }, Some(on_wire)) = (test.kind, test.kind.wire_rate()) else { return Ok(()) };
    // Mostly no link is too slow for any pair: then none of a million is looked at.
    let slowest = mesh.sites.iter().map(|site| share_of(site.rate, test.share)).min();
    if slowest.into_iter().chain(mesh.links.iter().map(SharedLink::leased)).all(|most| on_wire <= most) {
        return Ok(());
    }
    let tightest = test.pairs.iter().map(|(from, to)| (mesh.rate_most(test, *from, *to), *from, *to)).min();
    match tightest {
        Some((most, from, to)) if on_wire > most => {
            let (from, to) = (&mesh.of(from).name, &mesh.of(to).name);
            let message = format!(
                "{rate} of payload is {} on the wire, but from {from} to {to} this test may take {most}: use a lower rate or a greater share",
                on_wire.rounded()
            );
            Err(table.field("rate").map_or_else(|| table.error(&message), |field| field.error(&message)))
        }
        _ => Ok(()),
    }
}
