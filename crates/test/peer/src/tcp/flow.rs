//! One flow: its connection, its counts, and the thread that writes or reads.

use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::thread::{Builder, JoinHandle};

use longhaul_kernel::tcp::set_reset_on_close;
use longhaul_tcp::TcpParameters;
use longhaul_tcp::proof::TcpStreamId;

use super::counts::Counts;
use super::receiving::read_all;
use super::sending::{Block, write_all};
use crate::cpus::pin;
use crate::event::Event;

/// A connection of a test. It is reset when it is dropped, unless the test comes to its end ([`Ending`](super::ending::Ending)).
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) id: TcpStreamId,
    pub(super) sends: bool,
    socket: Arc<TcpStream>,
    pub(super) counts: Arc<Counts>,
    pub(super) threads: Vec<JoinHandle<()>>,
    /// Whether all is written.
    pub(super) sent: bool,
}

impl Flow {
    /// `socket` is reset if this process is killed, or the test is cut: nothing of it stays in the kernel.
    pub(super) fn new(id: TcpStreamId, sends: bool, socket: TcpStream) -> Self {
        // Without it a killed test is only longer in going.
        let _ = set_reset_on_close(&socket, true);
        Self { id, sends, socket: Arc::new(socket), counts: Arc::default(), threads: Vec::new(), sent: false }
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The connection, for another thread.
    pub(super) fn shared_socket(&self) -> Arc<TcpStream> {
        Arc::clone(&self.socket)
    }

    pub(super) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Starts the thread that reads until the end of the stream, and then sends [`Event::StreamEnded`], or until `stop`, no faster than
    /// `most_bps`.
    pub(super) fn receive(
        &mut self,
        parameters: &TcpParameters,
        most_bps: Option<u64>,
        stop: &Arc<AtomicBool>,
        events: &Sender<Event>,
    ) {
        let (socket, counts, stop, events) = (self.shared_socket(), self.counts(), Arc::clone(stop), events.clone());
        let (stream, parameters) = (self.id.stream, parameters.clone());
        let work = move || {
            pin(&parameters.affinity.receiver_cpus);
            let read = read_all(&socket, &counts, &parameters, most_bps, &stop);
            let is_whole = matches!(read, Ok(true));
            counts.end(read.err());
            if is_whole {
                // The driver may have given up.
                let _ = events.send(Event::StreamEnded { stream, bytes: counts.bytes() });
            }
        };
        self.spawn("receive", work);
    }

    /// Starts the thread that writes `block` until it is done, or `stop`, and then sends [`Event::StreamSent`].
    pub(super) fn send(
        &mut self,
        block: &Arc<Block>,
        parameters: &TcpParameters,
        stop: &Arc<AtomicBool>,
        events: &Sender<Event>,
    ) {
        let block = Arc::clone(block);
        let (socket, counts, stop, events) = (self.shared_socket(), self.counts(), Arc::clone(stop), events.clone());
        let (stream, parameters) = (self.id.stream, parameters.clone());
        let done = events.clone();
        let work = move || {
            pin(&parameters.affinity.sender_cpus);
            let failure = write_all(&socket, &counts, &block, &parameters, stream, &stop).err();
            counts.end(failure);
            // The other end sees the end of the stream.
            let _ = socket.shutdown(Shutdown::Write);
            // The driver may have given up.
            let _ = events.send(Event::StreamSent(stream));
        };
        if !self.spawn("send", work) {
            let _ = done.send(Event::StreamSent(stream));
        }
    }

    /// It sends nothing: why.
    pub(super) fn fail(&mut self, why: &std::io::Error, events: &Sender<Event>) {
        self.counts.end(Some(std::io::Error::new(why.kind(), why.to_string())));
        let _ = events.send(Event::StreamSent(self.id.stream));
    }

    /// The test is cut: its threads have been told to stop, and do so at once.
    pub(super) fn cut(&mut self) {
        if !self.threads.is_empty() {
            let _ = self.socket.shutdown(Shutdown::Both);
            self.join();
        }
    }

    /// Waits for the end of its threads.
    pub(super) fn join(&mut self) {
        // A panic was printed when it happened; what was counted before is valid.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }

    fn spawn(&mut self, what: &str, work: impl FnOnce() + Send + 'static) -> bool {
        match Builder::new().name(format!("{what} {}", self.id.stream)).spawn(work) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                self.counts.end(Some(error));
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::channel;

    use super::*;

    /// What the driver is told of the end of stream 3 of 100 bytes, and whether that stream failed, where `end` ends it or keeps the other end.
    fn told(end: impl FnOnce(TcpStream, &AtomicBool) -> Option<TcpStream>) -> (Option<(u8, u64)>, bool) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        let ((events, driver), stop) = (channel(), Arc::default());
        let mut flow = Flow::new(TcpStreamId { backward: true, stream: 3 }, false, near);
        flow.receive(&TcpParameters::default(), None, &stop, &events);
        far.write_all(&[0; 100]).unwrap();
        let _kept = end(far, &stop);
        flow.join();
        let ended = match driver.try_recv() {
            Ok(Event::StreamEnded { stream, bytes }) => Some((stream, bytes)),
            _ => None,
        };
        (ended, flow.counts.failure().is_some())
    }

    #[test]
    fn the_driver_is_told_of_the_end_of_a_stream_alone() {
        let closed = |far: TcpStream, _: &AtomicBool| {
            far.shutdown(Shutdown::Write).unwrap();
            Some(far)
        };
        assert_eq!(told(closed), (Some((3, 100)), false));
        let reset = |far: TcpStream, _: &AtomicBool| {
            set_reset_on_close(&far, true).unwrap();
            None
        };
        assert_eq!(told(reset), (None, true));
        let stopped = |far: TcpStream, stop: &AtomicBool| {
            stop.store(true, Ordering::Relaxed);
            Some(far)
        };
        assert_eq!(told(stopped), (None, false));
    }
}
