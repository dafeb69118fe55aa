//! Embeds the script of the page where `scripts/web.sh` has built it. Without it the page says so, and the interface for programs works.

use std::path::Path;
use std::{env, fs};

fn main() {
    let built = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../web/dist");
    // The folder is there in each checkout: a path that is missing would have this run at each build.
    println!("cargo:rerun-if-changed={}", built.display());
    let (script, hash) = (built.join("mesh.js.gz"), built.join("mesh.sha256"));
    let embedded = match fs::read_to_string(hash) {
        Ok(hash) if script.is_file() => format!("Some((include_bytes!({script:?}), {:?}))", hash.trim()),
        _ => "None".to_owned(),
    };
    let source = format!(
        "/// The script, compressed by gzip, and its SHA-256 in base64.\nconst EMBEDDED: Option<(&[u8], &str)> = {embedded};\n"
    );
    fs::write(Path::new(&env::var("OUT_DIR").unwrap()).join("page.rs"), source).unwrap();
}
