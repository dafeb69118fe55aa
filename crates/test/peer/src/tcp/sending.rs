//! Writes the flows.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::tcp::{ZeroCopySource, set_patience};
use longhaul_tcp::{TcpParameters, Transfers};
use longhaul_terms::Amount;
use longhaul_units::Nanos;

use super::counts::Counts;
use super::pace::{LOOK, go_on, paced_bytes, wait_for_rate, wait_until};
use crate::cpu_use::ThreadWatch;

/// What all flows of a test write, again and again: one block in memory, however many flows there are.
#[derive(Debug)]
pub(super) struct Block {
    bytes: Vec<u8>,
    zerocopy: Option<ZeroCopySource>,
}

impl Block {
    /// Pseudo-random bytes, which nothing on the way can compress.
    ///
    /// # Errors
    /// Where there is no memory to send from without a copy.
    pub(super) fn new(parameters: &TcpParameters) -> std::io::Result<Self> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let bytes: Vec<u8> = (0..parameters.block_bytes)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as u8
            })
            .collect();
        let zerocopy = parameters.zerocopy.then(|| ZeroCopySource::new(&bytes)).transpose()?;
        Ok(Self { bytes, zerocopy })
    }
}

/// Writes `block` as much as `parameters` say of this stream, or until `stop`.
pub(super) fn write_all(
    socket: &TcpStream,
    counts: &Counts,
    block: &Block,
    parameters: &TcpParameters,
    stream: u8,
    stop: &AtomicBool,
) -> std::io::Result<()> {
    set_patience(socket, LOOK)?;
    let Block { bytes: block, zerocopy } = block;
    let most = paced_bytes(parameters.write_rate_bps, block.len());
    let cpu = ThreadWatch::start();
    let start = monotonic();
    let end = match parameters.amount {
        Amount::DurationNs(ns) => start.saturating_add(Nanos(ns)),
        Amount::Bytes(_) | Amount::Packets(_) => Nanos::MAX,
    };
    let total = parameters.bytes_of_stream(stream).unwrap_or(u64::MAX);
    let mut offset = 0;
    while counts.bytes() < total && !stop.load(Ordering::Relaxed) && monotonic() < end {
        let mut left = total - counts.bytes();
        if let Some(Transfers { bytes, every_ns }) = parameters.transfers {
            let bytes = bytes.max(1);
            let (number, written) = (counts.bytes() / bytes, counts.bytes() % bytes);
            if written == 0 {
                wait_until(start.saturating_add(Nanos(every_ns.saturating_mul(number))).min(end), stop);
                if monotonic() >= end {
                    break;
                }
            }
            left = left.min(bytes - written);
        }
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let length = left.min(most).min(block.len() - offset);
        let written = match zerocopy {
            Some(source) => source.send(socket.as_fd(), offset, length),
            None => (&mut &*socket).write(&block[offset..offset + length]),
        };
        match written {
            Ok(count) => {
                counts.add(count, Nanos::ZERO);
                // A file is read on from where it was; a buffer from its start, whose bytes are in the cache.
                offset = if zerocopy.is_some() { (offset + count) % block.len() } else { 0 };
                wait_for_rate(start, counts.bytes(), parameters.write_rate_bps, stop, end);
            }
            Err(error) if go_on(&error) => {}
            Err(error) => return Err(error),
        }
    }
    counts.used(cpu.used());
    Ok(())
}
