//! Who may read: whoever has the token, or everybody with `--public`.
//!
//! Programs send the token with each question (`Authorization: Bearer`). A browser gets a cookie for it, with a random number that ends with
//! the coordinator.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, COOKIE, HOST};
use subtle::ConstantTimeEq;

use crate::error::Failure;
use crate::folder::{Folder, random};
use longhaul_kernel::stderr_line;

const FILE: &str = "http-token";
const COOKIE_NAME: &str = "longhaul_mesh";
/// The same over https: a browser takes it from this host alone, over https alone.
const COOKIE_NAME_ENCRYPTED: &str = "__Host-longhaul_mesh";
/// Browsers at the same time; the one that logged in first goes.
const SESSIONS_MOST: usize = 256;
/// How long a browser stays logged in.
const LASTS: Duration = Duration::from_secs(30 * 24 * 3600);

/// The token, and the browsers that have shown it.
pub(super) struct Login {
    token: String,
    public: bool,
    encrypted: bool,
    sessions: Mutex<BTreeMap<String, Instant>>,
}

fn digits() -> Result<String, Failure> {
    Ok(random::<32>()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

impl Login {
    /// The token of this coordinator, made where there is none, and then shown on a terminal.
    pub(super) fn new(folder: &Folder, public: bool, encrypted: bool) -> Result<Self, Failure> {
        if !folder.has(FILE) {
            let token = digits()?;
            folder.write(FILE, &format!("{token}\n"))?;
            // A log is read by more people than a terminal.
            let shown = if io::stderr().is_terminal() { format!(": {token}") } else { String::new() };
            stderr_line!("token of the page, kept in {}{shown}", folder.file(FILE).display());
        }
        let token = folder.read(FILE)?.trim().to_owned();
        if token.len() < 32 {
            let file = folder.file(FILE);
            return Err(Failure::new(format_args!("{}: a token has 32 characters or more", file.display()))
                .remedy("remove the file: a new one is made"));
        }
        Ok(Self { token, public, encrypted, sessions: Mutex::default() })
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        // Each of its steps is whole.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether everybody may read.
    pub(super) fn is_public(&self) -> bool {
        self.public
    }

    /// Whether whoever sent these headers may read.
    pub(super) fn allows(&self, headers: &HeaderMap) -> bool {
        // Over plain http nothing proves to a browser whom it talks to: a page of another origin could have its own name lead here.
        if self.public && (self.encrypted || is_by_address(headers)) {
            return true;
        }
        let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        if bearer.and_then(|text| text.strip_prefix("Bearer ")).is_some_and(|token| same(token.trim(), &self.token)) {
            return true;
        }
        let sessions = self.sessions();
        self.cookies(headers)
            .any(|value| sessions.iter().any(|(own, since)| same(own, value) && since.elapsed() < LASTS))
    }

    /// The cookie for a browser that has shown `token`; `None` if it is another one.
    pub(super) fn cookie(&self, token: &str) -> Result<Option<String>, Failure> {
        if !same(token.trim(), &self.token) {
            return Ok(None);
        }
        let session = digits()?;
        let mut sessions = self.sessions();
        sessions.retain(|_, since| since.elapsed() < LASTS);
        if sessions.len() >= SESSIONS_MOST
            && let Some(oldest) = sessions.iter().min_by_key(|(_, since)| **since).map(|(own, _)| own.clone())
        {
            sessions.remove(&oldest);
        }
        sessions.insert(session.clone(), Instant::now());
        Ok(Some(self.set_cookie(&session, LASTS.as_secs())))
    }

    /// Ends the browser's session: the cookie that it gets instead. `None` where it sent none, as from a page of another origin.
    pub(super) fn log_out(&self, headers: &HeaderMap) -> Option<String> {
        let mut sessions = self.sessions();
        self.cookies(headers).map(|value| sessions.remove(value)).last().map(|_| self.set_cookie("", 0))
    }

    fn set_cookie(&self, value: &str, seconds: u64) -> String {
        // On loopback there is no https that a browser could ask for.
        let (name, secure) = (self.cookie_name(), if self.encrypted { "; Secure" } else { "" });
        format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
    }

    fn cookie_name(&self) -> &'static str {
        if self.encrypted { COOKIE_NAME_ENCRYPTED } else { COOKIE_NAME }
    }

    /// Values of the cookie with the own name. A browser sends it for pages of other ports of this host, too, and says so.
    fn cookies<'a>(&self, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> + use<'a> {
        let name = self.cookie_name();
        let from = headers.get("sec-fetch-site");
        let is_own = from.is_none_or(|from| from == "same-origin" || from == "none");
        let texts = headers.get_all(COOKIE).iter().filter(move |_| is_own).filter_map(|value| value.to_str().ok());
        texts.flat_map(|text| text.split(';')).filter_map(move |one| one.trim().strip_prefix(name)?.strip_prefix('='))
    }
}

/// Whether the question is to an address, or to this host's name for itself. Programs that send no name are no browsers.
fn is_by_address(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
    let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    name == "localhost" || address.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn addresses_are_told_from_names() {
        let by = |host: &str| is_by_address(&HeaderMap::from_iter([(HOST, HeaderValue::from_str(host).unwrap())]));
        for own in ["127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080", "localhost", "localhost:8080"] {
            assert!(by(own), "{own}");
        }
        for other in
            ["", ":8080", "evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example:80"]
        {
            assert!(!by(other), "{other}");
        }
        assert!(is_by_address(&HeaderMap::new()));
    }
}
