//! The mesh as its file says it now, made again when the file changes: a schedule of hundreds of sites is not made for each question.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_mesh_model::file::Mesh;
use longhaul_mesh_model::schedule::{Schedule, Slot};

use crate::error::Failure;
use crate::folder::Folder;

/// By round of the schedule, and its number.
type SlotsOfRounds = BTreeMap<(usize, u64), Arc<Vec<Slot>>>;

/// The mesh and its schedule.
pub(crate) struct View {
    text: String,
    pub(crate) mesh: Mesh,
    pub(crate) schedule: Schedule,
    /// Those that were asked for last.
    slots: Mutex<SlotsOfRounds>,
}

/// The last one.
#[derive(Default)]
pub(crate) struct Views(Mutex<Option<Arc<View>>>);

impl Views {
    /// The mesh of this folder.
    pub(crate) fn now(&self, folder: &Folder) -> Result<Arc<View>, Failure> {
        let text = folder.read("mesh.toml")?;
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = last.as_ref().filter(|view| view.text == text) {
            return Ok(Arc::clone(view));
        }
        let mesh = Mesh::parse(&text).map_err(|error| Failure::new(format_args!("mesh.toml:{error}")))?;
        let schedule = Schedule::make(&mesh).map_err(Failure::new)?;
        let view = Arc::new(View { text, ..View::new(mesh, schedule) });
        *last = Some(Arc::clone(&view));
        Ok(view)
    }
}

impl View {
    pub(crate) fn new(mesh: Mesh, schedule: Schedule) -> Self {
        Self { text: String::new(), mesh, schedule, slots: Mutex::default() }
    }

    /// The slots of a round of the schedule with this number. They are made once for those who ask for a round and the one after it.
    pub(crate) fn slots(&self, round: usize, number: u64) -> Arc<Vec<Slot>> {
        let mut known = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, at), _| *of != round || at.abs_diff(number) <= 1);
        let make = || Arc::new(self.schedule.rounds[round].slots_of(&self.mesh, number));
        Arc::clone(known.entry((round, number)).or_insert_with(make))
    }

    /// The names of the tests.
    pub(crate) fn tests(&self) -> Vec<String> {
        self.mesh.tests.iter().map(|test| test.name.clone()).collect()
    }
}
