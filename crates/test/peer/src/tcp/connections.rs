//! How the connections of a test are made: the client connects once for each stream, the server passes the first bytes of each
//! connection to the session.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::thread::{Builder, JoinHandle, scope};

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::guard::Changed;
use longhaul_kernel::tcp::{
    TcpOpenError, TcpOptions, TunedBuffer, connect_to, listen_at, receive_buffer, save_syn, set_reset_on_close,
};
use longhaul_kernel::wait::{Poller, readable_until};
use longhaul_session::{DataPlan, SessionError};
use longhaul_tcp::TcpParameters;
use longhaul_tcp::proof::{MAGIC, TCP_HELLO_BYTES, TcpStreamId};
use longhaul_units::Nanos;

use crate::data::Source;
use crate::event::{ConnectionQueue, Event};

/// How long a connection may take: TCP's second retransmission of a SYN comes after 3 s (RFC 6298), and the session waits for 20.
const CONNECT_PATIENCE: Nanos = Nanos::from_secs(12);
/// How long a connection may take to send its first bytes.
const HELLO_PATIENCE: Nanos = Nanos::from_secs(10);
/// Receive buffer of a connection until it belongs to the test; the kernel gives twice as much. Anybody who connects can fill it with data out
/// of order that nobody reads. The first bytes are few, and the memory of a test is for its own connections.
const WAITING_BUFFER_BYTES: usize = 32 << 10;
/// Connections of others that may have sent nothing yet, beside four for each stream.
const WAITING_MOST: usize = 64;
/// Connections that are accepted before first bytes are read again: who connects again and again keeps none of those out that say something.
const ACCEPTED_AT_ONCE: usize = 16;
/// How often to look whether connections are still expected.
const LOOK: Nanos = Nanos::from_millis(20);

/// The connections of a test, each with its stream.
pub(super) type Connections = Vec<(TcpStreamId, TcpStream)>;

/// Connects for every stream at the same time, in a thread. It sends [`Event::DataOpened`] before it returns the connections.
///
/// # Errors
/// Which of the parameters this host cannot have.
pub(super) fn connect_all(
    address: SocketAddr,
    source: Source,
    options: &TcpOptions,
    plan: &DataPlan,
    parameters: &TcpParameters,
    events: &Sender<Event>,
) -> Result<JoinHandle<Result<Connections, SessionError>>, SessionError> {
    let streams = parameters.streams;
    let directions = [(false, plan.sends), (true, plan.receives)];
    let used = directions.into_iter().filter(|(_, used)| *used);
    let ids: Vec<_> =
        used.flat_map(|(backward, _)| (0..streams).map(move |stream| TcpStreamId { backward, stream })).collect();
    let both = plan.sends && plan.receives;
    let switched = switch_off(parameters)?;
    let (cookie, options, events) = (plan.tcp_cookie, *options, events.clone());
    let work = move || {
        let one = |id: TcpStreamId| -> Result<_, TcpOpenError> {
            // Streams of both directions have ports of their own.
            let number = id.stream + if id.backward && both { streams } else { 0 };
            let from = source.of_data(number, address);
            let mut stream = connect_to(address, from, &options, monotonic() + CONNECT_PATIENCE)?;
            let failed = |source| TcpOpenError::Step { step: "write to a data connection", source };
            stream.write_all(&cookie.hello(id)).map_err(failed)?;
            Ok((id, stream))
        };
        let made: Result<Vec<_>, _> = scope(|scope| {
            let threads: Vec<_> = ids.iter().map(|id| scope.spawn(move || one(*id))).collect();
            let ended = || TcpOpenError::Step { step: "connect", source: io::Error::other("the attempt ended") };
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(ended()))).collect()
        });
        // The handshakes are over: others get what these had to lack.
        drop(switched);
        // The driver may have given up.
        let _ = events.send(Event::DataOpened);
        made.map_err(not_connected)
    };
    let spawned = Builder::new().name("connect".into()).spawn(work);
    spawned.map_err(|error| SessionError::new("data_socket", error.to_string(), ""))
}

