//! What there is on the machine, as lines that can be compared: interfaces, settings, sockets, processes, namespaces, BPF, mounts, control
//! groups, files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use libbpf_rs::ProgramType;
use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, MapInfoIter, ProgInfoIter, ProgInfoQueryOptions};
use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::process::name;
use longhaul_kernel::process_sockets::descendants;

/// How many times there is each.
pub(crate) type Counted = BTreeMap<String, usize>;

/// What the names of congestion controls begin with that these tests load.
pub(crate) const OWN_CONTROLS: &str = "lh_kill";

/// What a host has: interfaces with their flags, XDP programs, qdiscs and settings of their drivers, routes and their rules, rules of nftables, RPS,
/// NAPI, kernel parameters. Asked of iproute2, `nft`, `ethtool` and the kernel's files.
const OF_A_HOST: &str = "
    ip -o -d link; tc qdisc show; nft list ruleset; mount -t sysfs none /sys
    for family in -4 -6; do ip $family route show table all; ip $family rule; done
    for link in $(ls /sys/class/net); do ethtool -k $link | sed s/^/$link:/; done
    cd /sys/class/net && grep -sH . */queues/rx-*/rps_* */gro_flush_timeout */napi_defer_hard_irqs
    cd /proc/sys/net && grep -rsH . core ipv4 ipv6 mptcp | grep -v -e _congestion_control -e fastopen_key";

/// Tables of sockets: the columns of the local address, of the state and of the inode.
const SOCKETS: [(&str, usize, usize, usize); 8] = [
    ("tcp", 1, 3, 9),
    ("tcp6", 1, 3, 9),
    ("udp", 1, 3, 9),
    ("udp6", 1, 3, 9),
    ("raw", 1, 3, 9),
    ("unix", 7, 5, 6),
    ("packet", 3, 2, 8),
    ("netlink", 1, 1, 9),
];

/// Links, programs and maps: kind and number.
pub(crate) type Bpf = BTreeSet<(String, u32)>;

/// All that there are, whoever holds them.
pub(crate) fn all_bpf() -> Bpf {
    let links = LinkInfoIter::default().map(|link| ("link".to_owned(), link.id));
    let programs = ProgInfoIter::default().map(|program| ("prog".to_owned(), program.id));
    let maps = MapInfoIter::default().map(|map| ("map".to_owned(), map.id));
    links.chain(programs).chain(maps).collect()
}

