//! Embeds the scripts of pages where `scripts/web.sh` has built them. Without them pages have the figures that Rust draws, and nothing to save them.

use std::path::Path;
use std::{env, fs};

fn main() {
    let built = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../../web/dist");
    // The folder is there in each checkout: a path that is missing would have this run at each build.
    println!("cargo:rerun-if-changed={}", built.display());
    fs::write(Path::new(&env::var("OUT_DIR").unwrap()).join("scripts.rs"), source(&built)).unwrap();
}

/// A constant for each script: what is in the folder `built`, or `None`.
pub(crate) fn source(built: &Path) -> String {
    let embedded = |name: &str| {
        let (script, hash) = (built.join(format!("{name}.js.gz")), built.join(format!("{name}.sha256")));
        match fs::read_to_string(hash) {
            Ok(hash) if script.is_file() => format!("Some((include_bytes!({script:?}), {:?}))", hash.trim()),
            _ => "None".to_owned(),
        }
    };
    let constant = |name: &str| {
        let (upper, value) = (name.to_uppercase(), embedded(name));
        format!(
            "/// `{name}.js`, compressed by gzip, and its SHA-256 in base64.\nconst {upper}: Option<(&[u8], &str)> = {value};\n"
        )
    };
    constant("charts") + &constant("stills")
}
