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
/// `BPF_F_TEST_XDP_LIVE_FRAMES` of <linux/bpf.h>.
const LIVE_FRAMES: u32 = 1 << 1;

/// Makes and sends the frames of a mix. Nothing of it stays when it is dropped.
pub struct LiveFrames {
    // First, so that nothing counts any more when the maps go.
    _counting: Link,
    /// See [`LiveOptions::anchor`].
    _anchored: Option<Link>,
    program: OwnedFd,
    state: MapHandle,
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
    /// Where there are no templates, more than [`MAX_TEMPLATES`], others than columns, or one that is too long.
    pub fn load(options: &LiveOptions<'_>) -> Result<Self, BpfError> {
        let count = options.templates.len();
        assert!((1..=MAX_TEMPLATES).contains(&count) && options.columns.len() == count, "{count} templates");
        let longest = options.templates.iter().map(|template| template.bytes.len()).max().unwrap_or(0);
        assert!(longest <= MAX_FRAME_BYTES, "{longest} bytes");
        KernelTypes::read()?;
        require_capabilities()?;
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
            }
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
        let state = MapHandle::try_from(&skeleton.maps.bss).map_err(|error| step("hold a map", error))?;
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
            state,
            longest: vec![0; longest],
            templates: count,
        })
    }

    /// Makes and sends `frames` frames in one go. A signal may end it earlier: [`LiveFrames::state`] knows how many there were.
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
    /// As bpf(2) has them.
    pub fn state(&self) -> io::Result<LiveState> {
        let value = self.state.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(|error| io_error(&error))?;
        let value = value.unwrap_or_default();
        let (words, _) = value.as_chunks::<8>();
        let word = |at: usize| words.get(at).map_or(0, |bytes| u64::from_ne_bytes(*bytes));
        Ok(LiveState {
            made: word(0),
            sequence: word(1),
            broken: word(2),
            last_error: (word(3) as i64).unsigned_abs() as i32,
            sent: (0..self.templates).map(|number| word(4 + number)).collect(),
        })
    }
}

fn step(step: &'static str, error: libbpf_rs::Error) -> BpfError {
    BpfError::Step { program: PROGRAM, step, source: io_error(&error) }
}
