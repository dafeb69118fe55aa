//! [`Samples`]: header snippets of rejected frames, read from the program's ring.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};

use crate::filter::FilterSample;

/// Header snippets of rejected frames, in the order in which the frames arrived.
pub struct Samples {
    ring: RingBuffer<'static>,
    /// Filled by the ring's callback.
    inbox: Arc<Mutex<Vec<FilterSample>>>,
}

impl fmt::Debug for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Samples")
    }
}

impl Samples {
    /// Maps the ring `samples`.
    pub(super) fn open(samples: &MapHandle) -> libbpf_rs::Result<Self> {
        let inbox = Arc::new(Mutex::new(Vec::new()));
        let ring = ring_into(samples, Arc::clone(&inbox))?;
        Ok(Self { ring, inbox })
    }

    /// Calls `each` for the samples in the ring, oldest first. Does not wait for more.
    pub fn drain(&mut self, mut each: impl FnMut(FilterSample)) {
        while self.ring.consume_raw_n(256) > 0 {
            self.inbox.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(&mut each);
        }
    }
}

fn ring_into(samples: &MapHandle, inbox: Arc<Mutex<Vec<FilterSample>>>) -> libbpf_rs::Result<RingBuffer<'static>> {
    let mut builder = RingBufferBuilder::new();
    builder.add(samples, move |bytes| {
        inbox.lock().unwrap_or_else(PoisonError::into_inner).extend(FilterSample::parse(bytes));
        0
    })?;
    builder.build()
}
