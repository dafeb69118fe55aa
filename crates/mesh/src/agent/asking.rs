//! Asking a partner for a test.

use std::time::{Duration, Instant};

use longhaul_channel::PublicKey;
use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::admission::PATIENCE;
use longhaul_mesh_model::file::{Mesh, TestPlan};

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
        let release = Message::Release { number };
        let _ = link::ask_within(&with_port(&self.address, self.port), &known, &release, LASTS);
    }
}

/// A later answer is not used ([`PATIENCE`]).
const LASTS: Duration = Duration::from_nanos(PATIENCE.0);

/// Asks a partner, at one of its addresses after the other, each of which has its share of the time.
pub(super) fn ask(
    shared: &Shared,
    view: &View,
    partner: SiteId,
    question: &Message,
) -> Result<(Reached, Message), Failure> {
    let site = view.mesh.of(partner);
    let key = view.key_of(partner).ok_or_else(|| Failure::new(format_args!("{} has not joined", site.name)))?;
    let mut last = Failure::new("the site has no address");
    let ends = Instant::now() + LASTS;
    for (address, left) in site.addresses.iter().zip((1..=site.addresses.len() as u32).rev()) {
        let lasts = ends.saturating_duration_since(Instant::now()) / left;
        let address_with_port = with_port(address, site.port);
        match link::ask_within(&address_with_port, &As::Known(&shared.identity, key), question, lasts) {
            Ok(answer) => return Ok((Reached { key, address: address.clone(), port: site.port }, answer)),
            Err(failure) => last = failure,
        }
    }
    Err(last)
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
