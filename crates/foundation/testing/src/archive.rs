//! An initial file system for Linux: a cpio archive of the form `newc` (`Documentation/driver-api/early-userspace/buffer-format.rst`).
//!
//! ```text
//!   070701 | 13 fields of 8 hexadecimal digits | name, 0 | to 4 bytes | contents | to 4 bytes | ... | TRAILER!!!
//! ```

use std::collections::BTreeSet;
use std::path::Path;

/// `S_IFDIR` and `S_IFREG` of `<sys/stat.h>`, with rights.
const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// The archive; every file in it is executable.
#[derive(Debug, Clone, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
}

impl Archive {
    /// Adds a folder and those it is in, where they are not there yet.
    pub(crate) fn folder(&mut self, path: &Path) {
        let ancestors: Vec<_> = path.ancestors().collect();
        for ancestor in ancestors.into_iter().rev() {
            if self.is_new(ancestor) {
                self.entry(ancestor, FOLDER, &[]);
            }
        }
    }

    /// Adds a file, and the folders it is in. One that is there already stays.
    pub(crate) fn file(&mut self, path: &Path, contents: &[u8]) {
        if let Some(folder) = path.parent() {
            self.folder(folder);
        }
        if self.is_new(path) {
            self.entry(path, FILE, contents);
        }
    }

    /// The bytes of the archive, which is complete with this.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.entry(Path::new("TRAILER!!!"), 0, &[]);
        self.bytes
    }

    fn is_new(&mut self, path: &Path) -> bool {
        let name = name(path);
        !name.is_empty() && self.names.insert(name)
    }

    fn entry(&mut self, path: &Path, mode: u32, contents: &[u8]) {
        let name = name(path);
        let number = self.names.len() as u32;
        let size = u32::try_from(contents.len()).expect("a file of less than 4 GiB");
        // inode, mode, owner, group, links, time, size, device and what it is a device of (two numbers each), length of the name, sum.
        let fields = [number, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").into_bytes());
        }
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// As it is in the archive: from the root, without the first `/`.
fn name(path: &Path) -> String {
    path.to_str().expect("UTF-8").trim_start_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_its_folders_first_and_each_once() {
        let mut archive = Archive::default();
        archive.file(Path::new("/usr/bin/one"), b"12345");
        archive.file(Path::new("/usr/bin/two"), b"");
        archive.file(Path::new("/usr/bin/one"), b"not this");
        let bytes = archive.into_bytes();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let names: Vec<&str> =
            text.split("070701").skip(1).map(|entry| entry[104..].split('\0').next().unwrap()).collect();
        assert_eq!(names, ["usr", "usr/bin", "usr/bin/one", "usr/bin/two", "TRAILER!!!"]);
        let one = text.find("usr/bin/one").unwrap();
        // 110 bytes of header and 12 of name end at a multiple of 4 after two more.
        assert_eq!(&bytes[one + 12..][..8], b"\0\x0012345\0");
        assert_eq!(
            &text[one - 104..one],
            &format!("{:08x}{FILE:08x}{:016x}{:08x}{:08x}{:08x}{:032x}{:08x}{:08x}", 3, 0, 1, 0, 5, 0, 12, 0)
        );
    }
}
