//! [`Control`]: writes parameters and name into the object, loads it, registers it, keeps it.

use std::fmt;
use std::io::Read;

use flate2::read::GzDecoder;
use libbpf_rs::{ErrorKind, Link, MapCore, MapType, Object, ObjectBuilder};
use longhaul_congestion::highspeed::MOST_ROWS;
use longhaul_congestion::settings::MOST_NAME_CHARACTERS;
use longhaul_congestion::{Algorithm, Settings};

use super::CongestionError;
use super::kept::{KEPT, failed, path_of};
use crate::BpfError;
use crate::support::{KernelTypes, has_bpf_fs, io_error, keep_in, load_error, require_capabilities, with_log};

/// A congestion control that is loaded, until this value is dropped or its process ends.
pub struct Control {
    link: Link,
    name: String,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Checks that this kernel supports congestion controls in BPF, and that the caller may load them.
///
/// # Errors
/// [`BpfError::NoBtf`], [`BpfError::Denied`], [`CongestionError::NoStructOps`].
pub fn require_support() -> Result<(), CongestionError> {
    if !KernelTypes::read()?.has_struct_ops_links() {
        return Err(CongestionError::NoStructOps);
    }
    Ok(require_capabilities()?)
}

impl Control {
    /// Loads a control. Every user can select it at once, in every namespace.
    ///
    /// Takes some 10 ms, mostly in the kernel's verifier.
    ///
    /// # Errors
    /// Any [`CongestionError`] but those of keeping and unloading.
    pub fn load(settings: &Settings) -> Result<Self, CongestionError> {
        require_support()?;
        let algorithm = settings.algorithm();
        if algorithm.measures_rate() && !KernelTypes::read()?.tells_rates() {
            return Err(CongestionError::NoRates { name: algorithm.name() });
        }
        let table = settings.table()?;
        let tells_start_apart = KernelTypes::read()?.tells_start_apart();
        let object = object_of(algorithm);
        let (loaded, log) = with_log(|| {
            let mut open = ObjectBuilder::default().open_memory(&object)?;
            for mut map in open.maps_mut() {
                let name = map.name().to_str().unwrap_or_default().to_owned();
                let is_struct_ops = map.map_type() == MapType::StructOps;
                let Some(value) = map.initial_value_mut() else { continue };
                if is_struct_ops {
                    write_name(value, settings.name());
                    if !tells_start_apart {
                        clear_start(value);
                    }
                } else if name.ends_with(".table") {
                    let rows = table.iter().flat_map(|row| [row.window, row.decrease_256]);
                    write_words(value, rows.chain(std::iter::repeat(0)).take(2 * MOST_ROWS));
                } else if name.ends_with(".rodata") {
                    write_words(value, settings.values().iter().copied());
                }
            }
            open.load()
        });
        let mut object = loaded.map_err(|error| load_error(algorithm.name(), error, log))?;
        // The link holds the map, and the map holds the programs.
        let link = register(&mut object, settings)?;
        Ok(Self { link, name: settings.name().into() })
    }

    /// The name in the kernel.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Keeps it when this process ends, until [`super::unload`] or the next boot.
    ///
    /// # Errors
    /// [`CongestionError::NoBpfFs`], [`CongestionError::Keep`]; it is unloaded then.
    pub fn keep(mut self) -> Result<(), CongestionError> {
        if !has_bpf_fs() {
            return Err(CongestionError::NoBpfFs);
        }
        let path = path_of(&self.name).ok_or_else(|| CongestionError::NotKept { name: self.name.clone() })?;
        let pinned = keep_in(KEPT, || self.link.pin(&path).map_err(|error| io_error(&error)));
        pinned.map_err(|source| failed("make", &path, source))
    }
}

fn register(object: &mut Object, settings: &Settings) -> Result<Link, CongestionError> {
    let program = settings.algorithm().name();
    let step =
        |source| CongestionError::Bpf(BpfError::Step { program, step: "register the congestion control", source });
    let map = object.maps_mut().find(|map| map.map_type() == MapType::StructOps);
    let mut map = map.ok_or_else(|| step(std::io::Error::other("the object has none")))?;
    map.attach_struct_ops().map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => CongestionError::AlreadyThere { name: settings.name().into() },
        _ => step(io_error(&error)),
    })
}

/// The name is the first field of the C structure.
fn write_name(value: &mut [u8], name: &str) {
    if let Some(field) = value.first_chunk_mut::<{ MOST_NAME_CHARACTERS + 1 }>() {
        *field = [0; MOST_NAME_CHARACTERS + 1];
        for (byte, letter) in field[..MOST_NAME_CHARACTERS].iter_mut().zip(name.bytes()) {
            *byte = letter;
        }
    }
}

/// Takes away the last field, the callback `cwnd_event_tx_start`: libbpf leaves a member that the kernel does not have, and its program,
/// where the member is zero.
fn clear_start(value: &mut [u8]) {
    if let Some(field) = value.last_chunk_mut::<{ size_of::<u64>() }>() {
        *field = [0; size_of::<u64>()];
    }
}

fn write_words(value: &mut [u8], words: impl Iterator<Item = u32>) {
    for (bytes, word) in value.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *bytes = word.to_ne_bytes();
    }
}

/// What clang made of the C source.
fn object_of(algorithm: Algorithm) -> Vec<u8> {
    macro_rules! object {
        ($name:literal) => {
            include_bytes!(concat!(env!("OUT_DIR"), "/congestion/", $name, ".o.gz")).as_slice()
        };
    }
    let compressed = match algorithm {
        Algorithm::Cubic => object!("cubic"),
        Algorithm::Highspeed => object!("highspeed"),
        Algorithm::Scalable => object!("scalable"),
        Algorithm::Bic => object!("bic"),
        Algorithm::Htcp => object!("htcp"),
        Algorithm::Hybla => object!("hybla"),
        Algorithm::Illinois => object!("illinois"),
        Algorithm::Westwood => object!("westwood"),
        Algorithm::Yeah => object!("yeah"),
        Algorithm::Vegas => object!("vegas"),
        Algorithm::Fast => object!("fast"),
        Algorithm::Compound => object!("compound"),
        Algorithm::Bbr3 => object!("bbr3"),
    };
    let mut object = Vec::new();
    // This binary has it from its build.
    let _ = GzDecoder::new(compressed).read_to_end(&mut object);
    object
}
