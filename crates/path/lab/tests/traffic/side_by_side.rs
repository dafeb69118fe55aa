//! Several labs with the same addresses do not see each other.

use crate::common::datagrams::{Sink, Source};
use crate::common::{SERVER_V4, SERVER_V6, alone, assert_faithful, lab_with, run, settled, unprivileged};
use longhaul_lab::LabSpec;

#[test]
fn labs_with_the_same_addresses_do_not_meet() {
    let _alone = alone();
    if unprivileged() {
        return;
    }
    let labs = ["one", "two", "three"].map(|name| {
        let spec = LabSpec { name: name.into(), ..LabSpec::default() };
        lab_with(spec, "[[both]]\nrate = '1Gbit'\ndelay = '2ms'")
    });
    for address in [SERVER_V4, SERVER_V6] {
        let sinks = [0, 1, 2].map(|i| Sink::new(&labs[i], "server", address));
        // The third one is silent.
        for (i, first) in [(0, 0), (1, 1000)] {
            let mut source = Source::new(&labs[i], "client", address, 500, 10).numbered_from(first);
            source.send_until(first + 1000, &sinks[i], 1000 + first);
        }
        let heard = [0, 1, 2].map(|i| assert_faithful(&settled(&labs[i])));
        assert_eq!(heard.len(), 3);
        let [one, two, three] = sinks.map(|sink| sink.finish().numbers);
        assert_eq!(one, (0..1000).collect::<Vec<_>>());
        assert_eq!(two, (1000..2000).collect::<Vec<_>>());
        assert_eq!(three, [0; 0]);
    }
    assert_eq!(labs[2].status().unwrap().ports[0].received.packets, 0, "a silent lab is silent");
    for lab in &labs {
        let links = run(lab, "client", &["ip", "-brief", "link"]);
        let names: Vec<_> = links.lines().filter_map(|line| line.split(['@', ' ']).next()).collect();
        assert_eq!(names, ["lo", "eth0"]);
    }
}
