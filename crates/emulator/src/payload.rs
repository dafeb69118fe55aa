//! Where frames lie while they are on the path: one ring of bytes a side, taken before the first packet arrives.
//!
//! A frame is received straight into the ring and sent straight out of it. Frames are freed in any order; their memory
//! comes back in the order in which they came, when the oldest is free.

use std::collections::VecDeque;

use longhaul_kernel::memory::{MemoryError, PayloadMemory};
use longhaul_wire::Segmenter;

/// Frames begin at multiples of a cache line, so that no two share one.
const ALIGN_BYTES: usize = 64;
/// How far the ring may run ahead before it looks for a chance to begin anew at its start.
const WARM_BYTES: usize = 1 << 20;

/// A frame that lies in the ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    offset: usize,
    bytes: u32,
    done: bool,
    /// Cuts it into runs of its wire packets.
    pub(crate) segmenter: Segmenter,
}

/// A ring of frames. Tokens count the frames that were stored.
#[derive(Debug)]
pub(crate) struct PayloadRing {
    memory: PayloadMemory,
    frames: VecDeque<Stored>,
    /// The token of the first of `frames`.
    first_token: u64,
    /// Where the next frame would begin.
    head: usize,
    used_bytes: usize,
    peak_bytes: usize,
}

impl PayloadRing {
    /// A ring of `bytes`.
    ///
    /// # Errors
    /// Where the machine has less memory.
    pub(crate) fn new(bytes: usize) -> Result<Self, MemoryError> {
        let memory = PayloadMemory::new(bytes)?;
        Ok(Self { memory, frames: VecDeque::new(), first_token: 0, head: 0, used_bytes: 0, peak_bytes: 0 })
    }

    /// Room for a frame of up to `bytes`, to be kept with [`PayloadRing::keep`]; `None` where the ring is full.
    pub(crate) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let tail = self.frames.front().map(|frame| frame.offset);
        let fits = match tail {
            None => {
                self.head = 0;
                bytes <= self.memory.len()
            }
            Some(tail) if self.head <= tail => self.head + bytes <= tail,
            Some(tail) => {
                // Going round early keeps the ring in the caches while little of it is in use.
                let warm = tail >= self.used_bytes + WARM_BYTES + bytes;
                if warm || self.head + bytes > self.memory.len() {
                    self.head = 0;
                    bytes <= tail
                } else {
                    true
                }
            }
        };
        fits.then(|| &mut self.memory[self.head..self.head + bytes])
    }

    /// Keeps the frame of `bytes` that stands behind the first `skip` bytes of the room that was asked for last, and
    /// returns its token.
    pub(crate) fn keep(&mut self, skip: usize, bytes: usize, segmenter: Segmenter) -> u64 {
        self.frames.push_back(Stored { offset: self.head + skip, bytes: bytes as u32, done: false, segmenter });
        self.head += (skip + bytes).next_multiple_of(ALIGN_BYTES);
        self.used_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(self.used_bytes);
        self.first_token + self.frames.len() as u64 - 1
    }

    /// The frame of `token` and its bytes.
    pub(crate) fn frame(&self, token: u64) -> (&Stored, &[u8]) {
        let stored = &self.frames[(token - self.first_token) as usize];
        (stored, &self.memory[stored.offset..stored.offset + stored.bytes as usize])
    }

    /// The frame of `token` is needed no more.
    pub(crate) fn free(&mut self, token: u64) {
        let stored = &mut self.frames[(token - self.first_token) as usize];
        stored.done = true;
        self.used_bytes -= stored.bytes as usize;
        while self.frames.front().is_some_and(|frame| frame.done) {
            self.frames.pop_front();
            self.first_token += 1;
        }
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        self.memory.len()
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    pub(crate) fn peak_bytes(&self) -> usize {
        self.peak_bytes
    }
}

/// The rings of one side: the one in use, and those that a change of the path left with frames still in them.
#[derive(Debug)]
pub(crate) struct Store {
    current: PayloadRing,
    /// The tokens of a ring carry its generation in their upper bits.
    generation: u64,
    retiring: Vec<(u64, PayloadRing)>,
}

/// Bits of a token that count frames; above them is the generation.
const FRAME_BITS: u32 = 48;

impl Store {
    pub(crate) fn new(bytes: usize) -> Result<Self, MemoryError> {
        Ok(Self { current: PayloadRing::new(bytes)?, generation: 0, retiring: Vec::new() })
    }

