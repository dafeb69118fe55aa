//! Two channels with each other: keys, no keys, wrong keys.

use longhaul_channel::{ChannelError, Identity, Key, MAX_MESSAGE_BYTES, Role};

/// Any message type is possible.
type Channel = longhaul_channel::Channel<String>;

fn key(seed: u8) -> Key {
    let bytes: [u8; 32] = std::array::from_fn(|index| index as u8 ^ seed);
    Key::from_random(bytes).unwrap()
}

/// Carries bytes in both directions, `cut` at a time, until there are no more; returns the first error of each side.
fn carry(client: &mut Channel, server: &mut Channel, cut: usize) -> (Option<ChannelError>, Option<ChannelError>) {
    let (mut client_error, mut server_error) = (None, None);
    loop {
        let up = client.poll_transmit().unwrap_or_default();
        for piece in up.chunks(cut) {
            server_error = server_error.or(server.handle_bytes(piece).err());
        }
        let down = server.poll_transmit().unwrap_or_default();
        for piece in down.chunks(cut) {
            client_error = client_error.or(client.handle_bytes(piece).err());
        }
        if up.is_empty() && down.is_empty() {
            return (client_error, server_error);
        }
    }
}

#[test]
fn messages_pass_with_a_key_and_without() {
    let long = "é".repeat(MAX_MESSAGE_BYTES / 2 - 100);
    for keyed in [true, false] {
        for cut in [1, 17, 5_000, 1 << 20] {
            if cut == 1 && keyed {
                continue;
            }
            let channel =
                |side, seed| if keyed { Channel::keyed(side, &key(1), [seed; 32]) } else { Channel::plain(side) };
            let (mut client, mut server) = (channel(Role::Client, 8), channel(Role::Server, 9));
            server.trust();
            // Before the handshake: it waits.
            client.send(&"alive".to_owned()).unwrap();
            client.send(&long).unwrap();
            assert!(!client.is_established());
            assert_eq!(carry(&mut client, &mut server, cut), (None, None));
            assert!(client.is_established() && server.is_established());
            assert_eq!(server.poll_message(), Some("alive".to_owned()));
            assert_eq!(server.poll_message(), Some(long.clone()));
            server.send(&long).unwrap();
            assert_eq!(carry(&mut client, &mut server, cut), (None, None));
            assert_eq!((client.poll_message(), client.poll_message()), (Some(long.clone()), None));
        }
    }
}

/// Without a key anybody may connect.
#[test]
fn strangers_have_short_messages_until_they_are_trusted() {
    let long = "a".repeat(20_000);
    for is_trusted in [false, true] {
        let (mut client, mut server) = (Channel::plain(Role::Client), Channel::plain(Role::Server));
        client.send(&"alive".to_owned()).unwrap();
        assert_eq!(carry(&mut client, &mut server, 1000), (None, None));
        if is_trusted {
            server.trust();
        }
        client.send(&long).unwrap();
        let (_, error) = carry(&mut client, &mut server, 1000);
        assert_eq!(error.is_none(), is_trusted, "{error:?}");
        assert_eq!(server.poll_message(), Some("alive".to_owned()));
        assert_eq!(server.poll_message(), is_trusted.then(|| long.clone()));
    }
}

#[test]
fn with_a_key_nobody_else_can_read_messages() {
    let mut client = Channel::keyed(Role::Client, &key(1), [8; 32]);
    let mut server = Channel::keyed(Role::Server, &key(1), [9; 32]);
    carry(&mut client, &mut server, 1000);
    client.send(&"goodbye".to_owned()).unwrap();
    let bytes = client.poll_transmit().unwrap();
    assert!(!bytes.windows(7).any(|window| window == b"goodbye"));
    // A message cannot be repeated or changed either.
    server.handle_bytes(&bytes).unwrap();
    assert_eq!(server.poll_message(), Some("goodbye".to_owned()));
    assert_eq!(server.handle_bytes(&bytes), Err(ChannelError::Tampered));
}

#[test]
fn different_keys_are_reported_at_both_ends() {
    let mut client = Channel::keyed(Role::Client, &key(1), [8; 32]);
    let mut server = Channel::keyed(Role::Server, &key(2), [9; 32]);
    client.send(&"alive".to_owned()).unwrap();
    assert_eq!(carry(&mut client, &mut server, 1000), (Some(ChannelError::WrongKey), Some(ChannelError::WrongKey)));
    assert_eq!(server.poll_message(), None);
}

#[test]
fn both_must_say_no_auth() {
    let mut client = Channel::plain(Role::Client);
    let mut server = Channel::keyed(Role::Server, &key(2), [9; 32]);
    client.send(&"alive".to_owned()).unwrap();
    let errors = carry(&mut client, &mut server, 1000);
    assert_eq!(errors, (Some(ChannelError::KeyRequired), Some(ChannelError::NoKeyThere)));
    assert_eq!(server.poll_message(), None, "unauthenticated data is ignored");

    let mut client = Channel::keyed(Role::Client, &key(1), [8; 32]);
    let mut server = Channel::plain(Role::Server);
    client.send(&"alive".to_owned()).unwrap();
    let errors = carry(&mut client, &mut server, 1000);
    assert_eq!(errors, (Some(ChannelError::NoKeyThere), Some(ChannelError::KeyRequired)));
}

#[test]
fn another_version_is_recognised() {
    let mut server = Channel::plain(Role::Server);
    assert_eq!(server.handle_bytes(b"longhaul/2 plain"), Err(ChannelError::Version));
    assert_eq!(server.poll_transmit().unwrap(), b"longhaul/1 plain", "so that the other end learns our version");
}

fn identity(seed: u8) -> Identity {
    Identity::from_random(std::array::from_fn(|index| index as u8 ^ seed)).unwrap()
}

/// Each end learns who the other is, and only the holder of the key that the client knows can answer.
#[test]
fn each_end_proves_who_it_is() {
    let (site, coordinator) = (identity(1), identity(2));
    let mut client = Channel::to_known(&site, &coordinator.public(), [8; 32]);
    let mut server = Channel::from_known(&coordinator, [9; 32]);
    client.send(&"results".to_owned()).unwrap();
    assert_eq!(carry(&mut client, &mut server, 7), (None, None));
    assert_eq!(server.poll_message(), Some("results".to_owned()));
    assert_eq!((server.peer(), client.peer()), (Some(site.public()), Some(coordinator.public())));
    server.send(&"confirmed".to_owned()).unwrap();
    assert_eq!(carry(&mut client, &mut server, 7), (None, None));
    assert_eq!(client.poll_message(), Some("confirmed".to_owned()));

    let mut client = Channel::to_known(&site, &coordinator.public(), [8; 32]);
    let mut other = Channel::from_known(&identity(3), [9; 32]);
    client.send(&"results".to_owned()).unwrap();
    assert_eq!(carry(&mut client, &mut other, 7), (Some(ChannelError::WrongKey), Some(ChannelError::WrongKey)));
    assert_eq!((other.poll_message(), other.peer()), (None, None));
}

#[test]
fn identities_and_shared_keys_do_not_mix() {
    let mut client = Channel::keyed(Role::Client, &key(1), [8; 32]);
    let mut server = Channel::from_known(&identity(1), [9; 32]);
    assert_eq!(carry(&mut client, &mut server, 100), (Some(ChannelError::WrongKey), Some(ChannelError::WrongKey)));
}
