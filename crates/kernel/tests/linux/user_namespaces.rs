//! A user without root is root in a user namespace of his own, and does there all that a lab needs.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_kernel::mounts::{fresh_sysfs, override_hosts, private_mounts};
use longhaul_kernel::user_namespace::unshare_user_as_root;

use crate::cable::{Cable, EXPERIMENT, PLAIN, frame, next_frame};

/// Runs `work` in a forked process, which has one thread, as `nobody` where this one is root, and gives what it returns.
fn in_child(work: impl FnOnce() -> String) -> String {
    let (mut reader, writer) = std::io::pipe().unwrap();
    // SAFETY: the child runs only this function's own code and leaves by _exit. glibc makes malloc usable after fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        drop(reader);
        let said = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: no pointers; the raw system calls change this process's only thread.
            unsafe {
                if libc::geteuid() == 0 {
                    libc::setgid(65_534);
                    libc::setuid(65_534);
                    // A change of user makes /proc/self root's own, until the process is dumpable again.
                    libc::prctl(libc::PR_SET_DUMPABLE, 1);
                }
            }
            work()
        }))
        .unwrap_or_else(|_| "panicked".into());
        // SAFETY: a live buffer and an open descriptor; _exit does not return.
        unsafe {
            libc::write(writer.as_raw_fd(), said.as_ptr().cast(), said.len());
            libc::_exit(0)
        }
    }
    drop(writer);
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    // SAFETY: our own child.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    said
}

#[test]
fn frames_cross_a_cable_without_root() {
    let said = in_child(|| {
        if let Err(error) = unshare_user_as_root() {
            return format!("skipped: {error}");
        }
        if !is_root_in_namespace() {
            return "not root inside".into();
        }
        let cable = Cable::new();
        let (left, right) = cable.sockets();
        left.send(&PLAIN, &[&frame(EXPERIMENT, &[7; 100])]).unwrap();
        if next_frame(&right).1.len() != 114 {
            return "another frame came".into();
        }
        let hosts = cable.left.enter(|| {
            private_mounts().and_then(|()| override_hosts("10.99.0.2 lhk-server\n")).map_err(|e| e.to_string())?;
            // It may be refused here; then programs see the old one.
            let _ = fresh_sysfs();
            std::fs::read_to_string("/etc/hosts").map_err(|e| e.to_string())
        });
        match hosts.unwrap() {
            Ok(text) if text.contains("lhk-server") => "well".into(),
            other => format!("{other:?}"),
        }
    });
    if said.starts_with("skipped") {
        println!("{said}");
    } else {
        assert_eq!(said, "well");
    }
}

#[test]
fn a_process_with_threads_is_told_why() {
    // The test itself runs in a thread beside the main one.
    let error = std::thread::spawn(|| unshare_user_as_root().unwrap_err()).join().unwrap();
    assert!(error.to_string().contains("several threads"), "{error}");
}
