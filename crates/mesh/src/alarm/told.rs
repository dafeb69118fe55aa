//! Which alarms were told to whom, kept on the disk: each is told once, also by a coordinator that starts again.
//!
//! An attempt is written down before it is made, its success after: a coordinator that is killed between the two tells an alarm twice rather
//! than never.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Alarm, AlarmOptions, command, webhook};
use crate::coordinator::now_ns;
use crate::error::Failure;
use crate::folder::Folder;

const FILE: &str = "alarms.json";
const SECOND_NS: u64 = 1_000_000_000;
/// An alarm that was over for less than this is the same one: at the edge of what is judged it may come and go.
const SAME_WITHIN_NS: u64 = 6 * 3600 * SECOND_NS;
/// The first attempt that fails is made again after this; the time doubles with each.
const FIRST_WAIT_NS: u64 = 2 * SECOND_NS;
/// Attempts, over 34 minutes.
const ATTEMPTS_MOST: u32 = 11;
/// Alarms that are remembered at most: a mesh of 500 sites may have as many.
const KEPT_MOST: usize = 2000;

/// Whether one receiver of alarms knows of one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Attempts {
    done: bool,
    made: u32,
    next_ns: u64,
}

impl Attempts {
    fn is_due(&self, now: u64) -> bool {
        !self.done && self.made < ATTEMPTS_MOST && now >= self.next_ns
    }

    fn begin(&mut self, now: u64) {
        self.next_ns = now.saturating_add(FIRST_WAIT_NS << self.made.min(20));
        self.made += 1;
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Known {
    last_open_ns: u64,
    #[serde(default)]
    command: Attempts,
    #[serde(default)]
    webhook: Attempts,
}

/// What is known of each alarm, by its id.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Told(BTreeMap<String, Known>);

impl Told {
    /// What a coordinator before this one wrote down. What cannot be read is nothing: alarms are told again.
    pub(super) fn load(folder: &Folder) -> Self {
        let text = folder.has(FILE).then(|| folder.read(FILE).ok()).flatten();
        text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }

    fn save(&self, folder: &Folder) -> Result<(), Failure> {
        folder.write(FILE, &serde_json::to_string(self).map_err(Failure::new)?)
    }

    /// These alarms are open now.
    pub(super) fn open(&mut self, folder: &Folder, alarms: &[Alarm]) -> Result<(), Failure> {
        let now = now_ns();
        self.0.retain(|_, known| now.saturating_sub(known.last_open_ns) < SAME_WITHIN_NS);
        for alarm in alarms.iter().take(KEPT_MOST) {
            self.0.entry(alarm.id.clone()).or_default().last_open_ns = now;
        }
        self.save(folder)
    }

    /// Tells one alarm that somebody does not know yet and that is due.
    pub(super) fn tell(&mut self, folder: &Folder, options: &AlarmOptions, alarms: &[Alarm]) -> Result<(), Failure> {
        for alarm in alarms {
            if let Some(program) = &options.on_alarm
                && self.begin(folder, &alarm.id, |known| &mut known.command)?
            {
                command::run(program, alarm)?;
                self.end(folder, &alarm.id, |known| &mut known.command)?;
            }
            if let Some(address) = &options.webhook
                && self.begin(folder, &alarm.id, |known| &mut known.webhook)?
            {
                webhook::post(address, alarm)?;
                self.end(folder, &alarm.id, |known| &mut known.webhook)?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, folder: &Folder, id: &str, of: fn(&mut Known) -> &mut Attempts) -> Result<bool, Failure> {
        let now = now_ns();
        let Some(attempts) = self.0.get_mut(id).map(of).filter(|attempts| attempts.is_due(now)) else {
            return Ok(false);
        };
        attempts.begin(now);
        self.save(folder).map(|()| true)
    }

    fn end(&mut self, folder: &Folder, id: &str, of: fn(&mut Known) -> &mut Attempts) -> Result<(), Failure> {
        if let Some(attempts) = self.0.get_mut(id).map(of) {
            attempts.done = true;
        }
        self.save(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_wait_twice_as_long_each_time_and_end() {
        let mut attempts = Attempts::default();
        let mut at = 0;
        let mut waits = Vec::new();
        while attempts.made < ATTEMPTS_MOST {
            assert!(attempts.is_due(at));
            attempts.begin(at);
            assert!(!attempts.is_due(attempts.next_ns - 1));
            waits.push((attempts.next_ns - at) / SECOND_NS);
            at = attempts.next_ns;
        }
        assert_eq!(waits[..4], [2, 4, 8, 16]);
        assert!(!attempts.is_due(u64::MAX));
        assert_eq!(waits[..10].iter().sum::<u64>(), 2046);
    }
}
