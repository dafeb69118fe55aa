//! Asking a partner for a test.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use longhaul_channel::PublicKey;
use longhaul_kernel::clock::monotonic;
use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::file::{Mesh, TestPlan};
use longhaul_units::Nanos;

use super::hung::{HUNG, LASTS};
use super::shared::{Shared, View};
use super::testing::Head;
use crate::error::Failure;
use crate::link::{self, As};
use longhaul_mesh_model::message::Message;

/// A partner, at the address at which it answered.
pub(super) struct Reached {
    key: PublicKey,
    address: String,
    port: u16,
}

impl Reached {
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Says that a test is over. The partner finds that out by itself, too.
    pub(super) fn release(&self, shared: &Shared, number: u64) {
        let known = As::Known(&shared.identity, self.key);
        let ends = Instant::now() + LASTS;
        let release = Message::Release { number, unused: false };
        let _ = link::ask_until(ends, &with_port(&self.address, self.port), 0, &known, &release);
    }
}

/// Asks a partner until `ends`, at one of its addresses after the other.
pub(super) fn ask(
    shared: &Shared,
    view: &View,
    partner: SiteId,
    question: &Message,
    ends: Instant,
) -> Result<(Reached, Message), Failure> {
    let site = view.mesh.of(partner);
    let key = view.key_of(partner).ok_or_else(|| Failure::new(format_args!("{} has not joined", site.name)))?;
    let mut last = Failure::new("the site has no address");
    let (asked, known) = (monotonic(), As::Known(&shared.identity, key));
    for (address, others) in site.addresses.iter().zip((0..site.addresses.len()).rev()) {
        match link::ask_until(ends, &with_port(address, site.port), others, &known, question) {
            Ok(answer) => {
                shared.hung().forget(key);
                return Ok((Reached { key, address: address.clone(), port: site.port }, answer));
            }
            Err(failure) => last = failure,
        }
        if Instant::now() >= ends {
            break;
        }
    }
    if monotonic().saturating_sub(asked) > HUNG {
        shared.hung().note(key, monotonic());
    }
    Err(last)
}

/// Says, beside whatever goes on, to a partner that hung that nobody waits for its answer: it may have held itself for the test.
pub(super) fn withdraw(shared: &Arc<Shared>, view: &View, partner: SiteId, number: u64) {
    let Some(key) = view.key_of(partner).filter(|key| shared.hung().left(*key, monotonic()) > Nanos::ZERO) else {
        return;
    };
    let (shared, site) = (Arc::clone(shared), view.mesh.of(partner));
    let port = site.port;
    let all: Vec<Reached> =
        site.addresses.iter().map(|address| Reached { key, address: address.clone(), port }).collect();
    let release = move || all.iter().for_each(|one| one.release(&shared, number));
    // Without a thread the partner finds that out by itself.
    let _ = thread::Builder::new().name("withdraw".into()).spawn(release);
}

/// An address with a port; one of IPv6 stands in brackets.
fn with_port(address: &str, port: u16) -> String {
    if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
}

/// The question for a test of a pair.
pub(super) fn question(head: &Head, number: u64) -> Message {
    let Head { test, sender, receiver, .. } = head.clone();
    Message::Ask { number, test, sender, receiver }
}

/// Names test and sites of a test that begins now.
pub(super) fn head(shared: &Shared, mesh: &Mesh, test: &TestPlan, pair: (SiteId, SiteId)) -> Head {
    let [sender, receiver] = [pair.0, pair.1].map(|site| mesh.of(site).name.clone());
    let at_ns = i64::try_from(shared.mesh_time().0).unwrap_or(i64::MAX);
    Head { test: test.name.clone(), sender, receiver, at_ns }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use longhaul_channel::Identity;

    use super::*;
    use crate::agent::test_site;
    use crate::folder::{Members, random};
    use crate::link::Answering;

    /// A partner that passes on what it is told.
    struct Told(Mutex<Sender<Message>>);

    impl Answering for Told {
        fn is_member(&self, _peer: PublicKey) -> bool {
            true
        }
        fn answer(&self, _peer: PublicKey, question: Message) -> Message {
            self.0.lock().unwrap().send(question).unwrap();
            Message::Released
        }
    }

    #[test]
    fn a_partner_that_hung_is_told_that_nobody_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let identity = Identity::from_random(random().unwrap()).unwrap();
        let (key, (told, hears)) = (identity.public(), channel());
        thread::spawn(move || link::listen(&listener, &identity, &Arc::new(Told(Mutex::new(told)))));
        let site =
            |name: &str| format!("[[site]]\nname = '{name}'\naddress = '127.0.0.1'\nport = {port}\nrate = '1Gbit'\n");
        let text = format!("name = 'two'\n{}{}[[test]]\nname = 'delay'\nkind = 'rtt'\n", site("a"), site("b"));
        let (_folder, shared) = test_site("asking-withdraw", &text, "a");
        let members = Members::from([("b".to_owned(), key.to_string())]);
        let view = View::new(String::new(), Mesh::parse(&text).unwrap(), members, "a").unwrap();
        let partner = view.mesh.site("b").unwrap();
        // One that said at once that it has no time waits for nobody.
        withdraw(&shared, &view, partner, 7);
        shared.hung().note(key, monotonic());
        withdraw(&shared, &view, partner, 8);
        let release = Message::Release { number: 8, unused: false };
        assert_eq!(hears.recv_timeout(Duration::from_secs(60)), Ok(release));
    }
}