/// Everything that a killed command could leave in `hosts`, in `folder` and on the machine.
pub(crate) fn state(hosts: &[(&str, &NetNamespace)], folder: &Path, older: &Bpf) -> Counted {
    let mut counted = Counted::new();
    let mut count = |line: String| *counted.entry(line).or_default() += 1;
    for (host, namespace) in hosts {
        let (settings, sockets) = namespace.enter(|| (of_a_host(), sockets())).unwrap();
        settings.lines().map(|line| format!("{host}: {line}")).for_each(&mut count);
        sockets.into_iter().map(|socket| format!("{host}: socket {socket}")).for_each(&mut count);
    }
    let processes = descendants(std::process::id());
    for pid in &processes {
        count(format!("process {}", name(*pid).unwrap_or_default()));
    }
    namespaces(&processes).into_iter().for_each(&mut count);
    let pins: Vec<String> = below(Path::new("/sys/fs/bpf/longhaul"));
    let namespaces = hosts.iter().map(|(_, namespace)| format!("/net{}-", namespace.inode().unwrap()));
    let ours: Vec<String> = namespaces.chain([format!("/{OWN_CONTROLS}")]).collect();
    let (ours, others): (Vec<_>, Vec<_>) = pins.into_iter().partition(|pin| ours.iter().any(|own| pin.contains(own)));
    unheld_bpf(&others, older).into_iter().for_each(&mut count);
    ours.into_iter().map(|pin| format!("pin {pin}")).for_each(&mut count);
    // Also where longhaul has files of the machine, and where the commands run.
    for (root, what) in [
        ("/sys/fs/cgroup", "cgroup"),
        ("/run", "run"),
        ("/var/lib/longhaul", "file"),
        ("/etc/sysctl.d", "file"),
        (folder.to_str().unwrap(), "file"),
    ] {
        let below = below(Path::new(root)).into_iter();
        below
            .filter(|path| what == "file" || path.contains("longhaul"))
            .for_each(|path| count(format!("{what} {path}")));
    }
    for entry in fs::read_dir(".").unwrap().flatten() {
        count(format!("file {}", entry.path().display()));
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours = mounts.lines().filter(|line| line.contains("longhaul") || line.contains(" - nsfs "));
    ours.map(|line| format!("mount {line}")).for_each(&mut count);
    counted
}

/// What `after` has that `before` did not have as often, and what it lacks.
pub(crate) fn changes(before: &Counted, after: &Counted) -> Vec<String> {
    let of = |counted: &Counted, line: &String| counted.get(line).copied().unwrap_or(0);
    let lines: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let differ = lines.into_iter().filter_map(|line| {
        let (then, now) = (of(before, line), of(after, line));
        // Others on the machine may remove theirs.
        let is_of_machine = ["pin ", "cgroup ", "run ", "mount ", "bpf "].iter().any(|kind| line.starts_with(kind));
        (now > then || (now < then && !is_of_machine)).then(|| format!("{line}: {then} before, {now} now"))
    });
    differ.collect()
}

/// Namespaces that `processes` or this one are in or hold open: what a killed command left can have no other process.
fn namespaces(processes: &[u32]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for pid in processes.iter().chain([&std::process::id()]) {
        for folder in ["ns", "fd"] {
            for entry in fs::read_dir(format!("/proc/{pid}/{folder}")).into_iter().flatten().flatten() {
                let target = fs::read_link(entry.path()).unwrap_or_default().display().to_string();
                let kind = target.split_once(":[").map_or("", |(kind, _)| kind);
                if !["", "socket", "pipe", "anon_inode"].contains(&kind) {
                    found.insert(format!("namespace {target}"));
                }
            }
        }
    }
    found
}

fn of_a_host() -> String {
    let output = Command::new("unshare").args(["-m", "sh", "-c", OF_A_HOST]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        ["tcp_sack:", "rps_cpus:", "napi_defer_hard_irqs:", "generic-receive-offload:"]
            .iter()
            .all(|part| text.contains(part)),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Sockets that a process has: not those in TIME_WAIT and others that only wait to end.
fn sockets() -> Vec<String> {
    let mut all = Vec::new();
    for (table, local, state, inode) in SOCKETS {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            let column = |at: usize| columns.get(at).copied().unwrap_or("");
            // The kernel's own netlink sockets have port 0.
            let own = if table == "netlink" { column(2) != "0" } else { column(inode) != "0" };
            if own {
                all.push(format!("{table} {} {}", column(local), column(state)));
            }
        }
    }
    all
}

fn below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        found.push(entry.path().display().to_string());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(below(&entry.path()));
        }
    }
    found
}

/// BPF programs, maps and links that live though no process holds them, directly or by way of each other: pinned (but by others), or attached
/// to something that stays.
fn unheld_bpf(pins_of_others: &[String], older: &Bpf) -> Vec<String> {
    let link = |pin: &String| libbpf_rs::Link::open(pin).and_then(|link| link.info()).ok();
    let mut held: Bpf = pins_of_others.iter().filter_map(link).map(|link| ("link".to_owned(), link.id)).collect();
    // What was there before: a socket may keep a control of another program until it closes.
    held.extend(older.iter().cloned());
    for process in fs::read_dir("/proc").unwrap().flatten() {
        for fd in fs::read_dir(process.path().join("fdinfo")).into_iter().flatten().flatten() {
            let text = fs::read_to_string(fd.path()).unwrap_or_default();
            for line in text.lines() {
                if let Some((key @ ("prog_id" | "map_id" | "link_id"), id)) = line.split_once(':') {
                    held.insert((key[..4].trim_end_matches('_').to_owned(), id.trim().parse::<u32>().unwrap()));
                }
            }
        }
    }
    let mut unheld = Vec::new();
    for link in LinkInfoIter::default() {
        if held.contains(&("link".into(), link.id)) {
            held.insert(("prog".into(), link.prog_id));
            if let LinkTypeInfo::StructOps(operations) = &link.info {
                held.insert(("map".into(), operations.map_id));
            }
        } else {
            unheld.push(format!("bpf link {}", link.id));
        }
    }
    for program in ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default().include_map_ids(true)) {
        // Those of a congestion control live as long as its map and its link, of which the kernel does not tell their names.
        let is_held = held.contains(&("prog".into(), program.id)) || program.ty == ProgramType::StructOps;
        if !is_held {
            unheld.push(format!("bpf program {} {:?}", program.id, program.name));
        } else {
            held.extend(program.map_ids.iter().map(|id| ("map".to_owned(), *id)));
        }
    }
    for map in MapInfoIter::default() {
        if !held.contains(&("map".into(), map.id)) {
            unheld.push(format!("bpf map {} {:?}", map.id, map.name));
        }
    }
    unheld
}
