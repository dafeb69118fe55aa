//! [`Filter`]: loads the program, attaches it, gives it the host's addresses, reads its counters.

mod generations;
mod link;
mod maps;
mod samples;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use libbpf_rs::query::{LinkInfo, LinkTypeInfo};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Program};
use longhaul_units::Nanos;

pub use generations::Generations;
use link::{XdpLink, attached, run_over};
use maps::{
    ENFORCE, FOLLOWED_BYTES, FORCED, JUDGE_ARP, JUDGE_IPV4, JUDGE_IPV6, JUDGE_PORTS, JUDGE_SOLICITATIONS, LASTING,
    WIDE_LOCAL, allow, flags, lookup, network_key, update, words, write_config,
};
pub use samples::Samples;

use super::counters::COUNTERS_BYTES;
use super::{
    FilterCounters, FilterError, FilterOptions, FilterSettings, Judgement, KEPT, LocalNetwork, Mode, PROGRAM_NAME,
    RoutingGenerations, holds,
};
use crate::BpfError;
use crate::program::LoadedProgram;
use crate::skeleton::filter::FilterSkelBuilder;
use crate::support::{
    KernelTypes, OWN_FOLDER, has_bpf_fs, has_folder, io_error, keep_in, load_error, require_capabilities, with_log,
};

const PROGRAM: &str = "filter";
/// The kernel detaches a program within some milliseconds; after this time something holds it.
const PATIENCE: Duration = Duration::from_secs(5);

/// A filter at an interface. A filter that this value attached ends with it, unless it is kept.
pub struct Filter {
    // First, so that the program is freed before its maps.
    link: XdpLink,
    ifindex: u32,
    program_id: u32,
    mode: Mode,
    /// Why the driver does not run it, where it runs in the stack without being asked to.
    not_native: Option<String>,
    config: MapHandle,
    followed: MapHandle,
    sampling: MapHandle,
    counters: MapHandle,
    local_v4: MapHandle,
    local_v6: MapHandle,
    local_prefixes: MapHandle,
    samples: MapHandle,
    /// Keeps the program while it is being attached, and runs it for tests.
    program: OwnedFd,
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("ifindex", &self.ifindex)
            .field("program_id", &self.program_id)
            .finish_non_exhaustive()
    }
}

impl Filter {
    /// Removes what keeps the filters of interfaces that no longer exist: the kernel detached the program, and a file keeps the rest. To be called
    /// before an interface is looked up, which may be such a one.
    pub fn forget_gone() {
        for (path, link) in kept() {
            if matches!(link.info, LinkTypeInfo::Xdp(xdp) if xdp.ifindex == 0) {
                let _ = fs::remove_file(path);
            }
        }
        if has_folder(KEPT).unwrap_or(false) {
            remove_empty_folders();
        }
    }

