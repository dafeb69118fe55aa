//! A gigabyte over a path that loses, delays, doubles and reorders arrives byte for byte.

use crate::common::transfer::Transfer;
use crate::common::{SERVER_V4, SERVER_V6, alone, assert_faithful, brisk, hop, lab, settled, unprivileged};

const ROUGH: &str = "
    [[both]]
    rate = '3Gbit'
    delay = '300us'
    [[forward]]
    loss = { random = '0.1%' }
    duplicate = '0.1%'
    delay = '300us'
    jitter = { law = 'normal', stddev = '20us', order = 'free' }
    [[backward]]
    loss = { random = '0.1%' }";

#[test]
fn every_byte_arrives_over_a_rough_path() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    for (server, bytes) in [(SERVER_V4, 1_000_000_000), (SERVER_V6, 100_000_000)] {
        let lab = lab(ROUGH);
        let took = Transfer::start(&lab, "client", "server", server, bytes, brisk()).finish();
        println!("{bytes} bytes to {server} in {took:.1?}, {:.2} Gb/s", bytes as f64 * 8e-9 / took.as_secs_f64());
        let status = settled(&lab);
        assert_faithful(&status);
        let rough = &hop(&status, "forward.hop2").counters;
        assert!(rough.dropped_loss.packets > 20 && rough.duplicated.packets > 20, "{rough:?}");
        assert!(hop(&status, "backward.hop1").counters.dropped_loss.packets > 0);
        let reordered = crate::common::counters(&lab, "server")["TcpExt.TCPOFOQueue"];
        assert!(reordered > 1000, "{reordered} segments out of order");
    }
}
