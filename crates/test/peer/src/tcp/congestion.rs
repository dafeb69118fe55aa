//! Which congestion control a flow uses when.

use crate::caveats;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::sync::Arc;

use longhaul_bpf::congestion::{CongestionError, Control};
use longhaul_congestion::{Algorithm, Settings, Variant};
use longhaul_kernel::tcp::{
    available_congestion_controls, congestion_control, probe_congestion_control, set_congestion_control,
};
use longhaul_result::Caveat;
use longhaul_session::SessionError;
use longhaul_tcp::{MAX_CONGESTION_NAME, TcpParameters};
use longhaul_units::Nanos;

use crate::data::ThisEnd;

/// Names of longhaul's own congestion controls begin with this (`longhaul cc`).
const OWN_PREFIX: &str = "lh_";

/// A schedule of congestion controls. The kernel has each, some only for as long as this lives. Empty leaves the system's default.
#[derive(Debug, Clone, Default)]
pub(super) struct Congestion {
    /// Those that were loaded for this test.
    loaded: Vec<Arc<Control>>,
    /// Whether any may be loaded here.
    may_load: bool,
    /// Each with its beginning, after the start of sending.
    steps: Vec<(Nanos, String)>,
    next: usize,
}

impl Congestion {
    /// The names as the kernel has them: `lh_NAME` where it has no `NAME`, with a caveat. What longhaul has and the kernel
    /// lacks is loaded for the test, with its paper's parameters.
    ///
    /// # Errors
    /// The first that this host does not have, this user may not use, or a client may not have loaded here.
    pub(super) fn resolve(
        parameters: &TcpParameters,
        place: ThisEnd,
        caveats: &mut Vec<Caveat>,
    ) -> Result<Self, SessionError> {
        let mut steps: Vec<(Nanos, String)> = Vec::new();
        let mut loaded = Vec::new();
        for (begins, name) in parameters.congestion_starts() {
            let found = match find(name, place)? {
                Some(found) => found,
                None if !place.may_change_host() => return Err(not_allowed(name)),
                None => {
                    loaded.extend(load(name)?.map(Arc::new));
                    find(name, place)?.ok_or_else(|| unknown(name))?
                }
            };
            if found != name && !steps.iter().any(|(_, known)| *known == found) {
                let message = format!("the kernel has no {name}: the test uses {found} of `longhaul cc`");
                caveats.push(Caveat::new(
                    caveats::OTHER_CONGESTION_CONTROL,
                    message,
                    format!("ask for {found} by that name"),
                ));
            }
            steps.push((begins, found));
        }
        Ok(Self { loaded, may_load: place.may_change_host(), steps, next: 0 })
    }

    /// Gives `socket` the first congestion control.
    ///
    /// # Errors
    /// What the kernel said: the socket keeps the system's default.
    pub(super) fn begin(&mut self, socket: &TcpStream) -> io::Result<()> {
        self.give(0, socket)
    }

    /// Gives `socket` that of a step. `find` tried it, but where another test had loaded it, that one may have ended since: then it is loaded for
    /// this one.
    fn give(&mut self, step: usize, socket: &TcpStream) -> io::Result<()> {
        let Some((_, name)) = self.steps.get(step) else { return Ok(()) };
        let given = set_congestion_control(socket, name);
        if given.is_ok() || !self.may_load || !name.starts_with(OWN_PREFIX) {
            return given;
        }
        self.loaded.extend(load(name).ok().flatten().map(Arc::new));
        set_congestion_control(socket, name)
    }

    /// When the next step is due, after the start of sending.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.steps.get(self.next).map(|(begins, _)| *begins)
    }

    /// Takes the steps that are due `elapsed` after the start. Returns what is in use then, where that may have changed.
    pub(super) fn advance(&mut self, elapsed: Nanos, socket: &TcpStream) -> Option<String> {
        let due =
            self.steps[self.next.min(self.steps.len())..].iter().take_while(|(begins, _)| *begins <= elapsed).count();
        if due == 0 {
            return None;
        }
        self.next += due;
        // The samples record what is in use.
        let _ = self.give(self.next - 1, socket);
        congestion_control(socket).ok()
    }
}