fn not_connected(error: TcpOpenError) -> SessionError {
    let remedy = match error {
        TcpOpenError::NoMultipath => "test with plain TCP",
        TcpOpenError::NotBound { .. } => "use an address of this host, and ports that are free",
        _ => "open the server's TCP ports in the firewalls on the path",
    };
    SessionError::new("data_socket", error.to_string(), remedy)
}

/// Switches SACK and time stamps off in this network namespace where the test wants it without, for as long as the result lives.
fn switch_off(parameters: &TcpParameters) -> Result<Option<Changed>, SessionError> {
    let asked = [
        ("net.ipv4.tcp_sack", parameters.no_sack, "SACK"),
        ("net.ipv4.tcp_timestamps", parameters.no_timestamps, "time stamps"),
    ];
    let off = || asked.iter().filter(|(_, off, _)| *off);
    let keys: Vec<_> = off().map(|(key, ..)| (*key, "0")).collect();
    if keys.is_empty() {
        return Ok(None);
    }
    let changed = Changed::of_sysctls(&keys).map_err(|error| {
        let what: Vec<_> = off().map(|(.., what)| *what).collect();
        let message = format!("a test without {}: {error}", what.join(" and "));
        SessionError::new("not_switched_off", message, "run it as root on a host of a lab")
    })?;
    Ok(Some(changed))
}

