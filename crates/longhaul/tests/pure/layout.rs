//! The shape of the source tree: no modules in circles, no long file, no wide folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, UseTree};

use crate::common::root;

/// Lines that a source file may have; what is longer is several ideas.
const MOST_LINES: usize = 700;
/// Source files that may lie side by side in a folder.
const MOST_FILES: usize = 15;

/// A module by the names that lead to it from the crate's root.
type Module = Vec<String>;

/// Source files below `folder`, with `extensions`.
fn sources(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path, extensions));
        } else if path.extension().is_some_and(|own| extensions.iter().any(|extension| own == *extension)) {
            found.push(path);
        }
    }
    found
}

/// The `src` folders of all crates.
fn source_folders() -> Vec<PathBuf> {
    let below = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let rooms: Vec<PathBuf> = below(root().join("crates")).collect();
    let crates = rooms.iter().filter(|room| room.is_dir()).flat_map(|room| below(room.clone())).chain(rooms.clone());
    let folders: Vec<PathBuf> =
        crates.filter(|path| path.join("Cargo.toml").exists()).map(|path| path.join("src")).collect();
    assert!(folders.len() > 10, "{folders:?}");
    folders
}

/// The module that the file at `path` below `src` holds.
fn module_of(src: &Path, path: &Path) -> Module {
    let below = path.strip_prefix(src).unwrap().with_extension("");
    let mut names: Module = below.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
    if names.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
        names.pop();
    }
    names
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<syn::Ident>().is_ok_and(|word| word == "test")
    })
}

/// Collects the paths in a file that begin with `crate`, `self` or `super`.
#[derive(Default)]
struct Paths(Vec<Module>);

impl Paths {
    fn take(&mut self, prefix: &Module, tree: &UseTree) {
        let longer = |name: &syn::Ident| [prefix.clone(), vec![name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.take(&longer(&path.ident), &path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.take(prefix, tree)),
            UseTree::Name(name) => self.0.push(longer(&name.ident)),
            UseTree::Rename(name) => self.0.push(longer(&name.ident)),
            UseTree::Glob(_) => self.0.push(prefix.clone()),
        }
    }
}

impl<'a> Visit<'a> for Paths {
    fn visit_item(&mut self, item: &'a Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        self.take(&Module::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// Which module uses which, in the crate whose sources are below `src`.
fn uses(src: &Path) -> Vec<(Module, Module)> {
    let files: BTreeMap<Module, syn::File> = sources(src, &["rs"])
        .into_iter()
        .filter(|path| path.file_stem().is_some_and(|stem| stem != "tests"))
        .map(|path| (module_of(src, &path), syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap()))
        .collect();
    let mut uses = Vec::new();
    for (module, file) in &files {
        let mut paths = Paths::default();
        paths.visit_file(file);
        for path in paths.0 {
            let mut names = path.as_slice();
            let mut target = match names.first().map(String::as_str) {
                Some("crate") => Module::new(),
                Some("self" | "super") => module.clone(),
                _ => continue,
            };
            while let Some(first @ ("crate" | "self" | "super")) = names.first().map(String::as_str) {
                if first == "super" {
                    target.pop();
                }
                names = &names[1..];
            }
            // Down to the module that has what is named.
            for name in names {
                target.push(name.clone());
                if !files.contains_key(&target) {
                    target.pop();
                    break;
                }
            }
            uses.push((module.clone(), target));
        }
    }
    uses
}

/// Modules side by side that use each other, directly or by way of others.
fn circles(uses: &[(Module, Module)]) -> BTreeSet<(Module, Module)> {
    let mut arrows: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (from, to) in uses {
        let common = from.iter().zip(to).take_while(|(from, to)| from == to).count();
        if common < from.len() && common < to.len() {
            arrows.entry(from[..=common].to_vec()).or_default().insert(to[..=common].to_vec());
        }
    }
    let reached = |start: &Module| {
        let mut reached = BTreeSet::new();
        let mut open = vec![start.clone()];
        while let Some(next) = open.pop() {
            open.extend(arrows.get(&next).into_iter().flatten().filter(|to| reached.insert((*to).clone())).cloned());
        }
        reached
    };
    let all: BTreeMap<&Module, BTreeSet<Module>> = arrows.keys().map(|from| (from, reached(from))).collect();
    let back = |from: &Module, to: &Module| all.get(to).is_some_and(|reached| reached.contains(from));
    let pairs = all.iter().flat_map(|(from, reached)| reached.iter().map(move |to| ((*from).clone(), to.clone())));
    pairs.filter(|(from, to)| from < to && back(from, to)).collect()
}

#[test]
fn no_modules_stand_in_a_circle() {
    for src in source_folders() {
        let circles = circles(&uses(&src));
        assert!(circles.is_empty(), "modules of {} use each other: {circles:?}", src.display());
    }
}

#[test]
fn a_circle_is_found() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let uses = |pairs: &[(&str, &str)]| pairs.iter().map(|(from, to)| (module(from), module(to))).collect::<Vec<_>>();
    let straight = uses(&[("a", "b"), ("b::x", "c"), ("a::y", "a::z"), ("a", "a::y"), ("a::y", "a")]);
    assert!(circles(&straight).is_empty());
    let round = uses(&[("a::y", "b"), ("b::x", "c"), ("c", "a::z")]);
    assert_eq!(circles(&round).len(), 3, "three pairs in one circle");
    assert_eq!(circles(&uses(&[("a::y", "a::z"), ("a::z", "a::y")])), [(module("a::y"), module("a::z"))].into());
}

#[test]
fn the_map_is_true() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let known: Vec<String> = sources(&root().join("crates"), &["rs", "c", "h", "js", "css", "html", "toml"])
        .into_iter()
        .map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned())
        .collect();
    // Every second part stands between backticks.
    let named = map.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs") || name.ends_with('/'));
    let is_there = |name: &str| {
        let below = format!("/{name}");
        let found = |path: &String| if name.ends_with('/') { path.contains(&below) } else { path.ends_with(&below) };
        root().join(name).exists() || known.iter().any(found)
    };
    let missing: Vec<&str> = named.filter(|name| !name.contains('<') && !is_there(name)).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {missing:?}");
}

#[test]
fn files_and_folders_can_be_read_in_one_sitting() {
    let code = ["rs", "c", "h", "js", "ts", "css", "html"];
    let mut folders: BTreeMap<PathBuf, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for path in
        ["crates", "fuzz/src", "fuzz/fuzz_targets"].iter().flat_map(|folder| sources(&root().join(folder), &code))
    {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        if lines > MOST_LINES {
            wrong.push(format!("{}: {lines} lines, at most {MOST_LINES}: split it by idea", path.display()));
        }
        *folders.entry(path.parent().unwrap().to_owned()).or_default() += 1;
    }
    let wide = folders.into_iter().filter(|(_, files)| *files > MOST_FILES);
    wrong.extend(wide.map(|(folder, files)| format!("{}: {files} files, at most {MOST_FILES}", folder.display())));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
