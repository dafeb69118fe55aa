//! [`Filter`]: loads the program, attaches it, tells it of the host, reads what it counted.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, Program, RingBuffer, RingBufferBuilder};
use longhaul_units::Nanos;

use super::counters::COUNTERS_BYTES;
use super::link::{XdpLink, attached, run, run_over};
use super::{
    Allow, FilterCounters, FilterError, FilterOptions, FilterSample, FilterSettings, Judgement, KEPT, LocalNetwork,
    MOST_ADDRESSES, MOST_NETWORKS, Mode, PROGRAM_NAME, RoutingGenerations,
};
use crate::BpfError;
use crate::skeleton::filter::FilterSkelBuilder;
use crate::skeleton::filter_generation::FilterGenerationSkelBuilder;
use crate::support::{KernelTypes, has_bpf_fs, io_error, load_error, require_capabilities, with_log};

const PROGRAM: &str = "filter";
/// What the kernel takes to let go of a program is some milliseconds; beyond this somebody holds it.
const PATIENCE: Duration = Duration::from_secs(5);

// `filter_config.flags` in intf.h.
const ENFORCE: u64 = 1;
const FORCED: u64 = 2;
const SAMPLE: u64 = 4;
const JUDGE_PORTS: u64 = 8;
const ALLOWS_NETWORKS: u64 = 16;
const ALLOWS_PORTS: u64 = 32;
/// What the program has in itself, as `lasting` in main.bpf.c.
const LASTING: u64 = FORCED | JUDGE_PORTS | ALLOWS_NETWORKS | ALLOWS_PORTS;
// `filter_followed.flags`.
const JUDGE_IPV4: u64 = 1;
const JUDGE_IPV6: u64 = 2;
const JUDGE_ARP: u64 = 4;
const JUDGE_SOLICITATIONS: u64 = 8;
const WIDE_LOCAL: u64 = 16;