/// The server's listening socket and its thread, until this is dropped: then the port is free.
#[derive(Debug)]
pub(super) struct Accepting {
    port: u16,
    /// The thread has the other end, and ends when this one is shut down.
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Accepting {
    /// Listens at `at` for connections from `peer`; others are closed at once. Where `options` have a size of buffers or there is a buffer
    /// `tuned`, it hands over connections that must be given it back.
    ///
    /// # Errors
    /// Where the system gives no socket or thread.
    pub(super) fn start(
        at: SocketAddr,
        peer: IpAddr,
        options: &TcpOptions,
        streams: u8,
        tuned: Option<TunedBuffer>,
        events: &Sender<Event>,
    ) -> Result<Self, SessionError> {
        let listener = listen_at(at, options).map_err(not_connected)?;
        // Where it cannot be kept, the result has none.
        let _ = save_syn(&listener);
        let failed = |error: io::Error| SessionError::new("data_socket", error.to_string(), "");
        let port = listener.local_addr().map_err(failed)?.port();
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let queue = ConnectionQueue::new(events);
        let waits_small = options.buffer_bytes.is_some() || tuned.is_some();
        let from = Expected { peer: peer.to_canonical(), most: 4 * usize::from(streams) + WAITING_MOST, waits_small };
        let work = move || {
            let _ = accept(&listener, from, &stopped, &queue);
        };
        let thread = Builder::new().name("accept".into()).spawn(work).map_err(failed)?;
        Ok(Self { port, stop, thread: Some(thread) })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        let _ = self.stop.shutdown(Shutdown::Both);
        // A panic was printed when it happened.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Gives a connection a small receive buffer, until it is known what it is.
pub(crate) fn hold_small(connection: &TcpStream) {
    // The kernel refuses this to no TCP socket.
    let _ = receive_buffer(connection, Some(WAITING_BUFFER_BYTES));
}

/// Gives a connection of the test at the server the receive buffer that the kernel tunes, where it had a small one. One over which this end
/// only `sends` keeps that: who connects could fill it, too, and the memory that a test may have counts the send buffer.
pub(super) fn give_receive_buffer(connection: &TcpStream, sends: bool, tuned: Option<TunedBuffer>) {
    if sends {
        hold_small(connection);
    } else if let Some(tuned) = tuned {
        // What could be given back once can be again.
        let _ = tuned.give_back(connection);
    }
}

/// The first bytes of `stream`, if it begins as a data connection does; `None` where it does not, or nothing comes.
///
/// # Errors
/// The connection broke, or `events` says to end.
pub(crate) fn data_hello(stream: &TcpStream, events: &Receiver<Event>) -> io::Result<Option<[u8; TCP_HELLO_BYTES]>> {
    let deadline = monotonic() + HELLO_PATIENCE;
    let mut hello = [0; TCP_HELLO_BYTES];
    while monotonic() < deadline {
        match events.try_recv() {
            // A turn is free: this connection has not asked for one.
            Err(TryRecvError::Empty) | Ok(Event::AskAgain) => {}
            _ => return Err(ErrorKind::Interrupted.into()),
        }
        if !readable_until(stream, Some(monotonic() + LOOK))? {
            continue;
        }
        // The bytes stay where they are, as a control connection's are its channel's.
        let seen = stream.peek(&mut hello)?;
        let first = seen.min(MAGIC.len());
        if seen == 0 || hello[..first] != MAGIC[..first] {
            return Ok(None);
        }
        if seen == TCP_HELLO_BYTES {
            (&*stream).read_exact(&mut hello)?;
            return Ok(Some(hello));
        }
        // What is there stays readable.
        std::thread::sleep(LOOK.into());
    }
    Ok(None)
}

/// Whose connections are accepted.
#[derive(Debug, Clone, Copy)]
struct Expected {
    peer: IpAddr,
    /// How many of them may have sent nothing yet: another program of the same host may connect, too.
    most: usize,
    /// Whether their buffers are small until they are of the test.
    waits_small: bool,
}

/// A connection whose first bytes have not all arrived.
struct Newcomer {
    stream: TcpStream,
    from: SocketAddr,
    bytes: [u8; TCP_HELLO_BYTES],
    read: usize,
    deadline: Nanos,
}

impl Newcomer {
    /// Reads what is there of the first bytes, and hands the connection over when they are all there. Returns it where it is still waited for.
    ///
    /// # Errors
    /// The driver has ended.
    fn go_on(mut self, now: Nanos, poller: &Poller, queue: &ConnectionQueue) -> io::Result<Option<Self>> {
        match self.stream.read(&mut self.bytes[self.read..]) {
            Ok(1..) | Err(_) if self.deadline <= now => Ok(None),
            Ok(0) => Ok(None),
            Ok(count) => {
                self.read += count;
                if self.read < TCP_HELLO_BYTES {
                    return Ok(Some(self));
                }
                poller.remove(&self.stream)?;
                self.stream.set_nonblocking(false)?;
                let goes_on = queue.hand_over(self.stream, self.from, self.bytes);
                if goes_on { Ok(None) } else { Err(ErrorKind::BrokenPipe.into()) }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(Some(self)),
            Err(_) => Ok(None),
        }
    }
}

/// Accepts connections of `expected` and reads their first bytes, until there is something at `stop`. One too many displaces another one
/// ([`make_room`]).
fn accept(listener: &TcpListener, expected: Expected, stop: &UnixStream, queue: &ConnectionQueue) -> io::Result<()> {
    const STOP: u64 = u64::MAX;
    let poller = Poller::new()?;
    poller.add(listener, 0)?;
    poller.add(stop, STOP)?;
    let mut newcomers: Vec<Newcomer> = Vec::new();
    let mut number = 0;
    while !poller.wait(Some(monotonic() + LOOK))?.any(|key| key == STOP) {
        for (stream, from) in (0..ACCEPTED_AT_ONCE).map_while(|_| listener.accept().ok()) {
            // Where it is dropped nothing of it stays in the kernel.
            let _ = set_reset_on_close(&stream, true);
            if from.ip().to_canonical() != expected.peer {
                continue;
            }
            if expected.waits_small {
                hold_small(&stream);
            }
            number += 1;
            stream.set_nonblocking(true)?;
            make_room(&mut newcomers, expected.most, |newcomer| newcomer.go_on(monotonic(), &poller, queue))?;
            if poller.add(&stream, number).is_ok() {
                let deadline = monotonic() + HELLO_PATIENCE;
                newcomers.push(Newcomer { stream, from, bytes: [0; TCP_HELLO_BYTES], read: 0, deadline });
            }
        }
        let now = monotonic();
        for newcomer in std::mem::take(&mut newcomers) {
            newcomers.extend(newcomer.go_on(now, &poller, queue)?);
        }
    }
    Ok(())
}

/// Makes room for one more of `most`: of the older half the oldest that has sent nothing goes, unless its first bytes have come since, as `go_on`
/// finds. Where all of that half have sent some, the oldest goes. The younger half stays: first bytes come a moment after their connection.
fn make_room(
    newcomers: &mut Vec<Newcomer>,
    most: usize,
    mut go_on: impl FnMut(Newcomer) -> io::Result<Option<Newcomer>>,
) -> io::Result<()> {
    while newcomers.len() >= most.max(1) {
        let older = &newcomers[..newcomers.len().div_ceil(2)];
        let silent = older.iter().position(|newcomer| newcomer.read == 0);
        let oldest = newcomers.remove(silent.unwrap_or(0));
        if let (Some(at), Some(newcomer)) = (silent, go_on(oldest)?)
            && newcomer.read > 0
        {
            newcomers.insert(at, newcomer);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use longhaul_kernel::socket_filter::SocketFilter;
    use longhaul_kernel::tcp::set_up_accepted;
    use longhaul_tcp::proof::TcpCookie;

    use super::*;
    use crate::control::ControlEvent;
    use crate::listening::tests::kept;

    /// It can be filled by whoever connects.
    #[test]
    fn a_connection_has_a_small_buffer_until_it_is_of_the_test() {
        let (events, receiver) = channel();
        let here = IpAddr::from([127, 0, 0, 1]);
        let window = TcpOptions { buffer_bytes: Some(1 << 20), ..TcpOptions::default() };
        let tuned = TunedBuffer::of_namespace();
        assert!(tuned.is_some(), "this kernel is older than Linux 5.14");
        for (options, tuned) in [(window, None), (TcpOptions::default(), tuned)] {
            let accepting = Accepting::start(SocketAddr::new(here, 0), here, &options, 1, tuned, &events).unwrap();
            let mut client = TcpStream::connect((here, accepting.port())).unwrap();
            client.write_all(&[0; TCP_HELLO_BYTES]).unwrap();
            let connection = match receiver.recv_timeout(std::time::Duration::from_secs(5)) {
                Ok(Event::Connection { connection, .. }) => connection,
                other => panic!("{other:?}"),
            };
            assert_eq!(receive_buffer(&connection, None).unwrap().given_bytes, 2 * WAITING_BUFFER_BYTES);
        }
    }

    #[test]
    fn a_connection_over_which_the_server_only_sends_keeps_a_small_buffer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let given = || receive_buffer(&server, None).unwrap().given_bytes;
        let small = 2 * WAITING_BUFFER_BYTES;
        set_up_accepted(&server, &TcpOptions { buffer_bytes: Some(1 << 20), ..TcpOptions::default() }).unwrap();
        assert!(given() > small);
        give_receive_buffer(&server, true, None);
        assert_eq!(given(), small);
        let tuned = TunedBuffer::of_namespace();
        give_receive_buffer(&server, true, tuned);
        assert_eq!(given(), small);
        give_receive_buffer(&server, false, tuned);
        assert!(given() > small);
    }

    /// Accepts at `listener` while `looks` does; its argument waits for the next connection that said all, and returns it.
    fn while_accepting(listener: &TcpListener, looks: impl FnOnce(&dyn Fn() -> [u8; TCP_HELLO_BYTES])) {
        let (events, receiver) = channel();
        let (stop, stopped) = UnixStream::pair().unwrap();
        let expected = Expected { peer: IpAddr::from([127, 0, 0, 1]), most: 20, waits_small: false };
        let said = || match receiver.recv_timeout(std::time::Duration::from_secs(5)) {
            Ok(Event::Connection { hello, .. }) => hello,
            other => panic!("{other:?}"),
        };
        std::thread::scope(|scope| {
            let (queue, stopped) = (ConnectionQueue::new(&events), &stopped);
            scope.spawn(move || accept(listener, expected, stopped, &queue));
            // Ends the thread also where an assertion fails.
            let _stop = stop;
            looks(&said);
        });
    }

    /// They come as one, and wait for the first look of the thread that accepts.
    #[test]
    fn who_says_something_is_not_displaced_by_the_silent() {
        let listener = listen_at("127.0.0.1:0".parse().unwrap(), &TcpOptions::default()).unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut first, mut slow) = (connect(), connect());
        first.write_all(&[1; TCP_HELLO_BYTES]).unwrap();
        slow.write_all(&[2; 5]).unwrap();
        let _silent: Vec<_> = (0..100).map(|_| connect()).collect();
        while_accepting(&listener, |said| {
            assert_eq!(said(), [1; TCP_HELLO_BYTES]);
            // Once the last has its place, the silent of before are gone.
            connect().write_all(&[3; TCP_HELLO_BYTES]).unwrap();
            assert_eq!(said(), [3; TCP_HELLO_BYTES]);
            slow.write_all(&[2; TCP_HELLO_BYTES - 5]).unwrap();
            assert_eq!(said(), [2; TCP_HELLO_BYTES]);
        });
    }

    /// The first bytes of a connection come after it, and others that say a part of theirs take every place meanwhile.
    #[test]
    fn one_that_has_just_come_is_not_displaced() {
        let listener = listen_at("127.0.0.1:0".parse().unwrap(), &TcpOptions::default()).unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let says_a_byte = || {
            let mut stream = connect();
            stream.write_all(&[1]).unwrap();
            stream
        };
        let _before: Vec<_> = (0..30).map(|_| says_a_byte()).collect();
        let mut honest = connect();
        let _after: Vec<_> = (0..5).map(|_| says_a_byte()).collect();
        let mut last = connect();
        last.write_all(&[3; TCP_HELLO_BYTES]).unwrap();
        while_accepting(&listener, |said| {
            // All are accepted.
            assert_eq!(said(), [3; TCP_HELLO_BYTES]);
            honest.write_all(&[2; TCP_HELLO_BYTES]).unwrap();
            assert_eq!(said(), [2; TCP_HELLO_BYTES]);
        });
    }

    /// Those that are displaced, and acknowledge nothing.
    #[test]
    fn nothing_of_who_loses_its_place_stays_in_the_kernel() {
        let listener = listen_at("127.0.0.1:0".parse().unwrap(), &TcpOptions::default()).unwrap();
        let address = listener.local_addr().unwrap();
        let deaf: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
        deaf.iter().for_each(|stream| SocketFilter::nothing().attach(stream).unwrap());
        while_accepting(&listener, |said| {
            let mut last = TcpStream::connect(address).unwrap();
            last.write_all(&[3; TCP_HELLO_BYTES]).unwrap();
            assert_eq!(said(), [3; TCP_HELLO_BYTES]);
        });
        assert_eq!(kept(address).len(), 0);
        drop(deaf);
    }

    /// Another client leaves the queue while the first bytes are on their way.
    #[test]
    fn a_turn_that_is_free_closes_no_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let (events, receiver) = channel();
        (0..3).for_each(|_| events.send(Event::AskAgain).unwrap());
        let cookie = TcpCookie::of_words(1, 2);
        client.write_all(&cookie.hello(TcpStreamId { backward: false, stream: 0 })).unwrap();
        assert!(data_hello(&server, &receiver).unwrap().is_some());
        events.send(Event::Control(ControlEvent::Abort)).unwrap();
        assert!(data_hello(&server, &receiver).is_err());
    }
}