/// `name` or `lh_NAME`, if the kernel has one. A question for a control makes the kernel load its module. Where a test may not change the
/// host, only controls that the kernel lists are tried.
fn find(name: &str, place: ThisEnd) -> Result<Option<String>, SessionError> {
    let own = format!("{OWN_PREFIX}{name}");
    let there = available_congestion_controls();
    let may_ask = |candidate: &&str| place.may_change_host() || there.iter().any(|known| known == candidate);
    let fits = |candidate: &&str| candidate.len() <= MAX_CONGESTION_NAME;
    for candidate in [name, own.as_str()].into_iter().filter(fits).filter(may_ask) {
        match probe_congestion_control(candidate) {
            Ok(()) => return Ok(Some(candidate.to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let message = format!("congestion control {candidate}: this user may not choose it");
                let remedy = "run as root, or add it to sysctl net.ipv4.tcp_allowed_congestion_control";
                return Err(SessionError::new("congestion_control_denied", message, remedy));
            }
            Err(error) => {
                return Err(SessionError::new(
                    "congestion_control",
                    format!("congestion control {candidate}: {error}"),
                    "",
                ));
            }
        }
    }
    Ok(None)
}

/// Loads longhaul's own control of that name, if there is one. `None` where another test did so meanwhile.
fn load(name: &str) -> Result<Option<Control>, SessionError> {
    let settings = match Algorithm::of_kernel_name(name) {
        Some((algorithm, variant)) => Settings::new(algorithm, variant),
        None => Settings::new(name.parse().map_err(|_| unknown(name))?, Variant::Paper),
    };
    let settings = settings
        .map_err(|error| SessionError::new("congestion_control", format!("congestion control {name}: {error}"), ""))?;
    match Control::load(&settings) {
        Ok(control) => Ok(Some(control)),
        Err(CongestionError::AlreadyThere { .. }) => Ok(None),
        Err(error) => {
            let message =
                format!("congestion control {name}: the sender's kernel lacks it, and it cannot be loaded: {error}");
            let remedy = format!("load it there as root: longhaul cc load {}", settings.algorithm());
            Err(SessionError::new("congestion_control", message, remedy))
        }
    }
}

fn not_allowed(name: &str) -> SessionError {
    let there = available_congestion_controls().join(", ");
    let message =
        format!("congestion control {name}: this server does not let clients load one; its kernel has {there}");
    SessionError::new("not_granted", message, "choose one of those, or use `host_settings`")
}

fn unknown(name: &str) -> SessionError {
    let message =
        format!("congestion control {name}: the sender's kernel has {}", available_congestion_controls().join(", "));
    let remedy = "choose one of those, or of `longhaul cc list`";
    SessionError::new("no_such_congestion_control", message, remedy)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use longhaul_bpf::congestion::require_support;

    use super::*;

    #[test]
    fn a_control_that_went_with_another_test_is_loaded_anew() {
        if let Err(why) = require_support() {
            longhaul_testing::skipped!("{why}");
            return;
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let of = |name: &str, may_load| {
            let steps = vec![(Nanos::ZERO, name.to_owned())];
            Congestion { may_load, steps, ..Congestion::default() }
        };
        of("lh_illinois", true).begin(&socket).unwrap();
        assert_eq!(congestion_control(&socket).unwrap(), "lh_illinois");
        assert_eq!(of("lh_yeah", true).advance(Nanos::ZERO, &socket).as_deref(), Some("lh_yeah"));
        // Where a client may not have one loaded, and of a name that longhaul does not know.
        assert!(of("lh_westwood_l", false).begin(&socket).is_err());
        assert!(of("lh_none", true).begin(&socket).is_err());
    }
}
