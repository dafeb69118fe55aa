//! The folder in which a coordinator or a site keeps what it must know after a restart.
//!
//! ```text
//! identity           the secret of this host (mode 0600)
//! mesh.toml          the mesh: at the coordinator as its operator wrote it, at a site as it was last fetched
//! members.json       public keys by site
//! coordinator.json   at a site: its own name, where the coordinator is, and its public key
//! tokens/SITE        at the coordinator: tokens for sites that have not joined
//! outbox, archive    the stores
//! losses, samples    Parquet files beside the results
//! files.json         at a site: the kinds of files that the coordinator keeps
//! store              at the coordinator: the address of a PostgreSQL database, where results are there and not in archive (mode 0600)
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use longhaul_channel::{Identity, Key, PublicKey};
use longhaul_kernel::links::parent;
use longhaul_kernel::new_file::{NewFile, PRIVATE};
use longhaul_kernel::open_folder::OpenFolder;
pub(crate) use longhaul_mesh_model::message::Members;
use longhaul_units::read_text;
use serde::{Deserialize, Serialize};

use crate::error::Failure;
use crate::store::Address;

/// Whoever has one of these is somebody else to others.
const KEYS: [&str; 3] = ["identity", "http-token", "certificate-key.pem"];
const MEMBERS: &str = "members.json";
/// Files of a folder are small.
const BYTES_MOST: u64 = 1 << 20;

/// A folder.
#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

/// Whom a site belongs to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Belonging {
    /// This site's name.
    pub(crate) site: String,
    /// Address and port of the coordinator.
    pub(crate) coordinator: String,
    /// Its public key, pinned when this site joined.
    pub(crate) key: String,
}

