//! Release in batches, as a NIC's interrupt moderation or a framer that fills fixed containers does.

use std::collections::VecDeque;
use std::num::NonZeroU64;

use longhaul_units::Nanos;

use super::train::Train;
use crate::spec::CoalesceSpec;

/// Holds packets until a batch closes: some time after its first packet, or with its n-th.
#[derive(Debug, Default)]
pub(super) struct Coalescer {
    /// For the next batch; `None`: packets pass.
    spec: Option<CoalesceSpec>,
    held: Vec<Train>,
    held_packets: u64,
    /// When the open batch closes, and with how many packets.
    closes: Nanos,
    count: u64,
}

impl Coalescer {
    /// Takes another `spec` for the batches to come. The open one ends as it began: what comes behind it would leave before it else.
    pub(super) fn change(&mut self, spec: Option<CoalesceSpec>) {
        self.spec = spec;
    }

    /// When the open batch closes by itself.
    pub(super) fn closes(&self) -> Option<Nanos> {
        (!self.held.is_empty()).then_some(self.closes)
    }

    /// Takes `train` in. Trains that pass, and those of a batch that is full or over, go to `out`: all of a batch at the same time, and after
    /// what is in `out` already.
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
                let Some(spec) = self.spec else {
                    train.start = not_before(out, train.start);
                    out.push_back(train);
                    return;
                };
                self.closes = train.start.saturating_add(spec.time);
                self.count = spec.count.map_or(u64::MAX, NonZeroU64::get);
            }
            // How many packets of the train still belong to this batch.
            let by_time = (0..train.count).take_while(|&i| train.time(i) <= self.closes).count() as u64;
            let by_count = self.count - self.held_packets;
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
            && last.fragment.is_none()
            && train.fragment.is_none()
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
        let time = not_before(out, time);
        out.extend(self.held.drain(..).map(|train| train.at(time)));
    }
}

/// `time`, or that of the last of `out`.
fn not_before(out: &VecDeque<Train>, time: Nanos) -> Nanos {
    out.back().map_or(time, |last| last.start.max(time))
}
