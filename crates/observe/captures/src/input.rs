//! A window that moves over a stream: the next bytes of a file as one slice, without copying each record.

use std::io::{self, ErrorKind, Read};

/// What is read at once where nothing longer is asked for. Larger ones fall out of the cache before they are looked into.
const CHUNK_BYTES: usize = 256 << 10;

/// Bytes of a stream that are at hand, and the stream.
#[derive(Debug)]
pub(crate) struct Input<R> {
    stream: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    consumed: u64,
}

impl<R: Read> Input<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self { stream, buffer: vec![0; CHUNK_BYTES], start: 0, end: 0, consumed: 0 }
    }

    /// Bytes that were consumed so far.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Bytes at hand, at least `bytes` of them but where the stream ends before. The buffer grows to `bytes`, which the caller
    /// bounds.
    #[inline]
    pub(crate) fn at_least(&mut self, bytes: usize) -> io::Result<&[u8]> {
        if self.end - self.start < bytes {
            self.refill(bytes)?;
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// Bytes at hand that an [`Input::at_least`] has brought.
    #[inline]
    pub(crate) fn peek(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    #[cold]
    fn refill(&mut self, bytes: usize) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes, 0);
        }
        while self.end < bytes {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(read) => self.end += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes the next `bytes` of those at hand, and gives them.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> &[u8] {
        let taken = self.start..(self.start + bytes).min(self.end);
        self.start = taken.end;
        self.consumed += taken.len() as u64;
        &self.buffer[taken]
    }

    /// Passes over `bytes`; whether there were so many.
    pub(crate) fn skip(&mut self, mut bytes: u64) -> io::Result<bool> {
        while bytes > 0 {
            let at_hand = self.at_least(1)?.len();
            if at_hand == 0 {
                return Ok(false);
            }
            let step = bytes.min(at_hand as u64);
            self.take(step as usize);
            bytes -= step;
        }
        Ok(true)
    }
}
