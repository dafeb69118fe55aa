//! What goes wrong, and what to do about it.

use std::fmt;
use std::path::Path;

use longhaul_kernel::secret_file::SecretError;

/// An error for people: what happened, and what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    message: String,
    remedy: Option<String>,
}

impl Failure {
    pub(crate) fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), remedy: None }
    }

    pub(crate) fn remedy(mut self, remedy: impl fmt::Display) -> Self {
        self.remedy = Some(remedy.to_string());
        self
    }

    /// Of the secret at `path`, which is not taken.
    pub(crate) fn of_secret(path: &Path, error: &SecretError) -> Self {
        let failure = Self::new(format_args!("cannot read {}: {error}", path.display()));
        Self { remedy: error.remedy(path), ..failure }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.remedy.iter().try_for_each(|remedy| write!(f, "; {remedy}"))
    }
}

impl From<crate::store::StoreError> for Failure {
    fn from(error: crate::store::StoreError) -> Self {
        Self::new(format_args!("store: {error}"))
    }
}
