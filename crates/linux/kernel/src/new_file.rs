//! Files that get their name when they are complete: a program that is killed and a disk that is full leave nothing of them.
//!
//! Until then the file has no name at all (`O_TMPFILE`), so that it ends with its process. A file system without such files (NFS) has it
//! beside its place, as `.NAME.PID.part`; there a killed process leaves that one. So does one that is killed between the two system calls by
//! which a file takes the place of another: Linux has none for both. Where something has that name already it is `.NAME.PID.RANDOM.part`.
//!
//! A file that replaces none, and whose name another one has got meanwhile, is `PID-NAME` beside it ([`NewFile::finish_beside`]), or
//! `PID.RANDOM-NAME`.
//!
//! Source: open(2), linkat(2), rename(2).

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, linkat, open, renameat_with};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::links::{parent, reach};
use crate::open_folder::by_descriptor;

/// The mode of a file that everyone may read, less the process's umask.
pub const PUBLIC: u32 = 0o666;
/// The mode of a file for its owner alone.
pub const PRIVATE: u32 = 0o600;

/// A file that is being written.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    /// By way of the folder as it was opened: the file gets its name in that one, whatever the folder is called by then.
    path: PathBuf,
    _folder: Option<OwnedFd>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Nowhere,
    Beside(PathBuf),
    /// What the user named is no file but a device or a pipe, and is written to.
    Itself,
}

