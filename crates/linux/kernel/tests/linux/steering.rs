//! Receive packet steering, and that it leaves the settings of before.

use std::process::Command;

use longhaul_kernel::namespace::NetNamespace;
use longhaul_kernel::rps::{Rps, RpsError};

fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// What is steered is claimed with all interfaces below it: otherwise the second test would keep the masks of the first for those of
/// before, and put them back last.
#[test]
fn two_interfaces_over_one_device_are_steered_one_after_the_other() {
    if !longhaul_kernel::capability::is_root_in_namespace() {
        println!("skipped: run as root");
        return;
    }
    // In a mount namespace of its own, with the sysfs of its network namespace.
    let masks = "mount -t sysfs none /mnt; cat /mnt/class/net/v0/queues/rx-*/rps_cpus; umount /mnt";
    let masks = || sh(&format!("unshare -m sh -c '{masks}'"));
    let namespace = NetNamespace::create().unwrap();
    let made = namespace.enter(|| {
        sh("ip link add v0 type veth peer name v1; ip link add m0 link v0 type macvlan; ip link add m1 link v0 type macvlan; \
            ls -d /sys/class/net; ip -br link show m1")
    });
    if !made.unwrap().contains("m1") {
        println!("skipped: this kernel has no macvlan");
        return;
    }
    namespace
        .enter(|| {
            let before = masks();
            let first = Rps::steer("m0", &[0]).unwrap();
            assert_eq!(first.interfaces(), ["m0", "v0"]);
            assert_ne!(masks(), before);
            let second = Rps::steer("m1", &[1]);
            assert!(matches!(&second, Err(RpsError::Busy { interface }) if interface == "v0"), "{second:?}");
            drop(first);
            assert_eq!(masks(), before);
            drop(Rps::steer("m1", &[1]).unwrap());
            assert_eq!(masks(), before);
        })
        .unwrap();
}

/// Under its new name it is the same interface: a second test would keep the masks of the first for those of before.
#[test]
fn an_interface_with_a_new_name_is_still_taken() {
    if !longhaul_kernel::capability::is_root_in_namespace() {
        println!("skipped: run as root");
        return;
    }
    let masks = "mount -t sysfs none /mnt; cat /mnt/class/net/*0/queues/rx-*/rps_cpus; umount /mnt";
    let masks = || sh(&format!("unshare -m sh -c '{masks}'"));
    NetNamespace::create()
        .unwrap()
        .enter(|| {
            sh("ip link add v0 type veth peer name v1");
            let before = masks();
            let first = Rps::steer("v0", &[0]).unwrap();
            sh("ip link set v0 name w0");
            let steered = masks();
            assert_ne!(steered, before);
            let second = Rps::steer("w0", &[1]);
            assert!(matches!(&second, Err(RpsError::Busy { interface }) if interface == "w0"), "{second:?}");
            assert_eq!(masks(), steered);
            // Another one that has the old name is free.
            sh("ip link add v0 type veth peer name v2");
            drop(Rps::steer("v0", &[1]).unwrap());
            sh("ip link del v0");
            drop(first);
            assert_eq!(masks(), before);
            drop(Rps::steer("w0", &[1]).unwrap());
            assert_eq!(masks(), before);
        })
        .unwrap();
}
