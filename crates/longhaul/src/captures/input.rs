//! Captures to read as one stream in order of time, whatever form each has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use longhaul_captures::ledger::Gap;
use longhaul_captures::spool::Interface;
use longhaul_captures::{Packet, Record, dissect_into};

use crate::captures::file::Input;
use crate::captures::found::captures;
use crate::output::Failure;

pub(crate) use crate::captures::file::{Item, ReadSoFar, Told};
pub(crate) use crate::captures::found::is_pipe;

/// Several captures as one.
pub(crate) struct Inputs {
    inputs: Vec<Input>,
    so_far: ReadSoFar,
}

impl Inputs {
    /// Opens all, whose interfaces then count on from one to the next. `with_heads`: see [`Item::Record`].
    pub(crate) fn open(paths: &[PathBuf], with_heads: bool) -> Result<Self, Failure> {
        let mut so_far = ReadSoFar::default();
        let mut inputs = Vec::new();
        let mut first: u16 = 0;
        for path in paths {
            for path in captures(path)? {
                let mut input = Input::open(&path, with_heads, &mut so_far)?;
                let of = |input: &Input| input.share().map(|share| share.capture.clone());
                let capture = of(&input);
                match inputs.iter().find(|known| capture.is_some() && of(known) == capture) {
                    Some(known) => (input.first_interface, input.is_further_part) = (known.first_interface, true),
                    None => {
                        input.first_interface = first;
                        first = first.saturating_add(input.interfaces().len().max(1) as u16);
                    }
                }
                inputs.push(input);
            }
        }
        Ok(Self { inputs, so_far })
    }

    /// How far reading came, while it goes on.
    pub(crate) fn so_far(&self) -> &ReadSoFar {
        &self.so_far
    }

    /// When captures lost packets, before any was read.
    pub(crate) fn gaps(&self) -> Vec<Gap> {
        self.inputs.iter().flat_map(|input| input.gaps.iter().copied()).collect()
    }

    /// What is read, each as it was found.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.inputs.iter().map(|input| input.path.as_path())
    }

    /// Hands out the fields of every packet in order of time.
    pub(crate) fn for_each_packet(&mut self, mut each: impl FnMut(&Packet)) -> Result<(), Failure> {
        let mut packet = Packet::default();
        self.for_each(|item| {
            match item {
                Item::Record(record) => {
                    dissect_into(&record, &mut packet);
                    each(&packet);
                }
                Item::Packet(packet) => each(packet),
            }
            Ok(())
        })
    }

    /// The input whose packet is the oldest.
    fn oldest(&self) -> Option<usize> {
        let inputs = self.inputs.iter().enumerate();
        inputs.filter_map(|(nth, input)| Some((input.current()?.at_ns(), nth))).min().map(|(_, nth)| nth)
    }

    /// The fields of the next packet in order of time, its interface as its own file counts.
    pub(crate) fn next_packet(&mut self) -> Result<Option<Packet>, Failure> {
        let Some(nth) = self.oldest() else { return Ok(None) };
        let packet = self.inputs[nth].current().map(|item| item.packet());
        self.inputs[nth].advance()?;
        Ok(packet)
    }

    /// Those that end without having been closed, or within a packet.
    pub(crate) fn cut(&self) -> impl Iterator<Item = &Path> {
        self.inputs.iter().filter(|input| input.told().was_cut).map(|input| input.path.as_path())
    }

    /// All interfaces that are known so far.
    pub(crate) fn interfaces(&self) -> Vec<Interface> {
        self.inputs.iter().filter(|input| !input.is_further_part).flat_map(Input::interfaces).collect()
    }

    /// Hands out every packet in order of time, its interface counted over all inputs.
    pub(crate) fn for_each(&mut self, mut take: impl FnMut(Item<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
        if let [one] = self.inputs.as_mut_slice() {
            return one.for_each(&mut take);
        }
        loop {
            let Some(nth) = self.oldest() else { return Ok(()) };
            let input = &mut self.inputs[nth];
            let first = input.first_interface;
            match input.current() {
                Some(Item::Record(record)) => {
                    take(Item::Record(Record { interface: record.interface.saturating_add(first), ..record }))?;
                }
                Some(Item::Packet(packet)) => {
                    let packet = Packet { interface: packet.interface.saturating_add(first), ..*packet };
                    take(Item::Packet(&packet))?;
                }
                None => {}
            }
            input.advance()?;
        }
    }

    fn missing_parts(&self) -> usize {
        let shares = self.inputs.iter().filter_map(Input::share);
        let mut captures: BTreeMap<&str, (u16, BTreeSet<u16>)> = BTreeMap::new();
        for share in shares {
            let (parts, read) = captures.entry(&share.capture).or_default();
            *parts = (*parts).max(share.parts);
            read.insert(share.part);
        }
        captures.values().map(|(parts, read)| usize::from(*parts).saturating_sub(read.len())).sum()
    }

    /// What all tell together.
    pub(crate) fn told(&self) -> Told {
        let mut all = Told::default();
        for (nth, input) in self.inputs.iter().enumerate() {
            let mut told = input.told();
            let first = input.first_interface;
            for gap in &mut told.ledger.gaps {
                *gap = Gap { interface: gap.interface.map(|interface| interface.saturating_add(first)), ..*gap };
            }
            all.ledger.add(&told.ledger);
            all.marks.extend(told.marks);
            all.was_cut |= told.was_cut;
            all.late_packets += told.late_packets;
            if nth == 0 {
                all.meta = told.meta;
            } else {
                if !input.is_further_part {
                    all.meta.interfaces.extend(told.meta.interfaces);
                }
                all.meta.started_ns = all.meta.started_ns.min(told.meta.started_ns);
                all.meta.snap_bytes = all.meta.snap_bytes.max(told.meta.snap_bytes);
            }
        }
        all.missing_parts = self.missing_parts();
        if self.inputs.len() > 1 && all.missing_parts == 0 {
            all.meta.share = None;
        }
        // Each part of a capture has all of its marks.
        all.marks.sort_by_key(|mark| (mark.at_ns, mark.number));
        all.marks.dedup();
        all
    }
}
