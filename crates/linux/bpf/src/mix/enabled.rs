//! [`LiveFrames`]: loads the program, fills its maps, runs it.

use std::fmt;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, libbpf_sys};

use super::{LiveOptions, LiveState, MAX_FRAME_BYTES, MAX_TEMPLATES};
use crate::BpfError;
use crate::skeleton::mix::MixSkelBuilder;
use crate::support::{KernelTypes, io_error, load_error, require_capabilities, with_log};

const PROGRAM: &str = "mix";
/// `struct template`.
const TEMPLATE_BYTES: usize = 8 + MAX_FRAME_BYTES;
/// Words of `struct share`.
const MADE: usize = 2;
const BROKEN: usize = 3;
const LAST_ERROR: usize = 4;
const SENT: usize = 5;
/// Of `struct share`: behind `sent` two numbers of 32 bits, `pending` and `apart`.
const SHARE_BYTES: usize = 8 * (SENT + MAX_TEMPLATES + 1 + 16) + 4 * 64;
/// `BPF_F_TEST_XDP_LIVE_FRAMES` of <linux/bpf.h>.
const LIVE_FRAMES: u32 = 1 << 1;

/// Makes and sends the frames of a mix. Nothing of it stays when it is dropped.
pub struct LiveFrames {
    // First, so that nothing counts any more when the maps go.
    _counting: Link,
    /// See [`LiveOptions::anchor`].
    _anchored: Option<Link>,
    program: OwnedFd,
    shares: MapHandle,
    /// Which of them are in use.
    slots: Vec<u32>,
    /// The program's global numbers.
    globals: MapHandle,
    /// What each frame is before the program writes over it.
    longest: Vec<u8>,
    templates: usize,
}

impl fmt::Debug for LiveFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveFrames").field("templates", &self.templates).finish_non_exhaustive()
    }
}

