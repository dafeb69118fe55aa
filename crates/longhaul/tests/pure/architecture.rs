//! The invariants of ARCHITECTURE.md: mostly things that are deliberately absent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{printed, root};
use serde_json::Value;

/// Crates that know no operating system: their time is an argument.
const PURE: [&str; 18] = [
    "longhaul-units",
    "longhaul-result",
    "longhaul-wire",
    "longhaul-path",
    "longhaul-channel",
    "longhaul-terms",
    "longhaul-udp",
    "longhaul-tcp",
    "longhaul-rtt",
    "longhaul-session",
    "longhaul-congestion",
    "longhaul-captures",
    "longhaul-flows",
    "longhaul-diagnosis",
    "longhaul-profile",
    "longhaul-sweep",
    "longhaul-mesh-model",
    "longhaul-report",
];
/// Crates that know one.
const IMPURE: &[&str] = &[
    "longhaul-kernel",
    "longhaul-bpf",
    "longhaul-emulator",
    "longhaul-peer",
    "longhaul-capture",
    "longhaul-watch",
    "longhaul-lab",
    "longhaul-experiment",
    "longhaul-mix",
    "longhaul-filter",
    "longhaul-host",
    "longhaul-tune",
    "longhaul-testing",
    "longhaul-mesh",
    "longhaul",
];
/// Modules of `longhaul-mix` that only describe frames. They are as pure as the crates above.
const PURE_OF_MIX: [&str; 6] = ["spec.rs", "kind.rs", "target.rs", "frames", "plan.rs", "draw.rs"];
/// The same of `longhaul-tune`: what a plan is made of.
const PURE_OF_TUNE: [&str; 5] = ["plan", "target.rs", "host.rs", "place.rs", "diagnosis.rs"];
/// Rooms that crates of a room may use beside their own.
const ROOMS: [(&str, &[&str]); 7] = [
    ("foundation", &[]),
    ("linux", &["foundation"]),
    ("path", &["foundation", "linux"]),
    ("test", &["foundation", "linux"]),
    ("observe", &["foundation", "linux"]),
    ("endpoint", &["foundation", "linux"]),
    ("study", &["foundation", "linux", "path", "test", "observe", "endpoint"]),
];
/// Crates that use one of another room all the same. ARCHITECTURE.md says why.
const ACROSS_ROOMS: [(&str, &[&str]); 6] = [
    ("endpoint/mix", &["test/udp"]),
    ("endpoint/tune", &["path/model"]),
    ("observe/capture", &["test/channel", "test/peer", "test/session"]),
    ("observe/watch", &["test/tcp", "test/terms", "test/udp"]),
    ("test/peer", &["endpoint/host"]),
    ("test/rtt", &["observe/captures"]),
];
/// Where a caveat has a code of no table: that of the error of a test that failed, or another host's.
const OF_ERRORS: [&str; 4] = [
    "longhaul/src/cmd/sweep/mod.rs",
    "study/experiment/src/run/tcp.rs",
    "study/experiment/src/run/udp.rs",
    "test/session/src/message.rs",
];
/// Lines that the README of a crate may have: what it is, what is in it, where to start.
const README_LINES: usize = 13;
/// Ways to the operating system that lead around those.
const OS_CRATES: [&str; 8] = ["libc", "nix", "rustix", "mio", "tokio", "socket2", "signal-hook", "jiff"];
/// What a pure crate would read a clock or sleep with.
const CLOCKS: [&str; 4] = ["Instant::now", "SystemTime::now", "thread::sleep", "sleep_until"];
/// Crates that may be `unsafe`.
const UNSAFE: [&str; 2] = ["linux/kernel", "linux/bpf"];

/// The packages of this workspace and what each needs, without what only its tests need.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let packages = metadata["packages"].as_array().unwrap().iter().map(|package| {
        let all = package["dependencies"].as_array().unwrap().iter();
        let needed = all.filter(|dependency| dependency["kind"] != "dev").map(|dependency| text(&dependency["name"]));
        (text(&package["name"]), needed.collect())
    });
    packages.collect()
}

