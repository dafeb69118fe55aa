//! A user without root is root in a user namespace of his own, and does there all that a lab needs.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::mounts::{fresh_sysfs, override_hosts, private_mounts};
use longhaul_kernel::user_namespace::unshare_user_as_root;

use crate::cable::{Cable, EXPERIMENT, PLAIN, frame, next_frame};

/// Starts this very program once more, as `nobody` where it is root, in a user namespace of its own.
#[test]
fn frames_cross_a_cable_without_root() {
    let (mut reader, mut writer) = io::pipe().unwrap();
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "user_namespaces::inside", "--ignored", "--nocapture"]);
    let unshare = move || {
        // SAFETY: no pointers; after the fork the process has this thread only.
        unsafe {
            if libc::geteuid() == 0 {
                libc::setgid(65_534);
                libc::setuid(65_534);
                // A change of user makes /proc/self root's own, until the process is dumpable again.
                libc::prctl(libc::PR_SET_DUMPABLE, 1);
            }
        }
        unshare_user_as_root().map_err(|error| {
            let _ = writer.write_all(error.to_string().as_bytes());
            io::Error::from_raw_os_error(libc::EPERM)
        })
    };
    // SAFETY: between fork and exec it makes system calls and allocates, which glibc allows there.
    unsafe { command.pre_exec(unshare) };
    let output = command.output();
    // The closure holds the writing end.
    drop(command);
    let mut problem = String::new();
    reader.read_to_string(&mut problem).unwrap();
    if problem.contains("forbidden") {
        longhaul_testing::skipped!("{problem}");
        return;
    }
    assert_eq!(problem, "");
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

#[test]
#[ignore = "the test above runs it, in a user namespace"]
fn inside() {
    assert!(is_root_in_namespace());
    let cable = Cable::new();
    let (left, right) = cable.sockets();
    left.send(&PLAIN, &[&frame(EXPERIMENT, &[7; 100])]).unwrap();
    assert_eq!(next_frame(&right).1.len(), 114);
    let (hosts, links) = cable
        .left
        .enter(|| {
            private_mounts().unwrap();
            override_hosts("10.99.0.2 lhk-server\n").unwrap();
            fresh_sysfs().unwrap();
            (std::fs::read_to_string("/etc/hosts").unwrap(), std::fs::exists("/sys/class/net/lhk-l").unwrap())
        })
        .unwrap();
    assert!(hosts.contains("lhk-server") && links);
}

#[test]
fn a_process_with_threads_is_told_why() {
    // The test itself runs in a thread beside the main one.
    let error = std::thread::spawn(|| unshare_user_as_root().unwrap_err()).join().unwrap();
    assert!(error.to_string().contains("several threads"), "{error}");
}