impl LiveFrames {
    /// Loads the program and the frames. Nothing is sent yet.
    ///
    /// # Errors
    /// [`BpfError::NoBtf`], [`BpfError::Denied`], [`BpfError::Load`], [`BpfError::Step`].
    ///
    /// # Panics
    /// Where there are no templates, more than [`MAX_TEMPLATES`], others than columns, one that is too long, or a CPU beyond 2³².
    pub fn load(options: &LiveOptions<'_>) -> Result<Self, BpfError> {
        let count = options.templates.len();
        assert!((1..=MAX_TEMPLATES).contains(&count) && options.columns.len() == count, "{count} templates");
        let longest = options.templates.iter().map(|template| template.bytes.len()).max().unwrap_or(0);
        assert!(longest <= MAX_FRAME_BYTES, "{longest} bytes");
        KernelTypes::read()?;
        require_capabilities()?;
        let slots = match options.cpus {
            [] => vec![0],
            cpus => cpus.iter().map(|cpu| u32::try_from(*cpu).expect("CPUs have small numbers")).collect(),
        };
        let mut object = MaybeUninit::uninit();
        let (loaded, log) = with_log(|| {
            let mut open = MixSkelBuilder::default().open(&mut object)?;
            if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
                constants.seed = options.seed;
                constants.templates_count = count as u32;
                constants.ifindex = options.ifindex;
                constants.cookie = options.cookie;
                constants.process = std::process::id();
                constants.longest = longest as u32;
                constants.share_by_cpu = !options.cpus.is_empty();
            }
            open.maps.shares.set_max_entries(slots.iter().max().map_or(1, |slot| slot + 1))?;
            open.load()
        });
        let skeleton = loaded.map_err(|error| load_error(PROGRAM, error, log))?;
        let fill = |error| step("fill a map", error);
        for (number, (template, (threshold, other))) in (0_u32..).zip(options.templates.iter().zip(options.columns)) {
            let key = number.to_ne_bytes();
            let mut value = [0; TEMPLATE_BYTES];
            value[..2].copy_from_slice(&(template.bytes.len() as u16).to_ne_bytes());
            value[2..4].copy_from_slice(&(template.probe_at.unwrap_or(0) as u16).to_ne_bytes());
            if let Some(&[high, low]) = template.probe_at.and_then(|at| template.bytes.get(at - 2..at)) {
                value[4..6].copy_from_slice(&u16::from_be_bytes([high, low]).to_ne_bytes());
            }
            value[8..][..template.bytes.len()].copy_from_slice(template.bytes);
            skeleton.maps.templates.update(&key, &value, MapFlags::ANY).map_err(fill)?;
            let column = [threshold.to_ne_bytes(), other.to_ne_bytes()].concat();
            skeleton.maps.columns.update(&key, &column, MapFlags::ANY).map_err(fill)?;
        }
        for (share, slot) in (0_u64..).zip(&slots) {
            let mut value = [0; SHARE_BYTES];
            value[..8].copy_from_slice(&share.to_ne_bytes());
            value[8..16].copy_from_slice(&(slots.len() as u64).to_ne_bytes());
            skeleton.maps.shares.update(&slot.to_ne_bytes(), &value, MapFlags::ANY).map_err(fill)?;
        }
        let hold = |error| step("hold a map", error);
        let shares = MapHandle::try_from(&skeleton.maps.shares).map_err(hold)?;
        let globals = MapHandle::try_from(&skeleton.maps.bss).map_err(hold)?;
        let program = skeleton.progs.make_frame.as_fd().try_clone_to_owned();
        let program =
            program.map_err(|source| BpfError::Step { program: PROGRAM, step: "hold the program", source })?;
        let counting = skeleton
            .progs
            .on_xmit
            .attach()
            .map_err(|error| step("attach the tracepoint xdp:xdp_devmap_xmit", error))?;
        let anchored = (options.anchor)
            .map(|ifindex| skeleton.progs.make_frame.attach_xdp(ifindex as i32))
            .transpose()
            .map_err(|error| step("attach it to an interface of its own", error))?;
        Ok(Self {
            _counting: counting,
            _anchored: anchored,
            program,
            shares,
            slots,
            globals,
            longest: vec![0; longest],
            templates: count,
        })
    }

    /// Makes and sends `frames` frames in one go, of the share of the CPU that it is called on. A signal may end it earlier:
    /// [`LiveFrames::made`] knows how many there were.
    ///
    /// # Errors
    /// `EINTR` after a signal; `EINVAL` where the kernel has no live frames (before Linux 5.18); others as bpf(2) has them.
    #[allow(unsafe_code)]
    pub fn run(&self, frames: u32) -> io::Result<()> {
        // SAFETY: integers and pointers, for which zero is a value.
        let mut options: libbpf_sys::bpf_test_run_opts = unsafe { mem::zeroed() };
        options.sz = size_of::<libbpf_sys::bpf_test_run_opts>() as _;
        options.data_in = self.longest.as_ptr().cast();
        options.data_size_in = self.longest.len() as u32;
        options.repeat = i32::try_from(frames).unwrap_or(i32::MAX);
        options.flags = LIVE_FRAMES;
        // SAFETY: the kernel reads `data_in`, which lives through the call, and writes into `options` only.
        let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.program.as_raw_fd(), &raw mut options) };
        if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
    }

    /// What became of all frames so far.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn state(&self) -> io::Result<LiveState> {
        let sequence = read(&self.globals, 0)?.first().copied().unwrap_or(0);
        let mut state = LiveState { sequence, sent: vec![0; self.templates], ..LiveState::default() };
        for slot in &self.slots {
            let share = read(&self.shares, *slot)?;
            let word = |at: usize| share.get(at).copied().unwrap_or(0);
            state.made += word(MADE);
            state.broken += word(BROKEN);
            match word(LAST_ERROR) as i64 {
                0 => {}
                error => state.last_error = error.unsigned_abs() as i32,
            }
            for (template, sent) in state.sent.iter_mut().enumerate() {
                *sent += word(SENT + template);
            }
        }
        Ok(state)
    }

    /// Frames that were made of share `share`.
    ///
    /// # Errors
    /// Those of bpf(2).
    ///
    /// # Panics
    /// Where there is no such share.
    pub fn made(&self, share: usize) -> io::Result<u64> {
        Ok(read(&self.shares, self.slots[share])?.get(MADE).copied().unwrap_or(0))
    }
}

/// The words of a map's value.
fn read(map: &MapHandle, key: u32) -> io::Result<Vec<u64>> {
    let value = map.lookup(&key.to_ne_bytes(), MapFlags::ANY).map_err(|error| io_error(&error))?;
    Ok(value.unwrap_or_default().as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

fn step(step: &'static str, error: libbpf_rs::Error) -> BpfError {
    BpfError::Step { program: PROGRAM, step, source: io_error(&error) }
}
