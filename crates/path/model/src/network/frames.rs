//! The frames in flight: their shapes, and how many trains still carry packets of each.

pub use longhaul_wire::Shape;

/// A table of frames by key.
#[derive(Debug, Default)]
pub(super) struct Frames {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Ports and tokens of frames that were lost completely, since they were last taken.
    lost: Vec<(u16, u64)>,
}

#[derive(Debug)]
struct Slot {
    shape: Shape,
    from: u16,
    token: u64,
    trains: u32,
}

impl Frames {
    /// Takes in a frame that one train carries.
    pub(super) fn insert(&mut self, shape: Shape, from: u16, token: u64) -> u32 {
        let slot = Slot { shape, from, token, trains: 1 };
        match self.free.pop() {
            Some(key) => {
                self.slots[key as usize] = slot;
                key
            }
            None => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
        }
    }

    pub(super) fn shape(&self, key: u32) -> &Shape {
        &self.slots[key as usize].shape
    }

    pub(super) fn token(&self, key: u32) -> u64 {
        self.slots[key as usize].token
    }

    /// One train of the frame became `trains` of them. Says whether none is left.
    pub(super) fn became(&mut self, key: u32, trains: u32) -> bool {
        let slot = &mut self.slots[key as usize];
        slot.trains = slot.trains + trains - 1;
        if slot.trains > 0 {
            return false;
        }
        self.free.push(key);
        true
    }

    /// As [`Frames::became`], remembering the token where nothing is left.
    pub(super) fn became_or_lost(&mut self, key: u32, trains: u32) {
        if self.became(key, trains) {
            let slot = &self.slots[key as usize];
            self.lost.push((slot.from, slot.token));
        }
    }

    /// The port and the token of a frame that was lost completely.
    pub(super) fn pop_lost(&mut self) -> Option<(u16, u64)> {
        self.lost.pop()
    }

    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