    /// See [`PayloadRing::room`].
    pub(crate) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        self.current.room(bytes)
    }

    /// See [`PayloadRing::keep`].
    pub(crate) fn keep(&mut self, skip: usize, bytes: usize, segmenter: Segmenter) -> u64 {
        self.generation << FRAME_BITS | self.current.keep(skip, bytes, segmenter)
    }

    /// See [`PayloadRing::frame`].
    pub(crate) fn frame(&self, token: u64) -> (&Stored, &[u8]) {
        let (generation, number) = split(token);
        if generation == self.generation {
            return self.current.frame(number);
        }
        let (_, ring) = self.retiring.iter().find(|(g, _)| *g == generation).expect("a ring stays while frames are in it");
        ring.frame(number)
    }

    /// See [`PayloadRing::free`].
    pub(crate) fn free(&mut self, token: u64) {
        let (generation, number) = split(token);
        if generation == self.generation {
            self.current.free(number);
            return;
        }
        if let Some((_, ring)) = self.retiring.iter_mut().find(|(g, _)| *g == generation) {
            ring.free(number);
        }
        self.retiring.retain(|(_, ring)| ring.used_bytes() > 0);
    }

    /// Has room for `bytes` from now on, where it has less.
    ///
    /// # Errors
    /// Where the machine has less memory; the old ring stays in use.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), MemoryError> {
        if bytes <= self.current.capacity_bytes() {
            return Ok(());
        }
        let old = std::mem::replace(&mut self.current, PayloadRing::new(bytes)?);
        if old.used_bytes() > 0 {
            self.retiring.push((self.generation, old));
        }
        self.generation += 1;
        Ok(())
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        self.current.capacity_bytes()
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.current.used_bytes() + self.retiring.iter().map(|(_, ring)| ring.used_bytes()).sum::<usize>()
    }

    pub(crate) fn peak_bytes(&self) -> usize {
        self.current.peak_bytes()
    }
}

/// Generation and number of a token.
fn split(token: u64) -> (u64, u64) {
    (token >> FRAME_BITS, token & ((1 << FRAME_BITS) - 1))
}

#[cfg(test)]
mod tests {
    use longhaul_wire::VnetHeader;

    use super::*;

    fn plain(bytes: usize) -> Segmenter {
        Segmenter::new(&[], bytes, VnetHeader::default()).unwrap()
    }

    /// Stores frames of all sizes, frees them out of order, and finds every byte as it was put in.
    #[test]
    fn frames_keep_their_bytes() {
        let mut ring = PayloadRing::new(1 << 20).unwrap();
        let mut held: Vec<(u64, u8, usize)> = Vec::new();
        let mut full = 0;
        for round in 0..20_000_usize {
            let bytes = 1 + round * 7919 % 9000;
            let fill = round as u8;
            match ring.room(9000) {
                Some(room) => {
                    room[..bytes].fill(fill);
                    let token = ring.keep(0, bytes, plain(bytes));
                    held.push((token, fill, bytes));
                }
                None => full += 1,
            }
            while held.len() > 20 + round % 150 {
                let (token, fill, bytes) = held.swap_remove(round % 7);
                let (_, frame) = ring.frame(token);
                assert!(frame.len() == bytes && frame.iter().all(|&b| b == fill), "round {round}");
                ring.free(token);
            }
        }
        assert!(full > 0, "the test never filled the ring");
        for (token, fill, bytes) in held {
            let (_, frame) = ring.frame(token);
            assert!(frame.len() == bytes && frame.iter().all(|&b| b == fill));
            ring.free(token);
        }
        assert_eq!(ring.used_bytes(), 0);
        assert!(ring.room(1 << 20).is_some(), "an empty ring has all its room");
    }

    #[test]
    fn a_store_that_grows_keeps_what_it_holds() {
        let mut store = Store::new(1 << 16).unwrap();
        let mut tokens = Vec::new();
        for fill in 0..3 {
            store.room(1000).unwrap().fill(fill);
            tokens.push((fill, store.keep(0, 1000, plain(1000))));
            store.grow(store.capacity_bytes() * 2).unwrap();
        }
        for &(fill, token) in &tokens {
            assert!(store.frame(token).1.iter().all(|&b| b == fill));
            store.free(token);
        }
        assert!(store.used_bytes() == 0 && store.retiring.is_empty());
    }
}
