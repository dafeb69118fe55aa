//! What to change in a host's settings: a function of those settings and of a [`Target`], without a system or a clock.
//!
//! Values are only raised, and features only turned on: somebody may have tuned the host for a longer path. Each rule says why, by which source,
//! what memory it may take and what else it touches.

mod buffers;
mod links;
mod sending;

use longhaul_result::Caveat;
use longhaul_units::{BitRate, Bytes, Nanos};
use serde::Serialize;

use crate::caveats;
use crate::host::HostState;
use crate::place::HostSetting;
use crate::target::Target;

/// One setting, as it is and as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// The setting.
    pub place: HostSetting,
    /// Its value.
    pub now: String,
    /// The value that it should have.
    pub then: String,
    /// Why.
    pub why: String,
    /// Its source: RFC and section, document of the kernel, vendor.
    pub source: String,
    /// The most memory that it lets one connection take; `None` where it takes none.
    pub memory_bytes: Option<u64>,
    /// What else it touches.
    pub touches: String,
    /// Why it cannot be changed here; `None` where it can.
    pub blocked: Option<String>,
}

/// A setting that is right as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Kept {
    /// The setting.
    pub place: HostSetting,
    /// Its value.
    pub now: String,
}

/// What a person should do, because longhaul cannot or should not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ByHand {
    /// The command; words in capitals are to be filled in.
    pub command: String,
    /// Why, and why longhaul does not do it.
    pub why: String,
    /// Its source.
    pub source: String,
}

/// What to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plan {
    /// What is in flight at the target: rate × round trip.
    pub in_flight_bytes: u64,
    /// The memory that TCP has for all connections before it reduces windows (`tcp_mem`), as it will be; `None` where that could not be read.
    pub tcp_memory_bytes: Option<u64>,
    /// The settings to change, in the order in which they are changed.
    pub changes: Vec<Change>,
    /// Settings that are right as they are.
    pub kept: Vec<Kept>,
    /// What a person should do.
    pub by_hand: Vec<ByHand>,
    /// Causes that no setting of this host fixes, and what does.
    pub elsewhere: Vec<String>,
    /// Why tuning this host raises nothing; `None` where it may.
    pub network_is_the_bound: Option<String>,
    /// Doubts about the plan.
    #[serde(skip)]
    pub caveats: Vec<Caveat>,
}

impl Plan {
    /// What to change on `host` for `target`.
    pub fn make(host: &HostState, target: &Target) -> Self {
        let mut draft = Draft { host, target, plan: Self::empty(target) };
        if target.is_bound_by_network() {
            draft.plan.network_is_the_bound = Some(network_bound(target));
        } else {
            buffers::plan(&mut draft);
            links::plan_offloads(&mut draft);
        }
        sending::plan(&mut draft);
        links::plan_queues(&mut draft);
        draft.elsewhere();
        draft.plan
    }

    fn empty(target: &Target) -> Self {
        Self {
            in_flight_bytes: target.in_flight_bytes(),
            tcp_memory_bytes: None,
            changes: Vec::new(),
            kept: Vec::new(),
            by_hand: Vec::new(),
            elsewhere: Vec::new(),
            network_is_the_bound: None,
            caveats: Vec::new(),
        }
    }

    /// The changes that can be made here.
    pub fn possible(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.blocked.is_none())
    }

    /// The first change that may cut off who makes it from afar: many drivers stop the link for another ring, and some do not come back.
    /// `is_way_out`: whether a default route leaves by that interface.
    pub fn cuts_off(&self, is_way_out: impl Fn(&str) -> bool) -> Option<&HostSetting> {
        let places = self.possible().map(|change| &change.place);
        places.into_iter().find(|place| matches!(place, HostSetting::Ring { link, .. } if is_way_out(link)))
    }
}

fn network_bound(target: &Target) -> String {
    let named: Vec<String> = target
        .causes
        .iter()
        .flatten()
        .filter(|cause| cause.code != "none")
        .map(|cause| match cause.bound_bps {
            Some(bps) => format!("{} (at least {})", cause.code, BitRate(bps).rounded()),
            None => cause.code.clone(),
        })
        .collect();
    format!("what limits the rate is in the network: {}; no setting of a host raises it", named.join(", "))
}

/// A plan that is being made.
struct Draft<'a> {
    host: &'a HostState,
    target: &'a Target,
    plan: Plan,
}

/// What a rule says of a setting, beside its values.
struct Reason {
    why: String,
    source: String,
    memory_bytes: Option<u64>,
    touches: &'static str,
}

impl Reason {
    fn new(why: impl Into<String>, source: &str, touches: &'static str) -> Self {
        Self { why: why.into(), source: source.into(), memory_bytes: None, touches }
    }

    fn taking(self, bytes: u64) -> Self {
        Self { memory_bytes: Some(bytes), ..self }
    }
}

/// Who notices a change of a route.
const OF_THE_ROUTE: &str = "connections that open from then on and take this route, of every program in this network namespace; gone when the \
                            route is set up anew, also with --persist";
/// Who notices a change of most of TCP's parameters.
const NEW_CONNECTIONS: &str = "connections that open from then on, of every program in this network namespace";
/// Who notices a change of the machine's parameters.
const MACHINE: &str = "every program of the machine";

