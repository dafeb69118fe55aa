//! Beyond loopback the page is encrypted, with an own certificate or the operator's: asked by curl, from another host of a lab.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, process};

use crate::common::{Folder, MESH, PATIENCE, hub, names, results};
use longhaul_testing::program::Program;

struct Lab {
    longhaul: PathBuf,
    name: String,
}

impl Lab {
    fn up(folder: &Folder) -> Option<Self> {
        let longhaul = Path::new(MESH).with_file_name("longhaul");
        if !longhaul.is_file() {
            longhaul_testing::skipped!("longhaul is not built: use cargo test --workspace");
            return None;
        }
        let path = folder.file("path.toml");
        fs::write(&path, "[[both]]\nrate = '1Gbit'\ndelay = '1ms'\n").unwrap();
        let lab = Self { longhaul, name: format!("mesh-page-{}", process::id()) };
        let up = Command::new(&lab.longhaul).args(["lab", "up", "--name", &lab.name]).arg(path).output().unwrap();
        if !up.status.success() {
            longhaul_testing::no_judge!("{}", String::from_utf8_lossy(&up.stderr).trim());
            return None;
        }
        Some(lab)
    }

    fn command(&self, host: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.longhaul);
        command.args(["lab", "exec", "--name", &self.name, host, "--"]).args(arguments);
        command
    }

    fn curl(&self, arguments: &[&str]) -> Output {
        self.command("client", &[&["curl", "-sS", "-m", "10"], arguments].concat()).output().unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = Command::new(&self.longhaul).args(["lab", "down", "--name", &self.name]).output();
    }
}

#[test]
fn beyond_loopback_it_is_encrypted() {
    let folder = Folder::new("encrypted");
    let Some(lab) = Lab::up(&folder) else { return };
    let sites = names(&["ithaca", "geneva"]);
    let hub = hub(&folder, &sites, &results(&sites, 2, |_, _, _| 1));
    let shown = lab.command("server", &["ip", "-4", "-o", "addr", "show", "eth0"]).output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let address = shown.split_whitespace().skip_while(|word| *word != "inet").nth(1).unwrap();
    let http = format!("{}:8443", address.split('/').next().unwrap());
    let run = ["run", "--coordinator", "--bind", "127.0.0.1:0", "--http", &http, "--folder", hub.to_str().unwrap()];
    let start = |options: &[&str]| {
        let child = lab.command("server", &[&[MESH], &run[..], options].concat()).spawn().unwrap();
        Program(child)
    };
    let own = hub.join("certificate.pem");
    let question = format!("https://{http}/api/v1/mesh");
    let ask = |certificate: &str| {
        let begin = Instant::now();
        while !hub.join("http-token").exists() {
            assert!(begin.elapsed() < PATIENCE, "there is no token");
            thread::sleep(Duration::from_millis(50));
        }
        loop {
            let token = fs::read_to_string(hub.join("http-token")).unwrap();
            let bearer = format!("Authorization: Bearer {}", token.trim());
            let output = lab.curl(&["--cacert", certificate, "-H", &bearer, &question]);
            // Refused: it does not listen yet. 77: there is no certificate yet.
            if !matches!(output.status.code(), Some(7 | 77)) {
                return output;
            }
            assert!(begin.elapsed() < PATIENCE, "{output:?}");
            thread::sleep(Duration::from_millis(100));
        }
    };
    let coordinator = start(&[]);
    let output = ask(own.to_str().unwrap());
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"name\":\"research\""), "{output:?}");
    // Whoever has not got the certificate does not believe it; plain http is not answered; old TLS is not either.
    assert_eq!(lab.curl(&[&question]).status.code(), Some(60));
    assert!(!lab.curl(&[&format!("http://{http}/")]).status.success());
    assert!(!lab.curl(&["-k", "--tls-max", "1.1", &question]).status.success());
    let login = lab.curl(&[
        "-k",
        "-i",
        "-d",
        &format!("token={}", fs::read_to_string(hub.join("http-token")).unwrap().trim()),
        &format!("https://{http}/login"),
    ]);
    let login = String::from_utf8_lossy(&login.stdout).to_lowercase();
    assert!(login.contains("httponly; samesite=strict; secure"), "{login}");
    drop(coordinator);
    // The own certificate stays the same; the operator's takes its place.
    let first = fs::read_to_string(&own).unwrap();
    let (certificate, key) = (folder.file("cert.pem"), folder.file("key.pem"));
    let made = rcgen::generate_simple_self_signed([http.split(':').next().unwrap().to_owned()]).unwrap();
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let coordinator =
        start(&["--certificate", certificate.to_str().unwrap(), "--certificate-key", key.to_str().unwrap()]);
    let output = ask(certificate.to_str().unwrap());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(ask(own.to_str().unwrap()).status.code(), Some(60));
    assert_eq!(fs::read_to_string(&own).unwrap(), first);
    drop(coordinator);
}