/// What `package` needs, directly or through other packages of the workspace.
fn reach(package: &str, dependencies: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![package];
    while let Some(next) = open.pop() {
        for needed in dependencies.get(next).into_iter().flatten() {
            if reached.insert(needed.clone()) {
                open.push(needed);
            }
        }
    }
    reached
}

pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The folders of the crates below `crates/`, by their path there, such as `foundation/units`.
pub(crate) fn crates() -> BTreeMap<String, PathBuf> {
    let below = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
    };
    let top = root().join("crates");
    let rooms = below(&top);
    let folders = rooms.iter().cloned().chain(rooms.iter().flat_map(|room| below(room)));
    let folders = folders.filter(|folder| folder.join("Cargo.toml").exists());
    folders.map(|folder| (folder.strip_prefix(&top).unwrap().to_str().unwrap().to_owned(), folder)).collect()
}

/// The folder of each package of the workspace.
fn packages() -> BTreeMap<String, PathBuf> {
    let name = |folder: &Path| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let line = manifest.lines().find(|line| line.starts_with("name = ")).unwrap();
        line.trim_start_matches("name = ").trim_matches('"').to_owned()
    };
    crates().into_values().map(|folder| (name(&folder), folder)).collect()
}

/// A line without its comment. Quotes before `//` keep a URL in a text.
fn code(line: &str) -> &str {
    let comment = line.match_indices("//").find(|(at, _)| line[..*at].matches('"').count().is_multiple_of(2));
    comment.map_or(line, |(at, _)| &line[..at])
}

/// Lines of code in `files` of which `found` is true, as `file:line: text`.
fn lines(files: Vec<PathBuf>, found: impl Fn(&str) -> bool) -> Vec<String> {
    let mut hits = Vec::new();
    for file in files {
        for (number, line) in (1..).zip(fs::read_to_string(&file).unwrap().lines()) {
            if found(code(line)) {
                hits.push(format!("{}:{number}: {}", file.display(), line.trim()));
            }
        }
    }
    hits
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|part| part == word)
}

#[test]
fn pure_crates_know_no_operating_system() {
    let dependencies = dependencies();
    assert!(dependencies.contains_key("longhaul-path"), "{dependencies:?}");
    for package in PURE {
        let reached = reach(package, &dependencies);
        for forbidden in IMPURE.iter().chain(&OS_CRATES) {
            assert!(!reached.contains(*forbidden), "{package} depends on {forbidden}");
        }
    }
}

#[test]
fn what_tests_share_is_in_no_program() {
    for package in dependencies().keys() {
        assert!(!reach(package, &dependencies()).contains("longhaul-testing"), "{package} is built with it");
    }
}

#[test]
fn units_stand_on_their_own() {
    let reached = reach("longhaul-units", &dependencies());
    assert!(reached.iter().all(|needed| !needed.starts_with("longhaul")), "{reached:?}");
}

#[test]
fn kernel_decides_nothing() {
    let reached = reach("longhaul-kernel", &dependencies());
    let own: Vec<_> = reached.iter().filter(|needed| needed.starts_with("longhaul")).collect();
    assert_eq!(own, ["longhaul-units"], "kernel is access to Linux, without a model or a policy");
}

#[test]
fn a_lab_knows_no_test() {
    let needed = &dependencies()["longhaul-lab"];
    let own: Vec<_> = needed.iter().filter(|needed| needed.starts_with("longhaul")).collect();
    assert_eq!(own, ["longhaul-emulator", "longhaul-kernel", "longhaul-path", "longhaul-units"]);
}

