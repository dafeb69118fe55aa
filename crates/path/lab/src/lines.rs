//! One JSON object a line over a Unix stream. A line has one deadline, as a peer may send it, or take it, a byte now and then.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::wait::{Poller, writable_until};
use longhaul_units::Nanos;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest line that is read: a request with many changes, a path with long lists of losses.
const BYTES_MOST: usize = 64 << 20;
/// What wakes who waits for a line.
const AT_STREAM: u64 = 0;
const AT_STOP: u64 = 1;

/// Reads a line of `stream` that is complete by `deadline` (`CLOCK_MONOTONIC`), until `stop` is readable.
///
/// # Errors
/// `TimedOut`; `Interrupted` by `stop`; `InvalidData` for a line that is too long or no such object; `UnexpectedEof` where there is none.
pub(crate) fn read_until<T: DeserializeOwned>(
    stream: &mut UnixStream,
    deadline: Nanos,
    stop: Option<BorrowedFd<'_>>,
) -> io::Result<T> {
    let poller = Poller::new()?;
    poller.add(&*stream, AT_STREAM)?;
    if let Some(stop) = stop {
        poller.add(stop, AT_STOP)?;
    }
    let (mut line, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        let ready: Vec<u64> = poller.wait(Some(deadline))?.collect();
        if ready.contains(&AT_STOP) {
            return Err(ErrorKind::Interrupted.into());
        }
        if monotonic() >= deadline {
            return Err(ErrorKind::TimedOut.into());
        }
        if !ready.contains(&AT_STREAM) {
            continue;
        }
        let count = stream.read(&mut part)?;
        let end = part[..count].iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&part[..end.unwrap_or(count)]);
        if end.is_some() || count == 0 {
            return Ok(serde_json::from_slice(&line)?);
        }
        if line.len() > BYTES_MOST {
            return Err(ErrorKind::InvalidData.into());
        }
    }
}

/// Writes `value` as a line, all of it by `deadline` (`CLOCK_MONOTONIC`). From then on `stream` does not wait by itself.
///
/// # Errors
/// `TimedOut`; what the kernel says of a peer that is gone.
pub(crate) fn write_until(stream: &mut UnixStream, value: &impl Serialize, deadline: Nanos) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.set_nonblocking(true)?;
    let mut left = &line[..];
    while !left.is_empty() {
        if monotonic() >= deadline {
            return Err(ErrorKind::TimedOut.into());
        }
        match stream.write(left) {
            Ok(count) => left = &left[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                writable_until(&*stream, Some(deadline))?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;
    use std::time::Duration;

    use super::*;

    const SPAN: Nanos = Nanos::from_millis(200);

    /// Does `work` again and again beside `other`, which ends first.
    fn beside<T>(mut work: impl FnMut() + Send, other: impl FnOnce() -> T) -> T {
        let (over, is_over) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while is_over.recv_timeout(Duration::from_millis(5)) == Err(RecvTimeoutError::Timeout) {
                    work();
                }
            });
            let done = other();
            drop(over);
            done
        })
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let long = "x".repeat(1 << 20);
        let later = || monotonic() + Nanos::from_secs(60);
        thread::scope(|scope| {
            scope.spawn(|| write_until(&mut there, &long, later()).unwrap());
            assert_eq!(read_until::<String>(&mut here, later(), None).unwrap(), long);
        });
        drop(there);
        assert_eq!(read_until::<String>(&mut here, later(), None).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn who_sends_or_takes_a_byte_now_and_then_is_left() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let begun = monotonic();
        let send = || there.write_all(b" ").unwrap();
        let read = beside(send, || read_until::<String>(&mut here, begun + SPAN, None));
        assert_eq!(read.unwrap_err().kind(), ErrorKind::TimedOut);

        // More than a socket holds.
        let long = "x".repeat(1 << 20);
        let begun = monotonic();
        let take = || drop(there.read(&mut [0; 1 << 10]));
        let written = beside(take, || {
            let written = write_until(&mut here, &long, begun + SPAN);
            // So that who takes it does not wait for more.
            here.shutdown(std::net::Shutdown::Both).unwrap();
            written
        });
        assert_eq!(written.unwrap_err().kind(), ErrorKind::TimedOut);
        let took = monotonic().saturating_sub(begun);
        assert!(took < SPAN.saturating_add(Nanos::from_secs(5)), "{took:?}");
    }

    #[test]
    fn a_signal_is_heard_while_a_line_comes() {
        let (mut here, mut there) = UnixStream::pair().unwrap();
        let (stop, mut asked) = UnixStream::pair().unwrap();
        let later = monotonic() + Nanos::from_secs(60);
        let mut bytes = 0;
        let work = || {
            there.write_all(b" ").unwrap();
            bytes += 1;
            if bytes == 3 {
                asked.write_all(b"x").unwrap();
            }
        };
        let read = beside(work, || read_until::<String>(&mut here, later, Some(stop.as_fd())));
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Interrupted);
    }
}
