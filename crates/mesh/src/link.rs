//! Connections between sites and their coordinator: a question and its answer over an encrypted channel.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_channel::{Channel, Identity, Key, PREAMBLE_BYTES, Places, PublicKey, Role, Standing, Taken, shown};
use longhaul_kernel::tcp::{acknowledged_within, goes_on_after, receive_buffer, send_buffer, set_reset_on_close};

use parking_lot::FairMutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::Failure;
use crate::folder::{SiteTokens, random};
use crate::shares::Shares;
use longhaul_mesh_model::message::Message;

/// Whoever says nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at the same time. A further one closes that of a stranger.
const CONNECTIONS_MOST: usize = 128;
/// Those of members ([`Shares`]). The others are for who has not proven yet who he is.
const CONNECTIONS_OF_MEMBERS: usize = 96;
/// How long the next one waits for connections that were replaced and have not ended yet, and how often it looks; then it is closed.
const CROWD_PATIENCE: Duration = Duration::from_secs(1);
const CROWD_LOOK: Duration = Duration::from_millis(1);
/// A connection is for one question, which may have many results.
const CONNECTION_LASTS: Duration = Duration::from_secs(30);
/// What comes of somebody who is no member, at most: room for a first part of the channel's (64 KiB) and a short question.
const STRANGER_BYTES_MOST: usize = 128 << 10;
/// Until then somebody has to prove who he is.
const STRANGER_LASTS: Duration = Duration::from_secs(10);
/// What the kernel keeps of an answer that the other end has not acknowledged, as at the page; it counts twice as much, with its own bookkeeping.
const SEND_BUFFER_BYTES: usize = 128 << 10;
/// What it keeps of what arrived and was not read, also out of order or behind the question; counted alike. A message of 1 MiB takes less than 3 s over
/// a round trip of 200 ms.
const RECEIVE_BUFFER_BYTES: usize = 128 << 10;

/// Who this end is to the other.
pub(crate) enum As<'a> {
    /// A member, to a member whose key is known.
    Known(&'a Identity, PublicKey),
    /// Somebody with a token.
    Token(&'a Key),
}

/// Asks whoever listens at `address` (with its port), and waits for the answer.
pub(crate) fn ask(address: &str, who: &As, question: &Message) -> Result<Message, Failure> {
    ask_until(Instant::now() + CONNECTION_LASTS, address, 0, who, question)
}

/// The same until `ends`, whatever the other end and the resolver do. An address where nobody proves to be the
/// one who is asked leaves time for those that the name has beside it, and for `others` that the caller has.
pub(crate) fn ask_until(
    ends: Instant,
    address: &str,
    others: usize,
    who: &As,
    question: &Message,
) -> Result<Message, Failure> {
    let failed = |error: std::io::Error| Failure::new(format_args!("{address}: {}", failure(error)));
    patience(ends).map_err(failed)?;
    let all = look_up(ends, address, |name| name.to_socket_addrs().map(Iterator::collect)).map_err(failed)?;
    let mut last = Failure::new(format_args!("{address}: no such host"));
    for (resolved, left) in all.iter().zip((1..=all.len()).rev()) {
        let share = ends.saturating_duration_since(Instant::now()) / (left + others) as u32;
        match begin(Instant::now() + share, resolved, who, question) {
            Ok(mut link) => {
                link.ends = ends;
                let answer = link.receive().map_err(|failure| Failure::new(format_args!("{address}: {failure}")))?;
                return Ok(match answer {
                    // It is printed on this end's terminal.
                    Message::Refused { message } => Message::Refused { message: shown(&message) },
                    answer => answer,
                });
            }
            Err(failure) => last = Failure::new(format_args!("{address}: {failure}")),
        }
        if Instant::now() >= ends {
            break;
        }
    }
    Err(last)
}

/// The addresses that `address` has. A thread has `resolve` look a name up, so that a resolver that does not answer holds nobody beyond `ends`.
fn look_up(
    ends: Instant,
    address: &str,
    resolve: impl FnOnce(&str) -> std::io::Result<Vec<SocketAddr>> + Send + 'static,
) -> std::io::Result<Vec<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let (say, said) = mpsc::sync_channel(1);
    let name = address.to_owned();
    let resolver = thread::Builder::new().name("look up".into());
    resolver.spawn(move || say.send(resolve(&name)))?;
    let late = || Error::other("the resolver gives no answer in time");
    said.recv_timeout(patience(ends)?).unwrap_or_else(|_| Err(late()))
}

