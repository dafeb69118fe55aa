//! The certificate: an own one, kept in the coordinator's folder, or the operator's. Plain http is for loopback alone.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use longhaul_kernel::secret_file::read_secret;
use longhaul_kernel::stderr_line;
use longhaul_units::read_text;
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::PageOptions;
use crate::error::Failure;
use crate::folder::Folder;

/// Certificates are small, also with their chain.
const BYTES_MOST: u64 = 1 << 20;
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "certificate-key.pem";

/// What encrypts connections; `None` for plain http on loopback.
pub(super) fn acceptor(
    folder: &Folder,
    options: &PageOptions,
    address: SocketAddr,
) -> Result<Option<TlsAcceptor>, Failure> {
    let (certificate, key) = match (&options.certificate, &options.certificate_key) {
        (Some(certificate), Some(key)) => {
            let secret = read_secret(key, BYTES_MOST).map_err(|error| Failure::of_secret(key, &error));
            (read(certificate)?, secret?)
        }
        _ if address.ip().is_loopback() => return Ok(None),
        _ => own(folder, address)?,
    };
    let wrong = |what: &str, error: &dyn std::fmt::Display| Failure::new(format_args!("the {what}: {error}"));
    let chain: Vec<CertificateDer> = CertificateDer::pem_slice_iter(certificate.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| wrong("certificate", &error))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| wrong("certificate's key", &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Failure::new)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| wrong("certificate", &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

fn read(path: &Path) -> Result<String, Failure> {
    read_text(path, BYTES_MOST).map_err(|error| Failure::new(format_args!("cannot read {}: {error}", path.display())))
}

/// The own certificate and its key, made once: browsers ask once whether they trust it.
fn own(folder: &Folder, address: SocketAddr) -> Result<(String, String), Failure> {
    if !folder.has(CERTIFICATE) || !folder.has(KEY) {
        let mut names = vec!["localhost".to_owned()];
        if let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
            names.push(name.trim().to_owned());
        }
        if !address.ip().is_unspecified() {
            names.push(address.ip().to_string());
        }
        let mut params = CertificateParams::new(names).map_err(Failure::new)?;
        params.distinguished_name.push(DnType::CommonName, "longhaul mesh");
        let key = KeyPair::generate().map_err(Failure::new)?;
        let certificate = params.self_signed(&key).map_err(Failure::new)?;
        // The key first: a certificate without its key would stay for ever.
        folder.write(KEY, &key.serialize_pem())?;
        folder.write(CERTIFICATE, &certificate.pem())?;
        stderr_line!("made a certificate of its own: {}", folder.file(CERTIFICATE).display());
    }
    Ok((folder.read(CERTIFICATE)?, folder.read(KEY)?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let path = std::env::temp_dir().join(format!("longhaul-mesh-tls-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        let (certificate, key) = (path.join("cert.pem"), path.join("key.pem"));
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(&certificate, made.cert.pem()).unwrap();
        fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let options = PageOptions {
            certificate: Some(certificate),
            certificate_key: Some(key.clone()),
            ..PageOptions::default()
        };
        let with_mode = |mode| {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            acceptor(&Folder::new(&path), &options, ([127, 0, 0, 1], 0).into())
        };
        for mode in [0o666, 0o644, 0o640] {
            let refused = with_mode(mode).err().unwrap().to_string();
            assert!(refused.contains(&format!("{mode:04o}")) && refused.contains("chmod 600"), "{refused}");
        }
        assert!(with_mode(0o600).unwrap().is_some());
        fs::remove_dir_all(&path).unwrap();
    }
}