impl Folder {
    pub(crate) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Its path, for people.
    pub(crate) fn name(&self) -> String {
        self.0.display().to_string()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Makes the folder, for its owner alone. One that is there is used, if no other user may write to it.
    pub(crate) fn make(&self) -> Result<(), Failure> {
        use std::os::unix::fs::DirBuilderExt;
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.map_err(|error| Failure::new(format_args!("cannot make {}: {error}", self.0.display())))?;
        self.check()
    }

    /// Looks whether the keys here can be this user's alone.
    ///
    /// # Errors
    /// A link of another user leads to the folder, others may write to it, or may read or write a key in it, or a key belongs to somebody who is
    /// neither root nor its owner.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let failed = |path: &Path, error| Failure::new(format_args!("cannot read {}: {error}", path.display()));
        let opened = match OpenFolder::open(&self.0) {
            // Whoever needs a file of it says so.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            opened => opened.map_err(|error| failed(&self.0, error))?,
        };
        let folder = fs::metadata(opened.path()).map_err(|error| failed(&self.0, error))?;
        if folder.mode() & 0o022 != 0 {
            let failure = format!("other users may write to {}, which has keys", self.0.display());
            return Err(Failure::new(failure).remedy(format_args!("chmod go-w {}", self.0.display())));
        }
        for name in KEYS {
            let path = self.file(name);
            let about = match fs::metadata(&path) {
                Ok(about) => about,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(&path, error)),
            };
            if about.mode() & 0o077 != 0 || ![0, folder.uid()].contains(&about.uid()) {
                let failure = format!(
                    "other users may use {}: its mode is {:04o}, its owner user {}",
                    path.display(),
                    about.mode() & 0o7777,
                    about.uid()
                );
                return Err(
                    Failure::new(failure).remedy("make a new mesh folder, unless you know that nobody has read it")
                );
            }
        }
        Ok(())
    }

    pub(crate) fn read(&self, name: &str) -> Result<String, Failure> {
        let path = self.file(name);
        read_text(&path, BYTES_MOST)
            .map_err(|error| Failure::new(format_args!("cannot read {}: {error}", path.display())))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.file(name).exists()
    }

    /// Replaces a file at once, for its owner alone, who is the folder's: root may write what a service without root has to read. A link of another
    /// user is not followed.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.file(name);
        let write = || {
            let folder = OpenFolder::open(parent(&path))?;
            let file = NewFile::create(&folder.path().join(path.file_name().unwrap_or_default()), PRIVATE)?;
            file.file().write_all(text.as_bytes())?;
            let (folder, own) = (fs::metadata(folder.path())?, file.file().metadata()?);
            if folder.uid() != own.uid() {
                fchown(file.file(), Some(folder.uid()), Some(folder.gid()))?;
            }
            file.file().sync_all()?;
            file.finish()
        };
        write().map_err(|error: std::io::Error| Failure::new(format_args!("cannot write {}: {error}", path.display())))
    }

    pub(crate) fn remove(&self, name: &str) {
        let path = self.file(name);
        // What is not there needs no removal.
        let _ = OpenFolder::open(parent(&path))
            .and_then(|folder| fs::remove_file(folder.path().join(path.file_name().unwrap_or_default())));
    }

    /// The identity of this host, made where there is none.
    pub(crate) fn identity(&self) -> Result<Identity, Failure> {
        if !self.has("identity") {
            let identity = Identity::from_random(random()?).map_err(Failure::new)?;
            self.write("identity", &identity.to_text())?;
        }
        self.read("identity")?.parse().map_err(|error| Failure::new(format_args!("identity: {error}")))
    }

    /// Takes the folder for a site or coordinator that runs, until what is returned is dropped or the process ends, however it ends. What is locked is
    /// the identity, which nobody else can open.
    ///
    /// # Errors
    /// Another one runs with this folder, or it has no identity.
    pub(crate) fn hold(&self) -> Result<File, Failure> {
        let path = self.file("identity");
        let file =
            File::open(&path).map_err(|error| Failure::new(format_args!("cannot read {}: {error}", path.display())))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let failure = format!("another longhaul mesh run has the folder {}", self.0.display());
                Err(Failure::new(failure).remedy("end that one, or give another --folder"))
            }
            // Where the file system has no locks (NFS), nobody can tell.
            _ => Ok(file),
        }
    }

    /// Where the coordinator keeps results: the database whose address the file `store` has; without it, the file `archive`.
    pub(crate) fn store(&self) -> Result<Address, Failure> {
        let path = self.file("store");
        let about = match fs::metadata(&path) {
            Ok(about) => about,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Address::from(&self.file("archive"))),
            Err(error) => return Err(Failure::new(format_args!("cannot read {}: {error}", path.display()))),
        };
        if about.mode() & 0o077 != 0 {
            let failure = format!("other users can read or write {}, which may hold a password", path.display());
            return Err(Failure::new(failure).remedy(format_args!("chmod 600 {}", path.display())));
        }
        let text = self.read("store")?;
        text.trim().parse().map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))
    }

    pub(crate) fn members(&self) -> Result<Members, Failure> {
        if !self.has(MEMBERS) {
            return Ok(Members::new());
        }
        let members: Members = serde_json::from_str(&self.read(MEMBERS)?)
            .map_err(|error| Failure::new(format_args!("{MEMBERS}: {error}")))?;
        if members.values().collect::<BTreeSet<_>>().len() < members.len() {
            let failure = Failure::new(format_args!("{MEMBERS}: two sites have the same key"));
            return Err(failure.remedy("remove one, and let it join again"));
        }
        Ok(members)
    }

    pub(crate) fn put_members(&self, members: &Members) -> Result<(), Failure> {
        self.write(MEMBERS, &serde_json::to_string_pretty(members).map_err(Failure::new)?)
    }

    pub(crate) fn belonging(&self) -> Result<Belonging, Failure> {
        let text = self
            .read("coordinator.json")
            .map_err(|failure| failure.remedy("let this site join first: longhaul mesh join"))?;
        serde_json::from_str(&text).map_err(|error| Failure::new(format_args!("coordinator.json: {error}")))
    }

    /// Tokens that nobody has used, by site.
    fn tokens(&self) -> SiteTokens {
        let Ok(entries) = fs::read_dir(self.file("tokens")) else { return Vec::new() };
        let token = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let key = self.read(&format!("tokens/{name}")).ok()?.parse().ok()?;
            Some((name, key))
        };
        entries.filter_map(Result::ok).filter_map(token).collect()
    }
}

/// A change that long ago has a time of its own.
const SETTLED: Duration = Duration::from_secs(1);

/// A file's number, and when it was changed.
type Version = (u64, SystemTime);

/// What was read of a file or a folder, and the version of that which was read: a stranger's connection costs no reading.
pub(crate) struct Known<T>(Mutex<Option<(Version, Arc<T>)>>);

