//! One running hop: fates, MTU, policer, queue, rate, delay, its steps, jitter, and the packets in it.

use std::collections::VecDeque;

use longhaul_units::Nanos;
use longhaul_wire::{Fragment, Shape, fragments};

use super::bursts::Bursts;
use super::chance::{Chance, Picker, in_outage};
use super::coalesce::Coalescer;
use super::counters::HopCounters;
use super::frames::Frames;
use super::jitter::Jitter;
use super::line::Line;
use super::policer::Policer;
use super::server::Server;
use super::steps::Steps;
use super::train::Train;
use crate::spec::{self, HopSpec, Layer, LossSpec, MtuSpec, QueueLimit};

/// A hop in operation.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) spec: HopSpec,
    pub(super) counters: HopCounters,
    seed: u64,
    /// How often each law of chance began, by the number of its stream: one that begins anew has other random numbers, whatever became
    /// of the others.
    begun: [u64; 9],
    loss: Picker,
    bursts: Option<Bursts>,
    duplicate: Picker,
    corrupt: Picker,
    flips: Chance,
    /// When the sender of a packet above the MTU may be told again.
    tell_from: Nanos,
    policer: Option<Policer>,
    server: Server,
    steps: Option<Steps>,
    jitter: Option<Jitter>,
    /// By the time of their first packet.
    line: Line,
    coalescer: Coalescer,
    batched: VecDeque<Train>,
    order: Order,
    items: Vec<Item>,
}

/// A hop tells senders of its MTU no more often than that, as the kernel's limit of 1,000 ICMP messages a second (`icmp_msgs_per_sec`).
const TELL_INTERVAL: Nanos = Nanos::from_millis(1);

/// When trains before this one leave, to keep the order of packets where delays change.
///
/// Trains of several hosts may overlap in time: those keep the order of their first packets. A train that arrives behind the last packet
/// of another leaves behind it too.
#[derive(Debug, Default)]
struct Order {
    /// No train that arrives now leaves before this.
    floor: Nanos,
    /// Trains whose last packets had not arrived when the last train did: when those arrive and leave. At most a few for each host.
    arriving: Vec<(Nanos, Nanos)>,
}

impl Order {
    /// The earliest time at which a train that arrives at `arrival` may leave. Arrivals do not fall.
    fn floor(&mut self, arrival: Nanos) -> Nanos {
        let floor = &mut self.floor;
        self.arriving.retain(|&(arrival_end, departure_end)| {
            let arrived = arrival_end <= arrival;
            if arrived {
                *floor = departure_end.max(*floor);
            }
            !arrived
        });
        self.floor
    }

    /// A train whose last packet arrives at `arrival_end` leaves from `departure_start` to `departure_end`.
    fn leaves(&mut self, arrival_end: Nanos, departure_start: Nanos, departure_end: Nanos) {
        self.floor = self.floor.max(departure_start);
        self.arriving.push((arrival_end, departure_end));
    }
}

/// A packet of the train that is being worked on.
#[derive(Debug, Clone, Copy)]
struct Item {
    index: u32,
    time: Nanos,
    mark: Mark,
    fragment: Option<Fragment>,
    /// A fragment behind the first: what a hop flips is in the first one.
    is_later: bool,
}

impl Item {
    fn plain(train: &Train, index: u32, time: Nanos, mark: Mark) -> Self {
        Self { index, time, mark, fragment: train.fragment, is_later: false }
    }

