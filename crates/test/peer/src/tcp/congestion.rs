//! Which congestion control a flow uses when.

use crate::caveats;
use std::io::ErrorKind;
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

use crate::data::Place;

/// Names of longhaul's own congestion controls begin with this (`longhaul cc`).
const OWN_PREFIX: &str = "lh_";

/// A schedule of congestion controls. The kernel has each, some only for as long as this lives. Empty leaves the system's default.
#[derive(Debug, Clone, Default)]
pub(super) struct Congestion {
    /// Those that were loaded for this test.
    _loaded: Vec<Arc<Control>>,
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
        place: Place,
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
                    caveats::CONGESTION_CONTROL_RESOLVED,
                    message,
                    format!("ask for {found} by that name"),
                ));
            }
            steps.push((begins, found));
        }
        Ok(Self { _loaded: loaded, steps, next: 0 })
    }

    /// Gives `socket` the first congestion control.
    pub(super) fn begin(&self, socket: &TcpStream) {
        if let Some((_, name)) = self.steps.first() {
            // The kernel has it, as `find` tried; the samples record what is in use.
            let _ = set_congestion_control(socket, name);
        }
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
        let (_, name) = &self.steps[self.next - 1];
        let _ = set_congestion_control(socket, name);
        congestion_control(socket).ok()
    }
}

/// `name` or `lh_NAME`, if the kernel has one. A question for a control makes the kernel load its module. Where a test may not change the
/// host, only controls that the kernel lists are tried.
fn find(name: &str, place: Place) -> Result<Option<String>, SessionError> {
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
