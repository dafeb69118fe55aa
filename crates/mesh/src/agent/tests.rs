//! What a site says to its partner and to its coordinator, and that it is alone in its folder.

use std::sync::mpsc::{Receiver, Sender, channel};

use longhaul_channel::{Identity, PublicKey};
use longhaul_mesh_model::SiteId;
use longhaul_mesh_model::admission::Gate;
use longhaul_mesh_model::message::Members;
use longhaul_units::Nanos;

use super::*;
use crate::folder::{Belonging, random};

const PATIENCE: Duration = Duration::from_secs(10);

/// Two sites with a shared link between them. The second one listens at this port.
fn mesh(port: u16) -> String {
    format!(
        "name = 'two'\n[[site]]\nname = 's0'\naddress = '127.0.0.1'\nrate = '1Gbit'\n\
         [[site]]\nname = 's1'\naddress = '127.0.0.1'\nport = {port}\nrate = '1Gbit'\n\
         [[link]]\nname = 'cable'\nbetween = ['s0', 's1']\nrate = '100Mbit'\nshare = '10%'\n\
         [[test]]\nname = 'loss'\nkind = 'udp'\nevery = '1h'\nrate = '1M'\n"
    )
}

/// The first of them, where the second has this port and key.
fn site(name: &str, port: u16, key: PublicKey) -> (impl Sized + use<>, Arc<Shared>) {
    let (gone, shared) = test_site(name, &mesh(port), "s0");
    shared.folder.put_members(&Members::from([("s1".to_owned(), key.to_string())])).unwrap();
    shared.load().unwrap();
    (gone, shared)
}

/// Somebody who gives answers, and tells what was asked.
struct Told {
    answer: fn(&Message) -> Message,
    questions: Sender<Message>,
}

impl link::Answering for Told {
    fn is_member(&self, _peer: PublicKey) -> bool {
        true
    }

    fn answer(&self, _peer: PublicKey, question: Message) -> Message {
        let answer = (self.answer)(&question);
        let _ = self.questions.send(question);
        answer
    }
}

fn some_identity() -> Identity {
    Identity::from_random(random().unwrap()).unwrap()
}

/// Such a one at loopback: port, key, and what it is asked.
fn told(answer: fn(&Message) -> Message) -> (u16, PublicKey, Receiver<Message>) {
    let (identity, (questions, asked)) = (some_identity(), channel());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, public) = (listener.local_addr().unwrap().port(), identity.public());
    thread::spawn(move || link::listen(&listener, &identity, &Arc::new(Told { answer, questions })));
    (port, public, asked)
}

/// Others may have the link at once where the partner is away, not when the lease ends by itself.
#[test]
fn a_lease_is_given_back_where_no_test_begins() {
    let (port, key, asked) = told(|question| match question {
        Message::Lease { .. } => Message::Leased,
        _ => Message::Released,
    });
    // Nothing listens on port 1.
    let (_gone, mut shared) = site("lease", 1, some_identity().public());
    let coordinator = format!("127.0.0.1:{port}");
    Arc::get_mut(&mut shared).unwrap().coordinator = Belonging { site: "s0".into(), coordinator, key: key.to_string() };
    // As if it had run for long: it may have forgotten no test.
    *shared.gate() = Gate::new(Nanos::ZERO, Nanos::ZERO);
    let view = shared.view().unwrap();
    let begun = rounds::begin(&shared, &view, &view.mesh.tests[0], (view.own, SiteId(1)), "");
    assert!(begun.is_err(), "nobody listens there");
    let Message::Lease { number, .. } = asked.recv_timeout(PATIENCE).unwrap() else { panic!("no lease was asked for") };
    assert_eq!(asked.recv_timeout(PATIENCE).unwrap(), Message::Release { number, unused: true });
}

/// It would go on for ever, and remove what the first one is about to read.
#[test]
fn a_second_site_of_a_folder_ends_at_once() {
    let (_gone, shared) = site("held", 1, some_identity().public());
    let folder = shared.folder.clone();
    folder.identity().unwrap();
    folder.write("coordinator.json", &serde_json::to_string(&shared.coordinator).unwrap()).unwrap();
    let samples = folder.file("tcp-0123456789abcdef");
    std::fs::create_dir(&samples).unwrap();
    let _held = folder.hold().unwrap();
    let (say, said) = channel();
    thread::spawn(move || say.send(run(&folder, options_for_tests()).map_err(|failure| failure.to_string())));
    let refused = said.recv_timeout(PATIENCE).expect("it ends").unwrap_err();
    assert!(refused.contains("another longhaul mesh run has the folder"), "{refused}");
    assert!(samples.exists());
}