#[test]
fn each_crate_is_pure_or_not() {
    let dependencies = dependencies();
    let all: BTreeSet<&str> = dependencies.keys().map(String::as_str).collect();
    let known: BTreeSet<&str> = PURE.iter().chain(IMPURE).copied().collect();
    assert_eq!(all, known, "PURE or IMPURE lacks a crate, or names one that is not there");
    assert_eq!(known.len(), PURE.len() + IMPURE.len(), "a crate is in both lists, or twice in one");
}

#[test]
fn rooms_use_what_the_map_says() {
    let dependencies = dependencies();
    let top = root().join("crates");
    let name = |folder: &Path| folder.strip_prefix(&top).unwrap().to_str().unwrap().to_owned();
    let names: BTreeMap<String, String> =
        packages().into_iter().map(|(package, folder)| (package, name(&folder))).collect();
    let mut across: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (package, name) in &names {
        // The binaries join the rooms and are in none.
        let Some((room, _)) = name.split_once('/') else { continue };
        let (_, others) = ROOMS.iter().find(|(own, _)| *own == room).unwrap_or_else(|| panic!("ROOMS lacks {room}"));
        for used in dependencies[package].iter().filter_map(|needed| names.get(needed)) {
            let (of, _) = used.split_once('/').unwrap_or_else(|| panic!("{name} uses the binary {used}"));
            if of != room && !others.contains(&of) {
                across.entry(name).or_default().push(used);
            }
        }
    }
    across.values_mut().for_each(|used| used.sort_unstable());
    let known = ACROSS_ROOMS.map(|(name, used)| (name, used.to_vec()));
    assert_eq!(across, BTreeMap::from(known), "a new use across rooms is a decision: see ARCHITECTURE.md");
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (name, used) in ACROSS_ROOMS {
        let said = map.lines().find(|line| line.starts_with(&format!("- `{name}` uses ")));
        let said = said.unwrap_or_else(|| panic!("ARCHITECTURE.md does not say what {name} uses"));
        assert!(used.iter().all(|used| said.contains(&format!("`{used}`"))), "{said}");
    }
}

#[test]
fn pure_crates_read_no_clock() {
    for package in PURE {
        let folder = &packages()[package];
        let hits = lines(sources(&folder.join("src")), |line| CLOCKS.iter().any(|clock| line.contains(clock)));
        assert!(hits.is_empty(), "time is an argument in {package}:\n{}", hits.join("\n"));
    }
}

/// They end the thread where standard error is a file on a full disk: use `stderr_line!` of longhaul-kernel.
#[test]
fn no_program_ends_for_a_line_on_standard_error() {
    for package in ["longhaul", "longhaul-mesh"] {
        let hits = lines(sources(&packages()[package].join("src")), |line| {
            ["eprintln!", "eprint!", " println!", " print!"].iter().any(|name| line.contains(name))
        });
        assert!(hits.is_empty(), "{package}:\n{}", hits.join("\n"));
    }
}

#[test]
fn a_mix_is_described_without_an_operating_system() {
    let folder = packages()["longhaul-mix"].join("src");
    let files = PURE_OF_MIX.map(|name| folder.join(name));
    let files = files.into_iter().flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    let impure = |line: &str| {
        let system = ["longhaul_kernel", "longhaul_bpf", "crate::engine", "crate::sending", "crate::receiver"];
        CLOCKS.iter().chain(&system).chain(&OS_CRATES).any(|name| line.contains(name))
    };
    let hits = lines(files.collect(), impure);
    assert!(hits.is_empty(), "frames of a mix follow from its text, a seed and a number:\n{}", hits.join("\n"));
}

#[test]
fn a_plan_is_made_without_an_operating_system() {
    let folder = packages()["longhaul-tune"].join("src");
    let files = PURE_OF_TUNE.map(|name| folder.join(name));
    let files = files.into_iter().flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    let impure = |line: &str| {
        let system =
            ["longhaul_kernel", "std::fs", "crate::reading", "crate::setting", "crate::state", "crate::changing"];
        CLOCKS.iter().chain(&system).chain(&OS_CRATES).any(|name| line.contains(name))
    };
    let hits = lines(files.collect(), impure);
    assert!(hits.is_empty(), "a plan follows from settings and target:\n{}", hits.join("\n"));
}

