//! An alarm as programs and people read it.

use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::file::Mesh;
use longhaul_mesh_model::place;
use longhaul_units::utc;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::diagnoses::{self, Asked};
use crate::shown;
use crate::store::Measurement;

/// Who may lose packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Suspect {
    /// `receiver`, `sender`, `path` or `link`.
    pub(crate) kind: String,
    /// The site; of a path the sender and the receiver.
    pub(crate) sites: Vec<String>,
    /// The shared link and the direction, `forward` or `backward`.
    pub(crate) link: Option<(String, String)>,
    /// The same in words.
    pub(crate) text: String,
}

/// Whether an alarm goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = AlarmState)]
pub(crate) enum State {
    /// It does.
    Open,
    /// It has ended.
    Over,
}

/// How far the diagnosis of an alarm is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = DiagnosisProgress)]
pub(crate) enum Progress {
    /// A site is asked for it when the results of the hour have arrived.
    #[default]
    Due,
    /// A site was asked for it. It has not come yet.
    Asked,
    /// There is one.
    Done,
    /// There is none.
    None,
}

/// The diagnosis of an alarm: one path of it, once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct DiagnosisOfAlarm {
    /// `due`: a site is asked for it when the results of the hour have arrived. `asked`: it has not come yet. `done`: there is one. `none`: there is
    /// none.
    pub(crate) progress: Progress,
    /// When a site was asked for it, RFC 3339; null: nobody was.
    pub(crate) asked: Option<String>,
    /// The path: the site that sends; null: nobody was asked.
    pub(crate) sender: Option<String>,
    /// The site that receives.
    pub(crate) receiver: Option<String>,
    /// The id of the test, for `/api/v1/tests/{id}?at=`; null: there is no test.
    pub(crate) test: Option<String>,
    /// When it began, for `at=`.
    pub(crate) at: Option<String>,
    /// Why there is none; null: there is one, or it may still come.
    pub(crate) why: Option<String>,
}

impl DiagnosisOfAlarm {
    /// There is none.
    pub(super) fn none(why: &str) -> Self {
        Self { progress: Progress::None, why: Some(why.to_owned()), ..Self::default() }
    }

    /// A site was asked.
    pub(super) fn asked(asked: &Asked) -> Self {
        let Asked { at_ns, wanted } = asked;
        let (sender, receiver) = (Some(wanted.sender.clone()), Some(wanted.receiver.clone()));
        Self { progress: Progress::Asked, asked: Some(utc(*at_ns)), sender, receiver, ..Self::default() }
    }

    /// A site has answered with this test.
    pub(super) fn answer(&mut self, test: &Measurement, failed: Option<&str>) {
        self.progress = if failed.is_none() { Progress::Done } else { Progress::None };
        (self.test, self.at) = (Some(test.id.clone()), Some(utc(test.at_ns)));
        self.why = failed.map(str::to_owned);
    }

    /// Nobody has answered.
    pub(super) fn give_up(&mut self, why: &str) {
        (self.progress, self.why) = (Progress::None, Some(why.to_owned()));
    }
}

/// Loss above the usual, and who loses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct Alarm {
    /// Names what this alarm is about. It stays the same while the alarm is open.
    pub(crate) id: String,
    /// `open`, or `over` when nobody loses more than usual there any more.
    pub(crate) state: State,
    /// When it ended, RFC 3339; null: it is open.
    pub(crate) ended: Option<String>,
    /// Who, most likely first. Several: the data cannot tell them apart.
    pub(crate) suspects: Vec<Suspect>,
    /// Where.
    pub(crate) place: String,
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
    /// What limits a path of it.
    #[serde(default)]
    pub(crate) diagnosis: DiagnosisOfAlarm,
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
            place::Suspect::LinkForward(number) => ("link", vec![], Some((link(number), "forward".to_owned()))),
            place::Suspect::LinkBackward(number) => ("link", vec![], Some((link(number), "backward".to_owned()))),
        };
        Self { kind: kind.to_owned(), sites, link, text: shown::suspect(mesh, suspect) }
    }

    fn id(&self) -> String {
        let link = self.link.iter().flat_map(|(name, direction)| [name.as_str(), direction.as_str()]);
        let words = std::iter::once(self.kind.as_str()).chain(self.sites.iter().map(String::as_str)).chain(link);
        words.collect::<Vec<_>>().join(":")
    }
}

impl Alarm {
    /// An alarm that is open.
    pub(crate) fn new(mesh: &Mesh, alarm: &place::Alarm) -> Self {
        let suspects: Vec<Suspect> = alarm.suspects.iter().map(|one| Suspect::new(mesh, *one)).collect();
        let has_test = diagnoses::has_test(mesh, alarm);
        let diagnosis = if has_test { DiagnosisOfAlarm::default() } else { DiagnosisOfAlarm::none(diagnoses::NO_TEST) };
        Self {
            id: suspects.first().map_or_else(String::new, Suspect::id),
            state: State::Open,
            ended: None,
            suspects,
            place: shown::place(alarm.place).to_owned(),
            since: alarm.since.map(|since| time(since.0)),
            raised: time(alarm.raised.0),
            loss: alarm.loss,
            log10_odds: alarm.log10_odds,
            text: shown::alarm_line(mesh, alarm),
            diagnosis,
        }
    }

    /// It ended at `at_ns`, nanoseconds since 1970.
    pub(super) fn end(&mut self, at_ns: u64) {
        let ended = time(at_ns);
        self.text = format!("{}; over since {ended}", self.text.replacen(" loses ", " lost ", 1));
        (self.state, self.ended) = (State::Over, Some(ended));
        if self.diagnosis.progress == Progress::Due {
            self.diagnosis = DiagnosisOfAlarm::none("the alarm ended before a site was asked");
        }
    }
}
