//! `longhaul tune` on a machine of its own, which is started again.

use std::fs;
use std::path::Path;

use crate::common::captures::Folder;
use longhaul_testing::guest::{Guest, Kernel};
use longhaul_testing::no_judge;
use serde_json::json;

/// What only a whole machine has: its own parameters, default queueing discipline, drop-ins, and a start.
const LOOK: &str = "sysctl net.core.rmem_max net.core.wmem_max net.core.default_qdisc net.ipv4.tcp_mem net.ipv4.tcp_rmem; \
                    ip link show d0 | sed 's/.*\\(qdisc [a-z_]*\\).*/\\1/;q'";
const APPLY: &str = "longhaul tune --rate 1G --rtt 100ms --interface d0 --apply";

fn guest() -> Option<Guest> {
    let guest = match Guest::new(Kernel::Linux6_12) {
        Ok(guest) => guest.with_program(env!("CARGO_BIN_EXE_longhaul")).with_program("/usr/sbin/ip"),
        Err(why) => {
            no_judge!("{why}");
            return None;
        }
    };
    Some(["ifb", "sch_fq"].iter().fold(guest, |guest, module| guest.with_module(module)))
}

#[test]
fn a_machine_is_tuned_undone_and_started_again() {
    let (Some(first), Some(second)) = (guest(), guest()) else { return };
    let killed = format!(
        "{APPLY} --for 60s >/dev/null 2>&1 & p=$!
         until longhaul tune status | grep -q 'not confirmed'; do sleep 0.1; done
         sysctl -n net.core.default_qdisc
         kill -9 $p
         until longhaul tune status | grep -q 'no settings'; do sleep 0.1; done"
    );
    let persist = format!("{APPLY} --persist");
    let exits = first.run(&[
        "ip link add d0 type ifb && ip link set d0 up",
        LOOK,
        &persist,
        LOOK,
        "longhaul tune undo && ls /etc/sysctl.d",
        LOOK,
        &killed,
        LOOK,
        &persist,
        "cat /etc/sysctl.d/99-zz-longhaul.conf",
        "cat /var/lib/longhaul/tune/net-1.json",
    ]);
    for exit in &exits {
        assert_eq!(exit.status, 0, "{exits:#?}");
    }
    let [_, before, applied, tuned, undone, after, killed, after_kill, _, drop_in, state] = &exits[..] else {
        panic!("{exits:#?}")
    };
    // 2 × 12.5 MB, rounded up to MiB.
    for expected in ["rmem_max = 25165824", "wmem_max = 25165824", "default_qdisc = fq\n", "\nqdisc fq\n"] {
        assert!(tuned.output.contains(expected) && !before.output.contains(expected), "{expected}: {exits:#?}");
    }
    assert!(applied.output.contains("net.ipv4.tcp_mem: "), "{}", applied.output);
    assert_eq!((&after.output, &after_kill.output), (&before.output, &before.output), "{exits:#?}");
    assert!(undone.output.contains("99-zz-longhaul.conf: removed") && killed.output == "fq\n", "{exits:#?}");
    assert!(drop_in.output.contains("\nnet.core.default_qdisc = fq\n"), "{}", drop_in.output);

    // The machine starts with what was on its disk. Its random numbers are those of the first start.
    let folder = Folder::new("disk");
    let stored = |name: &str, text: &str| {
        fs::write(folder.0.join(name), text).unwrap();
        folder.0.join(name)
    };
    let mut state: serde_json::Value = serde_json::from_str(&state.output).unwrap();
    state["boot_id"] = json!("11111111-2222-3333-4444-555555555555");
    let etc = Path::new("/etc/sysctl.d/99-zz-longhaul.conf");
    let second = second
        .with_file(stored("state", &state.to_string()), "/var/lib/longhaul/tune/net-1.json")
        .with_file(stored("drop-in", &drop_in.output), etc);
    let exits = second.run(&[
        // As systemd-sysctl does, before interfaces are there.
        "sysctl -p /etc/sysctl.d/99-zz-longhaul.conf && ip link add d0 type ifb && ip link set d0 up",
        LOOK,
        "longhaul tune status",
        "longhaul tune undo && ls /etc/sysctl.d",
        LOOK,
    ]);
    let [started, lasting, status, undone, after] = &exits[..] else { panic!("{exits:#?}") };
    assert_eq!((started.status, undone.status), (0, 0), "{exits:#?}");
    assert_eq!(lasting.output, tuned.output);
    assert!(status.output.contains("the machine was started again since"), "{}", status.output);
    assert_eq!(after.output, before.output, "{exits:#?}");
}
