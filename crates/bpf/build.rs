//! Compiles each `src/<name>/main.bpf.c` and writes its skeleton to `$OUT_DIR/<name>.skel.rs`.
//!
//! Without clang, or without the feature `programs`, the crate is built all the same: `cfg(bpf_programs)` is off, and what
//! would load a program says why it cannot (`BPF_PROGRAMS_MISSING`).

fn main() {
    println!("cargo::rustc-check-cfg=cfg(bpf_programs)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-env-changed=PATH");
    match programs::build() {
        Ok(()) => println!("cargo::rustc-cfg=bpf_programs"),
        Err(why) => {
            println!("cargo::warning=BPF programs are left out: {why}");
            println!("cargo::rustc-env=BPF_PROGRAMS_MISSING={why}");
        }
    }
}

#[cfg(not(feature = "programs"))]
mod programs {
    pub(crate) fn build() -> Result<(), String> {
        Err("the feature `programs` of longhaul-bpf was off".into())
    }
}

#[cfg(feature = "programs")]
mod programs {
    use std::env;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use libbpf_cargo::SkeletonBuilder;

    /// Folder of the source, name of the skeleton.
    const PROGRAMS: [(&str, &str); 4] = [
        ("src/drops", "drops"),
        ("src/tcp_loss", "tcp_loss"),
        ("src/tcp_owner", "tcp_owner"),
        ("tests/hooks", "hooks"),
    ];

    /// `Err` where there is no clang; a source that does not compile ends the build.
    pub(crate) fn build() -> Result<(), String> {
        let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
        if let Err(error) = Command::new(&clang).arg("--version").output() {
            return Err(format!("cannot run {clang} ({error}); install clang, or name one in CLANG"));
        }
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
        println!("cargo::rerun-if-changed=src/kernel.h");
        for (folder, name) in PROGRAMS {
            println!("cargo::rerun-if-changed={folder}");
            SkeletonBuilder::new()
                .source(Path::new(folder).join("main.bpf.c"))
                .obj(out.join(format!("{name}.o")))
                .clang(&clang)
                .clang_args(["-Isrc", "-Wall", "-Werror", "-mcpu=v3"])
                .build_and_generate(out.join(format!("{name}.skel.rs")))
                .unwrap_or_else(|error| panic!("{folder}/main.bpf.c: {error:#}"));
        }
        Ok(())
    }
}
