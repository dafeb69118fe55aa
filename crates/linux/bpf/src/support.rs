//! What all loaders of BPF programs need: what the kernel and this build lack, errors, kernel types.

use std::os::unix::fs::MetadataExt;
use std::{fs, io};

/// Where programs are kept beyond the end of who loaded them.
pub const BPF_FS: &str = "/sys/fs/bpf";
/// `BPF_FS_MAGIC` of <linux/magic.h>.
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Whether the BPF file system is at [`BPF_FS`], where distributions mount it.
pub fn has_bpf_fs() -> bool {
    rustix::fs::statfs(BPF_FS).is_ok_and(|found| found.f_type as u64 == BPF_FS_MAGIC)
}

/// The folder of all that longhaul keeps.
pub(crate) const OWN_FOLDER: &str = "/sys/fs/bpf/longhaul";

/// Whether the folder `kept`, which is in [`OWN_FOLDER`], is there.
///
/// # Errors
/// One of the two is a link or belongs to another user: where the file system was mounted for all to write, anybody can have put it there, and
/// what is done below it would be done elsewhere.
pub(crate) fn has_folder(kept: &str) -> io::Result<bool> {
    for folder in [OWN_FOLDER, kept] {
        match fs::symlink_metadata(folder) {
            Ok(found) if found.is_dir() && [0, rustix::process::geteuid().as_raw()].contains(&found.uid()) => {}
            Ok(_) => return Err(io::Error::other(format!("{folder} was put there by another user; remove it"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Has `pin` make a file in the folder `kept`, which is in [`OWN_FOLDER`]; makes the two where they are missing. Whoever finds one of them empty
/// removes it: where that comes between, both are done again.
///
/// # Errors
/// As [`has_folder`], or the kernel's.
pub(crate) fn keep_in(kept: &str, mut pin: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    // Somebody would have to remove them each time.
    const TRIES_MOST: u32 = 100;
    let mut tries = 0;
    loop {
        tries += 1;
        match make_folder(kept).and_then(|()| pin()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && tries < TRIES_MOST => {}
            done => return done,
        }
    }
}

fn make_folder(kept: &str) -> io::Result<()> {
    for folder in [OWN_FOLDER, kept] {
        has_folder(folder)?;
        match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    has_folder(kept).map(drop)
}

/// Why this build has no BPF programs; `None` where it has them.
pub fn not_built() -> Option<&'static str> {
    option_env!("BPF_PROGRAMS_MISSING")
}

/// What every use of a build without BPF programs comes to.
#[cfg(not(bpf_programs))]
pub(crate) const NOT_BUILT: crate::BpfError = crate::BpfError::NotBuilt { why: env!("BPF_PROGRAMS_MISSING") };

#[cfg(bpf_programs)]
pub(crate) use enabled::{KernelTypes, io_error, load_error, require_capabilities, with_log};

#[cfg(bpf_programs)]
mod enabled {
    use std::fs;
    use std::io;
    use std::sync::{Mutex, PoisonError};

    use libbpf_rs::btf::types::{Enum, FuncProto, Ptr, Struct, Typedef};
    use libbpf_rs::btf::{Btf, ReferencesType};
    use libbpf_rs::{ErrorKind, PrintLevel, set_print};

    use crate::BpfError;
    use crate::reasons::ReasonNames;

    /// The kernel's types, as it describes them itself (BTF).
    pub(crate) struct KernelTypes {
        btf: Btf<'static>,
    }

    impl KernelTypes {
        pub(crate) fn read() -> Result<Self, BpfError> {
            // Without the log libbpf writes two lines to stderr at each try, which say no more than the error.
            let (read, _) = with_log(Btf::from_vmlinux);
            match read {
                Ok(btf) => Ok(Self { btf }),
                Err(error) => Err(BpfError::NoBtf { source: io_error(&error) }),
            }
        }

        /// Whether `skb:kfree_skb` tells the receiving socket, as it does since Linux 6.11. It does not tell even the reason
        /// before 5.17.
        pub(crate) fn drop_tells_receiving_socket(&self) -> Result<bool, BpfError> {
            // void (*)(void *, struct sk_buff *, void *location, enum skb_drop_reason[, struct sock *])
            match self.tracepoint_arguments("btf_trace_kfree_skb") {
                Some(arguments) if arguments >= 4 => Ok(arguments >= 5),
                _ => Err(BpfError::NoDropReason),
            }
        }

        /// Whether the kernel has the tracepoint whose type is `typedef`.
        pub(crate) fn has_tracepoint(&self, typedef: &str) -> bool {
            self.tracepoint_arguments(typedef).is_some()
        }

        fn tracepoint_arguments(&self, typedef: &str) -> Option<usize> {
            let typedef: Typedef<'_> = self.btf.type_by_name(typedef)?;
            let pointer = Ptr::try_from(typedef.referenced_type()).ok()?;
            Some(FuncProto::try_from(pointer.referenced_type()).ok()?.len())
        }

        /// Whether congestion controls may be registered by a link, as since Linux 6.4.
        pub(crate) fn has_struct_ops_links(&self) -> bool {
            let attaches = self.btf.type_by_name::<Enum<'_>>("bpf_attach_type");
            let has_links = attaches
                .is_some_and(|all| all.iter().any(|member| member.name.is_some_and(|name| name == "BPF_STRUCT_OPS")));
            has_links && self.btf.type_by_name::<Struct<'_>>("bpf_struct_ops_tcp_congestion_ops").is_some()
        }

        /// Whether congestion controls are told of `CA_EVENT_TX_START` by a callback of its own, as since Linux 7.1, and no longer
        /// by `cwnd_event`.
        pub(crate) fn tells_start_apart(&self) -> bool {
            self.has_member("tcp_congestion_ops", "cwnd_event_tx_start")
        }

        /// Whether `cong_control` takes a socket, an ACK, a flag and a rate sample, as since Linux 6.10; before, a socket and a sample. The same
        /// version lets BPF write `app_limited`.
        pub(crate) fn tells_rates(&self) -> bool {
            let Some(all) = self.btf.type_by_name::<Struct<'_>>("tcp_congestion_ops") else { return false };
            let member = all.iter().find(|one| one.name.is_some_and(|name| name == "cong_control"));
            let pointer = member.and_then(|member| self.btf.type_by_id::<Ptr<'_>>(member.ty));
            let function = pointer.and_then(|pointer| FuncProto::try_from(pointer.referenced_type()).ok());
            function.is_some_and(|function| function.len() == 4)
        }

        fn has_member(&self, structure: &str, member: &str) -> bool {
            let found = self.btf.type_by_name::<Struct<'_>>(structure);
            found.is_some_and(|all| all.iter().any(|one| one.name.is_some_and(|name| name == member)))
        }

        pub(crate) fn drop_reasons(&self) -> ReasonNames {
            let Some(reasons) = self.btf.type_by_name::<Enum<'_>>("skb_drop_reason") else {
                return ReasonNames::default();
            };
            ReasonNames::of(reasons.iter().filter_map(|member| Some((member.name?.to_str()?, member.value as u32))))
        }
    }

    /// Tracing programs take both; the kernel only says EPERM.
    pub(crate) fn require_capabilities() -> Result<(), BpfError> {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        match missing_capabilities(&status) {
            Some(missing) => Err(BpfError::Denied { missing }),
            None => Ok(()),
        }
    }

    /// Out of `/proc/PID/status`; numbers of `<linux/capability.h>`. `None` where all are there, or it does not say.
    fn missing_capabilities(status: &str) -> Option<String> {
        const SYS_ADMIN: u32 = 21;
        let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let set = u64::from_str_radix(hex.trim(), 16).ok()?;
        let has = |number: u32| set & 1 << number != 0;
        let missing: Vec<_> = [(39, "CAP_BPF"), (38, "CAP_PERFMON")]
            .iter()
            .filter(|(number, _)| !has(*number))
            .map(|(_, name)| *name)
            .collect();
        let verb = if missing.len() == 1 { "is" } else { "are" };
        (!has(SYS_ADMIN) && !missing.is_empty()).then(|| format!("{} {verb}", missing.join(" and ")))
    }

    /// What libbpf says while a program is loaded. It is one for the process, so one load at a time.
    static LOG: Mutex<String> = Mutex::new(String::new());
    static LOADING: Mutex<()> = Mutex::new(());

    fn append(_level: PrintLevel, text: String) {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
    }

    /// Runs `load` and keeps what libbpf and the verifier say from stderr; gives the end of it.
    pub(crate) fn with_log<T>(load: impl FnOnce() -> T) -> (T, String) {
        /// The verifier may write megabytes, and says what is wrong at the end.
        const KEPT_LINES: usize = 30;
        let _one = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        let before = set_print(Some((PrintLevel::Warn, append)));
        let result = load();
        set_print(before);
        let log = std::mem::take(&mut *LOG.lock().unwrap_or_else(PoisonError::into_inner));
        let lines: Vec<_> = log.lines().collect();
        let kept: Vec<_> =
            lines[lines.len().saturating_sub(KEPT_LINES)..].iter().map(|line| format!("\n{line}")).collect();
        (result, kept.concat())
    }

    /// Where not even libbpf's trivial program may be loaded despite the capabilities, they are those of a user namespace: the
    /// kernel asks for the machine's own.
    pub(crate) fn load_error(program: &'static str, error: libbpf_rs::Error, log: String) -> BpfError {
        if error.kind() == ErrorKind::PermissionDenied && log.contains("bpf_object__probe_loading") {
            return BpfError::Denied {
                missing: "CAP_BPF and CAP_PERFMON in the machine's own user namespace are".into(),
            };
        }
        BpfError::Load { program, source: io_error(&error), log }
    }

    /// With all that libbpf-rs has to say about it.
    pub(crate) fn io_error(error: &libbpf_rs::Error) -> io::Error {
        let kind = if error.kind() == ErrorKind::NotFound { io::ErrorKind::NotFound } else { io::ErrorKind::Other };
        io::Error::new(kind, format!("{error:#}"))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn says_which_capability_is_missing() {
            let status = |set: u64| format!("Name:\tx\nCapEff:\t{set:016x}\n");
            assert_eq!(missing_capabilities(&status(u64::MAX)), None);
            assert_eq!(missing_capabilities(&status(1 << 21)), None, "CAP_SYS_ADMIN has both");
            assert_eq!(missing_capabilities(&status(1 << 39)).as_deref(), Some("CAP_PERFMON is"));
            assert_eq!(missing_capabilities(&status(0)).as_deref(), Some("CAP_BPF and CAP_PERFMON are"));
        }

        #[test]
        fn the_running_kernel_names_its_reasons() {
            let types = match KernelTypes::read() {
                Ok(types) => types,
                Err(error) => return longhaul_testing::skipped!("{error}"),
            };
            let names = types.drop_reasons();
            let all: Vec<_> = (0..256).map(|reason| names.name(reason).into_owned()).collect();
            assert!(all.iter().any(|name| name == "SOCKET_RCVBUFF"), "{all:?}");
            assert!(types.drop_tells_receiving_socket().is_ok());
            assert!(types.has_member("tcp_congestion_ops", "cwnd_event"));
            assert!(types.tells_rates(), "the kernels that this is developed on are newer than 6.10");
            assert!(!types.has_member("tcp_congestion_ops", "cwnd_event_tx_stop"));
        }
    }
}