    /// Bytes on the wire, as one of `train`'s.
    fn wire_len(&self, train: &Train, shape: &Shape) -> u32 {
        match self.fragment {
            Some(fragment) => shape.cut_behind_bytes + fragment.bytes,
            None => train.wire_len(shape, train.first + self.index),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Plain,
    Copy,
    Corrupt,
}

impl Stage {
    /// A hop as `spec` says, with random numbers of its own named by `seed`.
    pub(super) fn new(spec: HopSpec, seed: u64) -> Self {
        let mut stage = Self {
            counters: HopCounters::default(),
            seed,
            begun: [0; 9],
            loss: Picker::new(&LossSpec::None, Chance::new(0, 0), 0),
            bursts: None,
            duplicate: Picker::new(&LossSpec::None, Chance::new(0, 0), 0),
            corrupt: Picker::new(&LossSpec::None, Chance::new(0, 0), 0),
            flips: Chance::new(seed, 4),
            tell_from: Nanos::ZERO,
            policer: None,
            server: Server::new(None, Layer::L1, QueueLimit::Unlimited),
            steps: None,
            jitter: None,
            line: Line::default(),
            coalescer: Coalescer::default(),
            batched: VecDeque::new(),
            order: Order::default(),
            items: Vec::new(),
            spec: HopSpec::default(),
        };
        stage.change(spec);
        stage
    }

    /// Changes the hop to `spec`. Packets in the hop keep their fates and times. Only laws that differ start from the beginning: an unchanged
    /// loss law continues its count of packets.
    pub(super) fn change(&mut self, spec: HopSpec) {
        let (seed, begun) = (self.seed, &mut self.begun);
        let mut chance = |stream: usize| {
            begun[stream] += 1;
            Chance::new(seed, stream as u64 + 16 * (begun[stream] - 1))
        };
        let before = self.counters.arrived.packets;
        if spec.loss != self.spec.loss {
            self.loss = Picker::new(&spec.loss, chance(1), before);
            self.bursts = match spec.loss {
                LossSpec::Bursts(bursts) => Some(Bursts::new(bursts, chance(6), chance(7))),
                _ => None,
            };
        }
        if spec.duplicate != self.spec.duplicate {
            self.duplicate = Picker::new(&LossSpec::Random(spec.duplicate), chance(2), before);
        }
        if spec.corrupt != self.spec.corrupt {
            self.corrupt = Picker::new(&LossSpec::Random(spec.corrupt), chance(3), before);
        }
        if spec.policer != self.spec.policer {
            self.policer = spec.policer.map(Policer::new);
        }
        if spec.delay_steps != self.spec.delay_steps {
            self.steps = Steps::new(&spec.delay_steps, chance(8));
        }
        if spec.jitter != self.spec.jitter {
            self.jitter = spec.jitter.as_ref().map(|spec| Jitter::new(spec, chance(5)));
        }
        if spec.coalesce != self.spec.coalesce {
            self.coalescer.change(spec.coalesce);
        }
        self.server.change(spec.rate, spec.layer, spec.queue);
        self.spec = spec;
    }

    /// Takes a train that arrives. The times of a train that leaves span at most `batch_time`. Returns a packet that the MTU does not carry,
    /// where its sender is to be told: one more train of its frame then counts as in flight.
    pub(super) fn accept(&mut self, train: Train, frames: &mut Frames, batch_time: Nanos) -> Option<u32> {
        let first_number = self.counters.arrived.packets + 1;
        let shape = *frames.shape(train.frame);
        self.counters.arrived.packets += u64::from(train.count);
        self.counters.arrived.bytes += train.wire_bytes(&shape);

        let last_number = self.counters.arrived.packets;
        let plain = self.loss.next() > last_number
            && self.duplicate.next() > last_number
            && self.corrupt.next() > last_number
            && self.spec.outages.is_empty()
            && self.bursts.as_mut().is_none_or(|bursts| !bursts.touch(train.start, train.end()));
        // No packet of a frame is longer than the first.
        let too_long = self.spec.mtu.filter(|mtu| !mtu.carries(train.wire_len(&shape, train.first)));
        if plain
            && too_long.is_none()
            && self.steps.is_none()
            && self.policer.is_none()
            && self.server.is_transparent()
            && self.jitter.is_none()
        {
            self.pass(train);
            return None;
        }

        let mut items = std::mem::take(&mut self.items);
        items.clear();
        if plain {
            items.extend((0..train.count).map(|i| Item::plain(&train, i, train.time(i), Mark::Plain)));
        } else {
            self.decide_fates(&train, first_number, &mut items, |i| train.wire_len(&shape, i));
        }
        let mut told = None;
        if let Some(mtu) = too_long.filter(|_| shape.cut_behind_bytes > 0) {
            self.cut(&train, &shape, mtu, &mut items);
        }
        if let Some(mtu) = too_long {
            items.retain(|item| {
                let frame_bytes = item.wire_len(&train, &shape);
                let carried = mtu.carries(frame_bytes);
                if !carried {
                    self.counters.dropped_mtu.add(frame_bytes);
                    if mtu.icmp && item.time >= self.tell_from {
                        self.tell_from = item.time + TELL_INTERVAL;
                        told = told.or(Some(train.first + item.index));
                    }
                }
                carried
            });
        }
        if let Some(policer) = &mut self.policer {
            items.retain(|item| {
                let frame_bytes = item.wire_len(&train, &shape);
                let passes = policer.admit(item.time, self.spec.layer.bytes_of(frame_bytes));
                if !passes {
                    self.counters.dropped_policer.add(frame_bytes);
                }
                passes
            });
        }
        if !self.server.is_transparent() {
            let counters = &mut self.counters;
            items.retain_mut(|item| {
                let frame_bytes = item.wire_len(&train, &shape);
                match self.server.serve(item.time, frame_bytes) {
                    Some(departure) => {
                        item.time = departure;
                        true
                    }
                    None => {
                        counters.dropped_queue.add(frame_bytes);
                        false
                    }
                }
            });
        }
        self.delay(&train, &mut items);
        let trains = self.depart(&train, &items, batch_time);
        frames.became_or_lost(train.frame, trains + u32::from(told.is_some()));
        self.items = items;
        told
    }

    /// Cuts packets that the MTU does not carry, as a router does (RFC 791 §2.3). What cannot be cut so short stays.
    fn cut(&mut self, train: &Train, shape: &Shape, mtu: MtuSpec, items: &mut Vec<Item>) {
        for item in std::mem::take(items) {
            let frame_bytes = item.wire_len(train, shape);
            let whole = Fragment { offset: 0, bytes: frame_bytes.saturating_sub(shape.cut_behind_bytes) };
            let part = item.fragment.unwrap_or(whole);
            let parts = fragments(part, shape.cut_behind_bytes, mtu.frame_bytes());
            match parts.filter(|_| !mtu.carries(frame_bytes)) {
                None => items.push(item),
                Some(parts) => {
                    let before = items.len();
                    items.extend(parts.map(|part| Item { fragment: Some(part), ..item }));
                    for later in items.iter_mut().skip(before + 1) {
                        later.is_later = true;
                        if later.mark == Mark::Corrupt {
                            later.mark = Mark::Plain;
                        }
                    }
                    let added = (items.len() - before - 1) as u64;
                    self.counters.fragmented.packets += added;
                    self.counters.fragmented.bytes += added * u64::from(shape.cut_behind_bytes);
                }
            }
        }
    }

    /// The way of a train to which nothing happens but delay.
    fn pass(&mut self, mut train: Train) {
        let arrival_end = train.end();
        train.start = (train.start + self.spec.delay).max(self.order.floor(train.start));
        self.order.leaves(arrival_end, train.start, train.end());
        self.line.push(train.start, train);
    }

    /// Loses, duplicates and corrupts; what is left goes to `items`.
    fn decide_fates(
        &mut self,
        train: &Train,
        first_number: u64,
        items: &mut Vec<Item>,
        frame_bytes: impl Fn(u32) -> u32,
    ) {
        for i in 0..train.count {
            let number = first_number + u64::from(i);
            let bytes = frame_bytes(train.first + i);
            let time = train.time(i);
            let picked = number == self.loss.next();
            if picked {
                self.loss.step();
            }
            let lost = self.bursts.as_mut().is_some_and(|bursts| bursts.lose(time)) || picked;
            let duplicated = number == self.duplicate.next();
            if duplicated {
                self.duplicate.step();
            }
            let corrupted = number == self.corrupt.next();
            if corrupted {
                self.corrupt.step();
            }
            if lost {
                self.counters.dropped_loss.add(bytes);
                continue;
            }
            if in_outage(&self.spec.outages, time) {
                self.counters.dropped_outage.add(bytes);
                continue;
            }
            let mark = if corrupted { Mark::Corrupt } else { Mark::Plain };
            if corrupted {
                self.counters.corrupted.add(bytes);
            }
            items.push(Item::plain(train, i, time, mark));
            if duplicated {
                self.counters.duplicated.add(bytes);
                items.push(Item::plain(train, i, time, Mark::Copy));
            }
        }
    }

    /// Adds the delay of each one's time and jitter to `items` and puts them in order.
    fn delay(&mut self, train: &Train, items: &mut [Item]) {
        let (own, steps) = (self.spec.delay, &mut self.steps);
        let mut delay_at = |time| steps.as_mut().and_then(|steps| steps.at(time)).unwrap_or(own);
        let free = self.jitter.as_ref().is_some_and(|jitter| jitter.order() == spec::Order::Free);
        match &mut self.jitter {
            None => items.iter_mut().for_each(|item| item.time += delay_at(item.time)),
            Some(jitter) => {
                let mut known = (Nanos::MAX, 0.0);
                for item in items.iter_mut() {
                    if free || known.0 != item.time {
                        known = (item.time, jitter.at(item.time));
                    }
                    let delay = delay_at(item.time).0 as f64 + known.1;
                    item.time += Nanos(delay.round() as u64);
                }
            }
        }
        if free {
            return;
        }
        let mut floor = self.order.floor(train.start);
        for item in items.iter_mut() {
            item.time = item.time.max(floor);
            floor = item.time;
        }
        if let (Some(first), Some(last)) = (items.first(), items.last()) {
            self.order.leaves(train.end(), first.time, last.time);
        }
    }

    /// Forms trains of `items` and sends them on their way. Returns how many.
    fn depart(&mut self, train: &Train, items: &[Item], batch_time: Nanos) -> u32 {
        let mut trains = 0;
        let mut at = 0;
        while at < items.len() {
            let head = items[at];
            let mut count = 1;
            if head.mark == Mark::Plain && head.fragment.is_none() {
                let latest = head.time.saturating_add(batch_time);
                count += items[at + 1..]
                    .iter()
                    .zip(head.index + 1..)
                    .zip(std::iter::once(&head).chain(&items[at + 1..]))
                    .take_while(|((item, index), before)| {
                        item.mark == Mark::Plain
                            && item.fragment.is_none()
                            && item.index == *index
                            && item.time >= before.time
                            && item.time <= latest
                    })
                    .count();
            }
            let run = &items[at..at + count];
            let spread = run[count - 1].time > head.time;
            let part = Train {
                first: train.first + head.index,
                count: count as u32,
                corrupt: match head.mark {
                    Mark::Corrupt => Some(self.flips.bits()),
                    Mark::Plain | Mark::Copy => train.corrupt.filter(|_| !head.is_later),
                },
                fragment: head.fragment,
                start: head.time,
                offsets: if spread { run.iter().map(|i| (i.time - head.time).0 as u32).collect() } else { Vec::new() },
                ..*train
            };
            self.line.push(head.time, part);
            trains += 1;
            at += count;
        }
        trains
    }

    /// When something next happens here: a train reaches the hop's end, or a batch closes.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        let batched = self.batched.front().map(|train| train.start);
        let closes = self.coalescer.closes();
        [self.line.head(), batched, closes].into_iter().flatten().min()
    }

    /// Does what is due at `now`, the time that [`Stage::next_event`] said, and returns the train that leaves, if any.
    pub(super) fn step(&mut self, now: Nanos, frames: &mut Frames) -> Option<Train> {
        if self.batched.front().is_some_and(|train| train.start <= now) {
            return self.batched.pop_front();
        }
        if self.coalescer.closes().is_some_and(|closes| closes <= now)
            // What reaches the batch at the very instant at which it closes still belongs to it.
            && self.line.head().is_none_or(|head| head > now)
        {
            self.coalescer.close(now, &mut self.batched);
            return None;
        }
        let (_, train) = self.line.pop()?;
        if self.spec.coalesce.is_none() && self.batched.is_empty() && self.coalescer.closes().is_none() {
            return Some(train);
        }
        self.coalescer.accept(train, &mut self.batched, |frame, change| {
            frames.became(frame, (1 + change) as u32);
        });
        None
    }

    /// The shortest time that a packet which leaves the upstream hop now spends here.
    pub(super) fn shortest_delay(&self) -> Nanos {
        // Jitter may take from the delay, and how much depends on the law.
        if self.spec.jitter.is_some() { Nanos::ZERO } else { self.spec.shortest_delay() }
    }

    /// How long a packet that arrives at `now` would wait for the server.
    pub(super) fn backlog(&self, now: Nanos) -> Nanos {
        self.server.backlog(now)
    }
}
