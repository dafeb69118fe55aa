//! Kernel parameters below `/proc/sys`, of the namespaces that the calling thread is in.
//!
//! Source: proc_sys(5), sysctl(8).

use std::{fs, io};

/// Why a kernel parameter could not be read or set.
#[derive(Debug, thiserror::Error)]
pub enum SysctlError {
    /// The kernel has no such parameter here.
    #[error("this kernel (or this network namespace) has no parameter {key}")]
    Missing {
        /// The parameter, dotted.
        key: String,
    },
    /// The caller may not.
    #[error("no permission to {access} {key}: run as root, or in a namespace of your own")]
    Denied {
        /// The parameter, dotted.
        key: String,
        /// `read` or `set`.
        access: &'static str,
    },
    /// Another test has changed it for its time.
    #[error("another test has changed {key}; wait for its end")]
    Busy {
        /// The parameter, dotted.
        key: String,
    },
    /// The kernel did not take the value.
    #[error("the kernel refuses {key} = `{value}`: {source}")]
    Refused {
        /// The parameter, dotted.
        key: String,
        /// What was to be set.
        value: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something else.
    #[error("cannot {access} {key}: {source}")]
    Io {
        /// The parameter, dotted.
        key: String,
        /// `read` or `set`.
        access: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The value of `key` (`net.ipv4.tcp_rmem`, or with slashes where a part has a dot), without the newline at its end.
///
/// # Errors
/// [`SysctlError::Missing`], [`SysctlError::Denied`], [`SysctlError::Io`].
pub fn read(key: &str) -> Result<String, SysctlError> {
    let text = fs::read_to_string(path(key)).map_err(|source| error(key, "read", source))?;
    Ok(text.trim_end().to_owned())
}

/// Sets `key` to `value`.
///
/// # Errors
/// Any [`SysctlError`].
pub fn write(key: &str, value: &str) -> Result<(), SysctlError> {
    fs::write(path(key), value).map_err(|source| match source.raw_os_error() {
        Some(libc::EINVAL | libc::ERANGE | libc::ENOENT) if fs::exists(path(key)).unwrap_or(false) => {
            SysctlError::Refused { key: key.into(), value: value.into(), source }
        }
        _ => error(key, "set", source),
    })
}

/// Whether nobody may set `key` here, as with `net.core.rmem_max` in a network namespace that is not the first (its mode says so). `None` where
/// there is no such parameter.
pub fn is_read_only(key: &str) -> Option<bool> {
    Some(fs::metadata(path(key)).ok()?.permissions().readonly())
}

/// `/proc/sys/net/ipv4/tcp_rmem`. As sysctl(8) has it, a key that holds a slash is separated by slashes.
pub(crate) fn path(key: &str) -> String {
    if key.contains('/') { format!("/proc/sys/{key}") } else { format!("/proc/sys/{}", key.replace('.', "/")) }
}

/// Why `key` could not be read or set (`access`), by what the kernel said.
pub(crate) fn error(key: &str, access: &'static str, source: io::Error) -> SysctlError {
    match source.kind() {
        io::ErrorKind::NotFound => SysctlError::Missing { key: key.into() },
        io::ErrorKind::PermissionDenied => SysctlError::Denied { key: key.into(), access },
        _ => SysctlError::Io { key: key.into(), access, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_paths() {
        assert_eq!(path("net.ipv4.tcp_rmem"), "/proc/sys/net/ipv4/tcp_rmem");
        assert_eq!(path("net/ipv4/conf/eth0.100/forwarding"), "/proc/sys/net/ipv4/conf/eth0.100/forwarding");
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = read("net.ipv4.no_such_thing").unwrap_err();
        assert!(matches!(error, SysctlError::Missing { .. }));
        assert!(error.to_string().contains("net.ipv4.no_such_thing"), "{error}");
        assert_eq!(read("kernel.ostype").unwrap(), "Linux");
    }
}
