//! Kernel parameters that are changed for a while.

use std::io;

use crate::guard::{Changed, Claim, Setting};
use crate::sysctl::{SysctlError, error, path, read};

impl Changed {
    /// Sets each of `wanted` (key and value, as [`crate::sysctl::write`] has them) for as long as the result lives.
    ///
    /// # Errors
    /// [`SysctlError::Busy`] where another test has changed one of them; any other [`SysctlError`]. Then nothing is changed.
    pub fn of_sysctls(wanted: &[(&str, &str)]) -> Result<Self, SysctlError> {
        let (mut settings, mut claims) = (Vec::new(), Vec::new());
        for (key, value) in wanted {
            claims.push(Claim::of_sysctl(key).map_err(|source| match source.kind() {
                io::ErrorKind::AddrInUse => SysctlError::Busy { key: (*key).into() },
                _ => error(key, "set", source),
            })?);
            let before = read(key)?;
            settings.push(Setting::open(path(key).into(), before, *value).map_err(|source| error(key, "set", source))?);
        }
        Self::apply(settings, claims).map_err(|(path, source)| {
            let key =
                path.and_then(|path| Some(path.strip_prefix("/proc/sys").ok()?.to_string_lossy().replace('/', ".")));
            let all = || wanted.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(", ");
            error(&key.unwrap_or_else(all), "set", source)
        })
    }
}
