//! Connections between sites and their coordinator: a question and its answer over an encrypted channel.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_channel::{Channel, Identity, Key, PREAMBLE_BYTES, PublicKey, Role};

use crate::error::Failure;
use crate::folder::random;
use longhaul_mesh_model::message::Message;

/// Whoever says nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at the same time; more are closed at once.
const CONNECTIONS_MOST: usize = 64;
/// A connection is for one question.
const CONNECTION_LASTS: Duration = Duration::from_secs(30);

/// Who this end is to the other.
pub(crate) enum As<'a> {
    /// A member, to a member whose key is known.
    Known(&'a Identity, PublicKey),
    /// Somebody with a token.
    Token(&'a Key),
}

/// Asks whoever listens at `address` (with its port), and waits for the answer.
pub(crate) fn ask(address: &str, who: &As, question: &Message) -> Result<Message, Failure> {
    let failed = |error: std::io::Error| Failure::new(format_args!("{address}: {error}"));
    let mut last = None;
    for resolved in address.to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&resolved, PATIENCE) {
            Ok(stream) => {
                let channel = match who {
                    As::Known(own, theirs) => Channel::to_known(own, theirs, random()?),
                    As::Token(key) => Channel::keyed(Role::Client, key, random()?),
                };
                let mut link = Link::new(stream, channel).map_err(failed)?;
                link.send(question).map_err(|failure| Failure::new(format_args!("{address}: {failure}")))?;
                return link.receive().map_err(|failure| Failure::new(format_args!("{address}: {failure}")));
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| Failure::new(format_args!("{address}: no such host")), failed))
}

/// One end of a connection.
pub(crate) struct Link {
    stream: TcpStream,
    channel: Channel<Message>,
    ends: Instant,
}

impl Link {
    fn new(stream: TcpStream, channel: Channel<Message>) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, channel, ends: Instant::now() + CONNECTION_LASTS })
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.channel.poll_transmit().map_or(Ok(()), |bytes| self.stream.write_all(&bytes))
    }

    pub(crate) fn send(&mut self, message: &Message) -> Result<(), Failure> {
        self.channel.send(message).map_err(Failure::new)?;
        self.flush().map_err(Failure::new)
    }

    pub(crate) fn receive(&mut self) -> Result<Message, Failure> {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(message) = self.channel.poll_message() {
                return Ok(message);
            }
            // Also a peer that sends a byte now and then comes to an end.
            if Instant::now() > self.ends {
                return Err(Failure::new("no answer in time"));
            }
            let count = match self.stream.read(&mut buffer) {
                Ok(0) => return Err(Failure::new("closed by the other end")),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(Failure::new("no answer in time")),
                Err(error) => return Err(Failure::new(error)),
            };
            let handled = self.channel.handle_bytes(&buffer[..count]);
            self.flush().map_err(Failure::new)?;
            handled.map_err(|error| Failure::new(format_args!("{error}: {}", error.remedy())))?;
        }
    }
}

/// What a listener does with questions. The answer ends the connection.
pub(crate) trait Answering: Send + Sync + 'static {
    /// A member's question, or that of a host with a key that may be no member's.
    fn answer(&self, peer: PublicKey, question: Message) -> Message;
    /// Tokens that may be used, each with its site.
    fn tokens(&self) -> Vec<(String, Key)> {
        Vec::new()
    }
    /// The question of somebody with that site's token.
    fn answer_token(&self, _site: &str, _question: Message) -> Message {
        Message::Refused { message: "there are no tokens here".into() }
    }
}

/// Answers connections in threads, for ever.
pub(crate) fn listen(listener: &TcpListener, identity: &Identity, answering: &Arc<impl Answering>) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors: others end soon.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        let counted = Counted(Arc::clone(&open));
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MOST {
            continue;
        }
        let (answering, identity) = (Arc::clone(answering), identity.clone());
        let serve = move || {
            let _counted = counted;
            // What one connection does wrong is its own affair.
            let _ = serve(stream, &identity, &*answering);
        };
        // Without a thread the connection is closed.
        let _ = thread::Builder::new().name("link".into()).spawn(serve);
    }
}

/// One of the connections that are open, also one whose thread panics.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(mut stream: TcpStream, identity: &Identity, answering: &impl Answering) -> Result<(), Failure> {
    stream.set_read_timeout(Some(PATIENCE)).map_err(Failure::new)?;
    let mut first = [0; PREAMBLE_BYTES];
    stream.read_exact(&mut first).map_err(Failure::new)?;
    if first.ends_with(b"keyed") {
        return serve_token(stream, &first, answering);
    }
    let mut channel = Channel::from_known(identity, random()?);
    channel.handle_bytes(&first).map_err(Failure::new)?;
    let mut link = Link::new(stream, channel).map_err(Failure::new)?;
    link.flush().map_err(Failure::new)?;
    let question = link.receive()?;
    let peer = link.channel.peer().ok_or_else(|| Failure::new("no identity"))?;
    let answer = answering.answer(peer, question);
    link.send(&answer)
}

/// Answers a client with a token. The client does not say which one it has: each unused token is tried on its first message.
fn serve_token(mut stream: TcpStream, preamble: &[u8], answering: &impl Answering) -> Result<(), Failure> {
    // Length, ephemeral key, tag.
    let mut first = [0; 2 + 32 + 16];
    stream.read_exact(&mut first).map_err(Failure::new)?;
    for (site, token) in answering.tokens() {
        let mut channel = Channel::keyed(Role::Server, &token, random()?);
        channel.handle_bytes(preamble).map_err(Failure::new)?;
        if channel.handle_bytes(&first).is_ok() {
            let mut link = Link::new(stream, channel).map_err(Failure::new)?;
            link.flush().map_err(Failure::new)?;
            let question = link.receive()?;
            let answer = answering.answer_token(&site, question);
            return link.send(&answer);
        }
    }
    // As a channel says that the keys differ.
    let _ = stream.write_all(preamble).and_then(|()| stream.write_all(&[0, 0]));
    Err(Failure::new("no such token"))
}