impl Draft<'_> {
    /// `place` shall be `then` where it is `now`; where they are the same it is kept.
    fn set(&mut self, place: HostSetting, now: String, then: String, reason: Reason) {
        if now == then {
            self.plan.kept.push(Kept { place, now });
            return;
        }
        let blocked = match &place {
            HostSetting::Sysctl { key } if self.host.read_only.contains(key) => {
                Some("only the machine's first network namespace can set it: run this on the host itself".to_owned())
            }
            _ => None,
        };
        let Reason { why, source, memory_bytes, touches } = reason;
        self.plan.changes.push(Change {
            place,
            now,
            then,
            why,
            source,
            memory_bytes,
            touches: touches.into(),
            blocked,
        });
    }

    /// The kernel parameter `key` shall be `then`; nothing where it could not be read.
    fn set_sysctl(&mut self, key: &str, then: &str, reason: Reason) {
        if let Some(now) = self.host.sysctls.get(key) {
            self.set(HostSetting::sysctl(key), now.clone(), then.into(), reason);
        }
    }

    /// The kernel parameter `key` shall be at least `least`.
    fn raise_sysctl(&mut self, key: &str, least: u64, reason: Reason) {
        if let Some(now) = self.host.number(key) {
            self.set_sysctl(key, &now.max(least).to_string(), reason);
        }
    }

    fn by_hand(&mut self, command: impl Into<String>, why: impl Into<String>, source: &str) {
        self.plan.by_hand.push(ByHand { command: command.into(), why: why.into(), source: source.into() });
    }

    fn doubt(&mut self, code: longhaul_result::CaveatCode, message: String, remedy: impl Into<String>) {
        self.plan.caveats.push(Caveat::new(code, message, remedy));
    }

    /// Says of the causes that no setting fixes what does.
    fn elsewhere(&mut self) {
        for cause in self.target.causes.iter().flatten() {
            let code = cause.code.as_str();
            let says = match (cause.host, code) {
                (Some(end), _) if !cause.concerns(self.target.role) => {
                    format!("at the {end}, not here: run longhaul tune there with --role {end}")
                }
                (_, "link") => "the slowest link of the path: use a faster one, or a path without it".into(),
                (_, "shaper") => "a shaper on the path: ask who runs it for more rate".into(),
                (_, "policer") => "a policer on the path: ask who runs it; until then pace below its rate".into(),
                (_, "queue") => "a queue on the path that is too short or too long: ask who runs that hop".into(),
                (_, "competing_traffic") => {
                    "other traffic on the path: use another time, another path, or a reservation".into()
                }
                (_, "ecmp_member") => "one of several parallel links is bad: ask who runs them".into(),
                (_, "middlebox_options") => {
                    "a middlebox removes TCP options: ask who runs it (RFC 9293 §3.1 has it pass them)".into()
                }
                (_, "reordering") => "reordering on the path: ask who balances packets instead of flows".into(),
                (_, "mtu") => "the path's MTU: raise it at each hop, then at both hosts".into(),
                (_, "receiver_application" | "sender_application" | "application_window") => {
                    "a program: no setting of the kernel makes it faster".into()
                }
                (_, "cpu") => "a busy CPU: give program or softirq another CPU, or use several streams".into(),
                (_, "disk") => "a disk: no setting of the network makes it faster".into(),
                (_, "memory_limit") => "a memory limit of the program's control group: raise memory.max there".into(),
                (_, "loss") if cause.is_of_network() => {
                    "packets are lost in the network: find where with longhaul udp; at the host one can only bear it"
                        .into()
                }
                _ => continue,
            };
            self.plan.elsewhere.push(format!("{code}: {says}"));
        }
    }

    /// The target in words: `10Gbps over 150ms`.
    fn path(&self) -> String {
        format!("{} over {}", BitRate(self.target.rate_bps), Nanos(self.target.rtt_ns))
    }
}

/// The most that the kernel takes for a buffer: it keeps it as a signed 32-bit number.
pub(crate) const BUFFER_MOST: u64 = i32::MAX as u64;

/// Buffers are rounded up to this, for people to read.
const ROUND: u64 = 1 << 20;

/// What the kernel must be allowed to take for one buffer, and whether that is less than what is needed.
fn buffer_bytes(target: &Target) -> (u64, bool) {
    let needed = target.in_flight_bytes().saturating_mul(2);
    let rounded = needed.checked_next_multiple_of(ROUND).unwrap_or(BUFFER_MOST);
    (rounded.min(BUFFER_MOST), needed > BUFFER_MOST)
}

impl Draft<'_> {
    /// Says where the largest buffer is too small for the target.
    fn doubt_cap(&mut self) {
        if let (bytes, true) = buffer_bytes(self.target) {
            let rate = BitRate::of(bytes / 2, Nanos(self.target.rtt_ns));
            self.doubt(
                caveats::BUFFER_CAPPED,
                format!(
                    "{} needs buffers of {}, and a socket can have {} at most: one connection gets about {}",
                    self.path(),
                    Bytes(self.target.in_flight_bytes().saturating_mul(2)).rounded(),
                    Bytes(BUFFER_MOST).rounded(),
                    rate.rounded()
                ),
                "use several connections",
            );
        }
    }
}

#[cfg(test)]
mod tests;
