//! What both sessions share: outputs in order, and whether the peer is still connected.

use std::collections::VecDeque;
use std::fmt::{self, Write};

use longhaul_units::Nanos;

use super::limits::{ALIVE_INTERVAL, PEER_SILENCE};
use super::message::{Message, SessionError};
use super::output::Output;

/// One end of the control connection.
#[derive(Debug)]
pub(super) struct Line {
    outputs: VecDeque<Output>,
    heard: Nanos,
    said: Nanos,
    /// The connection is lost: nothing is sent, nothing is expected.
    cut: bool,
    over: bool,
}

impl Line {
    pub(super) fn new(now: Nanos) -> Self {
        Self { outputs: VecDeque::new(), heard: now, said: now, cut: false, over: false }
    }

    pub(super) fn push(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(super) fn pop(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    pub(super) fn say(&mut self, now: Nanos, message: Message) {
        self.said = now;
        if !self.cut {
            self.push(Output::SendMessage(message));
        }
    }

    /// The connection is lost. The session goes on without it.
    pub(super) fn cut(&mut self) {
        self.cut = true;
    }

    /// Handles a message.
    pub(super) fn hear(&mut self, now: Nanos) {
        self.heard = now;
    }

    /// The session is over; nothing happens any more.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    pub(super) fn end(&mut self) {
        self.over = true;
    }

    /// Ends the session with an error, and sends it to the peer.
    pub(super) fn fail(&mut self, now: Nanos, error: SessionError) {
        self.say(now, Message::Error(error.clone()));
        self.fail_silently(error);
    }

    /// Ends the session with an error that the peer knows already or cannot receive.
    pub(super) fn fail_silently(&mut self, error: SessionError) {
        self.push(Output::Failed(error));
        self.over = true;
    }

    /// The peer sent a message that is not allowed in this state.
    pub(super) fn unexpected(&mut self, now: Nanos, message: &Message) {
        let mut name = Name(String::new());
        // It ends the writing itself.
        let _ = write!(name, "{message:?}");
        let text = format!("the peer sent {} when it was not allowed", name.0);
        self.fail(now, SessionError::new("protocol", text, "use the same version of longhaul at both ends"));
    }

    /// Keeps the connection alive. Returns an error if the peer is silent.
    pub(super) fn handle_timeout(&mut self, now: Nanos) -> Result<(), SessionError> {
        if !self.cut && now >= self.heard.saturating_add(PEER_SILENCE) {
            let text = format!("the peer sent nothing for {PEER_SILENCE}");
            return Err(SessionError::new(
                "peer_silent",
                text,
                "check that the peer is running and that the path is up",
            ));
        }
        if now >= self.said.saturating_add(ALIVE_INTERVAL) {
            self.say(now, Message::Alive);
        }
        Ok(())
    }

    pub(super) fn poll_timeout(&self) -> Nanos {
        if self.cut {
            return Nanos::MAX;
        }
        self.heard.saturating_add(PEER_SILENCE).min(self.said.saturating_add(ALIVE_INTERVAL))
    }
}

/// The variant's name of what is written with `{:?}`. It ends the writing after that, as the values may be long.
struct Name(String);

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.find(['(', '{', ' ']);
        self.0.push_str(&text[..end.unwrap_or(text.len())]);
        if end.is_some() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_message_is_all_that_is_written() {
        let named = |message: &Message| {
            let mut name = Name(String::new());
            let ended = write!(name, "{message:?}").is_err();
            (name.0, ended)
        };
        let long = Message::Report { text: "x".repeat(1 << 20), last: true };
        assert_eq!(named(&long), ("Report".into(), true));
        assert_eq!(named(&Message::Error(SessionError::new("", "", ""))), ("Error".into(), true));
        assert_eq!(named(&Message::Alive), ("Alive".into(), false));
        let mut line = Line::new(Nanos::ZERO);
        line.unexpected(Nanos::ZERO, &long);
        let Some(Output::SendMessage(Message::Error(said))) = line.pop() else { panic!("no error") };
        assert_eq!(said.message, "the peer sent Report when it was not allowed");
    }
}
