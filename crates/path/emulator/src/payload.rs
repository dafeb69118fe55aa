//! The memory of frames in flight, allocated before the first packet arrives.
//!
//! The port receives frames directly into a chunk, one behind the other, and sends them from there. A chunk is free when its last frame
//! is. The chunk freed last is used first, while it is still in the caches. So the working set is the frames in flight, however large
//! the memory is. Frames may be freed in any order.

use longhaul_kernel::memory::{MemoryError, PayloadMemory};
use longhaul_wire::Segmenter;

/// A huge page, so that a chunk costs one entry of the TLB.
const CHUNK_BYTES: usize = 2 << 20;
/// Frames begin at multiples of a cache line, so that no two share one.
const ALIGN_BYTES: usize = 64;

/// What is noted of a frame, and of each of its wire packets, outside of the store: so many bytes at most (measured: 206 for a frame of one packet, 95
/// for each packet of a super-packet that a slow hop sends one by one).
const NOTED_BYTES: usize = 128;

/// A frame that lies in the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stored {
    chunk: u32,
    offset: u32,
    bytes: u32,
    /// How often it must be freed: once by the path, once for each release that waits for its port.
    holds: u32,
    /// Cuts it into runs of its wire packets.
    pub(crate) segmenter: Segmenter,
}

impl Stored {
    /// The frame, and its wire packets.
    fn noted(&self) -> usize {
        1 + self.segmenter.shape().segments as usize
    }
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    /// Which block of memory it is part of, and where it begins there.
    block: usize,
    start: usize,
    /// Frames in it.
    frames: u32,
}

/// Memory for a store, whole chunks of it. Taking it takes seconds where there is much, so it is taken in a thread for which
/// no packet waits.
#[derive(Debug)]
pub struct Block(PayloadMemory);

impl Block {
    /// At least `bytes`.
    ///
    /// # Errors
    /// Where the machine has less memory.
    pub(crate) fn new(bytes: usize) -> Result<Self, MemoryError> {
        PayloadMemory::new(bytes.div_ceil(CHUNK_BYTES).saturating_mul(CHUNK_BYTES)).map(Self)
    }
}

/// The frames from one end of the path.
#[derive(Debug)]
pub(crate) struct Store {
    blocks: Vec<PayloadMemory>,
    chunks: Vec<Chunk>,
    free_chunks: Vec<u32>,
    /// The chunk that is being filled, and how far it is.
    current: u32,
    head: usize,
    frames: Vec<Stored>,
    free_frames: Vec<u32>,
    used_bytes: usize,
    /// Frames and their wire packets.
    noted: usize,
    peak_chunks: usize,
}

impl Store {
    /// A store of at least `bytes`.
    ///
    /// # Errors
    /// Where the machine has less memory.
    pub(crate) fn new(bytes: usize) -> Result<Self, MemoryError> {
        let mut store = Self {
            blocks: Vec::new(),
            chunks: Vec::new(),
            free_chunks: Vec::new(),
            current: 0,
            head: 0,
            frames: Vec::new(),
            free_frames: Vec::new(),
            used_bytes: 0,
            noted: 0,
            peak_chunks: 0,
        };
        store.grow(Block::new(bytes.max(CHUNK_BYTES))?);
        store.current = store.free_chunks.pop().expect("it has grown by one chunk or more");
        Ok(store)
    }

    /// Has `block` besides from now on. What it holds stays where it is.
    pub(crate) fn grow(&mut self, block: Block) {
        let at = self.blocks.len();
        let first = self.chunks.len() as u32;
        let chunks = block.0.len() / CHUNK_BYTES;
        self.blocks.push(block.0);
        self.chunks.extend((0..chunks).map(|i| Chunk { block: at, start: i * CHUNK_BYTES, frames: 0 }));
        // Taken from the end: the lowest first.
        self.free_chunks.splice(0..0, (first..self.chunks.len() as u32).rev());
    }

    /// Room for a frame of up to `bytes`, to be kept with [`Store::keep`]; `None` where the store is full, or so many small packets are in flight
    /// that what is noted of them takes as much memory as the store.
    pub(crate) fn room(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if self.noted * NOTED_BYTES > self.capacity_bytes() {
            return None;
        }
        if self.head + bytes > CHUNK_BYTES {
            if self.chunks[self.current as usize].frames > 0 {
                self.current = self.free_chunks.pop()?;
                self.peak_chunks = self.peak_chunks.max(self.chunks.len() - self.free_chunks.len());
            }
            self.head = 0;
        }
        let Chunk { block, start, .. } = self.chunks[self.current as usize];
        self.blocks[block].get_mut(start + self.head..start + self.head + bytes)
    }

    /// Keeps the frame of `bytes` behind the first `skip` bytes of the room that was requested last, and
    /// returns its token.
    pub(crate) fn keep(&mut self, skip: usize, bytes: usize, segmenter: Segmenter) -> u64 {
        let offset = (self.head + skip) as u32;
        let stored = Stored { chunk: self.current, offset, bytes: bytes as u32, holds: 1, segmenter };
        self.chunks[self.current as usize].frames += 1;
        self.noted += stored.noted();
        self.head += (skip + bytes).next_multiple_of(ALIGN_BYTES);
        self.used_bytes += bytes;
        let slot = match self.free_frames.pop() {
            Some(slot) => {
                self.frames[slot as usize] = stored;
                slot
            }
            None => {
                self.frames.push(stored);
                (self.frames.len() - 1) as u32
            }
        };
        u64::from(slot)
    }

