//! Peers that vanish, strangers, connections that are refused.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use longhaul_lab::Lab;
use longhaul_peer::client::{self, Target};
use longhaul_peer::server::{DataPort, ServeOptions};
use longhaul_session::{TestEnd, TestParameters};
use longhaul_tcp::TcpParameters;
use longhaul_terms::TestDirection;

use crate::hosts::{
    Process, able, key, on, options, serve, serve_with, serving_process, test, testing_process_of, until,
};
use crate::support::{bytes, millis, said, tcp_lab};

const PATH: &str = "[[both]]\ndelay = '5ms'\n[[both]]\nrate = '100Mbit'\nqueue = '1MiB'\n";

/// Whether a process is idle: it has only threads that wait for connections.
fn at_rest(process: &Process) -> bool {
    process.holds().0 <= 2
}

#[test]
fn a_killed_peer_ends_the_test_at_the_other_end() {
    if !able() {
        return;
    }
    let lab = tcp_lab("killed", PATH);
    for direction in [TestDirection::Forward, TestDirection::Reverse] {
        let asked: TestParameters = TcpParameters { direction, ..millis(60_000) }.into();
        let (mut server, address) = serving_process(&lab, &[]);
        let mut client = testing_process_of(&lab, address, &asked);
        client.says("going on");
        client.child.kill();
        assert_eq!(server.says("ended "), "control_lost");
        until("the server's threads to end", || at_rest(&server));

        let mut client = testing_process_of(&lab, address, &asked);
        client.says("going on");
        let began = Instant::now();
        server.child.kill();
        assert!(client.says("outcome ").contains("control_lost"));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

/// What a client does not acknowledge is memory of the server, which would keep it for minutes, and give the next test as much again.
#[test]
fn a_test_that_is_cut_leaves_nothing_in_the_kernel() {
    if !able() {
        return;
    }
    let lab = tcp_lab("cut", PATH);
    let asked: TestParameters =
        TcpParameters { direction: TestDirection::Reverse, streams: 4, ..millis(60_000) }.into();
    let (mut server, address) = serving_process(&lab, &[]);
    let mut client = testing_process_of(&lab, address, &asked);
    client.says("going on");
    // Neither acknowledgements nor resets arrive any more.
    let rule = format!(
        "nft add table inet t; nft 'add chain inet t c {{ type filter hook input priority 0; }}'; \
         nft 'add rule inet t c tcp dport != {} drop'",
        address.port()
    );
    if !on(&lab, "server", &rule) {
        return;
    }
    client.child.kill();
    assert_eq!(server.says("ended "), "control_lost");
    until("the server's threads to end", || at_rest(&server));
    let data = format!("ss -Htan state connected exclude time-wait sport != :{}", address.port());
    let left = said(&lab, "server", &data);
    assert!(left.is_empty(), "{left}");
}

#[test]
fn data_ports_that_are_blocked_are_told() {
    if !able() {
        return;
    }
    let lab = tcp_lab("blocked", PATH);
    let (address, _server) = serve(&lab, lab.host("server").unwrap().plan.ipv4.into(), None);
    let rule = format!(
        "nft add table inet t; nft 'add chain inet t c {{ type filter hook input priority 0; }}'; \
         nft 'add rule inet t c tcp dport != {} reject with tcp reset'",
        address.port()
    );
    if !on(&lab, "server", &rule) {
        return;
    }
    let error = test(&lab, address, bytes(1_000), |_| {}).unwrap_err();
    assert_eq!(error.code, "data_socket");
    assert!(error.message.contains("refuses the connection"), "{}", error.message);
    assert!(error.remedy.contains("firewalls"), "{}", error.remedy);
}

/// Strangers at the data port, on the server and at the client's own address: noise, silence, many. The test continues, and they get
/// nothing, with a key and without.
#[test]
fn strangers_at_the_data_port_are_closed_and_disturb_nobody() {
    if !able() {
        return;
    }
    // So long a path that they are there before the client's own connections.
    let lab = tcp_lab("strange", "[[both]]\nrate = '1Gbit'\ndelay = '150ms'\n");
    for key_of_both in [None, Some(1)] {
        let (address, thread) = serve(&lab, lab.host("server").unwrap().plan.ipv4.into(), key_of_both.map(key));
        let (end, met) = std::thread::scope(|scope| {
            let strangers = scope.spawn(|| strangers_at(&lab, address));
            (tested(&lab, address, key_of_both), strangers.join().unwrap())
        });
        thread.join().unwrap();
        assert_eq!(crate::support::result(&end, true).bytes, 100_000);
        assert!(met > 40, "{met}");
    }
}

/// A test whose server sends 100,000 bytes over two connections.
fn tested(lab: &Lab, address: SocketAddr, key_of_both: Option<u8>) -> TestEnd {
    let asked = TcpParameters { direction: TestDirection::Reverse, streams: 2, ..bytes(100_000) };
    let run = || client::run(&Target::at(address, key_of_both.map(key)), asked, None, |_| {});
    lab.host("client").unwrap().namespace.enter(run).unwrap().unwrap()
}

/// Strangers who come as soon as a server has a port for data; how many of the server's own host were there.
fn strangers_at(lab: &Lab, server: SocketAddr) -> usize {
    let mut data = None;
    until("the data port", || {
        let ports = said(lab, "server", "ss -Hltn");
        let port = |line: &str| -> Option<u16> { line.split_whitespace().nth(3)?.rsplit_once(':')?.1.parse().ok() };
        data = ports.lines().filter_map(port).find(|port| *port != server.port());
        data.is_some()
    });
    let data = SocketAddr::new(server.ip(), data.unwrap());
    std::thread::scope(|scope| {
        // Silent ones of the client's host: more than the server lets wait. They come as the client's own do.
        scope.spawn(|| {
            let silent = connected(lab, "client", data);
            std::thread::sleep(Duration::from_millis(700));
            drop(silent);
        });
        lab.host("server").unwrap().namespace.try_clone().unwrap().enter_for_good().unwrap();
        let mut silent = Vec::new();
        let mut met = 0;
        for number in 0..90 {
            let Ok(mut stream) = TcpStream::connect(data) else { break };
            met += 1;
            if number % 3 > 0 {
                silent.push(stream);
                continue;
            }
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let _ = stream.write_all(&[0x41; 24]);
            // Closed, without a byte.
            assert!(!matches!(stream.read(&mut [0; 1]), Ok(1)), "a stranger was answered");
        }
        met
    })
}

/// A hundred connections of a host that come at once and say nothing.
fn connected(lab: &Lab, host: &str, to: SocketAddr) -> Vec<TcpStream> {
    let namespace = &lab.host(host).unwrap().namespace;
    let connect = || {
        namespace.enter_for_good().unwrap();
        TcpStream::connect(to).ok()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..100).map(|_| scope.spawn(connect)).collect();
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Where control and data have one port, whoever is silent there has a seat. With all seats taken (192) a test gets its own, for its data as well.
#[test]
fn strangers_with_all_seats_of_the_one_port_disturb_nobody() {
    if !able() {
        return;
    }
    let lab = tcp_lab("strange-one", PATH);
    for key_of_both in [None, Some(1)] {
        let address = SocketAddr::from((lab.host("server").unwrap().plan.ipv4, 5210));
        let one = ServeOptions { data_port: DataPort::Control(address.port()), ..options(key_of_both.map(key)) };
        let (address, thread) = serve_with(&lab, address, one);
        let strangers = ["client", "server"].map(|host| connected(&lab, host, address));
        assert_eq!(strangers.each_ref().map(Vec::len), [100, 100]);
        let end = tested(&lab, address, key_of_both);
        drop(strangers);
        thread.join().unwrap();
        assert_eq!(crate::support::result(&end, true).bytes, 100_000);
    }
}
