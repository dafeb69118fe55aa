//! A connection to PostgreSQL by TLS, as the manual has it: `sslmode=verify-full` with the certificate that is expected.

use std::fs;

use longhaul_mesh::store::{Address, Archive};
use rcgen::{CertificateParams, KeyPair};

use crate::{Place, result};

/// A certificate for 127.0.0.1 that signs itself, and its key.
fn certificate() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
    (certificate.pem(), key.serialize_pem())
}

#[test]
fn postgresql_is_asked_for_its_certificate() {
    let mut place = Place::postgres("tls");
    let (own, key) = certificate();
    let (other, _) = certificate();
    let [right, wrong] = [("right.pem", &own), ("wrong.pem", &other)].map(|(name, text)| {
        let file = place.folder.0.join(name);
        fs::write(&file, text).unwrap();
        file
    });
    let server = place.server.as_mut().unwrap();
    let port = server.run_with_tls(&own, &key);
    let open = |host: &str, root: &std::path::Path| {
        let address =
            format!("postgres://longhaul@{host}:{port}/postgres?sslmode=verify-full&sslrootcert={}", root.display());
        Archive::open(address.parse::<Address>().unwrap())
    };
    let mut archive = open("127.0.0.1", &right).unwrap();
    archive.take(&[result(1)]).unwrap();
    assert_eq!(archive.hours(0).unwrap().len(), 1);
    for (host, root) in [("127.0.0.1", &wrong), ("localhost", &right)] {
        let error =
            open(host, root).err().unwrap_or_else(|| panic!("{host}, {}: it was taken", root.display())).to_string();
        assert!(error.contains("certificate"), "{error}");
    }
}