/// A filter at an interface. One that this value attached goes with it, unless it is kept.
pub struct Filter {
    // First, so that the program is gone before its maps.
    link: XdpLink,
    ifindex: u32,
    program_id: u32,
    mode: Mode,
    /// Why the driver did not take it, where it runs in the stack though that was not asked for.
    not_native: Option<String>,
    config: MapHandle,
    followed: MapHandle,
    counters: MapHandle,
    local_v4: MapHandle,
    local_v6: MapHandle,
    local_prefixes: MapHandle,
    samples: MapHandle,
    /// Keeps the program while it is being attached, and lets it be run.
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
    /// Attaches a filter to link `ifindex` of the calling thread's network namespace. Where one of longhaul's is already, this
    /// takes its place between two frames and begins to count anew; its mode stays.
    ///
    /// Until [`Self::follow`] it judges no address, ARP or port.
    ///
    /// # Errors
    /// Any [`FilterError`] but [`FilterError::NotThere`] and those of keeping.
    pub fn attach(ifindex: u32, options: &FilterOptions) -> Result<Self, FilterError> {
        KernelTypes::read()?;
        require_capabilities()?;
        remove_stale();
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
            counters: hold(&maps.counters)?,
            local_v4: hold(&maps.local_v4)?,
            local_v6: hold(&maps.local_v6)?,
            local_prefixes: hold(&maps.local_prefixes)?,
            samples: hold(&maps.samples)?,
            program: owned,
        })
    }

    /// The filter that is at link `ifindex` of the calling thread's network namespace, whoever attached it.
    ///
    /// # Errors
    /// [`FilterError::NotThere`], [`FilterError::OtherProgram`], [`FilterError::Bpf`].
    pub fn open(ifindex: u32) -> Result<Self, FilterError> {
        let attached = attached(ifindex).map_err(|source| plain_step("look for an XDP program", source))?;
        let Some(attached) = attached else { return Err(FilterError::NotThere { ifindex }) };
        require_capabilities()?;
        let id = attached.program_id;
        let query = ProgInfoQueryOptions::default().include_map_ids(true);
        let info = ProgInfoIter::with_query_opts(query).find(|info| info.id == id);
        let name = info.as_ref().map(|info| info.name.to_string_lossy().into_owned()).unwrap_or_default();
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
        Ok(Self {
            link: XdpLink::of_program(id).map_err(|source| plain_step("hold the link", source))?,
            ifindex,
            program_id: id,
            mode: attached.mode,
            not_native: None,
            config,
            followed: take("followed")?,
            counters: counters.ok_or_else(of_another_version)?,
            local_v4: take("local_v4")?,
            local_v6: take("local_v6")?,
            local_prefixes: take("local_prefixes")?,
            samples: take("samples")?,
            program: Program::fd_from_id(id).map_err(|error| step("hold the program", &error))?,
        })
    }

    /// The number of its program in the kernel.
    pub fn program_id(&self) -> u32 {
        self.program_id
    }

    /// Where it runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Why it does not run in the driver, where that was tried in vain when this value attached it.
    pub fn not_native(&self) -> Option<&str> {
        self.not_native.as_deref()
    }

    /// Whether it is still what is attached: nobody detached or replaced it. In the network namespace of its interface.
    pub fn is_attached(&self) -> bool {
        attached(self.ifindex).ok().flatten().is_some_and(|attached| attached.program_id == self.program_id)
    }

    /// Has the kernel run the program over `frame`, `repeat` times, as if it came in by the interface (`BPF_PROG_TEST_RUN`), and
    /// count it; whether it would be dropped, and the nanoseconds that one time takes. In the network namespace of the interface.
    ///
    /// # Errors
    /// Where the frame is shorter than an Ethernet header or longer than a page.
    pub fn try_frame(&self, frame: &[u8], repeat: u32) -> Result<(bool, u32), FilterError> {
        const XDP_DROP: u32 = 1;
        let ran = run_over(self.program.as_fd(), self.ifindex, frame, repeat);
        let (verdict, ns) = ran.map_err(|source| plain_step("run the program", source))?;
        Ok((verdict == XDP_DROP, ns))
    }

    /// How it filters.
    ///
    /// # Errors
    /// As bpf(2) has them.
    pub fn settings(&self) -> Result<FilterSettings, FilterError> {
        let [flags, until, every] = self.read_config()?;
        Ok(FilterSettings {
            enforce: flags & ENFORCE != 0,
            enforce_until: (until > 0).then_some(Nanos(until)),
            judge_ports: flags & JUDGE_PORTS != 0,
            force: flags & FORCED != 0,
            sample_every: (flags & SAMPLE != 0).then_some(every),
        })
    }

    /// What it can judge by what it was told last, and the routing generations of that.
    ///
    /// # Errors
    /// As bpf(2) has them.
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
        Ok((judgement, RoutingGenerations { ipv4: word(8), ipv6: word(12) }))
    }

    /// Goes on enforcing for good; `false` where the time was over, and frames pass since.
    ///
    /// # Errors
    /// As bpf(2) has them.
    pub fn confirm(&self, now: Nanos) -> Result<bool, FilterError> {
        let [flags, until, every] = self.read_config()?;
        if until > 0 && now.0 >= until {
            return Ok(false);
        }
        update(&self.config, &0_u32.to_ne_bytes(), &words(&[flags, 0, every])).map(|()| true)
    }

    /// From now on samples one rejected frame in so many; `None`: none.
    ///
    /// # Errors
    /// As bpf(2) has them.
    pub fn sample_every(&self, every: Option<u64>) -> Result<(), FilterError> {
        let [flags, until, _] = self.read_config()?;
        let flags = if every.is_some() { flags | SAMPLE } else { flags & !SAMPLE };
        update(&self.config, &0_u32.to_ne_bytes(), &words(&[flags, until, every.unwrap_or_default()]))
    }

    /// Tells it which addresses are local, as they were read after `generations` was; what it rejects by address is right until
    /// the kernel's generations differ. More than there is room for, and that family is not judged at all.
    ///
    /// # Errors
    /// As bpf(2) has them.
    pub fn follow(
        &self,
        local: &[LocalNetwork],
        mut judgement: Judgement,
        generations: RoutingGenerations,
    ) -> Result<(), FilterError> {
        let (mut v4, mut v6, mut wide) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (ip, bits) in local {
            match ip {
                IpAddr::V4(ip) if *bits >= 32 => _ = v4.insert(ip.octets().to_vec()),
                IpAddr::V6(ip) if *bits >= 128 => _ = v6.insert(ip.octets().to_vec()),
                _ => _ = wide.insert(network_key(*ip, *bits)),
            }
        }
        let fits = wide.len() <= MOST_NETWORKS;
        let (fits_v4, fits_v6) = (fits && v4.len() <= MOST_ADDRESSES, fits && v6.len() <= MOST_ADDRESSES);
        judgement.ipv4 &= fits_v4;
        judgement.arp &= fits_v4;
        judgement.ipv6 &= fits_v6;
        judgement.solicitations &= fits_v6;
        // What is new first: until all is told the generations differ, and nothing is rejected by address.
        let changes =
            [(fits_v4, &self.local_v4, &v4), (fits_v6, &self.local_v6, &v6), (fits, &self.local_prefixes, &wide)];
        for (_, map, wanted) in changes.into_iter().filter(|(fits, ..)| *fits) {
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
        // What the CPUs found in the old tables is over.
        let told = lookup(&self.followed)?
            .get(16..24)
            .map_or(0, |eight| u64::from_ne_bytes(eight.try_into().unwrap_or_default()));
        value.extend((told + 1).to_ne_bytes());
        update(&self.followed, &0_u32.to_ne_bytes(), &value)
    }

    /// What it counted since it was attached: exact but for the frames that are being counted right now.
    ///
    /// # Errors
    /// As bpf(2) has them.
    pub fn counters(&self) -> Result<FilterCounters, FilterError> {
        let cpus = self.counters.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY);
        let cpus = cpus.map_err(|error| step("read the counters", &error))?.unwrap_or_default();
        Ok(FilterCounters::sum(cpus.iter().map(Vec::as_slice)))
    }

    /// Where rejected frames come from, while [`FilterSettings::sample_every`] is set. One at a time may be read.
    ///
    /// # Errors
    /// As mmap(2) has them.
    pub fn samples(&self) -> Result<Samples, FilterError> {
        let inbox = Arc::new(Mutex::new(Vec::new()));
        let ring = ring_into(&self.samples, Arc::clone(&inbox)).map_err(|error| step("map the sample ring", &error))?;
        Ok(Samples { ring, inbox })
    }

    /// Has it stay when this process ends, until [`Self::detach`], the next boot, or the end of its interface.
    ///
    /// # Errors
    /// [`FilterError::NoBpfFs`], [`FilterError::Keep`].
    pub fn keep(&self) -> Result<(), FilterError> {
        if !has_bpf_fs() {
            return Err(FilterError::NoBpfFs);
        }
        fs::create_dir_all(KEPT).map_err(|source| not_kept("make", Path::new(KEPT), source))?;
        let path = path_of(self.ifindex)?;
        match self.link.pin(&path) {
            // It replaced one that was kept: the link is the same.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done.map_err(|source| not_kept("make", &path, source)),
        }
    }

    /// Whether it stays when every process that holds it has ended.
    pub fn is_kept(&self) -> bool {
        path_of(self.ifindex).is_ok_and(|path| path.exists())
    }

    /// Takes it off its interface, whoever attached it, and waits until no frame meets it. Its process, if it has one, sees that.
    ///
    /// # Errors
    /// [`FilterError::Keep`], [`FilterError::Bpf`].
    pub fn detach(self) -> Result<(), FilterError> {
        let path = path_of(self.ifindex)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(not_kept("remove", &path, error)),
            _ => remove_empty_folders(),
        }
        self.link.detach().map_err(|source| plain_step("detach the link", source))?;
        let deadline = Instant::now() + PATIENCE;
        while self.is_attached() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn read_config(&self) -> Result<[u64; 3], FilterError> {
        let bytes = lookup(&self.config)?;
        let mut all = [0; 3];
        for (word, bytes) in all.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        Ok(all)
    }
}

