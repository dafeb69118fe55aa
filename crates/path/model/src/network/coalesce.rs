//! Release in batches, as a NIC's interrupt moderation or a framer that fills fixed containers does.

use std::collections::VecDeque;

use longhaul_units::Nanos;

use super::train::Train;
use crate::spec::CoalesceSpec;

/// Holds packets until a batch closes: some time after its first packet, or with its n-th.
#[derive(Debug)]
pub(super) struct Coalescer {
    spec: CoalesceSpec,
    held: Vec<Train>,
    held_packets: u64,
    closes: Nanos,
}

impl Coalescer {
    pub(super) fn new(spec: CoalesceSpec) -> Self {
        Self { spec, held: Vec::new(), held_packets: 0, closes: Nanos::MAX }
    }

    /// When the open batch closes by itself.
    pub(super) fn closes(&self) -> Option<Nanos> {
        (!self.held.is_empty()).then_some(self.closes)
    }

    /// Takes `train` in; what a full or elapsed batch releases goes to `out`, all of it at one time.
    ///
    /// Returns how many trains more or fewer there are than before, by splitting and joining, as (frame, change)
    /// through `changed`.
    pub(super) fn accept(&mut self, train: Train, out: &mut VecDeque<Train>, mut changed: impl FnMut(u32, i32)) {
        let mut rest = Some(train);
        while let Some(mut train) = rest.take() {
            if !self.held.is_empty() && train.start > self.closes {
                self.close(self.closes, out);
            }
            if self.held.is_empty() {
                self.closes = train.start.saturating_add(self.spec.time);
            }
            // How many packets of the train still belong to this batch.
            let by_time = (0..train.count).take_while(|&i| train.time(i) <= self.closes).count() as u64;
            let by_count = self.spec.count.map_or(u64::MAX, |n| n.get() - self.held_packets);
            let take = by_time.min(by_count) as u32;
            if take < train.count {
                rest = Some(train.split_off(take));
                changed(train.frame, 1);
            }
            let full = u64::from(take) == by_count;
            let end = train.end();
            self.hold(train, &mut changed);
            if full {
                self.close(end, out);
            }
        }
    }

    fn hold(&mut self, train: Train, changed: &mut impl FnMut(u32, i32)) {
        self.held_packets += u64::from(train.count);
        if let Some(last) = self.held.last_mut()
            && last.frame == train.frame
            && last.to == train.to
            && last.first + last.count == train.first
            && last.corrupt.is_none()
            && train.corrupt.is_none()
        {
            changed(train.frame, -1);
            last.count += train.count;
            // All packets of a batch get its closing time, so what they had does not matter any more.
            last.offsets = Vec::new();
            return;
        }
        self.held.push(train);
    }

    /// Releases the batch at `time`.
    pub(super) fn close(&mut self, time: Nanos, out: &mut VecDeque<Train>) {
        self.held_packets = 0;
        out.extend(self.held.drain(..).map(|train| train.at(time)));
    }
}
