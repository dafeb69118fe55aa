//! Compiles each `src/<name>/main.bpf.c` and writes its skeleton to `$OUT_DIR/<name>.skel.rs`; and each
//! `src/congestion/controls/<name>.bpf.c`, once for BPF to `$OUT_DIR/congestion/<name>.o.gz` and once natively.
//!
//! Without clang, or without the feature `programs`, the crate is still built: `cfg(bpf_programs)` is off, and calls that would
//! load a program fail and say why (`BPF_PROGRAMS_MISSING`). Native code needs the C compiler that links Rust anyway.

/// The congestion controls: names of their sources.
const CONTROLS: [&str; 13] = [
    "cubic",
    "highspeed",
    "scalable",
    "bic",
    "htcp",
    "hybla",
    "illinois",
    "westwood",
    "yeah",
    "vegas",
    "fast",
    "compound",
    "bbr3",
];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(bpf_programs)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-env-changed=PATH");
    println!("cargo::rerun-if-changed=src/types.h");
    println!("cargo::rerun-if-changed=src/congestion");
    build_natively();
    match programs::build() {
        Ok(()) => println!("cargo::rustc-cfg=bpf_programs"),
        Err(why) => {
            println!("cargo::warning=BPF programs are left out: {why}");
            println!("cargo::rustc-env=BPF_PROGRAMS_MISSING={why}");
        }
    }
}

fn build_natively() {
    let mut build = cc::Build::new();
    build.include("src").std("gnu11").opt_level(2).warnings(true).extra_warnings(true).cargo_metadata(true);
    // Callbacks have the kernel's parameters, needed or not.
    build.flag("-Wno-unused-parameter").flag("-Wno-unused-function");
    // What has no defined result ends the program: a shift too far, an index beyond its array, a division by zero.
    build.flag("-fsanitize=undefined");
    let trap = if build.get_compiler().is_like_clang() {
        "-fsanitize-trap=undefined"
    } else {
        "-fsanitize-undefined-trap-on-error"
    };
    build.flag(trap);
    build.files(CONTROLS.map(|name| format!("src/congestion/controls/{name}.bpf.c"))).compile("longhaul_congestion");
}

#[cfg(not(feature = "programs"))]
mod programs {
    pub(crate) fn build() -> Result<(), String> {
        Err("the feature `programs` of longhaul-bpf was off".into())
    }
}

#[cfg(feature = "programs")]
mod programs {
    use std::io::{self, Write};
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::{env, fs};

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use libbpf_cargo::SkeletonBuilder;

    /// Folder of the source, name of the skeleton.
    const PROGRAMS: [(&str, &str); 10] = [
        ("src/congestion/selection", "selection"),
        ("src/drops", "drops"),
        ("src/filter", "filter"),
        ("src/filter/generation", "filter_generation"),
        ("src/mix", "mix"),
        ("src/pacing", "pacing"),
        ("src/tcp_loss", "tcp_loss"),
        ("src/tcp_owner", "tcp_owner"),
        ("src/udp_flow", "udp_flow"),
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
            let source = Path::new(folder).join("main.bpf.c");
            compiler(&clang, &source, &out.join(format!("{name}.o")))
                .build_and_generate(out.join(format!("{name}.skel.rs")))
                .unwrap_or_else(|error| panic!("{folder}/main.bpf.c: {error:#}"));
        }
        let objects = out.join("congestion");
        fs::create_dir_all(&objects).map_err(|error| format!("{}: {error}", objects.display()))?;
        for name in super::CONTROLS {
            let source = PathBuf::from(format!("src/congestion/controls/{name}.bpf.c"));
            compiler(&clang, &source, &objects.join(format!("{name}.o")))
                .build()
                .unwrap_or_else(|error| panic!("{}: {error:#}", source.display()));
            compress(&objects.join(format!("{name}.o"))).unwrap_or_else(|error| panic!("{name}.o: {error}"));
        }
        Ok(())
    }

    /// Writes `<object>.gz` beside an object: a binary has all controls, a run loads few.
    fn compress(object: &Path) -> io::Result<()> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&fs::read(object)?)?;
        fs::write(object.with_extension("o.gz"), encoder.finish()?)
    }

    fn compiler(clang: &str, source: &Path, object: &Path) -> SkeletonBuilder {
        let mut builder = SkeletonBuilder::new();
        builder.source(source).obj(object).clang(clang).clang_args(["-Isrc", "-Wall", "-Werror", "-mcpu=v3"]);
        builder
    }
}