#[test]
fn unsafe_is_confined() {
    for (name, folder) in crates().into_iter().filter(|(name, _)| !UNSAFE.contains(&name.as_str())) {
        let hits = lines(sources(&folder.join("src")), |line| has_word(line, "unsafe") || line.contains("unsafe_code"));
        assert!(hits.is_empty(), "unsafe code outside of {UNSAFE:?}, in {name}:\n{}", hits.join("\n"));
    }
    assert_eq!(code("let url = \"a://b\"; // unsafe"), "let url = \"a://b\"; ");
    assert!(has_word("pub unsafe fn f()", "unsafe") && !has_word("unshare_unsafe()", "unsafe"));
}

#[test]
fn every_crate_has_the_lints_of_the_workspace() {
    for (name, folder) in crates() {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name}");
    }
}

/// What the figure of ARCHITECTURE.md names, with the room in whose rows it stands.
fn figure(map: &str) -> BTreeSet<String> {
    let figure = map.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the map has a figure");
    let (mut named, mut room) = (BTreeSet::new(), "");
    for line in figure.lines() {
        let mut words = line.split_whitespace().peekable();
        room = words.next_if(|first| first.ends_with('/')).unwrap_or(room);
        named.extend(words.map(|word| format!("{room}{word}")));
    }
    named
}

#[test]
fn the_map_shows_every_crate() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let figure = figure(&map);
    assert!(crates().len() > 10, "{:?}", crates());
    for (name, folder) in crates() {
        assert!(map.contains(&format!("`crates/{name}`")), "ARCHITECTURE.md does not mention `crates/{name}`");
        assert!(figure.contains(&name), "the figure of ARCHITECTURE.md lacks {name}");
        let readme = fs::read_to_string(folder.join("README.md"));
        let lines = readme.unwrap_or_else(|error| panic!("crates/{name}/README.md: {error}")).lines().count();
        assert!(lines <= README_LINES, "crates/{name}/README.md has {lines} lines, at most {README_LINES}");
    }
}