impl NewFile {
    /// Begins the file that shall be at `path`, with `mode`. A symbolic link, a pipe and a socket there are replaced: another user may have put
    /// them into the folder. Use [`NamedFile`] for a path that the user named.
    ///
    /// # Errors
    /// `path` is a folder or a device; otherwise as open(2) has them.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        match fs::symlink_metadata(path).map(|there| there.file_type()) {
            Ok(there) if there.is_dir() => return Err(Errno::ISDIR.into()),
            Ok(there) if there.is_char_device() || there.is_block_device() => {
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is a device"));
            }
            _ => {}
        }
        let folder = open(parent(path), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = by_descriptor(&folder).join(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
        match unnamed(parent(&path), mode) {
            Ok(file) => Ok(Self { file, path, _folder: Some(folder), place: Place::Nowhere }),
            Err(error) if lacks_unnamed(&error) => {
                let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let (beside, file) = beside(&path, |at| Ok(open(at, flags, Mode::from_bits_truncate(mode))?))?;
                Ok(Self { file: file.into(), path, _folder: Some(folder), place: Place::Beside(beside) })
            }
            Err(error) => Err(error),
        }
    }

    /// What to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Flushes it to the disk and gives it its name, in place of a file that has it.
    ///
    /// # Errors
    /// The disk is full, or the folder is gone; nothing is left then, and a file that had the name is as it was.
    pub fn finish(mut self) -> io::Result<()> {
        if !matches!(self.place, Place::Itself) {
            self.file.sync_all()?;
        }
        if let Place::Nowhere = self.place {
            match self.link(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let (beside, ()) = beside(&self.path, |at| self.link(at))?;
                    self.place = Place::Beside(beside);
                }
                done => return done,
            }
        }
        let Place::Beside(beside) = &self.place else { return Ok(()) };
        fs::rename(beside, &self.path)
    }

    /// As [`Self::finish`], where no file has the name. A device or a pipe has nothing to lose.
    ///
    /// # Errors
    /// `AlreadyExists` where one has; otherwise as [`Self::finish`].
    pub fn finish_new(self) -> io::Result<()> {
        if let Place::Itself = self.place {
            return Ok(());
        }
        self.file.sync_all()?;
        self.give_name(&self.path)
    }

    /// As [`Self::finish_new`]; but where a file has the name, this one gets another name beside it, which is returned.
    ///
    /// # Errors
    /// As [`Self::finish`].
    pub fn finish_beside(self) -> io::Result<Option<OsString>> {
        if let Place::Itself = self.place {
            return Ok(None);
        }
        self.file.sync_all()?;
        match self.give_name(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let (other, ()) = at_free_name(|more| other_name(&self.path, more), |at| self.give_name(at))?;
                Ok(other.file_name().map(ToOwned::to_owned))
            }
            named => named.map(|()| None),
        }
    }

    /// Gives it the name `path`, unless something has that.
    fn give_name(&self, path: &Path) -> io::Result<()> {
        match &self.place {
            Place::Itself => Ok(()),
            Place::Nowhere => self.link(path),
            Place::Beside(beside) => rename_new(beside, path),
        }
    }

    fn link(&self, path: &Path) -> io::Result<()> {
        Ok(linkat(CWD, by_descriptor(&self.file), CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Place::Beside(beside) = &self.place {
            // It is gone where it was renamed.
            let _ = fs::remove_file(beside);
        }
    }
}

/// A file that the user named, to be written later: in the folder that has the name now, whatever has it then.
///
/// Who may rename things in that folder's parent could put a link to any other folder in its place.
#[derive(Debug)]
pub struct NamedFile {
    /// The folder; of a device or a pipe, that itself.
    opened: OwnedFd,
    /// The file's name in it; `None` for a device or a pipe.
    name: Option<OsString>,
}

impl NamedFile {
    /// Looks up `path`. Links are followed as by [`followed`](crate::links::followed).
    ///
    /// # Errors
    /// `PermissionDenied` for a link or a pipe of another user; otherwise as open(2) has them.
    pub fn at(path: &Path) -> io::Result<Self> {
        let reached = reach(path)?;
        match reached.there {
            Some((_, FileType::Directory)) => Err(Errno::ISDIR.into()),
            Some((there, kind)) if kind != FileType::RegularFile => Ok(Self { opened: there, name: None }),
            _ => {
                let name = reached.path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                Ok(Self { opened: open(parent(&reached.path), flags, Mode::empty())?, name: Some(name) })
            }
        }
    }

    /// Begins to write it, for all to read. A device or a pipe is written to itself; this waits until someone reads the pipe.
    ///
    /// # Errors
    /// As [`NewFile::create`].
    pub fn begin(&self) -> io::Result<NewFile> {
        let path = by_descriptor(&self.opened);
        if let Some(name) = &self.name {
            return NewFile::create(&path.join(name), PUBLIC);
        }
        // This very one, not what takes its place meanwhile.
        let file = open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?.into();
        Ok(NewFile { file, path, _folder: None, place: Place::Itself })
    }

    /// Opens it to write at its end; one that is not there is made.
    ///
    /// # Errors
    /// `PermissionDenied` where a pipe or a device took its place; `ELOOP` where a link did; otherwise as open(2) has them.
    pub fn append(&self) -> io::Result<File> {
        let path = by_descriptor(&self.opened);
        let Some(name) = &self.name else {
            return Ok(open(&path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?.into());
        };
        // It waits for nobody who reads.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file: File = open(path.join(name), flags | OFlags::CLOEXEC, Mode::from_bits_truncate(PUBLIC))?.into();
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

/// Writes the file at `path` as a whole, in place of one that is there.
///
/// # Errors
/// As [`NewFile::create`] and [`NewFile::finish`].
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    complete(NewFile::create(path, PUBLIC)?, contents)
}

fn complete(new: NewFile, contents: impl AsRef<[u8]>) -> io::Result<()> {
    new.file().write_all(contents.as_ref())?;
    new.finish()
}

/// A file in `folder` that has no name and ends with its last descriptor. A file system without such files gives one whose name is removed
/// at once.
///
/// # Errors
/// As open(2) has them.
pub fn without_name(folder: &Path) -> io::Result<File> {
    match unnamed(folder, PRIVATE) {
        Err(error) if lacks_unnamed(&error) => {
            let new = |at: &Path| File::options().read(true).write(true).create_new(true).open(at);
            let (path, file) = beside(&folder.join("space"), new)?;
            fs::remove_file(path).map(|()| file)
        }
        done => done,
    }
}

fn unnamed(folder: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    Ok(open(folder, flags, Mode::from_bits_truncate(mode))?.into())
}

fn lacks_unnamed(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::OPNOTSUPP | Errno::ISDIR))
}

/// Renames `from` to `to`, unless something has that name.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // The file system does not know this (NFS).
        Err(Errno::INVAL | Errno::NOSYS) => {}
        renamed => return Ok(renamed?),
    }
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // Nor has it links: what gets the name between this look and the renaming is replaced.
        Err(_) if fs::symlink_metadata(to).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) => {
            fs::rename(from, to)
        }
        linked => linked,
    }
}

