//! The connections of a test that came to its end.

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::tcp::{UNACKNOWLEDGED_LOOK, set_reset_on_close, unacknowledged_bytes};
use longhaul_units::Nanos;

use crate::control::{ACKNOWLEDGED_WITHIN, ControlEvent};
use crate::event::Event;

/// Connections of a test that is over. On drop, resets those with data that the other end has not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Ending(Vec<Arc<TcpStream>>);

impl Ending {
    /// Tells the other end that no more comes. `connections` are reset when they are dropped, and nobody else has them.
    pub(crate) fn new(connections: Vec<Arc<TcpStream>>) -> Self {
        for connection in &connections {
            // One that was reset has ended.
            let _ = connection.shutdown(Shutdown::Both);
        }
        Self(connections)
    }

    /// Waits until all is acknowledged, for three seconds at most, or until one of `events` ends the session. The other end of an honest test has
    /// acknowledged all when it sends its last message.
    pub(crate) fn wait(self, events: &Receiver<Event>) {
        self.wait_for(ACKNOWLEDGED_WITHIN, events);
    }

    fn wait_for(mut self, time: Nanos, events: &Receiver<Event>) {
        let until = monotonic() + time;
        loop {
            self.0.retain(|connection| match unacknowledged_bytes(connection) {
                Ok(0) => {
                    // There is nothing that a reset would have to free.
                    let _ = set_reset_on_close(&**connection, false);
                    false
                }
                Ok(_) => true,
                // Nobody can tell: it is reset now.
                Err(_) => false,
            });
            if self.0.is_empty() || monotonic() >= until {
                return;
            }
            let event = events.recv_timeout(UNACKNOWLEDGED_LOOK.into());
            if let Ok(Event::Control(ControlEvent::Interrupt | ControlEvent::Abort) | Event::TakenOver) = event {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind, Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc::channel;

    use super::*;

    /// The end of a test that sent more than arrives where nobody reads, and its other end; and how much was written.
    fn filled() -> (Ending, TcpStream, u64) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        set_reset_on_close(&near, true).unwrap();
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = near.write(&[0; 1 << 16]) {
            written += count as u64;
        }
        (Ending::new(vec![Arc::new(near)]), far, written)
    }

    #[test]
    fn what_is_acknowledged_in_time_arrives() {
        let (ending, mut far, written) = filled();
        let reader = std::thread::spawn(move || io::copy(&mut far, &mut io::sink()));
        let (_sender, events) = channel();
        ending.wait_for(Nanos::from_secs(60), &events);
        assert_eq!(reader.join().unwrap().unwrap(), written);
    }

    /// However often it acknowledges a little.
    #[test]
    fn who_reads_slowly_leaves_nothing_in_the_kernel() {
        for interrupted in [false, true] {
            let (ending, mut far, _) = filled();
            let (sender, events) = channel();
            let time = if interrupted {
                sender.send(Event::Control(ControlEvent::Interrupt)).unwrap();
                Nanos::from_secs(60)
            } else {
                Nanos::from_millis(50)
            };
            let reader = std::thread::spawn(move || {
                let mut some = [0; 4_096];
                loop {
                    match far.read(&mut some) {
                        Ok(0) => return None,
                        Ok(_) => std::thread::sleep(UNACKNOWLEDGED_LOOK.into()),
                        Err(error) => return Some(error.kind()),
                    }
                }
            });
            ending.wait_for(time, &events);
            assert_eq!(reader.join().unwrap(), Some(ErrorKind::ConnectionReset), "interrupted: {interrupted}");
        }
    }
}
