//! Results, and files beside them, on their way to the coordinator: kept on the disk until it has confirmed them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::error::Failure;
use crate::store::{FileKind, Kept, Measured, Outbox, TestFile};
use longhaul_kernel::stderr_line;
use longhaul_mesh_model::message::{DELIVERY_MOST, Message};

/// Bytes of a delivery, unless one result is longer: half of the longest message.
const DELIVERY_BYTES_MOST: usize = 512 << 10;
/// Files that are delivered one after the other, before the coordinator is asked again what changed.
const FILES_AT_ONCE: usize = 64;
/// Results that are kept in memory at most while the disk takes none. Then the oldest go.
const UNKEPT_MOST: usize = 10_000;

/// The outbox, and what the disk did not take yet.
pub(super) struct Outgoing {
    outbox: Mutex<Outbox>,
    unkept: Mutex<VecDeque<Kept>>,
}

impl Outgoing {
    pub(super) fn new(outbox: Outbox) -> Self {
        Self { outbox: Mutex::new(outbox), unkept: Mutex::default() }
    }

    /// Takes a result. It is on the disk when this returns, or in memory until the next [`Outgoing::flush`].
    /// The file beside it is on the disk together with it, or goes: what the disk does not take of files has no place in memory.
    pub(super) fn keep(&self, result: Kept, file: Option<&TestFile>) {
        if let Some(file) = file {
            match self.outbox().put_both(&result, Some(file)) {
                Ok(()) => return,
                Err(error) => stderr_line!("{} of a test are not kept: {error}", file.of.name()),
            }
        }
        let mut unkept = self.unkept.lock().unwrap_or_else(PoisonError::into_inner);
        if unkept.len() >= UNKEPT_MOST {
            unkept.pop_front();
        }
        unkept.push_back(result);
        drop(unkept);
        if let Err(failure) = self.flush() {
            stderr_line!("a result is kept in memory: {failure}");
        }
    }

    /// Writes what the disk did not take before.
    pub(super) fn flush(&self) -> Result<(), Failure> {
        let mut unkept = self.unkept.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(result) = unkept.front() {
            self.outbox().put(result)?;
            unkept.pop_front();
        }
        Ok(())
    }

    fn outbox(&self) -> std::sync::MutexGuard<'_, Outbox> {
        // A transaction that a panic left is rolled back by the next.
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers what waits, each result once. The coordinator confirms what is on its disk; only then it goes here. A coordinator that does not
    /// know a kind leaves it here.
    pub(super) fn deliver(&self, ask: impl Fn(&Message) -> Result<Message, Failure>) -> Result<(), Failure> {
        let mut last = 0;
        loop {
            let waiting = self.outbox().after(last, DELIVERY_MOST)?;
            if waiting.is_empty() {
                return Ok(());
            }
            let (mut results, mut measurements, mut bytes) = (Vec::new(), Vec::new(), 0);
            for (number, kept) in waiting {
                bytes += serde_json::to_string(&kept).map_or(0, |text| text.len());
                if bytes > DELIVERY_BYTES_MOST && !(results.is_empty() && measurements.is_empty()) {
                    break;
                }
                last = number;
                match kept {
                    Kept::Udp(result) => results.push(result),
                    Kept::Measurement(measurement) => measurements.push(measurement),
                }
            }
            match ask(&Message::Deliver { results, measurements })? {
                Message::Confirmed { ids } => self.outbox().confirmed(&ids)?,
                _ => return Err(Failure::new("the coordinator answered something else than a confirmation")),
            }
        }
    }

    /// Delivers the files that wait, of those kinds that the coordinator keeps. Others wait until it does, or until they are too old.
    pub(super) fn deliver_files(
        &self,
        kinds: &[FileKind],
        ask: impl Fn(&Message) -> Result<Message, Failure>,
    ) -> Result<(), Failure> {
        let (mut last, mut left) = (0, FILES_AT_ONCE);
        for kind in kinds {
            while left > 0 {
                // Not in the condition: there the outbox would stay locked.
                let next = self.outbox().file_after(last, Some(*kind))?;
                let Some((number, file)) = next else { break };
                (last, left) = (number, left - 1);
                let id = file.id.clone();
                match ask(&Message::DeliverFile { file })? {
                    Message::Confirmed { ids } if ids.contains(&id) => self.outbox().file_confirmed(&id)?,
                    _ => return Err(Failure::new("the coordinator answered something else than a confirmation")),
                }
            }
            last = 0;
        }
        Ok(())
    }

    /// The alarms whose diagnoses wait.
    pub(super) fn diagnosed(&self) -> Result<Vec<String>, Failure> {
        let alarm = |kept| match kept {
            Kept::Measurement(measurement) => match measurement.measured {
                Measured::Diagnose(diagnosis) => Some(diagnosis.alarm),
                _ => None,
            },
            Kept::Udp(_) => None,
        };
        Ok(self.outbox().all()?.into_iter().filter_map(alarm).collect())
    }
}

#[cfg(test)]
mod tests {
    use longhaul_mesh_model::result::{CAUSES_MOST, Cause, Diagnosis, Measurement, Quantiles, RoundTrips};

    use super::*;

    /// A coordinator reads messages in bounded memory.
    #[test]
    fn the_largest_deliveries_are_read() {
        let deliver = |measured: Measured, count: usize| {
            let one = Measurement {
                id: "0123456789abcdef0123456789abcdef".into(),
                test: "d".into(),
                sender: "a".into(),
                receiver: "b".into(),
                at_ns: 1_700_000_000_000_000_000,
                measured,
            };
            Message::Deliver { results: Vec::new(), measurements: vec![one; count] }
        };
        let quantiles = Quantiles { min_ns: 1, p50_ns: 1, p90_ns: 1, p99_ns: 1, max_ns: 1 };
        let trips = RoundTrips {
            duration_ns: 1,
            sent: 1,
            lost: 0,
            quantiles: Some(quantiles),
            outages: 0,
            longest_outage_ns: 0,
            gaps_ns: 0,
        };
        let cause = Cause {
            code: "loss".into(),
            place: "network".into(),
            bound_bps: None,
            remedy: "ask who runs the path where it loses packets".into(),
        };
        let diagnosis = Diagnosis {
            alarm: "a".into(),
            target_bps: None,
            goodput_bps: None,
            causes: vec![cause; CAUSES_MOST],
            failed: None,
        };
        // Diagnoses are as many as a delivery has bytes for.
        let diagnoses = DELIVERY_BYTES_MOST / serde_json::to_string(&diagnosis).unwrap().len();
        for message in
            [deliver(Measured::Rtt(trips), DELIVERY_MOST as usize), deliver(Measured::Diagnose(diagnosis), diagnoses)]
        {
            let text = serde_json::to_vec(&message).unwrap();
            assert_eq!(longhaul_channel::parse::<Message>(&text).unwrap(), message);
        }
    }
}
