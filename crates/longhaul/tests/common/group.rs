//! Control groups, of version 1 or 2, with one limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a group may outlive its programs.
const PATIENCE: Duration = Duration::from_secs(10);

/// A limit: the controller's name and file of version 1, the file of version 2, and what is written into each.
pub(crate) struct Limit {
    pub(crate) one: (&'static str, &'static str, String),
    pub(crate) two: (&'static str, String),
}

/// A control group, removed with its end.
pub(crate) struct Group(PathBuf);

impl Group {
    /// `None` where this machine lets nobody make one, or does not know the limit.
    pub(crate) fn new(name: &str, limit: &Limit) -> Option<Self> {
        let name = format!("longhaul-{name}-{}", std::process::id());
        let (controller, old_file, old_value) = &limit.one;
        let one = Path::new("/sys/fs/cgroup").join(controller);
        let (folder, file, value) = if one.join("cgroup.procs").exists() {
            (one.join(name), *old_file, old_value)
        } else {
            (Path::new("/sys/fs/cgroup").join(name), limit.two.0, &limit.two.1)
        };
        fs::create_dir(&folder).ok()?;
        let group = Self(folder);
        fs::write(group.0.join(file), value).ok()?;
        Some(group)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// The same command as a program of the group.
    pub(crate) fn within(&self, command: &Command) -> Command {
        let mut within = Command::new("sh");
        within.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs"));
        within.arg(command.get_program()).args(command.get_args());
        within
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        // Its processes go a moment after they ended.
        while fs::remove_dir(&self.0).is_err() && Instant::now() < deadline {
            std::thread::yield_now();
        }
    }
}