    /// The frame of `token` and its bytes.
    pub(crate) fn frame(&self, token: u64) -> (&Stored, &[u8]) {
        let stored = &self.frames[token as usize];
        let chunk = &self.chunks[stored.chunk as usize];
        let start = chunk.start + stored.offset as usize;
        (stored, &self.blocks[chunk.block][start..start + stored.bytes as usize])
    }

    /// The frame of `token` is to be freed once more.
    pub(crate) fn hold(&mut self, token: u64) {
        self.frames[token as usize].holds += 1;
    }

    /// The frame of `token` is needed no more by one of those who hold it.
    pub(crate) fn free(&mut self, token: u64) {
        let stored = &mut self.frames[token as usize];
        stored.holds -= 1;
        if stored.holds > 0 {
            return;
        }
        let Stored { chunk, bytes, .. } = *stored;
        self.noted -= stored.noted();
        self.free_frames.push(token as u32);
        self.used_bytes -= bytes as usize;
        let frames = &mut self.chunks[chunk as usize].frames;
        *frames -= 1;
        if *frames == 0 {
            if chunk == self.current {
                self.head = 0;
            } else {
                self.free_chunks.push(chunk);
            }
        }
    }

    /// What there is.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES
    }

    /// What frames take.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// The most that was ever in use, in whole chunks.
    pub(crate) fn peak_bytes(&self) -> usize {
        self.peak_chunks.max(1) * CHUNK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use longhaul_wire::VnetHeader;

    use super::*;

    fn plain(bytes: usize) -> Segmenter {
        Segmenter::new(&[], bytes, VnetHeader::default()).unwrap()
    }

    /// Stores frames of all sizes, frees them out of order, grows meanwhile, and finds every byte as it was put in.
    #[test]
    fn frames_keep_their_bytes() {
        let mut store = Store::new(4 << 20).unwrap();
        let mut held: Vec<(u64, u8, usize)> = Vec::new();
        let mut full = 0;
        for round in 0..20_000_usize {
            let bytes = 1 + round * 7919 % 65_000;
            let fill = round as u8;
            match store.room(66_000) {
                Some(room) => {
                    room[..bytes].fill(fill);
                    held.push((store.keep(0, bytes, plain(bytes)), fill, bytes));
                }
                None => full += 1,
            }
            while held.len() > 20 + round % 250 {
                let (token, fill, bytes) = held.swap_remove(round % 7);
                let (_, frame) = store.frame(token);
                assert!(frame.len() == bytes && frame.iter().all(|&b| b == fill), "round {round}");
                store.free(token);
            }
            if round == 15_000 {
                store.grow(Block::new(4 << 20).unwrap());
            }
        }
        assert!(full > 0, "the test never filled the store");
        for (token, fill, bytes) in held {
            let (_, frame) = store.frame(token);
            assert!(frame.len() == bytes && frame.iter().all(|&b| b == fill));
            store.free(token);
        }
        assert_eq!((store.used_bytes(), store.capacity_bytes()), (0, 8 << 20));
        assert_eq!(store.free_chunks.len(), 3, "all chunks but the current one are free");
    }

    /// What is in flight decides how much memory is touched, not how much there is.
    #[test]
    fn few_frames_stay_in_few_chunks() {
        let mut store = Store::new(64 << 20).unwrap();
        let mut held = std::collections::VecDeque::new();
        for _ in 0..10_000 {
            store.room(66_000).unwrap();
            held.push_back(store.keep(0, 60_000, plain(60_000)));
            if held.len() > 16 {
                store.free(held.pop_front().unwrap());
            }
        }
        assert!(store.peak_bytes() <= 6 << 20, "{} bytes for 1 MB in flight", store.peak_bytes());
    }

    /// A slow hop sends the packets of a super-packet one by one: 2 MiB have room for 10,922 of these frames, but notes of 164 take as much.
    #[test]
    fn small_packets_fill_a_store_by_what_is_noted_of_them() {
        let mut headers = [0; 54];
        (headers[12], headers[14], headers[23], headers[46]) = (8, 0x45, 6, 0x50);
        let vnet = VnetHeader { flags: 1, gso_type: 1, header_len: 54, gso_size: 1, csum_start: 34, csum_offset: 16 };
        let super_packet = Segmenter::new(&headers, 54 + 99, vnet).unwrap();
        for (segmenter, noted) in [(super_packet, 100), (plain(60), 2)] {
            let mut store = Store::new(2 << 20).unwrap();
            let mut held = Vec::new();
            while store.room(153).is_some() {
                held.push(store.keep(0, 153, segmenter));
            }
            assert_eq!(held.len(), (2 << 20) / (noted * NOTED_BYTES) + 1, "{noted} of each");
            held.into_iter().for_each(|token| store.free(token));
            assert!(store.room(153).is_some());
        }
    }
}