    /// Attaches a filter to link `ifindex` of the calling thread's network namespace. Replaces a filter of longhaul that is
    /// there, between two frames; counters start from zero, and the mode stays.
    ///
    /// Until [`Self::follow`] it judges no address, ARP or port.
    ///
    /// # Errors
    /// Any [`FilterError`] but [`FilterError::NotThere`] and those of keeping.
    pub fn attach(ifindex: u32, options: &FilterOptions) -> Result<Self, FilterError> {
        KernelTypes::read()?;
        require_capabilities()?;
        let before = Self::open(ifindex);
        match &before {
            Ok(_) | Err(FilterError::NotThere { .. }) => {}
            Err(FilterError::OtherProgram { .. }) => return before,
            Err(_) => return before,
        }
        let mut object = MaybeUninit::uninit();
        let (loaded, log) = with_log(|| {
            let mut open = FilterSkelBuilder::default().open(&mut object)?;
            if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
                constants.lasting = flags(options) & LASTING;
            }
            open.load()
        });
        let skeleton = loaded.map_err(|error| not_loaded(error, log))?;
        let hold = |map| MapHandle::try_from(map).map_err(|error| step("hold a map", &error));
        let maps = &skeleton.maps;
        let program = skeleton.progs.longhaul_filter.as_fd();
        allow(&hold(&maps.allowed_nets)?, &hold(&maps.allowed_ports)?, &options.allow)?;
        let config = hold(&maps.settings)?;
        write_config(&config, options)?;
        let owned = program.try_clone_to_owned().map_err(|source| plain_step("hold the program", source))?;
        let (link, mode, not_native) = match before {
            Ok(before) => {
                before
                    .link
                    .replace(program, before.program.as_fd())
                    .map_err(|source| plain_step("replace the program", source))?;
                let link =
                    XdpLink::of_program(program_id(program)?).map_err(|source| plain_step("hold the link", source))?;
                (link, before.mode, before.not_native)
            }
            Err(_) => create(program, ifindex, options.mode)?,
        };
        Ok(Self {
            link,
            ifindex,
            program_id: program_id(program)?,
            mode,
            not_native,
            config,
            followed: hold(&maps.followed)?,
            sampling: hold(&maps.sampling)?,
            counters: hold(&maps.counters)?,
            local_v4: hold(&maps.local_v4)?,
            local_v6: hold(&maps.local_v6)?,
            local_prefixes: hold(&maps.local_prefixes)?,
            samples: hold(&maps.samples)?,
            program: owned,
        })
    }

    /// The filter at link `ifindex` of the calling thread's network namespace, whichever process attached it.
    ///
    /// # Errors
    /// [`FilterError::NotThere`], [`FilterError::OtherProgram`], [`FilterError::Bpf`].
    pub fn open(ifindex: u32) -> Result<Self, FilterError> {
        let attached = attached(ifindex).map_err(|source| plain_step("look for an XDP program", source))?;
        let Some(attached) = attached else { return Err(FilterError::NotThere { ifindex }) };
        require_capabilities()?;
        let id = attached.program_id;
        // One that has gone meanwhile was another's, too.
        let info = LoadedProgram::find(id).ok();
        let name = info.as_ref().map(|info| info.name.clone()).unwrap_or_default();
        let Some(info) = info.filter(|_| name == PROGRAM_NAME) else {
            return Err(FilterError::OtherProgram { ifindex, id, name });
        };
        let mut maps: Vec<MapHandle> = Vec::new();
        for id in info.map_ids {
            maps.push(MapHandle::from_map_id(id).map_err(|error| step("hold a map", &error))?);
        }
        let of_another_version = || FilterError::OtherProgram {
            ifindex,
            id,
            name: format!("{PROGRAM_NAME} of another version of longhaul"),
        };
        let mut take = |name: &str| {
            let at = maps.iter().position(|map| map.name() == name);
            at.map(|at| maps.swap_remove(at)).ok_or_else(of_another_version)
        };
        let config = take("settings")?;
        let counters = Some(take("counters")?).filter(|map| map.value_size() as usize == COUNTERS_BYTES);
        let followed = Some(take("followed")?).filter(|map| map.value_size() as usize == FOLLOWED_BYTES);
        Ok(Self {
            link: XdpLink::of_program(id).map_err(|source| plain_step("hold the link", source))?,
            ifindex,
            program_id: id,
            mode: attached.mode,
            not_native: None,
            config,
            followed: followed.ok_or_else(of_another_version)?,
            sampling: take("sampling")?,
            counters: counters.ok_or_else(of_another_version)?,
            local_v4: take("local_v4")?,
            local_v6: take("local_v6")?,
            local_prefixes: take("local_prefixes")?,
            samples: take("samples")?,
            program: Program::fd_from_id(id).map_err(|error| step("hold the program", &error))?,
        })
    }

    /// The number of the program in the kernel.
    pub fn program_id(&self) -> u32 {
        self.program_id
    }

    /// Where the program runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Why the driver does not run it; `None` where the driver does, or where another process attached it.
    pub fn not_native(&self) -> Option<&str> {
        self.not_native.as_deref()
    }

    /// Whether it is still attached: nobody detached or replaced it. To be called in the network namespace of its interface.
    pub fn is_attached(&self) -> bool {
        attached(self.ifindex).ok().flatten().is_some_and(|attached| attached.program_id == self.program_id)
    }

    /// Runs the program on `frame`, `repeat` times, as if the interface had received it (`BPF_PROG_TEST_RUN`); the frame is counted.
    /// Returns whether it would be dropped, and the nanoseconds of one run. To be called in the network namespace of the interface.
    ///
    /// # Errors
    /// The frame is shorter than an Ethernet header or longer than a page.
    pub fn try_frame(&self, frame: &[u8], repeat: u32) -> Result<(bool, u32), FilterError> {
        const XDP_DROP: u32 = 1;
        let ran = run_over(self.program.as_fd(), self.ifindex, frame, repeat);
        let (verdict, ns) = ran.map_err(|source| plain_step("run the program", source))?;
        Ok((verdict == XDP_DROP, ns))
    }

    /// Its settings.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn settings(&self) -> Result<FilterSettings, FilterError> {
        let [flags, until] = self.read_config()?;
        Ok(FilterSettings {
            enforce: flags & ENFORCE != 0,
            enforce_until: (until > 0).then_some(Nanos(until)),
            judge_ports: flags & JUDGE_PORTS != 0,
            force: flags & FORCED != 0,
        })
    }

    /// What it can judge since the last [`Self::follow`], and the routing generations of that call.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn followed(&self) -> Result<(Judgement, RoutingGenerations), FilterError> {
        let bytes = lookup(&self.followed)?;
        let word =
            |at: usize| bytes.get(at..at + 4).map_or(0, |four| u32::from_ne_bytes(four.try_into().unwrap_or_default()));
        let flags = u64::from(word(0));
        let judgement = Judgement {
            ipv4: flags & JUDGE_IPV4 != 0,
            ipv6: flags & JUDGE_IPV6 != 0,
            arp: flags & JUDGE_ARP != 0,
            solicitations: flags & JUDGE_SOLICITATIONS != 0,
        };
        let namespace = bytes.get(24..32).map_or(0, |eight| u64::from_ne_bytes(eight.try_into().unwrap_or_default()));
        Ok((judgement, RoutingGenerations { namespace, ipv4: word(8), ipv6: word(12) }))
    }

    /// Enforces without end; `false` where the time is already over, and the filter only counts.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn confirm(&self, now: Nanos) -> Result<bool, FilterError> {
        let [flags, until] = self.read_config()?;
        if until > 0 && now.0 >= until {
            return Ok(false);
        }
        update(&self.config, &0_u32.to_ne_bytes(), &words(&[flags, 0])).map(|()| true)
    }

    /// Samples one in `every` rejected frames until this time on `CLOCK_MONOTONIC`, and some milliseconds longer; one that is over ends it. Who
    /// reads the samples says so again and again: then nothing is sampled for a reader that was killed.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn sample(&self, every: u64, until: Nanos) -> Result<(), FilterError> {
        update(&self.sampling, &0_u32.to_ne_bytes(), &words(&[until.0, every]))
    }

    /// Gives it the local addresses, which must be read after `generations`. It rejects by address as long as the kernel's generations
    /// are the same. It does not judge a family that it cannot hold ([`holds`]).
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn follow(
        &self,
        local: &[LocalNetwork],
        mut judgement: Judgement,
        generations: RoutingGenerations,
    ) -> Result<(), FilterError> {
        let (mut v4, mut v6, mut wide) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (fits_v4, fits_v6) = (holds(local, true), holds(local, false));
        for (ip, bits) in local.iter().filter(|(ip, _)| if ip.is_ipv4() { fits_v4 } else { fits_v6 }) {
            match ip {
                IpAddr::V4(ip) if *bits >= 32 => _ = v4.insert(ip.octets().to_vec()),
                IpAddr::V6(ip) if *bits >= 128 => _ = v6.insert(ip.octets().to_vec()),
                _ => _ = wide.insert(network_key(*ip, *bits)),
            }
        }
        judgement.ipv4 &= fits_v4;
        judgement.arp &= fits_v4;
        judgement.ipv6 &= fits_v6;
        judgement.solicitations &= fits_v6;
        // The generations come last: until they are written they differ, and nothing is rejected by address.
        for (map, wanted) in [(&self.local_v4, &v4), (&self.local_v6, &v6), (&self.local_prefixes, &wide)] {
            let there: BTreeSet<Vec<u8>> = map.keys().collect();
            for key in there.difference(wanted) {
                map.delete(key).map_err(|error| step("forget an address", &error))?;
            }
            for key in wanted.difference(&there) {
                update(map, key, &[1])?;
            }
        }
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        let flags = flag(judgement.ipv4, JUDGE_IPV4)
            | flag(judgement.ipv6, JUDGE_IPV6)
            | flag(judgement.arp, JUDGE_ARP)
            | flag(judgement.solicitations, JUDGE_SOLICITATIONS)
            | flag(!wide.is_empty(), WIDE_LOCAL);
        let mut value = words(&[flags]);
        value.extend(generations.ipv4.to_ne_bytes());
        value.extend(generations.ipv6.to_ne_bytes());
        // A new number: CPUs forget what they found in the old tables.
        let told = lookup(&self.followed)?
            .get(16..24)
            .map_or(0, |eight| u64::from_ne_bytes(eight.try_into().unwrap_or_default()));
        value.extend((told + 1).to_ne_bytes());
        value.extend(generations.namespace.to_ne_bytes());
        update(&self.followed, &0_u32.to_ne_bytes(), &value)
    }

    /// Its counters since it was attached: exact, except for frames that are being counted at this moment.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn counters(&self) -> Result<FilterCounters, FilterError> {
        let cpus = self.counters.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let cpus = cpus.map_err(|error| step("read the counters", &error))?.unwrap_or_default();
        Ok(FilterCounters::sum(cpus.iter().map(Vec::as_slice)))
    }

    /// Header snippets of rejected frames, while [`Self::sample`] asks for them. Only one reader at a time gets them.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn samples(&self) -> Result<Samples, FilterError> {
        Samples::open(&self.samples).map_err(|error| step("map the sample ring", &error))
    }

    /// Keeps it when this process ends, until [`Self::detach`], the next boot, or the end of its interface.
    ///
    /// # Errors
    /// [`FilterError::NoBpfFs`], [`FilterError::Keep`].
    pub fn keep(&self) -> Result<(), FilterError> {
        if !has_bpf_fs() {
            return Err(FilterError::NoBpfFs);
        }
        if self.kept_at().is_some() {
            // It replaced a kept filter: the link is the same.
            return Ok(());
        }
        let path = Path::new(KEPT).join(format!("link{}", self.link_id()?));
        keep_in(KEPT, || self.link.pin(&path)).map_err(|source| not_kept("make", &path, source))
    }

    /// Whether it stays when every process that holds it has ended.
    pub fn is_kept(&self) -> bool {
        self.kept_at().is_some()
    }

    fn link_id(&self) -> Result<u32, FilterError> {
        self.link.id().map_err(|source| plain_step("read the link's number", source))
    }

    /// The file that keeps it. Its interface may have been in another network namespace, with another number, when it was made.
    fn kept_at(&self) -> Option<PathBuf> {
        let own = self.link.id().ok()?;
        kept().into_iter().find_map(|(path, link)| (link.id == own).then_some(path))
    }

    /// Detaches it from its interface, whichever process attached it, and waits until it is detached.
    ///
    /// # Errors
    /// [`FilterError::Keep`], [`FilterError::Bpf`].
    pub fn detach(self) -> Result<(), FilterError> {
        has_folder(KEPT).map_err(|source| not_kept("look into", Path::new(KEPT), source))?;
        if let Some(path) = self.kept_at() {
            fs::remove_file(&path).map_err(|source| not_kept("remove", &path, source))?;
        }
        remove_empty_folders();
        self.link.detach().map_err(|source| plain_step("detach the link", source))?;
        let deadline = Instant::now() + PATIENCE;
        while self.is_attached() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn read_config(&self) -> Result<[u64; 2], FilterError> {
        let bytes = lookup(&self.config)?;
        let mut all = [0; 2];
        for (word, bytes) in all.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        Ok(all)
    }
}

