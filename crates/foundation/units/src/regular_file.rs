//! Files that somebody else may have written.
//!
//! Source: open(2), fifo(7).

use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// `O_NOCTTY` and `O_NONBLOCK` of `<asm-generic/fcntl.h>`: no terminal becomes this process's, and no writer of a FIFO is waited for. Alpha, MIPS,
/// PA-RISC and SPARC have other numbers.
const O_NOCTTY: i32 = 0o400;
const O_NONBLOCK: i32 = 0o4000;

/// Opens the regular file at `path`, and waits for nobody, whatever is there.
///
/// # Errors
/// Where it cannot be opened, or is no regular file.
pub fn open(path: &Path) -> Result<File> {
    // Looked at before it is opened: to open a device may already do something.
    refuse_others(&std::fs::metadata(path)?)?;
    let file = OpenOptions::new().read(true).custom_flags(O_NOCTTY | O_NONBLOCK).open(path)?;
    // Whoever may rename in its folder can have put something else in its place since.
    refuse_others(&file.metadata()?)?;
    Ok(file)
}

fn refuse_others(about: &Metadata) -> Result<()> {
    if about.is_file() { Ok(()) } else { Err(Error::new(ErrorKind::InvalidInput, "not a regular file")) }
}

/// The text of the regular file at `path`, if it has at most `most_bytes`.
///
/// # Errors
/// Where it cannot be read, is no regular file, is longer, or is not UTF-8.
pub fn read_text(path: &Path, most_bytes: u64) -> Result<String> {
    let mut text = String::new();
    let length = open(path)?.take(most_bytes + 1).read_to_string(&mut text)? as u64;
    if length > most_bytes {
        return Err(Error::new(ErrorKind::InvalidData, format!("longer than {most_bytes} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::sync::mpsc::{TryRecvError, channel};
    use std::thread;

    use super::*;

    /// How often the name is opened, and how often at most the files exchange it meanwhile.
    const OPENED: usize = 5_000;
    const EXCHANGED_MOST: usize = 200_000;

    /// Whoever may rename in its folder exchanges it between the look and the opening. Nobody writes into the pipe.
    #[test]
    fn a_pipe_that_takes_the_place_of_a_file_is_not_waited_for() {
        let folder = std::env::temp_dir().join(format!("longhaul-regular-file-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let [file, pipe, next, name] = ["file", "pipe", "next", "name"].map(|name| folder.join(name));
        fs::write(&file, "text").unwrap();
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for other in [&folder, &pipe] {
            assert_eq!(open(other).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        fs::hard_link(&file, &name).unwrap();
        let (done, is_done) = channel::<()>();
        let opening = thread::spawn({
            let name = name.clone();
            move || {
                for _ in 0..OPENED {
                    match read_text(&name, 100) {
                        Ok(text) => assert_eq!(text, "text"),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}"),
                    }
                }
                drop(done);
            }
        });
        let mut exchanged = 0;
        while is_done.try_recv() == Err(TryRecvError::Empty) {
            assert!(exchanged < EXCHANGED_MOST, "it waits for somebody who writes into the pipe");
            exchanged += 1;
            for other in [&pipe, &file] {
                fs::hard_link(other, &next).unwrap();
                fs::rename(&next, &name).unwrap();
            }
        }
        opening.join().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
