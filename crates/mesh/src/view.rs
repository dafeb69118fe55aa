//! The mesh as its file says it now, made again when the file changes: a schedule of hundreds of sites is not made for each question.

use std::sync::{Arc, Mutex, PoisonError};

use longhaul_mesh_model::file::Mesh;
use longhaul_mesh_model::schedule::Schedule;

use crate::error::Failure;
use crate::folder::Folder;

/// The mesh and its schedule.
pub(crate) struct View {
    text: String,
    pub(crate) mesh: Mesh,
    pub(crate) schedule: Schedule,
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
        let view = Arc::new(View { text, mesh, schedule });
        *last = Some(Arc::clone(&view));
        Ok(view)
    }
}

impl View {
    #[cfg(test)]
    pub(crate) fn new(mesh: Mesh, schedule: Schedule) -> Self {
        Self { text: String::new(), mesh, schedule }
    }

    /// The names of the tests.
    pub(crate) fn tests(&self) -> Vec<String> {
        self.mesh.tests.iter().map(|test| test.name.clone()).collect()
    }
}