/// Attaches as `mode` says; without it in the driver and, where the driver refuses, in the stack.
fn create(
    program: BorrowedFd<'_>,
    ifindex: u32,
    mode: Option<Mode>,
) -> Result<(XdpLink, Mode, Option<String>), FilterError> {
    let native = match mode {
        Some(Mode::Generic) => Err("not asked for".to_owned()),
        _ => XdpLink::create(program, ifindex, Mode::Native).map_err(|error| error.to_string()),
    };
    let why = match native {
        Ok(link) => return Ok((link, Mode::Native, None)),
        Err(native) if mode == Some(Mode::Native) => {
            return Err(FilterError::Refused { ifindex, native, generic: "not asked for".into() });
        }
        Err(why) => why,
    };
    match XdpLink::create(program, ifindex, Mode::Generic) {
        Ok(link) => Ok((link, Mode::Generic, mode.is_none().then_some(why))),
        Err(error) => Err(FilterError::Refused { ifindex, native: why, generic: error.to_string() }),
    }
}

fn program_id(program: BorrowedFd<'_>) -> Result<u32, FilterError> {
    Program::id_from_fd(program).map_err(|error| step("read the program's number", &error))
}

/// The files that keep filters, each with what the kernel says of its link.
fn kept() -> Vec<(PathBuf, LinkInfo)> {
    if !has_folder(KEPT).unwrap_or(false) {
        return Vec::new();
    }
    let link_of = |path: PathBuf| {
        let info = libbpf_rs::Link::open(&path).and_then(|link| link.info()).ok()?;
        Some((path, info))
    };
    fs::read_dir(KEPT).into_iter().flatten().flatten().filter_map(|entry| link_of(entry.path())).collect()
}

/// Leaves nothing behind. It is no error that other filters are kept there.
fn remove_empty_folders() {
    for folder in [KEPT, OWN_FOLDER] {
        let _ = fs::remove_dir(folder);
    }
}

fn not_loaded(error: libbpf_rs::Error, log: String) -> FilterError {
    if log.contains("bpf_cast_to_kern_ctx") && !log.contains("processed") {
        return FilterError::NoKernelContext;
    }
    load_error(PROGRAM, error, log).into()
}

fn not_kept(step: &'static str, path: &Path, source: io::Error) -> FilterError {
    FilterError::Keep { step, path: path.display().to_string(), source }
}

fn step(step: &'static str, error: &libbpf_rs::Error) -> FilterError {
    plain_step(step, io_error(error))
}

fn plain_step(step: &'static str, source: io::Error) -> FilterError {
    BpfError::Step { program: PROGRAM, step, source }.into()
}
