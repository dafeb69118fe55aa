//! Changes of a path that may be running: `delay=50ms`, `backward.loss=every(30000)`, `client1.rate=1Gbit`.
//!
//! `[DIRECTION.][HOP.]KEY=VALUE`: DIRECTION is `forward` or `backward`, else both are meant. HOP is a hop's name or
//! `hopN`, counted from 1 in travelling order, or a host's name for its access hop (`rate`, `delay`, `queue`). KEY and
//! VALUE are those of path files in their short text (`spec/value.rs` lists them).
//!
//! Without a HOP the one hop of the direction is meant that has the key, else its only hop; a direction without hops is
//! left alone where both are meant.
//!
//! Changes that are made together have no order: each finds its hops in the path as it was, and the path is checked when all are
//! made. Two that give one key of one hop different values are refused.

use std::fmt;
use std::str::FromStr;

use super::error::{one_line, one_of, shown};
use super::{Direction, HopSpec, HostSpec, Key, PathEnd, PathSpec, Setting, SpecError};

/// A new value for a key of one or several hops.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// `None`: both.
    pub direction: Option<Direction>,
    /// The hop's or host's name as it was written; `None`: the one that has the key.
    pub hop: Option<String>,
    /// The key and its new value.
    pub setting: Setting,
}

/// A hop of a path, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HopRef {
    /// A shared hop.
    Hop {
        /// Its direction.
        direction: Direction,
        /// Its place in travelling order, from 0.
        index: usize,
    },
    /// A host's access hop, in each direction.
    Access {
        /// The end of the path at which the host is.
        end: PathEnd,
        /// The host's place, from 0.
        host: usize,
    },
}