/// Heads of rejected frames as they come.
pub struct Samples {
    ring: RingBuffer<'static>,
    /// Filled by the ring's callback.
    inbox: Arc<Mutex<Vec<FilterSample>>>,
}

impl fmt::Debug for Samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Samples")
    }
}

impl Samples {
    /// Calls `each` for those that wait, in the order in which they came. Never waits.
    pub fn drain(&mut self, mut each: impl FnMut(FilterSample)) {
        while self.ring.consume_raw_n(256) > 0 {
            self.inbox.lock().unwrap_or_else(PoisonError::into_inner).drain(..).for_each(&mut each);
        }
    }
}

/// Tells the routing generations of a network namespace, that of the thread that asks.
pub struct Generations {
    v4: OwnedFd,
    v6: OwnedFd,
}

impl fmt::Debug for Generations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Generations")
    }
}

impl Generations {
    /// Loads the programs that read them.
    ///
    /// # Errors
    /// [`FilterError::Bpf`], [`FilterError::NoKernelContext`].
    pub fn load() -> Result<Self, FilterError> {
        KernelTypes::read()?;
        require_capabilities()?;
        let mut object = MaybeUninit::uninit();
        let (loaded, log) = with_log(|| FilterGenerationSkelBuilder::default().open(&mut object)?.load());
        let skeleton = loaded.map_err(|error| not_loaded(error, log))?;
        let hold = |program: std::os::fd::BorrowedFd<'_>| {
            program.try_clone_to_owned().map_err(|source| plain_step("hold the program", source))
        };
        Ok(Self { v4: hold(skeleton.progs.generation_v4.as_fd())?, v6: hold(skeleton.progs.generation_v6.as_fd())? })
    }

    /// What they are now. Takes some microseconds.
    ///
    /// # Errors
    /// [`FilterError::Bpf`].
    pub fn now(&self) -> Result<RoutingGenerations, FilterError> {
        let read = |program: &OwnedFd| run(program.as_fd()).map_err(|source| plain_step("run the program", source));
        Ok(RoutingGenerations { ipv4: read(&self.v4)?, ipv6: read(&self.v6)? })
    }
}

