//! A set of numbers below 65,536 in at most 8 KiB: one piece of a [`SequenceSet`](super::SequenceSet).
//!
//! Like a container of a Roaring bitmap (Lemire et al. 2016, "Consistently faster and smaller compressed bitmaps with Roaring"),
//! with one more form: a list of the *absent* numbers, because a receiver gets nearly all.

/// Numbers in a chunk.
pub(super) const CHUNK: u32 = 1 << 16;
/// Longest list: with 2 bytes a number it takes half of the bitmap's memory, and insertion is still cheap.
const LIST_MAX: usize = 2048;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Chunk {
    #[default]
    Empty,
    Full,
    /// The numbers in the list, ascending.
    Only(Vec<u16>),
    /// All numbers but those in the list, ascending.
    AllBut(Vec<u16>),
    Bits(Box<Bits>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bits {
    words: [u64; 1024],
    /// Set bits.
    count: u32,
}

impl Bits {
    /// Adds `number`; `false` if it was there.
    #[inline]
    pub(super) fn insert(&mut self, number: u16) -> bool {
        let word = &mut self.words[usize::from(number >> 6)];
        let bit = 1 << (number & 63);
        let new = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(new);
        new
    }

    /// Adds `from..to`, at most [`CHUNK`], and returns how many were new.
    pub(super) fn insert_range(&mut self, from: u32, to: u32) -> u32 {
        let before = self.count;
        let mut at = from;
        while at < to {
            let until = (at | 63) + 1;
            let end = until.min(to);
            let mask = (u64::MAX >> (64 - (end - at))) << (at & 63);
            let word = &mut self.words[at as usize >> 6];
            self.count += (mask & !*word).count_ones();
            *word |= mask;
            at = end;
        }
        self.count - before
    }

    pub(super) fn is_full(&self) -> bool {
        self.count == CHUNK
    }

    /// Where the run that contains `at` ends.
    fn run_end(&self, at: u32) -> u32 {
        let flip = if self.contains(at) { u64::MAX } else { 0 };
        let first = at as usize >> 6;
        // Bits before `at` are cleared, so the first set bit is where membership changes.
        let mut word = (self.words[first] ^ flip) & (u64::MAX << (at & 63));
        let mut index = first;
        while word == 0 {
            index += 1;
            if index == self.words.len() {
                return CHUNK;
            }
            word = self.words[index] ^ flip;
        }
        (index as u32) << 6 | word.trailing_zeros()
    }

    fn contains(&self, number: u32) -> bool {
        self.words[number as usize >> 6] >> (number & 63) & 1 == 1
    }

    /// The numbers whose membership is `member`.
    fn list(&self, member: bool) -> Vec<u16> {
        let mut list = Vec::with_capacity(if member { self.count } else { CHUNK - self.count } as usize);
        for (index, word) in self.words.iter().enumerate() {
            let mut word = if member { *word } else { !*word };
            while word != 0 {
                list.push((index as u32 * 64 + word.trailing_zeros()) as u16);
                word &= word - 1;
            }
        }
        list
    }
}

impl Chunk {
    /// Adds `number`; `false` if it was there.
    pub(super) fn insert(&mut self, number: u16) -> bool {
        match self {
            Self::Empty => *self = Self::Only(vec![number]),
            Self::Full => return false,
            Self::Only(list) => {
                let Err(at) = list.binary_search(&number) else { return false };
                if list.len() == LIST_MAX {
                    self.open().insert(number);
                } else {
                    list.insert(at, number);
                }
            }
            Self::AllBut(list) => {
                let Ok(at) = list.binary_search(&number) else { return false };
                list.remove(at);
                if list.is_empty() {
                    *self = Self::Full;
                }
            }
            Self::Bits(bits) => {
                let new = bits.insert(number);
                if bits.is_full() {
                    *self = Self::Full;
                }
                return new;
            }
        }
        true
    }

    /// Adds `from..to`, at most [`CHUNK`], and returns how many were new.
    pub(super) fn insert_range(&mut self, from: u32, to: u32) -> u32 {
        let new = match self {
            Self::Full => 0,
            Self::Empty if to - from == CHUNK => {
                *self = Self::Full;
                CHUNK
            }
            // As many as a super-packet has: a list takes them without becoming a bitmap.
            Self::Empty | Self::Only(_) | Self::AllBut(_) if to - from <= 64 => {
                (from..to).map(|number| u32::from(self.insert(number as u16))).sum()
            }
            _ => self.open().insert_range(from, to),
        };
        if matches!(self, Self::Bits(bits) if bits.is_full()) {
            *self = Self::Full;
        }
        new
    }

    /// Turns it into a bitmap, which takes insertions fastest.
    pub(super) fn open(&mut self) -> &mut Bits {
        if !matches!(self, Self::Bits(_)) {
            let mut bits = Box::new(Bits { words: [0; 1024], count: 0 });
            match self {
                Self::Empty | Self::Bits(_) => {}
                Self::Full => _ = bits.insert_range(0, CHUNK),
                Self::Only(list) => list.iter().for_each(|number| _ = bits.insert(*number)),
                Self::AllBut(list) => {
                    bits.insert_range(0, CHUNK);
                    for number in list.iter() {
                        bits.words[usize::from(number >> 6)] &= !(1 << (number & 63));
                    }
                    bits.count -= list.len() as u32;
                }
            }
            *self = Self::Bits(bits);
        }
        match self {
            Self::Bits(bits) => bits,
            _ => unreachable!("made a bitmap above"),
        }
    }

    /// Turns it into its smallest form.
    pub(super) fn settle(&mut self) {
        if let Self::Bits(bits) = self {
            *self = match bits.count as usize {
                0 => Self::Empty,
                count if count == CHUNK as usize => Self::Full,
                count if count <= LIST_MAX => Self::Only(bits.list(true)),
                count if CHUNK as usize - count <= LIST_MAX => Self::AllBut(bits.list(false)),
                _ => return,
            };
        } else if let Self::Only(list) | Self::AllBut(list) = self {
            list.shrink_to_fit();
        }
    }

    pub(super) fn len(&self) -> u32 {
        match self {
            Self::Empty => 0,
            Self::Full => CHUNK,
            Self::Only(list) => list.len() as u32,
            Self::AllBut(list) => CHUNK - list.len() as u32,
            Self::Bits(bits) => bits.count,
        }
    }

    /// Whether it holds `at`, and up to which number (exclusive) the answer is the same.
    pub(super) fn run(&self, at: u32) -> (bool, u32) {
        // In a list: where the run of listed numbers that begins at `index` ends, or the next listed number.
        let listed = |list: &[u16]| match list.binary_search(&(at as u16)) {
            Ok(mut index) => {
                while index + 1 < list.len() && list[index + 1] == list[index] + 1 {
                    index += 1;
                }
                (true, u32::from(list[index]) + 1)
            }
            Err(index) => (false, list.get(index).map_or(CHUNK, |next| u32::from(*next))),
        };
        match self {
            Self::Empty => (false, CHUNK),
            Self::Full => (true, CHUNK),
            Self::Only(list) => listed(list),
            Self::AllBut(list) => {
                let (absent, end) = listed(list);
                (!absent, end)
            }
            Self::Bits(bits) => (bits.contains(at), bits.run_end(at)),
        }
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        match self {
            Self::Empty | Self::Full => 0,
            Self::Only(list) | Self::AllBut(list) => list.capacity() * 2,
            Self::Bits(_) => size_of::<Bits>(),
        }
    }
}
