//! Network namespaces are apart, and nobody is left in one by accident.

use std::collections::HashSet;
use std::process::Command;
use std::time::Duration;

use longhaul_kernel::clock::monotonic;
use longhaul_kernel::link::Netlink;
use longhaul_kernel::namespace::{NetNamespace, for_each_visible};
use longhaul_kernel::open_files::LookLimits;
use longhaul_kernel::process::{Signal, in_namespaces};
use longhaul_kernel::unix::{connect_abstract, listen_abstract};
use longhaul_units::Nanos;

use crate::cable::unprivileged;

#[test]
fn each_has_its_own_cookie_and_links() {
    if unprivileged() {
        return;
    }
    let here = NetNamespace::current().unwrap();
    let (one, other) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
    let cookies = [&here, &one, &other].map(|namespace| namespace.cookie().unwrap());
    assert!(cookies[0] != cookies[1] && cookies[1] != cookies[2] && cookies[0] != cookies[2], "{cookies:?}");
    assert_eq!(one.cookie().unwrap(), cookies[1], "it stays");
    assert_ne!(one.id().unwrap(), other.id().unwrap());
    let links = one.enter(|| Netlink::open().unwrap().links().unwrap()).unwrap();
    assert!(matches!(&links[..], [link] if link.name == "lo" && !link.up), "{links:?}");
    assert_eq!(NetNamespace::current().unwrap().id().unwrap(), here.id().unwrap(), "the caller stayed");
}

#[test]
fn entered_for_good_is_where_the_thread_stays() {
    if unprivileged() {
        return;
    }
    let namespace = NetNamespace::create().unwrap();
    let own = namespace.id().unwrap();
    std::thread::spawn(move || {
        namespace.enter_for_good().unwrap();
        assert_eq!(NetNamespace::current().unwrap().id().unwrap(), own);
    })
    .join()
    .unwrap();
    assert_ne!(NetNamespace::current().unwrap().id().unwrap(), own);
}

#[test]
fn a_panic_inside_comes_out() {
    if unprivileged() {
        return;
    }
    let namespace = NetNamespace::create().unwrap();
    let caught = std::panic::catch_unwind(|| namespace.enter(|| panic!("inside")));
    assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
}

#[test]
fn its_processes_are_found_and_ended() {
    if unprivileged() {
        return;
    }
    let namespace = NetNamespace::create().unwrap();
    let id = namespace.id().unwrap();
    assert!(in_namespaces(&[id]).unwrap().is_empty());
    // A thread that is not the main one leaves its process where it is, a program it starts is inside.
    let mut child = namespace.enter(|| Command::new("sleep").arg("60").spawn()).unwrap().unwrap();
    let found = in_namespaces(&[id]).unwrap();
    assert_eq!(found.iter().map(|process| process.pid()).collect::<Vec<_>>(), [child.id()]);
    assert_eq!(NetNamespace::of_process(child.id()).unwrap().id().unwrap(), id);
    found[0].signal(Signal::KILL).unwrap();
    assert!(found[0].wait_until_gone(monotonic() + Nanos::from_secs(10)).unwrap());
    child.wait().unwrap();
    found[0].signal(Signal::KILL).unwrap();
    assert!(in_namespaces(&[id]).unwrap().is_empty());
}

/// Other users can have thousands.
#[test]
fn those_that_are_visible_are_visited_once_and_in_their_time() {
    if unprivileged() {
        return;
    }
    let held = [(); 3].map(|()| NetNamespace::create().unwrap());
    let here = NetNamespace::current().unwrap().id().unwrap();
    let limits = LookLimits { time: Nanos::from_secs(60), ..LookLimits::default() };
    let mut visited = Vec::new();
    let visit = |namespace: &NetNamespace| visited.push(namespace.id().unwrap());
    for_each_visible(limits, Nanos::from_secs(60), visit).unwrap();
    assert_eq!(visited[0], here);
    assert!(held.iter().all(|namespace| visited.contains(&namespace.id().unwrap())), "{visited:?}");
    assert_eq!(visited.iter().collect::<HashSet<_>>().len(), visited.len(), "{visited:?}");
    visited.clear();
    let unvisited = for_each_visible(limits, Nanos::ZERO, |namespace| visited.push(namespace.id().unwrap())).unwrap();
    assert_eq!(visited, [here]);
    assert!(unvisited.namespaces >= held.len(), "{unvisited:?}");
}

#[test]
fn abstract_names_are_the_namespaces_own() {
    if unprivileged() {
        return;
    }
    let (one, other) = (NetNamespace::create().unwrap(), NetNamespace::create().unwrap());
    let _listener = one.enter(|| listen_abstract("lhk-name")).unwrap().unwrap();
    assert!(one.enter(|| connect_abstract("lhk-name", Duration::ZERO)).unwrap().is_ok());
    assert!(other.enter(|| connect_abstract("lhk-name", Duration::ZERO)).unwrap().is_err());
}

#[test]
fn a_missing_one_is_named() {
    let error = NetNamespace::open("/run/netns/lhk-none").unwrap_err();
    assert!(error.to_string().contains("/run/netns/lhk-none"), "{error}");
}
