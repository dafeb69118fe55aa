//! Accepts a capture: reads what it is, and prepares its keys, socket and folder.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;

use longhaul_captures::log_link::{LinkMessage, Open};
use longhaul_captures::spool::Meta;
use longhaul_channel::{DatagramKeys, TOKEN_BYTES, decode_secret, encode_secret};
use longhaul_kernel::clock::monotonic;
use longhaul_kernel::open_folder::OpenFolder;
use longhaul_kernel::udp::{ReceiverOptions, TimestampMode, UdpReceiver};
use longhaul_session::{Message, Refusal, SessionError};
use longhaul_units::Nanos;

use super::recording::Recording;
use super::{CaptureSeat, LogOptions, Shared};
use crate::files::SpoolFiles;
use crate::spec::SpoolSpec;
use longhaul_peer::control::{Control, ControlEvent, interrupted, random};
use longhaul_peer::listening::Seat;

/// After the handshake a capture describes itself within this time.
const OPEN_PATIENCE: Nanos = Nanos::from_secs(10);
/// A control connection that takes no message for this long is dead. Datagrams wait in the socket meanwhile.
const WRITE_PATIENCE: Nanos = Nanos::from_secs(2);
/// Socket buffer for datagrams while their thread does not run: 0.3 s at 100 MB/s. It is smaller without CAP_NET_ADMIN.
const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
/// Names that are tried for a folder.
const FOLDERS_MOST: u32 = 1_000;

/// A capture that was accepted and has not begun.
pub(super) struct Opened {
    pub(super) meta: Meta,
    pub(super) folder: NewFolder,
    pub(super) keys: DatagramKeys,
    /// The session number in each of its datagrams.
    pub(super) number: u32,
    pub(super) socket: UdpReceiver,
    pub(super) recording: Recording,
    pub(super) place: CaptureSeat,
}

/// A new folder, removed when dropped unless it is kept.
pub(super) struct NewFolder {
    /// What the user would call it; `None` once it is kept.
    name: Option<PathBuf>,
    /// The way to it by the open folder that it is in.
    place: PathBuf,
}

impl NewFolder {
    pub(super) fn path(&self) -> &Path {
        self.name.as_deref().unwrap_or(Path::new(""))
    }

    pub(super) fn keep(mut self) -> PathBuf {
        self.name.take().unwrap_or_default()
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if self.name.take().is_some() {
            let _ = fs::remove_dir_all(&self.place);
        }
    }
}

/// Where a capture, or all of them, may write no more.
pub(super) const FULL_REMEDY: &str = "start `longhaul log` there with a larger `bytes_cap` or `folder_cap`";

/// Accepts the capture of this connection and prepares everything for it.
pub(super) fn open(
    control: &mut Control,
    seat: &Seat<ControlEvent>,
    shared: &Arc<Shared>,
) -> Result<Opened, SessionError> {
    let io = |error: std::io::Error| SessionError::new("control", error.to_string(), "");
    let own = control.local_address().map_err(io)?;
    let options = &shared.options;
    control.set_patience(WRITE_PATIENCE);
    let open = wait_for_open(control, seat).map_err(|error| refuse(control, error))?;
    let Some(place) = CaptureSeat::take(shared) else {
        let text = format!("it accepts {} captures at the same time, and has that many", options.captures_most);
        let error = SessionError::new("busy", text, "try later, or start `longhaul log` with larger `captures`");
        let _ = control.send(&Message::Refuse(Refusal { error: error.clone(), retry_after: None }));
        let _ = control.transmit();
        return Err(error);
    };
    if shared.size.is_full() {
        let error = SessionError::new("full", "the folder of captures reached its size limit", FULL_REMEDY);
        return Err(refuse(control, error));
    }
    seat.know();
    admit(control, open, own, options, place)
}

/// Tells the other end why the connection ends.
pub(super) fn refuse(control: &mut Control, error: SessionError) -> SessionError {
    let _ = control.send(&Message::Error(error.clone()));
    let _ = control.transmit();
    error
}

pub(super) fn say(control: &mut Control, message: &LinkMessage) -> Result<(), SessionError> {
    let lost = |why: String| SessionError::new("control_lost", why, "");
    // Our own types always serialize.
    let message = Message::LogLink { text: serde_json::to_string(message).expect("plain data") };
    control.send(&message).map_err(|error| lost(error.to_string()))?;
    control.transmit().map_err(|error| lost(error.to_string()))
}