/// Why a change is refused. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// It is not `[DIRECTION.][HOP.]KEY=VALUE`.
    #[error("{0}: use [forward.|backward.][HOP.]KEY=VALUE, such as forward.hop1.delay=50ms")]
    Form(String),
    /// The key is none of a hop.
    #[error("{key}: no such key, {}", one_of(key, &Key::ALL.map(Key::name)))]
    Key {
        /// What was written.
        key: String,
    },
    /// The value does not fit the key.
    #[error("{key}: {why}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong and what is allowed.
        why: String,
    },
    /// No hop and no host has this name.
    #[error("{name}: no such hop or host, there are {}", known.join(", "))]
    Unknown {
        /// What was written.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// Several hops may be meant.
    #[error("{key}: which hop of {direction}? name one of {}", known.join(", "))]
    Ambiguous {
        /// The key.
        key: &'static str,
        /// The direction that has several.
        direction: Direction,
        /// Its hops.
        known: Vec<String>,
    },
    /// There is no hop to change.
    #[error("{key}: the path has no hop there; only what a path was made with can be changed")]
    NoHop {
        /// The key.
        key: &'static str,
    },
    /// A host's access hop has fewer keys, and is the same in both directions.
    #[error("{host}.{key}: an access hop has rate, delay and queue, the same in both directions")]
    Access {
        /// The host.
        host: String,
        /// The key.
        key: &'static str,
    },
    /// Two changes of one command say different things.
    #[error("{hop}.{key}: two of the changes give it different values; leave one out")]
    Contradiction {
        /// The hop or host.
        hop: String,
        /// The key.
        key: &'static str,
    },
    /// The path would break a rule.
    #[error(transparent)]
    Invalid(#[from] SpecError),
}

impl Change {
    /// Reads `[DIRECTION.][HOP.]KEY=VALUE`; whether the hop exists is seen when it is applied.
    ///
    /// # Errors
    /// Where it has another form, the key is none or the value does not fit it.
    pub fn parse(text: &str) -> Result<Self, ChangeError> {
        let form = || ChangeError::Form(shown(text));
        let (place, value) = text.split_once('=').ok_or_else(form)?;
        let parts: Vec<&str> = place.split('.').map(str::trim).collect();
        if parts.iter().any(|part| part.is_empty()) {
            return Err(form());
        }
        let direction = Direction::BOTH.into_iter().find(|direction| direction.name() == parts[0]);
        let (hop, key) = match &parts[usize::from(direction.is_some())..] {
            [key] => (None, *key),
            [hop, key] => (Some((*hop).to_owned()), *key),
            _ => return Err(form()),
        };
        // One outage is what is typed most.
        let name = if key == "outage" { "outages" } else { key };
        let key = Key::named(name).ok_or_else(|| ChangeError::Key { key: shown(key) })?;
        let refused = |why: String| ChangeError::Value { key: key.name(), why: one_line(&why, 400) };
        let setting = key.read(value).map_err(refused)?;
        Ok(Self { direction, hop, setting })
    }

    /// Puts the values of all `changes` into `spec`, in whatever order they are given, and says which hops have them now (whether or
    /// not they had them before).
    ///
    /// # Errors
    /// Where no hop or several may be meant, two changes contradict each other, or the path would not be valid; `spec` is as before
    /// then.
    pub fn apply(changes: &[Self], spec: &mut PathSpec) -> Result<Vec<HopRef>, ChangeError> {
        let mut made: Vec<(HopRef, &Setting)> = Vec::new();
        let mut changed = spec.clone();
        for change in changes {
            for target in change.targets(spec)? {
                let key = change.setting.key();
                if made.iter().any(|(hop, other)| *hop == target && other.key() == key && **other != change.setting) {
                    return Err(ChangeError::Contradiction { hop: target.label(spec), key: key.name() });
                }
                change.put(target, &mut changed)?;
                made.push((target, &change.setting));
            }
        }
        changed.validate()?;
        *spec = changed;
        Ok(made.into_iter().map(|(hop, _)| hop).collect())
    }

    fn put(&self, target: HopRef, spec: &mut PathSpec) -> Result<(), ChangeError> {
        match target {
            HopRef::Hop { direction, index } => self.setting.clone().put(&mut spec.hops_mut(direction)[index]),
            HopRef::Access { end, host } => {
                let hosts = spec.hosts_mut(end);
                if hosts.is_empty() {
                    hosts.push(HostSpec::default());
                }
                match &self.setting {
                    Setting::Rate(rate) => hosts[host].rate = *rate,
                    Setting::Delay(delay) => hosts[host].delay = *delay,
                    Setting::Queue(queue) => hosts[host].queue = *queue,
                    other => {
                        let host = self.hop.clone().unwrap_or_default();
                        return Err(ChangeError::Access { host, key: other.key().name() });
                    }
                }
            }
        }
        Ok(())
    }

    fn targets(&self, spec: &PathSpec) -> Result<Vec<HopRef>, ChangeError> {
        let directions: &[Direction] = match &self.direction {
            Some(direction) => std::slice::from_ref(direction),
            None => &Direction::BOTH,
        };
        match &self.hop {
            Some(name) => self.named(name, directions, spec),
            None => self.meant(directions, spec),
        }
    }

    fn named(&self, name: &str, directions: &[Direction], spec: &PathSpec) -> Result<Vec<HopRef>, ChangeError> {
        for end in PathEnd::BOTH {
            if let Some(host) = spec.host_names(end).iter().position(|host| host == name) {
                if self.direction.is_some() {
                    return Err(ChangeError::Access { host: name.into(), key: self.setting.key().name() });
                }
                return Ok(vec![HopRef::Access { end, host }]);
            }
        }
        let place = |hops: &[HopSpec]| {
            let number = name.strip_prefix("hop").and_then(|number| number.parse::<usize>().ok());
            let numbered = number.and_then(|number| number.checked_sub(1)).filter(|index| *index < hops.len());
            hops.iter().position(|hop| hop.name.as_deref() == Some(name)).or(numbered)
        };
        let found: Vec<HopRef> = directions
            .iter()
            .filter_map(|&direction| Some(HopRef::Hop { direction, index: place(spec.hops(direction))? }))
            .collect();
        if found.is_empty() {
            let mut known: Vec<String> = directions.iter().flat_map(|way| spec.hop_names(*way)).collect();
            known.extend(PathEnd::BOTH.into_iter().flat_map(|end| spec.host_names(end)));
            known.sort();
            known.dedup();
            return Err(ChangeError::Unknown { name: shown(name), known });
        }
        Ok(found)
    }

    fn meant(&self, directions: &[Direction], spec: &PathSpec) -> Result<Vec<HopRef>, ChangeError> {
        let key = self.setting.key();
        let mut found = Vec::new();
        for &direction in directions {
            let hops = spec.hops(direction);
            let mut with_key = (0..hops.len()).filter(|&index| key.is_set(&hops[index]));
            let index = match (with_key.next(), with_key.next(), hops.len()) {
                (_, _, 0) => continue,
                (Some(index), None, _) => index,
                (None, _, 1) => 0,
                _ => {
                    let known = spec.hop_names(direction);
                    return Err(ChangeError::Ambiguous { key: key.name(), direction, known });
                }
            };
            found.push(HopRef::Hop { direction, index });
        }
        if found.is_empty() {
            return Err(ChangeError::NoHop { key: key.name() });
        }
        Ok(found)
    }
}

impl FromStr for Change {
    type Err = ChangeError;
    fn from_str(text: &str) -> Result<Self, ChangeError> {
        Self::parse(text)
    }
}

impl HopRef {
    /// What the hop is called in `spec`: `forward.hop1`, `client`.
    pub fn label(self, spec: &PathSpec) -> String {
        match self {
            Self::Hop { direction, index } => match spec.hop_names(direction).get(index) {
                Some(name) => format!("{direction}.{name}"),
                None => self.to_string(),
            },
            Self::Access { end, host } => match spec.host_names(end).into_iter().nth(host) {
                Some(name) => name,
                None => self.to_string(),
            },
        }
    }
}

impl fmt::Display for HopRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hop { direction, index } => write!(f, "{direction}[{index}]"),
            Self::Access { end, host } => write!(f, "{end}[{host}]"),
        }
    }
}
