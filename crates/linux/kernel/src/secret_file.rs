//! Files with a secret in them: a key, a token.
//!
//! As ssh(1) asks of a private key, only its owner may read or write such a file. The owner is the caller or, with sudo(8), who called it. It may be
//! root: then a group may have rights, such as that of a service.
//!
//! Source: inode(7), sudo(8) (`SUDO_UID`).

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Why a secret is not taken.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It cannot be read, is too long, or is not UTF-8.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Somebody else has it.
    #[error("user {owner} owns this file, so that user may use and change it")]
    Owner {
        /// The user who owns it.
        owner: u32,
        /// The caller.
        own: u32,
    },
    /// Others may have it.
    #[error("other users may use this file: its mode is {mode:04o}")]
    Mode {
        /// The permissions of the file.
        mode: u32,
    },
}

impl SecretError {
    /// What to do about the file at `path`; `None` where the error says it.
    pub fn remedy(&self, path: &Path) -> Option<String> {
        let path = path.display();
        match self {
            Self::Io(_) => None,
            Self::Owner { own, .. } => Some(format!("if you trust what is in it: chown {own} {path}")),
            Self::Mode { .. } => Some(format!("chmod 600 {path}; make a new secret if others may have read it")),
        }
    }
}

/// The text of the file at `path`, of at most `most_bytes`, if other users cannot use it. What is no file, as a pipe, is read whoever owns it.
///
/// # Errors
/// Any [`SecretError`].
pub fn read_secret(path: &Path, most_bytes: u64) -> Result<String, SecretError> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    let (owner, own) = (about.uid(), rustix::process::geteuid().as_raw());
    if about.is_file() && ![own, 0].contains(&owner) && !(own == 0 && sudo_caller() == Some(owner)) {
        return Err(SecretError::Owner { owner, own });
    }
    let denied = if owner == own { 0o077 } else { 0o007 };
    if about.is_file() && about.mode() & denied != 0 {
        return Err(SecretError::Mode { mode: about.mode() & 0o7777 });
    }
    let mut text = String::new();
    let length = file.take(most_bytes + 1).read_to_string(&mut text)? as u64;
    if length > most_bytes {
        let message = format!("longer than {most_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message).into());
    }
    Ok(text)
}

/// Who called sudo(8).
fn sudo_caller() -> Option<u32> {
    std::env::var("SUDO_UID").ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_secret_that_others_may_use_is_refused() {
        let path = std::env::temp_dir().join(format!("longhaul-secret-{}", std::process::id()));
        fs::write(&path, "secret").unwrap();
        let set = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o666, 0o604, 0o602, 0o640] {
            set(mode);
            let refused = read_secret(&path, 6).unwrap_err();
            assert!(refused.to_string().contains(&format!("{mode:04o}")), "{refused}");
            assert!(refused.remedy(&path).unwrap().starts_with("chmod 600"), "{refused}");
        }
        for mode in [0o600, 0o400] {
            set(mode);
            assert_eq!(read_secret(&path, 6).unwrap(), "secret");
        }
        assert_eq!(read_secret(&path, 5).unwrap_err().to_string(), "longer than 5 bytes");
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(12_345), None).unwrap();
            assert!(matches!(read_secret(&path, 6), Err(SecretError::Owner { owner: 12_345, own: 0 })));
        }
        fs::remove_file(&path).unwrap();
    }
}
