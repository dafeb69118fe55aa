//! Many frames in one system call: recvmmsg and sendmmsg.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::AsRawFd;
use std::ptr;

use super::receive::{ControlBuffer, describe};
use super::send::piece;
use super::{PacketSocket, ReceiveError, Received, SendError, VNET_HEADER_BYTES, VnetHeader};

/// Frames that one call takes at most.
pub const BATCH_MOST: usize = 64;

/// Memory for frames that are received together, to be reused.
pub struct ReceiveBatch {
    slot_bytes: usize,
    frames: Box<[u8]>,
    vnets: Box<[VnetHeader]>,
    controls: Box<[ControlBuffer]>,
    parts: Box<[[libc::iovec; 2]]>,
    messages: Box<[libc::mmsghdr]>,
    /// Messages that the last call filled.
    filled: usize,
}

// SAFETY: its pointers lead only into its own boxes.
unsafe impl Send for ReceiveBatch {}

impl ReceiveBatch {
    /// Room for `frames` frames (1 to [`BATCH_MOST`]) of up to `slot_bytes` each.
    pub fn new(frames: usize, slot_bytes: usize) -> Self {
        let count = frames.clamp(1, BATCH_MOST);
        let no_part = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: mmsghdr is pointers and integers, for which zero is a value.
        let no_message: libc::mmsghdr = unsafe { mem::zeroed() };
        Self {
            slot_bytes,
            frames: vec![0; count * slot_bytes].into(),
            vnets: vec![[0; VNET_HEADER_BYTES]; count].into(),
            controls: vec![ControlBuffer::EMPTY; count].into(),
            parts: vec![[no_part; 2]; count].into(),
            messages: vec![no_message; count].into(),
            filled: 0,
        }
    }

    /// The frames of the last call, in the order of their arrival.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = (Received, &[u8])> {
        (0..self.filled).map(|i| {
            let message = &self.messages[i];
            // SAFETY: recvmmsg filled the first `filled` messages, their control buffers are ours and aligned.
            let received =
                unsafe { describe(&message.msg_hdr, message.msg_len as usize, self.vnets[i], self.slot_bytes) };
            (received, &self.frames[i * self.slot_bytes..][..received.frame_bytes])
        })
    }

    /// Points every message at its slot; the kernel overwrites the lengths with each call.
    fn prepare(&mut self) {
        self.filled = 0;
        let slots = self.frames.chunks_exact_mut(self.slot_bytes.max(1));
        for (i, message) in self.messages.iter_mut().enumerate() {
            self.parts[i][0] = libc::iovec { iov_base: self.vnets[i].as_mut_ptr().cast(), iov_len: VNET_HEADER_BYTES };
            message.msg_hdr.msg_iov = self.parts[i].as_mut_ptr();
            message.msg_hdr.msg_iovlen = 2;
            message.msg_hdr.msg_control = self.controls[i].0.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = size_of::<ControlBuffer>();
        }
        for (parts, slot) in self.parts.iter_mut().zip(slots) {
            parts[1] = libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: slot.len() };
        }
    }
}

/// One frame for [`PacketSocket::send_batch`]; parts may be empty.
#[derive(Debug, Clone, Copy)]
pub struct OutgoingFrame<'a> {
    /// Its offload state.
    pub vnet: &'a VnetHeader,
    /// Its bytes, in up to three pieces.
    pub parts: [&'a [u8]; 3],
}

/// What became of a batch.
#[derive(Debug)]
pub struct BatchSent {
    /// The first so many frames were sent.
    pub sent: usize,
    /// Why the frame behind them was not; `None` where all were sent. The frames behind that one were not tried.
    pub refusal: Option<Refusal>,
}

/// Why a frame of a batch was not sent.
#[derive(Debug)]
pub enum Refusal {
    /// It was the batch's first, so the kernel said why.
    Known(SendError),
    /// The kernel does not say (sendmmsg(2), BUGS). With a send buffer that has room it was dropped by the far port: to
    /// send it again may make two drops of one, or let through what was counted as dropped.
    Unknown,
}

impl PacketSocket {
    /// Takes the frames that wait, up to the batch's size, and returns how many; see [`ReceiveBatch::frames`].
    ///
    /// # Errors
    /// As [`PacketSocket::receive`]; an error behind the first frame shows with the next call.
    pub fn receive_batch(&self, batch: &mut ReceiveBatch) -> Result<usize, ReceiveError> {
        batch.prepare();
        let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
        loop {
            // SAFETY: `prepare` made every pointer lead into the batch's own boxes, which are borrowed mutably.
            let filled = unsafe {
                libc::recvmmsg(
                    self.fd.as_raw_fd(),
                    batch.messages.as_mut_ptr(),
                    batch.messages.len() as u32,
                    flags as _,
                    ptr::null_mut(),
                )
            };
            if filled >= 0 {
                batch.filled = filled as usize;
                return Ok(batch.filled);
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(0),
                io::ErrorKind::Interrupted => {}
                _ => return Err(ReceiveError::from_io(error)),
            }
        }
    }

    /// Sends `frames` in order, at most [`BATCH_MOST`] of them. No allocation, one system call, never waits.
    pub fn send_batch<'a>(&self, frames: impl IntoIterator<Item = OutgoingFrame<'a>>) -> BatchSent {
        let mut pieces = [const { MaybeUninit::<[libc::iovec; 4]>::uninit() }; BATCH_MOST];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; BATCH_MOST];
        let mut count = 0;
        for frame in frames.into_iter().take(BATCH_MOST) {
            let [a, b, c] = frame.parts;
            let own = pieces[count].write([piece(frame.vnet), piece(a), piece(b), piece(c)]);
            // SAFETY: mmsghdr is pointers and integers, for which zero is a value.
            let message = messages[count].write(unsafe { mem::zeroed() });
            message.msg_hdr.msg_iov = own.as_mut_ptr();
            message.msg_hdr.msg_iovlen = own.len();
            count += 1;
        }
        if count == 0 {
            return BatchSent { sent: 0, refusal: None };
        }
        loop {
            // SAFETY: the first `count` messages are written and point to pieces on this stack frame, which point to
            // memory borrowed for 'a; the kernel reads it and writes only `msg_len`.
            let sent = unsafe {
                libc::sendmmsg(self.fd.as_raw_fd(), messages.as_mut_ptr().cast(), count as u32, libc::MSG_DONTWAIT as _)
            };
            if sent >= 0 {
                let sent = sent as usize;
                return BatchSent { sent, refusal: (sent < count).then_some(Refusal::Unknown) };
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return BatchSent { sent: 0, refusal: Some(Refusal::Known(SendError::from_io(error))) };
            }
        }
    }
}
