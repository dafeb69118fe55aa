//! The control connection of a link and its messages.

use std::net::TcpStream;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use longhaul_captures::log_link::LinkMessage;
use longhaul_channel::{Channel, Key, Role};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::signals::Stop;
use longhaul_session::{Message, SessionError};
use longhaul_units::Nanos;

use super::START;
use longhaul_peer::control::{Control, ControlEvent, Signals, interrupted, random};

/// A control connection that takes no message of some hundred bytes for this long is dead. Snippets wait meanwhile.
const WRITE_PATIENCE: Nanos = Nanos::from_secs(2);

/// The control connection and its events.
pub(super) struct LinkControl {
    control: Control,
    events: Receiver<ControlEvent>,
    /// Until the link is set up, one signal ends the wait. After that the first signal ends the capture, and only the second ends this.
    pub(super) is_made: bool,
    _signals: Option<Signals>,
}

impl std::fmt::Debug for LinkControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LinkControl(…)")
    }
}

impl LinkControl {
    /// Sets up the channel over `stream`.
    pub(super) fn establish(stream: TcpStream, key: Option<&Key>, stop: Option<Stop>) -> Result<Self, SessionError> {
        let io = |error: std::io::Error| SessionError::new("control", error.to_string(), "");
        let channel = match key {
            Some(key) => Channel::keyed(Role::Client, key, random()?),
            None => Channel::plain(Role::Client),
        };
        let (sender, events) = mpsc::channel();
        let signals = stop.map(|stop| Signals::watch(stop, sender.clone())).transpose().map_err(io)?;
        let mut control = Control::new(stream, channel, &sender).map_err(io)?;
        control.establish(&events)?;
        control.set_patience(WRITE_PATIENCE);
        Ok(Self { control, events, is_made: false, _signals: signals })
    }

    pub(super) fn say(&mut self, message: &LinkMessage) -> Result<(), SessionError> {
        // Our own types always serialize.
        self.send(&Message::LogLink { text: serde_json::to_string(message).expect("plain data") })
    }

    pub(super) fn send(&mut self, message: &Message) -> Result<(), SessionError> {
        self.control
            .send(message)
            .map_err(|error| SessionError::new("protocol", error.to_string(), "report this as a bug of longhaul"))?;
        self.control.transmit().map_err(|error| lost(&error.to_string()))
    }

    /// Closes the connection, so that the other end knows at once or as soon as it can be reached.
    pub(super) fn hang_up(&self) {
        self.control.hang_up();
    }

    /// Takes an event if there is one. Its messages then wait for [`Self::poll`].
    pub(super) fn take_event(&mut self) -> Option<Result<(), SessionError>> {
        let event = self.events.try_recv().ok()?;
        Some(self.take(event))
    }

    fn take(&mut self, event: ControlEvent) -> Result<(), SessionError> {
        match event {
            ControlEvent::Bytes(bytes) => Ok(self.control.handle_bytes(&bytes)?),
            ControlEvent::Lost(why) => Err(lost(&why)),
            ControlEvent::Interrupt if self.is_made => Ok(()),
            ControlEvent::Interrupt | ControlEvent::Abort => Err(interrupted()),
        }
    }

    /// The next message that has arrived; `None` if there is none.
    pub(super) fn poll(&mut self) -> Result<Option<LinkMessage>, SessionError> {
        loop {
            match self.control.poll_message() {
                None => return Ok(None),
                Some(Message::LogLink { text }) => {
                    let message = longhaul_channel::parse(text.as_bytes()).map_err(|_| not_understood())?;
                    return Ok(Some(message));
                }
                Some(Message::Error(error)) => return Err(error.of_peer()),
                Some(Message::Refuse(refusal)) => return Err(refusal.error.of_peer()),
                Some(Message::Alive) => {}
                Some(_) => return Err(not_understood()),
            }
        }
    }

    /// Waits for the next message until `deadline`; `None` if none arrived. It ends in time whatever the other end floods it with.
    pub(super) fn wait(&mut self, deadline: Nanos) -> Result<Option<LinkMessage>, SessionError> {
        loop {
            if monotonic() >= deadline {
                return Ok(None);
            }
            if let Some(message) = self.poll()? {
                return Ok(Some(message));
            }
            match self.events.recv_timeout(deadline.saturating_sub(monotonic()).into()) {
                Ok(event) => self.take(event)?,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(lost("nothing reads it any more")),
            }
        }
    }
}

fn lost(why: &str) -> SessionError {
    SessionError::new(
        "control_lost",
        format!("the connection was lost: {why}"),
        "check that `longhaul log` still runs there",
    )
}

pub(super) fn not_understood() -> SessionError {
    SessionError::new("protocol", "the answer is not that of a logging host", START)
}

pub(super) fn no_answer() -> SessionError {
    SessionError::new("no_answer", "no answer", START)
}