/// Has `make` make `.NAME.PID.part` in the same folder, and says where that is; or `.NAME.PID.RANDOM.part`, as of [`at_free_name`].
fn beside<T>(path: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    at_free_name(|more| part(path, more), make)
}

/// Has `make` make the file or folder that `name` names, and says where that is. Other users can tell the name, and what they put there nobody else may
/// remove from a folder such as `/tmp`: the name then has random letters more, which `name` is given.
///
/// # Errors
/// Those of `name` and `make`.
pub fn at_free_name<T>(
    name: impl Fn(&str) -> io::Result<PathBuf>,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    let first = name("")?;
    match make(&first) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mut random = [0_u8; 8];
            getrandom(&mut random, GetRandomFlags::empty())?;
            let other = name(&format!(".{:016x}", u64::from_ne_bytes(random)))?;
            make(&other).map(|made| (other, made))
        }
        made => made.map(|made| (first, made)),
    }
}

/// `.NAME.PID.part` in the same folder, with `more` before its end.
fn part(path: &Path, more: &str) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}{more}.part", std::process::id()));
    Ok(path.with_file_name(hidden))
}

/// `PID-NAME` in the same folder, with `more` before the hyphen. It ends as the name does, which tells programs what is in it.
fn other_name(path: &Path, more: &str) -> io::Result<PathBuf> {
    let mut other = OsString::from(format!("{}{more}-", std::process::id()));
    other.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    Ok(path.with_file_name(other))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write_named(path: &Path, contents: &str) -> io::Result<()> {
        complete(NamedFile::at(path)?.begin()?, contents)
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("longhaul-new-file-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir(&folder).unwrap();
            Self(folder)
        }

        fn pipe(&self, name: &str) -> PathBuf {
            let path = self.0.join(name);
            rustix::fs::mkfifoat(CWD, &path, Mode::from_bits_truncate(0o600)).unwrap();
            path
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<String> =
                fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_there_when_it_is_complete() {
        let folder = Folder::new("complete");
        let path = folder.0.join("a");
        let new = NewFile::create(&path, PRIVATE).unwrap();
        new.file().write_all(b"one").unwrap();
        assert_eq!(folder.names(), [""; 0]);
        new.finish_new().unwrap();
        assert_eq!((fs::read(&path).unwrap(), folder.names()), (b"one".to_vec(), vec!["a".to_owned()]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let again = NewFile::create(&path, PRIVATE).unwrap().finish_new().unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        write(&path, "two").unwrap();
        assert_eq!((fs::read(&path).unwrap(), folder.names()), (b"two".to_vec(), vec!["a".to_owned()]));
        drop(NewFile::create(&path, PUBLIC).unwrap());
        assert_eq!((fs::read(&path).unwrap(), folder.names()), (b"two".to_vec(), vec!["a".to_owned()]));
        drop(without_name(&folder.0).unwrap());
        assert_eq!(folder.names(), ["a"]);
    }

    /// What a file system does that has no files without a name.
    #[test]
    fn beside_its_place_it_does_the_same() {
        let folder = Folder::new("beside");
        let path = folder.0.join("a");
        let begin = |text: &str| {
            let part = part(&path, "").unwrap();
            fs::write(&part, text).unwrap();
            NewFile { file: File::open(&part).unwrap(), path: path.clone(), _folder: None, place: Place::Beside(part) }
        };
        begin("one").finish_new().unwrap();
        assert_eq!(begin("two").finish_new().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        drop(begin("three"));
        assert_eq!((fs::read(&path).unwrap(), folder.names()), (b"one".to_vec(), vec!["a".to_owned()]));
        begin("four").finish().unwrap();
        assert_eq!((fs::read(&path).unwrap(), folder.names()), (b"four".to_vec(), vec!["a".to_owned()]));
    }

    /// Also on a file system that has no files without a name; and a second time.
    #[test]
    fn what_cannot_have_its_name_is_kept_beside_the_file_that_has_it() {
        let folder = Folder::new("other-name");
        let (path, part) = (folder.0.join("a.html"), folder.0.join("part"));
        fs::write(&path, "theirs").unwrap();
        let unnamed = |text: &str| {
            let new = NewFile::create(&path, PUBLIC).unwrap();
            new.file().write_all(text.as_bytes()).unwrap();
            new
        };
        let named = |text: &str| {
            fs::write(&part, text).unwrap();
            let place = Place::Beside(part.clone());
            NewFile { file: File::open(&part).unwrap(), path: path.clone(), _folder: None, place }
        };
        let kept = [unnamed("one"), named("two")].map(|new| new.finish_beside().unwrap().unwrap());
        assert_eq!(kept[0].to_str(), Some(format!("{}-a.html", std::process::id()).as_str()));
        let texts = kept.map(|name| fs::read_to_string(folder.0.join(name)).unwrap());
        assert_eq!((texts, folder.names().len()), (["one", "two"].map(str::to_owned), 3), "{:?}", folder.names());
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        fs::remove_file(&path).unwrap();
        assert_eq!(unnamed("three").finish_beside().unwrap(), None);
        assert_eq!(fs::read(&path).unwrap(), b"three");
        fs::remove_file(&path).unwrap();
        assert_eq!(named("four").finish_beside().unwrap(), None);
        assert_eq!((fs::read(&path).unwrap(), folder.names().len()), (b"four".to_vec(), 3), "{:?}", folder.names());
    }

    /// Another user tells the name and has a file there.
    #[test]
    fn a_taken_name_keeps_no_file_from_being_written() {
        let folder = Folder::new("taken");
        let (path, taken) = (folder.0.join("a"), folder.0.join(format!(".a.{}.part", std::process::id())));
        fs::write(&path, "old").unwrap();
        fs::write(&taken, "theirs").unwrap();
        write(&path, "new").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&taken).unwrap()), (b"new".to_vec(), b"theirs".to_vec()));
        assert_eq!(folder.names().len(), 2, "{:?}", folder.names());
        // As on a file system that has no files without a name.
        let new = |at: &Path| File::options().write(true).create_new(true).open(at);
        let [one, two] = [beside(&path, new).unwrap().0, beside(&path, new).unwrap().0];
        assert!(one != two && folder.names().len() == 4, "{:?}", folder.names());
    }

    #[test]
    fn a_file_gets_its_name_in_the_folder_that_it_was_begun_in() {
        let folder = Folder::new("moved");
        let (named, moved, other) = (folder.0.join("named"), folder.0.join("moved"), folder.0.join("other"));
        fs::create_dir(&named).unwrap();
        fs::create_dir(&other).unwrap();
        let new = NewFile::create(&named.join("a"), PUBLIC).unwrap();
        fs::rename(&named, &moved).unwrap();
        std::os::unix::fs::symlink(&other, &named).unwrap();
        new.finish().unwrap();
        assert!(moved.join("a").exists() && !other.join("a").exists());
    }

    /// Also a second time, as a status file is written again and again.
    #[test]
    fn what_the_user_named_stays_in_the_folder_of_the_start() {
        let folder = Folder::new("later");
        let (named, moved, other) = (folder.0.join("named"), folder.0.join("moved"), folder.0.join("other"));
        fs::create_dir(&named).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("a"), "kept").unwrap();
        let later = NamedFile::at(&named.join("a")).unwrap();
        fs::rename(&named, &moved).unwrap();
        std::os::unix::fs::symlink(&other, &named).unwrap();
        for text in ["one", "two"] {
            complete(later.begin().unwrap(), text).unwrap();
            assert_eq!(fs::read(moved.join("a")).unwrap(), text.as_bytes());
        }
        // A link there was not there at the start: it is replaced.
        fs::remove_file(moved.join("a")).unwrap();
        std::os::unix::fs::symlink(other.join("a"), moved.join("a")).unwrap();
        complete(later.begin().unwrap(), "three").unwrap();
        assert_eq!(
            (fs::read(other.join("a")).unwrap(), fs::read(moved.join("a")).unwrap()),
            (b"kept".into(), b"three".into())
        );
    }

    /// Nobody reads the pipe.
    #[test]
    fn what_takes_the_place_of_a_log_is_not_written_to() {
        let folder = Folder::new("log");
        let (log, other) = (folder.0.join("log"), folder.0.join("other"));
        let named = NamedFile::at(&log).unwrap();
        for text in ["one", "two"] {
            named.append().unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(fs::read(&log).unwrap(), b"onetwo");
        fs::rename(&log, &other).unwrap();
        folder.pipe("log");
        assert!(named.append().is_err());
        fs::remove_file(&log).unwrap();
        std::os::unix::fs::symlink(&other, &log).unwrap();
        assert!(named.append().is_err());
        assert_eq!(fs::read(&other).unwrap(), b"onetwo");
    }

    #[test]
    fn links_are_replaced_and_devices_are_refused() {
        let folder = Folder::new("links");
        let (target, link) = (folder.0.join("target"), folder.0.join("link"));
        fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write(&link, "new").unwrap();
        assert_eq!((fs::read(&target).unwrap(), fs::read(&link).unwrap()), (b"kept".to_vec(), b"new".to_vec()));
        assert!(write(Path::new("/dev/null"), "nothing").is_err());
        assert!(write(&folder.0, "a folder is no file").is_err());
    }

    #[test]
    fn what_the_user_named_is_followed_and_written_to() {
        let folder = Folder::new("named");
        let (target, link, pipe) = (folder.0.join("target"), folder.0.join("link"), folder.pipe("pipe"));
        std::os::unix::fs::symlink("target", &link).unwrap();
        write_named(&link, "new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        write_named(&pipe, "through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        write_named(Path::new("/dev/null"), "nothing").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        assert!(write_named(&folder.0, "a folder is no file").is_err());
    }

    /// Nobody reads these pipes: to open one would wait for ever.
    #[test]
    fn a_pipe_in_the_way_is_replaced_without_waiting() {
        let folder = Folder::new("pipes");
        let (result, key) = (folder.pipe("result.json"), folder.pipe("key"));
        write(&result, "whole").unwrap();
        assert_eq!(fs::read(&result).unwrap(), b"whole");
        assert_eq!(
            NewFile::create(&key, PRIVATE).unwrap().finish_new().unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        let new = NewFile::create(&key, PRIVATE).unwrap();
        new.file().write_all(b"secret").unwrap();
        new.finish().unwrap();
        assert_eq!(
            (fs::read(&key).unwrap(), folder.names()),
            (b"secret".to_vec(), vec!["key".to_owned(), "result.json".to_owned()])
        );
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_pipe_of_another_user_is_refused_without_waiting() {
        let folder = Folder::new("their-pipe");
        let pipe = folder.pipe("pipe");
        if std::os::unix::fs::lchown(&pipe, Some(65534), None).is_err() {
            println!("skipped: pipes of another user take root");
            return;
        }
        assert_eq!(write_named(&pipe, "for nobody").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }
}