/// Asks at one address. By `ends` the other end has proven who it is.
fn begin(ends: Instant, address: &SocketAddr, who: &As, question: &Message) -> Result<Link, Failure> {
    let stream = patience(ends).and_then(|left| TcpStream::connect_timeout(address, left)).map_err(failure)?;
    let channel = match who {
        As::Known(own, theirs) => Channel::to_known(own, theirs, random()?),
        As::Token(key) => Channel::keyed(Role::Client, key, random()?),
    };
    let mut link = Link::new(stream, channel, ends).map_err(failure)?;
    link.send(question)?;
    while !link.channel.is_keyed() {
        link.read()?;
    }
    Ok(link)
}

/// One end of a connection.
pub(crate) struct Link {
    stream: TcpStream,
    channel: Channel<Message>,
    ends: Instant,
    /// Bytes that may yet come.
    may_come: usize,
}

impl Link {
    fn new(stream: TcpStream, channel: Channel<Message>, ends: Instant) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, channel, ends, may_come: usize::MAX })
    }

    /// Sends what the channel has for the other end. Also one that reads a byte now and then comes to an end.
    fn flush(&mut self) -> std::io::Result<()> {
        let bytes = self.channel.poll_transmit().unwrap_or_default();
        let mut left = &bytes[..];
        while !left.is_empty() {
            self.stream.set_write_timeout(Some(patience(self.ends)?))?;
            match self.stream.write(left)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => left = &left[count..],
            }
        }
        Ok(())
    }

    pub(crate) fn send(&mut self, message: &Message) -> Result<(), Failure> {
        self.channel.send(message).map_err(Failure::new)?;
        self.flush().map_err(failure)
    }

    pub(crate) fn receive(&mut self) -> Result<Message, Failure> {
        loop {
            if let Some(message) = self.channel.poll_message() {
                return Ok(message);
            }
            self.read()?;
        }
    }

    /// Handles what arrives next.
    fn read(&mut self) -> Result<(), Failure> {
        let mut buffer = [0; 16 << 10];
        let count = read_some(&mut self.stream, &mut buffer, self.ends).map_err(failure)?;
        let left = self.may_come.checked_sub(count);
        self.may_come = left.ok_or_else(|| Failure::new("too much data from a host that is not a member"))?;
        let handled = self.channel.handle_bytes(&buffer[..count]);
        self.flush().map_err(failure)?;
        handled.map_err(|error| Failure::new(format_args!("{error}: {}", error.remedy())))
    }
}

/// What is left until `ends`, [`PATIENCE`] at most.
fn patience(ends: Instant) -> std::io::Result<Duration> {
    let left = ends.saturating_duration_since(Instant::now()).min(PATIENCE);
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Reads a byte or more. Also a peer that sends a byte now and then comes to an end.
fn read_some(stream: &mut TcpStream, buffer: &mut [u8], ends: Instant) -> std::io::Result<usize> {
    stream.set_read_timeout(Some(patience(ends)?))?;
    match stream.read(buffer)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => Ok(count),
    }
}

fn read_all(stream: &mut TcpStream, mut buffer: &mut [u8], ends: Instant) -> std::io::Result<()> {
    while !buffer.is_empty() {
        let count = read_some(stream, buffer, ends)?;
        buffer = &mut buffer[count..];
    }
    Ok(())
}

fn failure(error: Error) -> Failure {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Failure::new("no answer in time"),
        ErrorKind::UnexpectedEof => Failure::new("closed by the other end"),
        _ => Failure::new(error),
    }
}

