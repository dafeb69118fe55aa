//! What looks like a killed lab and is none.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{alone, unprivileged};
use longhaul_kernel::link::Netlink;
use longhaul_kernel::namespace::NetNamespace;
use longhaul_lab::orphans;
use longhaul_testing::waiting::until;

/// A program in namespaces that `command` makes, with the mark of a killed lab `name` of these.
fn marked(name: &str, command: &[&str]) -> Child {
    let number = "$(stat -Lc %i /proc/self/ns/pid)";
    let mark = format!("ip link set lo alias \"longhaul lab {name} 4194000 1 {number}\" && exec sleep 60");
    let (program, arguments) = command.split_first().unwrap();
    Command::new(program).args(arguments).args(["sh", "-c", &mark]).stderr(Stdio::piped()).spawn().unwrap()
}

/// Whether the network namespace of `process` has its mark.
fn is_marked(process: &Child) -> bool {
    let link = || Netlink::open().ok()?.link_by_name("lo").ok()?.alias;
    NetNamespace::of_process(process.id()).is_ok_and(|namespace| matches!(namespace.enter(link), Ok(Some(_))))
}

fn is_orphan(name: &str) -> bool {
    orphans::find().unwrap().iter().any(|orphan| orphan.lab == name)
}

fn end(mut process: Child) {
    process.kill().unwrap();
    process.wait().unwrap();
}

/// He marks it as what a killed lab has left. It is his: root's `lab down` must not end the programs in it.
#[test]
fn a_mark_in_another_users_namespace_makes_no_orphan() {
    if !longhaul_kernel::capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("needs another user (run as root)");
        return;
    }
    let name = format!("mine-{}", std::process::id());
    let nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let mut theirs = marked(&name, &[&nobody[..], &["unshare", "--user", "--map-root-user", "--net"]].concat());
    let mut is_there = false;
    until("the mark, or that there are no user namespaces", || {
        is_there = is_marked(&theirs);
        is_there || theirs.try_wait().unwrap().is_some()
    });
    if !is_there {
        longhaul_testing::skipped!("users may have no namespaces here");
        return;
    }
    assert!(!is_orphan(&name));
    end(theirs);
    // The same of this user is one.
    let own = marked(&name, &["unshare", "--net"]);
    until("the own mark", || is_orphan(&name));
    end(own);
}

/// The number of its process is one of that PID namespace: here it says nothing of whether the lab runs.
#[test]
fn a_lab_of_another_pid_namespace_is_no_orphan() {
    let name = format!("inner-{}", std::process::id());
    let inner = marked(&name, &["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    until("the mark", || is_marked(&inner));
    assert!(!is_orphan(&name));
    end(inner);
}

/// The kernel gives the lowest number that is free: most often the next namespace has that of the one that went last.
#[test]
fn a_namespace_that_got_the_number_of_an_orphan_is_left_alone() {
    if unprivileged() {
        return;
    }
    let _alone = alone();
    let name = format!("gone-{}", std::process::id());
    let left = marked(&name, &["unshare", "--net"]);
    until("the mark", || is_marked(&left));
    let number = NetNamespace::of_process(left.id()).unwrap().id().unwrap();
    let found = orphans::find().unwrap();
    let orphan = found.iter().find(|orphan| orphan.lab == name).unwrap();
    end(left);
    // The kernel clears it a little later; other tests may get its number first.
    let mut others = Vec::new();
    let next = (0..200).find_map(|_| {
        let next = NetNamespace::create().unwrap();
        if next.id().unwrap() == number {
            return Some(next);
        }
        others.push(next);
        std::thread::sleep(Duration::from_millis(5));
        None
    });
    let Some(next) = next else {
        longhaul_testing::skipped!("no namespace got that number again");
        return;
    };
    let mut program = next.enter(|| Command::new("sleep").arg("60").spawn().unwrap()).unwrap();
    assert_eq!(orphan.end().unwrap(), 0);
    assert!(program.try_wait().unwrap().is_none(), "a program in another namespace was ended");
    end(program);
}
