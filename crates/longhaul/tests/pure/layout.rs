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

/// The names that `tree` brings, behind `prefix`, each with the names that lead to what it is.
fn brought(prefix: &Module, tree: &UseTree) -> Vec<(String, Module)> {
    let longer = |name: &syn::Ident| [prefix.clone(), vec![name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => brought(&longer(&path.ident), &path.tree),
        UseTree::Group(group) => group.items.iter().flat_map(|tree| brought(prefix, tree)).collect(),
        UseTree::Name(name) if name.ident == "self" => {
            prefix.last().map(|last| (last.clone(), prefix.clone())).into_iter().collect()
        }
        UseTree::Name(name) => vec![(name.ident.to_string(), longer(&name.ident))],
        UseTree::Rename(name) => vec![(name.rename.to_string(), longer(&name.ident))],
        UseTree::Glob(_) => vec![("*".to_owned(), prefix.clone())],
    }
}

/// Collects the paths in a file.
#[derive(Default)]
struct Paths(Vec<Module>);

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
        self.0.extend(brought(&Module::new(), &item.tree).into_iter().map(|(_, path)| path));
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.0.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }
}

/// The modules of a crate.
type Files = BTreeMap<Module, syn::File>;

/// Those whose sources are below `src`. A program beside a library is a crate of its own.
fn files(src: &Path) -> Files {
    let program = src.join("main.rs");
    let is_library = src.join("lib.rs").exists();
    let sources = sources(src, &["rs"]).into_iter().filter(|path| path.file_stem().is_some_and(|stem| stem != "tests"));
    let sources = sources.filter(|path| !is_library || *path != program);
    let parsed = |path: PathBuf| syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap();
    sources.map(|path| (module_of(src, &path), parsed(path))).collect()
}

/// The names that lead from the crate's root to what `module` calls `path`; `None` where that is of another crate.
fn from_root(files: &Files, module: &Module, path: &[String]) -> Option<Module> {
    let mut names = path;
    let mut target = match names.first()?.as_str() {
        "crate" => Module::new(),
        "self" | "super" => module.clone(),
        _ => {
            let path = [module.as_slice(), path].concat();
            return files.contains_key(&path[..=module.len()]).then_some(path);
        }
    };
    while let Some(first @ ("crate" | "self" | "super")) = names.first().map(String::as_str) {
        if first == "super" {
            target.pop();
        }
        names = &names[1..];
    }
    target.extend_from_slice(names);
    Some(target)
}

/// Names that modules have by `use`, each with those that lead to it from the crate's root.
fn imports(files: &Files) -> BTreeMap<(Module, String), Module> {
    let mut imports = BTreeMap::new();
    for (module, file) in files {
        for item in &file.items {
            let Item::Use(item) = item else { continue };
            for (name, path) in brought(&Module::new(), &item.tree) {
                let path = from_root(files, module, &path).filter(|_| !is_for_tests(&item.attrs));
                imports.extend(path.map(|path| ((module.clone(), name), path)));
            }
        }
    }
    imports
}

/// The module where that is to which `names` lead: a module that has it by `use` alone is passed.
fn owner(files: &Files, imports: &BTreeMap<(Module, String), Module>, mut names: Module) -> Module {
    // A name that comes back to itself leads nowhere.
    for _ in 0..16 {
        let depth = (1..=names.len()).take_while(|depth| files.contains_key(&names[..*depth])).last().unwrap_or(0);
        let import = names.get(depth).and_then(|name| imports.get(&(names[..depth].to_vec(), name.clone())));
        let Some(import) = import else {
            names.truncate(depth);
            break;
        };
        names = [import.as_slice(), &names[depth + 1..]].concat();
    }
    names
}

/// Which module uses which.
fn uses(files: &Files) -> Vec<(Module, Module)> {
    let imports = imports(files);
    let mut uses = Vec::new();
    for (module, file) in files {
        let mut paths = Paths::default();
        paths.visit_file(file);
        let paths = paths.0.iter().filter_map(|path| from_root(files, module, path));
        uses.extend(paths.map(|path| (module.clone(), owner(files, &imports, path))));
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
        let circles = circles(&uses(&files(&src)));
        assert!(circles.is_empty(), "modules of {} use each other: {circles:?}", src.display());
    }
}

/// A module by its path from the crate's root.
fn module(path: &str) -> Module {
    path.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[test]
fn a_circle_is_found() {
    let uses = |pairs: &[(&str, &str)]| pairs.iter().map(|(from, to)| (module(from), module(to))).collect::<Vec<_>>();
    let straight = uses(&[("a", "b"), ("b::x", "c"), ("a::y", "a::z"), ("a", "a::y"), ("a::y", "a")]);
    assert!(circles(&straight).is_empty());
    let round = uses(&[("a::y", "b"), ("b::x", "c"), ("c", "a::z")]);
    assert_eq!(circles(&round).len(), 3, "three pairs in one circle");
    assert_eq!(circles(&uses(&[("a::y", "a::z"), ("a::z", "a::y")])), [(module("a::y"), module("a::z"))].into());
}

#[test]
fn a_circle_through_names_of_the_parent_is_found() {
    let found = |sources: &[(&str, &str)]| {
        let files: Files = sources.iter().map(|(path, text)| (module(path), syn::parse_file(text).unwrap())).collect();
        circles(&uses(&files))
    };
    let root = ("", "mod a; mod b; pub use a::link; pub use b::guard::Claim as Right;");
    let (a, b) = (("a", "pub mod link;"), ("b", "pub mod guard;"));
    let (link, guard) = (("a::link", "use crate::Right;"), ("b::guard", "fn f() -> crate::link::Link {}"));
    assert_eq!(found(&[root, a, b, link, guard]), [(module("a"), module("b"))].into());
    assert!(found(&[root, a, b, ("a::link", "#[cfg(test)] use crate::Right;"), guard]).is_empty());
    let parent = ("", "mod a; mod b; use a::One; pub(crate) use self::b::{self as other, Two};");
    let (a, b) = (("a", "use super::{Three, other};"), ("b", "use super::One;"));
    assert_eq!(found(&[parent, a, b]), [(module("a"), module("b"))].into());
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
    let tops = ["crates", "fuzz/src", "fuzz/fuzz_targets", "web/src"];
    for path in tops.iter().flat_map(|folder| sources(&root().join(folder), &code)) {
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
