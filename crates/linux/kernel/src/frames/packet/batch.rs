//! Many frames in one system call: sendmmsg.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::AsRawFd;

use super::send::piece;
use super::{PacketSocket, SendError, VnetHeader};

/// Frames that one call takes at most.
pub const BATCH_MOST: usize = 64;

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
    /// The kernel does not say (sendmmsg(2), BUGS). If the send buffer has room, the far port dropped it. Do not retry: that
    /// may count two drops for one frame, or send a frame that was counted as dropped.
    Unknown,
}

impl PacketSocket {
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
