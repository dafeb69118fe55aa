//! Where a store is: a file of SQLite, or a database of PostgreSQL.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use longhaul_kernel::links::followed;
use sqlx::ConnectOptions;
use sqlx::any::AnyConnectOptions;

use super::error::StoreError;

/// Where a store is.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    /// A SQLite file.
    File(PathBuf),
    /// A PostgreSQL database, as libpq's connection URIs have it. It may hold a password: nothing prints it.
    Postgres(String),
}

/// A text that is no address. It does not repeat the text, which may hold a password.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "an address of PostgreSQL begins with postgres://, as postgres://user@host/longhaul or postgres:///longhaul?host=/run/postgresql"
)]
pub struct AddressError;

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let is_postgres = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
        if is_postgres { Ok(Self::Postgres(text.to_owned())) } else { Err(AddressError) }
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Address {
    fn from(path: &P) -> Self {
        Self::File(path.as_ref().to_owned())
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Postgres(_) => f.write_str("Postgres"),
        }
    }
}

impl Address {
    /// What the library connects with. `mode` is SQLite's: `ro`, or `rwc`, which makes the file.
    ///
    /// # Errors
    /// For a file: it is a link of another user's, or leads to one. Whoever owns the folder must not have root use a database of somebody else.
    pub(super) fn options(&self, mode: &str) -> Result<AnyConnectOptions, StoreError> {
        sqlx::any::install_default_drivers();
        let url = match self {
            Self::File(path) => format!("sqlite:{}?mode={mode}", encoded(&followed(path)?)?),
            Self::Postgres(url) => url.clone(),
        };
        Ok(url.parse::<AnyConnectOptions>()?.disable_statement_logging())
    }
}

/// A path in which no character means anything in an address. Without a plain slash nobody shortens it, either.
fn encoded(path: &Path) -> Result<String, StoreError> {
    let text = path.to_str().ok_or_else(|| StoreError::Path(path.to_owned()))?;
    let byte =
        |byte: u8| if byte.is_ascii_alphanumeric() { (byte as char).to_string() } else { format!("%{byte:02X}") };
    Ok(text.bytes().map(byte).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_nothing_of_its_password() {
        let address: Address = "postgres://hub:secret@db.example/longhaul".parse().unwrap();
        assert_eq!(format!("{address:?}"), "Postgres");
        let error = "mysql://hub:secret@db.example/longhaul".parse::<Address>().unwrap_err();
        assert!(!format!("{error} {error:?}").contains("secret"));
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        assert_eq!(encoded(Path::new("a b/../c?d#e%.db")).unwrap(), "a%20b%2F%2E%2E%2Fc%3Fd%23e%25%2Edb");
    }
}
