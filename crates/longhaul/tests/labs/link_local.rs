//! Tests with a link-local address of IPv6, which says by its interface where it is: `fe80::2%l1`.

use std::process::Command;

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::namespace::NetNamespace;
use serde_json::Value;

use crate::rtt::hops::{cable, result, run};
use crate::rtt::way::serve;

const LONGHAUL: &str = env!("CARGO_BIN_EXE_longhaul");

/// A client with a cable to the server and one to another host: fe80::1 at both of its ends, `l1` and `l2`, and fe80::2 at the others, `r1` and
/// `r2`.
fn hosts() -> Option<[NetNamespace; 3]> {
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root");
        return None;
    }
    let [client, server, other] = std::array::from_fn(|_| NetNamespace::create().unwrap());
    // The kernel takes the first route where an address does not say its interface.
    for (far, number) in [(&other, 2), (&server, 1)] {
        run(far, "ip link set lo up");
        cable(&client, far, number);
        run(&client, &format!("ip address add fe80::1/64 dev l{number} nodad"));
        run(far, &format!("ip address add fe80::2/64 dev r{number} nodad"));
    }
    Some([client, server, other])
}

#[test]
fn each_kind_of_test_reaches_a_link_local_address() {
    let Some([client, server, _other]) = hosts() else { return };
    let test = |words: &str| -> Value {
        let mut command = Command::new(LONGHAUL);
        command.args(words.split(' ')).arg("--json");
        result(&client.enter(|| command.output()).unwrap().unwrap())["result"].take()
    };
    for (listens_at, from) in [("::", ""), ("fe80::2%r1", " --bind fe80::1%l1")] {
        let _server = serve(&server, listens_at);
        for sender in ["", " -R"] {
            let udp = test(&format!("udp fe80::2%l1 --no-auth -k 100 -b 10M{sender}{from}"));
            assert_eq!(udp["received_packets"].as_u64(), Some(100), "{listens_at}{sender}: {udp}");
            let tcp = test(&format!("tcp fe80::2%l1 --no-auth -n 1M{sender}{from}"));
            assert!(tcp["goodput_bps"].as_f64() > Some(0.0), "{listens_at}{sender}: {tcp}");
        }
        for kind in ["--no-auth", "--icmp", "--tcp 444"] {
            let rtt = test(&format!("rtt fe80::2%l1 {kind} -c 5 -i 100ms{from}"));
            assert_eq!(rtt["received"].as_u64(), Some(5), "{listens_at} {kind}: {rtt}");
        }
        for kind in ["--icmp", "--udp 33434", "--tcp 444"] {
            let hops = test(&format!("rtt fe80::2%l1 --to-each-hop -c 1 {kind}{from}"));
            assert_eq!(hops["destination_hop"].as_u64(), Some(1), "{listens_at} {kind}: {hops}");
        }
    }
}