/// Tokens, each with its site.
pub(crate) type SiteTokens = Vec<(String, Key)>;

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Known<T> {
    /// What `read` reads of `path`, or has read of the same version of it.
    fn of(&self, path: &Path, read: impl FnOnce() -> Result<T, Failure>) -> Result<Arc<T>, Failure> {
        let version = fs::metadata(path).and_then(|about| Ok((about.ino(), about.modified()?))).ok();
        // Two changes of one moment have one time.
        let settled = version.filter(|(_, time)| time.elapsed().is_ok_and(|since| since > SETTLED));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, value)) = known.as_ref().filter(|(known, _)| settled == Some(*known)) {
            return Ok(Arc::clone(value));
        }
        let value = Arc::new(read()?);
        *known = settled.map(|version| (version, Arc::clone(&value)));
        Ok(value)
    }
}

impl Known<SiteTokens> {
    /// Tokens that nobody has used, by site.
    pub(crate) fn tokens(&self, folder: &Folder) -> Arc<SiteTokens> {
        self.of(&folder.file("tokens"), || Ok(folder.tokens())).unwrap_or_default()
    }
}

impl Known<Members> {
    /// The members of the mesh.
    pub(crate) fn members(&self, folder: &Folder) -> Result<Arc<Members>, Failure> {
        self.of(&folder.file(MEMBERS), || folder.members())
    }
}

/// Whose key this is.
pub(crate) fn site_of(members: &Members, key: PublicKey) -> Option<String> {
    let text = key.to_string();
    members.iter().find(|(_, own)| **own == text).map(|(site, _)| site.clone())
}