/// What a listener does with questions. The answer ends the connection.
pub(crate) trait Answering: Send + Sync + 'static {
    /// Whether this is a member, whose connection no stranger may close.
    fn is_member(&self, peer: PublicKey) -> bool;
    /// A member's question, or that of a host with a key that may be no member's.
    fn answer(&self, peer: PublicKey, question: Message) -> Message;
    /// Tokens that may be used, each with its site.
    fn tokens(&self) -> Arc<SiteTokens> {
        Arc::default()
    }
    /// The question of somebody with that site's token.
    fn answer_token(&self, _site: &str, _question: Message) -> Message {
        Message::Refused { message: "there are no tokens here".into() }
    }
}

/// Answers connections in threads, for ever.
pub(crate) fn listen(listener: &TcpListener, identity: &Identity, answering: &Arc<impl Answering>) {
    let places = Connected::none();
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors: others end soon.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let crowded = Instant::now() + CROWD_PATIENCE;
        while locked(&places).places.is_crowded() && Instant::now() < crowded {
            thread::sleep(CROWD_LOOK);
        }
        let Some(place) = Place::take(&places, &stream) else { continue };
        let (answering, identity) = (Arc::clone(answering), identity.clone());
        let serve = move || {
            // What one connection does wrong is its own affair.
            let _ = serve(stream, &identity, &*answering, &place);
            place.end();
        };
        // Without a thread the connection is closed.
        let _ = thread::Builder::new().name("link".into()).spawn(serve);
    }
}

/// All connections.
struct Connected {
    places: Places<Arc<TcpStream>>,
    members: Shares<Arc<TcpStream>>,
}

impl Connected {
    fn none() -> Connections {
        let (places, members) = (Places::new(CONNECTIONS_MOST), Shares::new(CONNECTIONS_OF_MEMBERS));
        Arc::new(Mutex::new(Self { places, members }))
    }
}

type Connections = Arc<Mutex<Connected>>;

/// A connection's place among the others, given back when dropped. A connection that has not [ended](Place::end) is reset then.
struct Place {
    places: Connections,
    number: u64,
    standing: Arc<Standing>,
    /// What closes it.
    handle: Arc<TcpStream>,
    taken: Instant,
}

impl Place {
    /// `None` where there is none, or the connection has ended.
    fn take(places: &Connections, stream: &TcpStream) -> Option<Self> {
        // At its end nothing of it stays in the kernel, also where this program is killed.
        set_reset_on_close(stream, true).ok()?;
        send_buffer(stream, Some(SEND_BUFFER_BYTES)).ok()?;
        receive_buffer(stream, Some(RECEIVE_BUFFER_BYTES)).ok()?;
        let (address, handle) = (stream.peer_addr().ok()?.ip(), Arc::new(stream.try_clone().ok()?));
        let Taken { number, standing, displaced } = locked(places).places.take(address, Arc::clone(&handle))?;
        if let Some(stranger) = displaced {
            // Its thread wakes up, and ends.
            let _ = stranger.shutdown(Shutdown::Both);
        }
        Some(Self { places: Arc::clone(places), number, standing, handle, taken: Instant::now() })
    }

    /// Says that no more comes. A member's place is free for others then. The kernel would keep for minutes what is not acknowledged: it goes with the
    /// connection when the time of that is over, or another connection took its place, or the other end has closed it, too.
    fn end(&self) {
        let _ = self.handle.shutdown(Shutdown::Write);
        let lasts = if self.standing.is_kept() { CONNECTION_LASTS } else { STRANGER_LASTS };
        let oldest = {
            let mut connected = locked(&self.places);
            connected.members.answered(self.number);
            connected.places.end(self.number)
        };
        if let Some(oldest) = oldest {
            let _ = oldest.shutdown(Shutdown::Both);
        }
        let left = (self.taken + lasts).saturating_duration_since(Instant::now());
        if acknowledged_within(&self.handle, left.into(), |pause| !is_closed(&self.handle) && goes_on_after(pause)) {
            let _ = set_reset_on_close(&self.handle, false);
        }
    }