fn wait_for_open(control: &mut Control, seat: &Seat<ControlEvent>) -> Result<Open, SessionError> {
    let deadline = monotonic() + OPEN_PATIENCE;
    let lost = |why: String| SessionError::new("control_lost", why, "");
    loop {
        if monotonic() >= deadline {
            return Err(lost("it does not describe its capture".into()));
        }
        match control.poll_message() {
            Some(Message::LogLink { text }) => {
                return match longhaul_channel::parse(text.as_bytes()) {
                    Ok(LinkMessage::Open(open)) => Ok(*open),
                    _ => Err(SessionError::new("protocol", "its first message does not describe a capture", "")),
                };
            }
            Some(Message::Alive) => continue,
            Some(_) => {
                let text = "this is a logging host: it accepts captures, not tests";
                return Err(SessionError::new("logging_host", text, "start `longhaul serve` there for tests"));
            }
            None => {}
        }
        match seat.receiver.recv_timeout(deadline.saturating_sub(monotonic()).into()) {
            Ok(ControlEvent::Bytes(bytes)) => control.handle_bytes(&bytes)?,
            Ok(ControlEvent::Lost(why)) => return Err(lost(why)),
            Ok(ControlEvent::Interrupt | ControlEvent::Abort) => return Err(interrupted()),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(lost("it does not describe its capture".into()));
            }
        }
    }
}

/// Prepares keys, a socket and a folder, and accepts the capture.
fn admit(
    control: &mut Control,
    open: Open,
    own: SocketAddr,
    options: &LogOptions,
    place: CaptureSeat,
) -> Result<Opened, SessionError> {
    let offer = open.offer.as_deref().map(|text| decode_secret(text).unwrap_or_default());
    let ready = || {
        let meta = open.checked_meta().map_err(|why| SessionError::new("protocol", why, ""))?;
        let (keys, secret) = match (&options.key, offer) {
            (Some(key), Some(offer)) => DatagramKeys::answer(key, random()?, &offer)?,
            (None, None) => {
                let token: [u8; TOKEN_BYTES] = random()?;
                (DatagramKeys::plain(token), token.to_vec())
            }
            _ => {
                return Err(SessionError::new(
                    "protocol",
                    "one end has a key for datagrams and the other does not",
                    "",
                ));
            }
        };
        let socket = data_socket(own)?;
        let number = u32::from_ne_bytes(random()?);
        let not_written = |what: &str, error: &dyn std::fmt::Display| {
            SessionError::new("not_written", format!("its {what} cannot be written: {error}"), "")
        };
        let folder = new_folder(options, &meta).map_err(|error| not_written("folder", &error))?;
        let spec = SpoolSpec {
            replace: false,
            folder: folder.path().to_owned(),
            opened: None,
            roll_bytes: options.roll_bytes,
            roll_time: options.roll_time,
            keep_bytes: options.keep_bytes,
        };
        let open = OpenFolder::open(&folder.place).map_err(|error| not_written("folder", &error))?;
        let spool = SpoolFiles::create_in(open, &spec, &meta).map_err(|error| not_written("disk", &error))?;
        let recording = Recording::start(spool, meta.interfaces.len())
            .map_err(|error| SessionError::new("not_started", error.to_string(), ""))?;
        Ok((meta, keys, secret, socket, number, folder, recording))
    };
    let (meta, keys, secret, socket, session, folder, recording) = ready().map_err(|error| refuse(control, error))?;
    let port = socket.local_address().port();
    say(control, &LinkMessage::Accept { session, port, secret: encode_secret(&secret) })?;
    Ok(Opened { meta, folder, keys, number: session, socket, recording, place })
}

/// A socket for datagrams, at the address that the capture connected to. Its port is that of the control connection, so that firewalls
/// need one rule; if another capture has that port, any free one.
fn data_socket(own: SocketAddr) -> Result<UdpReceiver, SessionError> {
    let options = ReceiverOptions {
        receive_buffer_bytes: Some(RECEIVE_BUFFER_BYTES),
        gro: true,
        timestamps: TimestampMode::App,
        ..ReceiverOptions::default()
    };
    let own = match own {
        SocketAddr::V6(address) if address.ip().to_ipv4_mapped().is_none() => own,
        _ => SocketAddr::new(own.ip().to_canonical(), own.port()),
    };
    let mut other = own;
    other.set_port(0);
    UdpReceiver::bind(own, &options)
        .or_else(|_| UdpReceiver::bind(other, &options))
        .map_err(|error| SessionError::new("data_socket", error.to_string(), ""))
}

/// Creates the folder of a capture that begins now.
fn new_folder(options: &LogOptions, meta: &Meta) -> std::io::Result<NewFolder> {
    // The name comes from another host: it must not lead to another folder.
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let host: String = meta.host.chars().map(plain).take(64).collect();
    let name = format!("{}-{}", (options.stamp)(), if host.is_empty() { "host" } else { &host });
    for number in 1..FOLDERS_MOST {
        let suffix = if number == 1 { String::new() } else { format!("-{number}") };
        let name = format!("{name}{suffix}");
        let place = options.folder.path().join(&name);
        match fs::create_dir(&place) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|()| NewFolder { name: Some(options.folder_name.join(name)), place }),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}
