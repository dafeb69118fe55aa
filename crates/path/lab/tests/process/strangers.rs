//! What another user does in namespaces of his own.

use std::process::{Command, Stdio};

use longhaul_kernel::namespace::NetNamespace;
use longhaul_lab::orphans;

use crate::common::until;

/// He marks it as what a killed lab has left. It is his: root's `lab down` must not end the programs in it.
#[test]
fn a_mark_in_another_users_namespace_makes_no_orphan() {
    if !longhaul_kernel::capability::is_root_in_namespace() {
        longhaul_testing::no_judge!("needs another user (run as root)");
        return;
    }
    let name = format!("mine-{}", std::process::id());
    let marked = |user: &[&str]| {
        let mark = format!("ip link set lo alias 'longhaul lab {name} 4194000 1' && exec sleep 60");
        let (program, before) = user.split_first().unwrap();
        let child = Command::new(program).args(before).args(["sh", "-c", &mark]).stderr(Stdio::piped()).spawn();
        child.unwrap()
    };
    let found = || orphans::find().unwrap().iter().any(|orphan| orphan.lab == name);
    let mut theirs = marked(&[
        "setpriv",
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "unshare",
        "--user",
        "--map-root-user",
        "--net",
    ]);
    let pid = theirs.id();
    let alias = || {
        let namespace = NetNamespace::of_process(pid).ok()?;
        let link = || longhaul_kernel::link::Netlink::open().ok()?.link_by_name("lo").ok()?.alias;
        namespace.enter(link).ok()?
    };
    let mut is_there = false;
    until("the mark, or that there are no user namespaces", || {
        is_there = alias().is_some();
        is_there || theirs.try_wait().unwrap().is_some()
    });
    if !is_there {
        longhaul_testing::skipped!("users may have no namespaces here");
        return;
    }
    assert!(!found());
    theirs.kill().unwrap();
    theirs.wait().unwrap();
    // The same of this user is one.
    let mut own = marked(&["unshare", "--net"]);
    until("the own mark", &found);
    own.kill().unwrap();
    own.wait().unwrap();
}