/// Attaches where `mode` says, or in the driver and, where that does not take it, in the stack.
fn create(
    program: std::os::fd::BorrowedFd<'_>,
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

fn program_id(program: std::os::fd::BorrowedFd<'_>) -> Result<u32, FilterError> {
    Program::id_from_fd(program).map_err(|error| step("ask the program's number", &error))
}

fn flags(options: &FilterOptions) -> u64 {
    let flag = |set: bool, flag: u64| if set { flag } else { 0 };
    flag(options.enforce, ENFORCE)
        | flag(options.force, FORCED)
        | flag(options.sample_every.is_some(), SAMPLE)
        | flag(options.judge_ports, JUDGE_PORTS)
        | flag(options.allow.iter().any(|one| matches!(one, Allow::Network(..))), ALLOWS_NETWORKS)
        | flag(options.allow.iter().any(|one| matches!(one, Allow::Port(_))), ALLOWS_PORTS)
}

fn write_config(config: &MapHandle, options: &FilterOptions) -> Result<(), FilterError> {
    let until = options.enforce_until.map_or(0, |until| until.0.max(1));
    update(config, &0_u32.to_ne_bytes(), &words(&[flags(options), until, options.sample_every.unwrap_or_default()]))
}

fn allow(networks: &MapHandle, ports: &MapHandle, allow: &[Allow]) -> Result<(), FilterError> {
    for one in allow {
        match one {
            Allow::Network(ip, bits) => update(networks, &network_key(*ip, *bits), &[1])?,
            Allow::Port(port) => update(ports, &u32::from(*port).to_ne_bytes(), &[1])?,
        }
    }
    Ok(())
}

/// `struct network_key` in `intf.h`: leading bits, then 16 bytes; IPv4 as ::ffff:a.b.c.d. Bits behind the prefix are 0, so that
/// equal networks have equal keys.
fn network_key(ip: IpAddr, bits: u8) -> Vec<u8> {
    let (address, bits) = match ip {
        IpAddr::V4(ip) => (ip.to_ipv6_mapped(), 96 + u32::from(bits.min(32))),
        IpAddr::V6(ip) => (ip, u32::from(bits.min(128))),
    };
    let mask = if bits == 0 { 0 } else { u128::MAX << (128 - bits) };
    [&bits.to_ne_bytes()[..], &(address.to_bits() & mask).to_be_bytes()].concat()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn lookup(map: &MapHandle) -> Result<Vec<u8>, FilterError> {
    let value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(|error| step("read a map", &error))?;
    Ok(value.unwrap_or_default())
}

fn update(map: &MapHandle, key: &[u8], value: &[u8]) -> Result<(), FilterError> {
    map.update(key, value, MapFlags::ANY).map_err(|error| step("write a map", &error))
}

fn ring_into(samples: &MapHandle, inbox: Arc<Mutex<Vec<FilterSample>>>) -> libbpf_rs::Result<RingBuffer<'static>> {
    let mut builder = RingBufferBuilder::new();
    builder.add(samples, move |bytes| {
        inbox.lock().unwrap_or_else(PoisonError::into_inner).extend(FilterSample::parse(bytes));
        0
    })?;
    builder.build()
}

/// The file of a filter at link `ifindex` of the calling thread's network namespace; a name may change, these numbers do not.
fn path_of(ifindex: u32) -> Result<PathBuf, FilterError> {
    let own = Path::new("/proc/thread-self/ns/net");
    let namespace = rustix::fs::stat(own).map_err(|error| not_kept("look at", own, error.into()))?.st_ino;
    Ok(Path::new(KEPT).join(format!("net{namespace}-link{ifindex}")))
}

/// Files of filters whose interface is gone: the kernel took the program off, and the file keeps the rest.
fn remove_stale() {
    for entry in fs::read_dir(KEPT).into_iter().flatten().flatten() {
        let gone = libbpf_rs::Link::open(entry.path())
            .and_then(|link| link.info())
            .is_ok_and(|info| matches!(info.info, libbpf_rs::query::LinkTypeInfo::Xdp(xdp) if xdp.ifindex == 0));
        if gone {
            let _ = fs::remove_file(entry.path());
        }
    }
    remove_empty_folders();
}

/// Nothing is to be left behind; that others keep something there is no error.
fn remove_empty_folders() {
    for folder in [KEPT, "/sys/fs/bpf/longhaul"] {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_networks_have_equal_keys() {
        let key = |text: &str, bits| network_key(text.parse().unwrap(), bits);
        assert_eq!(key("10.1.2.3", 8), key("10.0.0.0", 8));
        assert_eq!(key("10.0.0.0", 8)[..4], 104_u32.to_ne_bytes());
        assert_eq!(key("0.0.0.0", 0)[4..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(key("fd00::1", 0)[4..], [0; 16]);
        assert_eq!(key("fd00::1", 128)[19], 1);
    }
}