/// Bytes from the system's random source.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Failure::new(format_args!("no random numbers: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn folder(name: &str) -> (PathBuf, Folder) {
        let path = std::env::temp_dir().join(format!("longhaul-mesh-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        (path.clone(), Folder::new(&path))
    }

    #[test]
    fn tokens_are_read_when_their_folder_changed() {
        let (path, folder) = folder("tokens");
        Folder::new(&folder.file("tokens")).make().unwrap();
        let tokens = Known::<SiteTokens>::default();
        let sites = || tokens.tokens(&folder).iter().map(|(site, _)| site.clone()).collect::<BTreeSet<_>>();
        let put = |site: &str| {
            let key = Key::from_random(random().unwrap()).unwrap();
            folder.write(&format!("tokens/{site}"), &key.to_text()).unwrap();
        };
        assert_eq!(sites(), BTreeSet::new());
        put("geneva");
        assert_eq!(sites(), ["geneva".to_owned()].into());
        put("ithaca");
        assert_eq!(sites().len(), 2, "within one tick of the file system's clock");
        settle(&folder.file("tokens"), SystemTime::now() - 2 * SETTLED);
        let read = tokens.tokens(&folder);
        assert!(Arc::ptr_eq(&read, &tokens.tokens(&folder)), "nothing is read again");
        folder.remove("tokens/geneva");
        assert_eq!(sites(), ["ithaca".to_owned()].into());
        fs::remove_dir_all(&path).unwrap();
    }

    /// As if it had been changed then.
    fn settle(path: &Path, changed: SystemTime) {
        fs::File::open(path).unwrap().set_modified(changed).unwrap();
    }

    #[test]
    fn members_are_read_when_their_file_changed() {
        let (path, folder) = folder("members");
        folder.make().unwrap();
        let known = Known::<Members>::default();
        assert_eq!(known.members(&folder).unwrap().len(), 0);
        let put = |sites: &[&str]| {
            folder
                .put_members(&sites.iter().map(|site| ((*site).to_owned(), format!("key of {site}"))).collect())
                .unwrap();
        };
        put(&["a"]);
        assert_eq!(known.members(&folder).unwrap().len(), 1);
        put(&["a", "b"]);
        assert_eq!(known.members(&folder).unwrap().len(), 2, "within one tick of the file system's clock");
        let changed = SystemTime::now() - 2 * SETTLED;
        settle(&folder.file(MEMBERS), changed);
        let read = known.members(&folder).unwrap();
        assert!(Arc::ptr_eq(&read, &known.members(&folder).unwrap()), "nothing is read again");
        // Another file that was changed at the same time.
        put(&["c"]);
        settle(&folder.file(MEMBERS), changed);
        assert!(known.members(&folder).unwrap().contains_key("c"));
        fs::write(folder.file(MEMBERS), "no members").unwrap();
        assert!(known.members(&folder).is_err());
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let (path, folder) = folder("checked");
        folder.make().unwrap();
        let set = |name: &str, mode| fs::set_permissions(folder.file(name), fs::Permissions::from_mode(mode)).unwrap();
        folder.identity().unwrap();
        assert!(folder.make().is_ok());
        for mode in [0o644, 0o660, 0o602] {
            set("identity", mode);
            let refused = folder.check().unwrap_err().to_string();
            assert!(refused.contains("other users may use") && refused.contains(&format!("{mode:04o}")), "{refused}");
        }
        set("identity", 0o400);
        assert!(folder.check().is_ok());
        for mode in [0o777, 0o770, 0o722] {
            set("", mode);
            let refused = folder.make().unwrap_err().to_string();
            assert!(refused.contains("other users may write") && refused.contains("chmod go-w"), "{refused}");
        }
        set("", 0o755);
        folder.make().unwrap();
        // A key that somebody else put there, who is not the folder's owner.
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(folder.file("identity"), Some(12_345), None).unwrap();
            assert!(folder.check().unwrap_err().to_string().contains("user 12345"));
        }
        fs::remove_dir_all(&path).unwrap();
    }

    /// Root would write to what it points to.
    #[test]
    fn a_link_of_another_user_is_not_followed() {
        if !rustix::process::geteuid().is_root() {
            longhaul_testing::no_judge!("links of another user take root");
            return;
        }
        let (path, folder) = folder("linked");
        folder.make().unwrap();
        let aim = path.join("aim");
        Folder::new(&aim).make().unwrap();
        fs::write(aim.join("kept"), "").unwrap();
        let link = |name: &str| {
            let link = path.join(name);
            std::os::unix::fs::symlink(&aim, &link).unwrap();
            std::os::unix::fs::lchown(&link, Some(65_534), None).unwrap();
            Folder::new(&link)
        };
        for planted in [link("planted"), link("tokens")] {
            for refused in [planted.make(), planted.check(), planted.write("mesh.toml", "")] {
                let said = refused.unwrap_err().to_string();
                assert!(said.contains("symbolic link of another user"), "{said}");
            }
            planted.remove("kept");
        }
        folder.remove("tokens/kept");
        assert_eq!(fs::read_dir(&aim).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>(), ["kept"]);
        // A link of one's own says where the folder is.
        std::os::unix::fs::lchown(path.join("planted"), Some(0), None).unwrap();
        let own = Folder::new(&path.join("planted"));
        own.make().unwrap();
        own.write("mesh.toml", "").unwrap();
        assert!(aim.join("mesh.toml").exists());
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn one_runs_with_a_folder() {
        let (path, folder) = folder("held");
        folder.make().unwrap();
        folder.identity().unwrap();
        let held = folder.hold().unwrap();
        let refused = folder.hold().unwrap_err().to_string();
        assert!(refused.contains("another longhaul mesh run has the folder"), "{refused}");
        assert!(refused.contains(&folder.name()) && refused.contains("another --folder"), "{refused}");
        drop(held);
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn two_sites_with_one_key_are_refused() {
        let (path, folder) = folder("twice");
        folder.make().unwrap();
        let members = |keys: [&str; 2]| {
            Members::from([("a".to_owned(), keys[0].to_owned()), ("b".to_owned(), keys[1].to_owned())])
        };
        folder.put_members(&members(["x", "y"])).unwrap();
        assert_eq!(folder.members().unwrap().len(), 2);
        folder.put_members(&members(["x", "x"])).unwrap();
        assert!(folder.members().unwrap_err().to_string().contains("same key"));
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn an_address_that_others_can_read_or_write_is_refused() {
        let (path, folder) = folder("folder");
        folder.make().unwrap();
        assert_eq!(folder.store().unwrap(), Address::from(&path.join("archive")));
        let address = "postgres://hub:secret@db.example/longhaul";
        fs::write(folder.file("store"), format!("{address}\n")).unwrap();
        let set = |mode| fs::set_permissions(folder.file("store"), fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o600, 0o400] {
            set(mode);
            assert_eq!(folder.store().unwrap(), address.parse().unwrap(), "{mode:o}");
        }
        for mode in [0o640, 0o620, 0o604, 0o602, 0o644, 0o610, 0o601] {
            set(mode);
            let refused = folder.store().unwrap_err().to_string();
            assert!(
                refused.contains("other users can read or write") && refused.contains("chmod 600"),
                "{mode:o}: {refused}"
            );
            assert!(!refused.contains("secret"), "{refused}");
        }
        fs::remove_dir_all(&path).unwrap();
    }
}