    /// The question of who has proven who he is, and is one that `is_member` knows.
    fn question(&self, link: &mut Link, is_member: impl Fn(&Link) -> bool) -> Result<Message, Failure> {
        link.may_come = STRANGER_BYTES_MOST;
        // Asked once, which takes reading a file: a stranger sends byte by byte.
        let mut known = None;
        while !link.channel.is_proven() {
            link.read()?;
            // Whose key it says to have, before it proves that: what it encrypts may be long.
            if known.is_none() && link.channel.peer().is_some() {
                known = Some(is_member(link));
                if known == Some(true) {
                    link.channel.trust();
                }
            }
        }
        if known.unwrap_or_else(|| is_member(link)) {
            if let Some(member) = link.channel.peer() {
                self.is_of(member)?;
            }
            self.standing.keep();
            link.ends = self.taken + CONNECTION_LASTS;
            link.may_come = usize::MAX;
        }
        link.receive()
    }

    /// This is a connection of `member`; one is closed where there are too many.
    fn is_of(&self, member: PublicKey) -> Result<(), Failure> {
        let mut connected = locked(&self.places);
        if let Some((number, oldest)) = connected.members.add(member, self.number, Arc::clone(&self.handle))? {
            let _ = oldest.shutdown(Shutdown::Both);
            connected.places.leave(number);
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut connected = locked(&self.places);
        connected.places.leave(self.number);
        connected.members.remove(self.number);
    }
}

fn locked(places: &Connections) -> std::sync::MutexGuard<'_, Connected> {
    // Each of its steps is whole.
    places.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(mut stream: TcpStream, identity: &Identity, answering: &impl Answering, place: &Place) -> Result<(), Failure> {
    let ends = place.taken + STRANGER_LASTS;
    let mut first = [0; PREAMBLE_BYTES];
    read_all(&mut stream, &mut first, ends).map_err(failure)?;
    if first.ends_with(b"keyed") {
        return serve_token(stream, &first, answering, place);
    }
    let mut channel = Channel::from_known(identity, random()?);
    channel.handle_bytes(&first).map_err(Failure::new)?;
    let mut link = Link::new(stream, channel, ends).map_err(Failure::new)?;
    link.flush().map_err(failure)?;
    let is_member = |link: &Link| link.channel.peer().is_some_and(|peer| answering.is_member(peer));
    let question = place.question(&mut link, is_member)?;
    let peer = link.channel.peer().ok_or_else(|| Failure::new("no identity"))?;
    let answer = answering.answer(peer, question);
    link.send(&answer)
}

/// Whether it was closed, by either end.
fn is_closed(stream: &TcpStream) -> bool {
    let mut end = [PollFd::new(stream, PollFlags::RDHUP)];
    poll(&mut end, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Answers a client with a token. The client does not say which one it has: each unused token is tried on its first message.
fn serve_token(
    mut stream: TcpStream,
    preamble: &[u8],
    answering: &impl Answering,
    place: &Place,
) -> Result<(), Failure> {
    static TRIES: FairMutex<()> = FairMutex::new(());
    let ends = place.taken + STRANGER_LASTS;
    // Length, ephemeral key, tag.
    let mut first = [0; 2 + 32 + 16];
    read_all(&mut stream, &mut first, ends).map_err(failure)?;
    // One at a time: strangers take one processor at most, and members have the others.
    let tries = TRIES.lock();
    if is_closed(&stream) {
        return Err(Failure::new("closed meanwhile"));
    }
    for (site, token) in answering.tokens().iter() {
        let mut channel = Channel::keyed(Role::Server, token, random()?);
        channel.handle_bytes(preamble).map_err(Failure::new)?;
        if channel.handle_bytes(&first).is_ok() {
            drop(tries);
            let mut link = Link::new(stream, channel, ends).map_err(Failure::new)?;
            link.flush().map_err(failure)?;
            // Until the site has joined it is nobody.
            let question = place.question(&mut link, |_| false)?;
            let answer = answering.answer_token(site, question);
            return link.send(&answer);
        }
    }
    // As a channel says that the keys differ.
    let _ = stream.write_all(preamble).and_then(|()| stream.write_all(&[0, 0]));
    Err(Failure::new("no such token"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use longhaul_kernel::sock_diag::{InetFilter, InetSocket, InetSockets};
    use longhaul_kernel::socket_filter::SocketFilter;
    use longhaul_kernel::tcp::unacknowledged_bytes;

    use super::*;

    #[test]
    fn a_resolver_that_does_not_answer_is_left() {
        let later = || Instant::now() + Duration::from_secs(60);
        let [one, other]: [SocketAddr; 2] = ["192.0.2.1:7", "[2001:db8::1]:7"].map(|address| address.parse().unwrap());
        // An address needs no resolver.
        let nobody = |name: &str| -> std::io::Result<Vec<SocketAddr>> { panic!("{name} is looked up") };
        for address in [one, other] {
            assert_eq!(look_up(later(), &address.to_string(), nobody).unwrap(), [address]);
        }
        let found = look_up(later(), "geneva.example:7", move |name| {
            assert_eq!(name, "geneva.example:7");
            Ok(vec![one, other])
        });
        assert_eq!(found.unwrap(), [one, other]);
        let unknown = look_up(later(), "geneva.example:7", |_| Err(Error::other("no such name")));
        assert_eq!(unknown.unwrap_err().to_string(), "no such name");

        let (answer, never) = mpsc::channel::<()>();
        let silent = move |_: &str| -> std::io::Result<Vec<SocketAddr>> {
            let _ = never.recv();
            Ok(Vec::new())
        };
        let late = look_up(Instant::now() + Duration::from_millis(50), "geneva.example:7", silent).unwrap_err();
        assert!(late.to_string().contains("no answer in time"), "{late}");
        drop(answer);
    }

    /// Counts how often it is asked for tokens.
    #[derive(Default)]
    struct Tokens(AtomicU32);

    impl Answering for Tokens {
        fn is_member(&self, _: PublicKey) -> bool {
            false
        }

        fn answer(&self, _: PublicKey, _: Message) -> Message {
            Message::Unknown
        }

        fn tokens(&self) -> Arc<SiteTokens> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Arc::default()
        }
    }

    /// Many strangers may wait for their turn, and be gone by then.
    #[test]
    fn no_token_is_tried_for_a_connection_that_was_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let places = Connected::none();
        let (identity, answering) = (Identity::from_random(random().unwrap()).unwrap(), Tokens::default());
        for (closes, why) in [(false, "no such token"), (true, "closed meanwhile")] {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            client.write_all(b"longhaul/1 keyed").unwrap();
            client.write_all(&[7; 2 + 32 + 16]).unwrap();
            let (stream, _) = listener.accept().unwrap();
            if closes {
                client.shutdown(Shutdown::Both).unwrap();
                while !is_closed(&stream) {
                    thread::yield_now();
                }
            }
            let place = Place::take(&places, &stream).unwrap();
            assert_eq!(serve(stream, &identity, &answering, &place).unwrap_err().to_string(), why);
            assert_eq!(answering.0.load(Ordering::Relaxed), 1, "{why}");
        }
    }

    /// How an answer ends that was written and not read yet.
    #[derive(Debug, Clone, Copy)]
    enum End {
        Read,
        /// The time of the connection is over.
        Late,
        /// Another connection took the place.
        Displaced,
    }

    #[test]
    fn an_answer_arrives_or_goes_with_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let places = Connected::none();
        let ends = [End::Read, End::Late, End::Displaced];
        for (is_member, end) in [true, false].into_iter().flat_map(|is_member| ends.map(|end| (is_member, end))) {
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut place = Place::take(&places, &stream).unwrap();
            if is_member {
                place.standing.keep();
            }
            assert_eq!(receive_buffer(&stream, None).unwrap().given_bytes, 2 * RECEIVE_BUFFER_BYTES);
            stream.set_nonblocking(true).unwrap();
            let mut written = 0;
            while let Ok(count) = stream.write(&[0; 4096]) {
                written += count;
            }
            let waits = unacknowledged_bytes(&stream).unwrap() as usize;
            assert!((SEND_BUFFER_BYTES..=2 * SEND_BUFFER_BYTES + (128 << 10)).contains(&waits), "{waits}");
            drop(stream);
            let mut read = move || -> std::io::Result<usize> {
                let (mut some, mut read) = ([0; 4096], 0);
                loop {
                    match client.read(&mut some)? {
                        0 => return Ok(read),
                        count => read += count,
                    }
                    // Slowly: the place ends meanwhile.
                    thread::sleep(Duration::from_millis(1));
                }
            };
            match end {
                End::Read => {
                    let reader = thread::spawn(read);
                    place.end();
                    drop(place);
                    assert_eq!(reader.join().unwrap().unwrap(), written, "member: {is_member}");
                    continue;
                }
                End::Late => place.taken -= CONNECTION_LASTS,
                End::Displaced => place.handle.shutdown(Shutdown::Both).unwrap(),
            }
            let began = Instant::now();
            place.end();
            drop(place);
            assert!(began.elapsed() < Duration::from_secs(5), "{:?} member: {is_member}, {end:?}", began.elapsed());
            assert_eq!(read().unwrap_err().kind(), ErrorKind::ConnectionReset, "member: {is_member}, {end:?}");
        }
    }

    /// The kernel would keep it for minutes, with what arrived out of order.
    #[test]
    fn nothing_of_who_acknowledges_nothing_stays_in_the_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let mut place = Place::take(&Connected::none(), &stream).unwrap();
        SocketFilter::nothing().attach(&client).unwrap();
        place.taken -= STRANGER_LASTS;
        place.end();
        drop((stream, place));
        let mut kept = 0;
        let each = |socket: &InetSocket<'_>| kept += usize::from(socket.local == address);
        InetSockets::tcp().unwrap().dump(InetFilter::Port(address.port()), each).unwrap();
        assert_eq!(kept, 0);
        drop(client);
    }

    /// So it is where no thread can be had: the one that accepts goes on at once.
    #[test]
    fn a_place_that_is_dropped_waits_for_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let place = Place::take(&Connected::none(), &stream).unwrap();
        SocketFilter::nothing().attach(&client).unwrap();
        stream.write_all(b"that nobody acknowledges").unwrap();
        let began = Instant::now();
        drop((stream, place));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }

