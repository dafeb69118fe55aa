//! An alarm as programs and people read it.

use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::file::Mesh;
use longhaul_mesh_model::place;
use longhaul_units::utc;
use serde::Serialize;
use utoipa::ToSchema;

use crate::shown;

/// Who may lose packets.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Suspect {
    /// `receiver`, `sender`, `path` or `link`.
    pub(crate) kind: &'static str,
    /// The site; of a path the sender and the receiver.
    pub(crate) sites: Vec<String>,
    /// The shared link and the direction, `forward` or `backward`.
    pub(crate) link: Option<(String, &'static str)>,
    /// The same in words.
    pub(crate) text: String,
}

/// Loss above the usual, and who loses.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Alarm {
    /// Names what this alarm is about. It stays the same while the alarm is open.
    pub(crate) id: String,
    /// Who, most likely first. Several: the data cannot tell them apart.
    pub(crate) suspects: Vec<Suspect>,
    /// Where.
    pub(crate) place: &'static str,
    /// Since when, RFC 3339; null: since before the mesh knows.
    pub(crate) since: Option<String>,
    /// When it was raised, RFC 3339.
    pub(crate) raised: String,
    /// Share of the packets that is lost above the usual, from 0 to 1.
    pub(crate) loss: f64,
    /// How much more likely the losses are with this fault than without: logarithm to base 10.
    pub(crate) log10_odds: f64,
    /// All of it in a sentence.
    pub(crate) text: String,
}

fn time(ns: u64) -> String {
    utc(i64::try_from(ns).unwrap_or(i64::MAX))
}

impl Suspect {
    fn new(mesh: &Mesh, suspect: place::Suspect) -> Self {
        let name = |site: SiteId| mesh.of(site).name.clone();
        let link = |number: u16| mesh.links.get(usize::from(number)).map_or_else(String::new, |link| link.name.clone());
        let (kind, sites, link) = match suspect {
            place::Suspect::Receiver(site) => ("receiver", vec![name(site)], None),
            place::Suspect::Sender(site) => ("sender", vec![name(site)], None),
            place::Suspect::Path(from, to) => ("path", vec![name(from), name(to)], None),
            place::Suspect::LinkForward(number) => ("link", vec![], Some((link(number), "forward"))),
            place::Suspect::LinkBackward(number) => ("link", vec![], Some((link(number), "backward"))),
        };
        Self { kind, sites, link, text: shown::suspect(mesh, suspect) }
    }

    fn id(&self) -> String {
        let link = self.link.iter().flat_map(|(name, direction)| [name.as_str(), direction]);
        let words = std::iter::once(self.kind).chain(self.sites.iter().map(String::as_str)).chain(link);
        words.collect::<Vec<_>>().join(":")
    }
}

impl Alarm {
    pub(crate) fn new(mesh: &Mesh, alarm: &place::Alarm) -> Self {
        let suspects: Vec<Suspect> = alarm.suspects.iter().map(|one| Suspect::new(mesh, *one)).collect();
        Self {
            id: suspects.first().map_or_else(String::new, Suspect::id),
            suspects,
            place: shown::place(alarm.place),
            since: alarm.since.map(|since| time(since.0)),
            raised: time(alarm.raised.0),
            loss: alarm.loss,
            log10_odds: alarm.log10_odds,
            text: shown::alarm_line(mesh, alarm),
        }
    }
}