#[test]
fn every_preset_is_known_by_name() {
    let listed = printed(&["paths"]);
    let mut listed: Vec<&str> = listed.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    listed.sort_unstable();
    let mut files: Vec<String> = fs::read_dir(root().join("paths"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort_unstable();
    assert_eq!(listed, files);
}

/// The tables of caveats: constant, code and meaning, by file.
fn caveat_tables() -> Vec<(PathBuf, Vec<[String; 3]>)> {
    let files = crates().into_values().map(|folder| folder.join("src/caveats.rs")).filter(|file| file.exists());
    let table = |file: PathBuf| {
        let mut rows = Vec::new();
        let mut meaning = String::new();
        for line in fs::read_to_string(&file).unwrap().lines().map(str::trim) {
            if let Some(text) = line.strip_prefix("/// ") {
                text.clone_into(&mut meaning);
            } else if let Some((name, code)) = line.split_once(" = \"") {
                rows.push([name.to_owned(), code.trim_end_matches("\";").to_owned(), std::mem::take(&mut meaning)]);
            }
        }
        (file, rows)
    };
    files.map(table).collect()
}

/// Whether a file below `src` has tests alone.
pub(crate) fn is_test(file: &Path) -> bool {
    file.file_stem().is_some_and(|stem| stem == "tests")
        || file.parent().is_some_and(|folder| folder.ends_with("tests"))
}

/// What of a file is not its tests.
pub(crate) fn program(text: &str) -> &str {
    let mark = "\n#[cfg(test)]\n";
    let is_tests = |rest: &str| rest.lines().next().is_some_and(|line| line.ends_with("mod tests {"));
    let tests = text.match_indices(mark).find(|(at, _)| is_tests(&text[at + mark.len()..]));
    &text[..tests.map_or(text.len(), |at| at.0)]
}

/// The constants of tables of caveats that a program with this text mentions, other than to ask whether a caveat is of that kind.
fn raised(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mentions =
        program(text).lines().map(code).flat_map(|line| line.match_indices("caveats::").map(move |at| (line, at.0)));
    let raising =
        mentions.filter(|(line, at)| !line[..*at].trim_end_matches(|c: char| is_name(c) || c == ':').ends_with(".is("));
    raising.map(|(line, at)| line[at + "caveats::".len()..].chars().take_while(|c| is_name(*c)).collect()).collect()
}

#[test]
fn a_caveat_that_tests_alone_know_is_not_raised() {
    let program = "warn(caveats::A_B, 1);\n// caveats::C\nif one.is(longhaul_udp::caveats::D) {}\n\
                   #[cfg(test)]\nuse one;\nlet x = peer::caveats::E;\n";
    for visible in ["", "pub(crate) "] {
        let text = format!("{program}#[cfg(test)]\n{visible}mod tests {{\n    warn(caveats::F);\n}}\n");
        assert_eq!(raised(&text), ["A_B".to_owned(), "E".to_owned()].into(), "{text}");
    }
    assert!(is_test(Path::new("src/tests.rs")) && is_test(Path::new("src/tests/late.rs")));
    assert!(!is_test(Path::new("src/testing/mod.rs")));
}

#[test]
fn caveats_are_documented_and_raised() {
    let page = fs::read_to_string(root().join("docs/reference/caveats.md")).unwrap();
    let programs = crates().into_values().map(|folder| folder.join("src")).flat_map(|src| sources(&src));
    let programs = programs.filter(|file| !is_test(file) && !file.ends_with("src/caveats.rs"));
    let raised: BTreeSet<String> = programs.flat_map(|file| raised(&fs::read_to_string(file).unwrap())).collect();
    let mut seen = BTreeSet::new();
    let tables = caveat_tables();
    assert!(tables.len() > 8, "{tables:?}");
    for (file, rows) in tables {
        for [name, code, meaning] in rows {
            assert_eq!(name.to_lowercase(), code, "{}", file.display());
            assert!(seen.insert(code.clone()), "two tables have the caveat {code}");
            assert!(raised.contains(&name), "nobody raises the caveat {code}");
            // "1 caveat applies: lab" says nothing. Most of these are of captures and the filter, which have no page.
            let says_enough = ["interrupted", "disk", "unaccounted", "bridge", "shared", "forwarding", "promiscuous"];
            assert!(
                code.contains('_') || says_enough.contains(&&*code),
                "pages show the caveat {code}: name it in two words"
            );
            let row = format!("| `{code}` | {meaning} |");
            assert!(page.contains(&row), "docs/reference/caveats.md lacks the row {row}");
        }
    }
    let listed = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(listed, seen.len(), "docs/reference/caveats.md lists a caveat that no table has");
}

#[test]
fn no_caveat_passes_by_the_tables() {
    let files = crates().into_values().flat_map(|folder| sources(&folder.join("src")));
    let files = files.filter(|file| !is_test(file) && !file.ends_with("foundation/result/src/caveat.rs"));
    let (mut made, mut of_errors) = (Vec::new(), BTreeSet::new());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let mentions = |name: &str| program(&text).lines().map(code).any(|line| line.contains(name));
        if mentions("CaveatCode::of_table") {
            made.push(file.clone());
        }
        if mentions("Caveat::of_error(") {
            let name = file.strip_prefix(root().join("crates")).unwrap();
            of_errors.insert(name.to_str().unwrap().to_owned());
        }
    }
    assert!(made.is_empty(), "a code outside of the tables: {made:?}");
    assert_eq!(of_errors, OF_ERRORS.map(str::to_owned).into(), "a caveat has the code of a table: use Caveat::new");
}