    /// Each byte renews the patience with one that says nothing, but not the time of the whole.
    #[test]
    fn who_says_a_byte_now_and_then_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let drip = move || -> std::io::Result<()> {
            let (mut stream, _) = listener.accept()?;
            let mut preamble = [0; PREAMBLE_BYTES];
            stream.read_exact(&mut preamble)?;
            stream.write_all(&preamble)?;
            // The length of a message, and the message.
            stream.write_all(&[0x80])?;
            loop {
                thread::sleep(Duration::from_millis(50));
                stream.write_all(&[0])?;
            }
        };
        let dripping = thread::spawn(drip);
        let identity = || Identity::from_random(random().unwrap()).unwrap();
        let (own, theirs) = (identity(), identity().public());
        let began = Instant::now();
        let ends = began + Duration::from_secs(1);
        let asked = ask_until(ends, &address, 0, &As::Known(&own, theirs), &Message::Leased);
        assert_eq!(asked.unwrap_err().to_string(), format!("{address}: no answer in time"));
        assert!((1.0..3.0).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
        assert!(dripping.join().unwrap().is_err());

        // One that takes the connection and says nothing leaves half of the time to the caller's other address.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let began = Instant::now();
        let ends = began + Duration::from_secs(2);
        assert!(ask_until(ends, &address, 1, &As::Known(&own, theirs), &Message::Leased).is_err());
        assert!((1.0..1.8).contains(&began.elapsed().as_secs_f64()), "{:?}", began.elapsed());
    }
}
