use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// Two that measure into one folder would write over each other's runs and segments.
#[test]
fn one_command_has_a_folder_at_a_time() {
    let path = std::env::temp_dir().join(format!("longhaul-in-use-{}", std::process::id()));
    let first = Folder::prepare(path.clone(), Overwrite::by(false)).unwrap();
    for second in [Folder::prepare(path.clone(), Overwrite::by(true)), Folder::open(path.clone())] {
        let refused = second.unwrap_err();
        assert!(refused.message().contains("another command writes its result into this folder"), "{refused:?}");
    }
    let table = first.table(SERIES).unwrap();
    drop(first);
    assert!(Folder::open(path.clone()).is_err(), "it is still written to");
    drop(table);
    Folder::open(path.clone()).unwrap();
    fs::remove_dir_all(&path).unwrap();
    // What is to go on has to be there.
    let missing = Folder::open(path.clone()).unwrap_err();
    assert!(missing.message().contains("No such file") && !path.exists(), "{missing:?}");
}

/// In a folder as `/tmp` is, only its owner replaces a file: that would be found when all is measured.
#[test]
fn what_only_another_user_may_replace_is_found_before() {
    let folder = std::env::temp_dir().join(format!("longhaul-sticky-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let owner = fs::metadata(&folder).unwrap().uid();
    let set = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
    let found = |user: u32| of_another(&folder, user).unwrap();
    set(0o1777);
    fs::write(folder.join("notes.txt"), "").unwrap();
    assert_eq!(found(owner + 1), None, "no result has such a file");
    for name in [RESULT, RUNS, REPORT, "probes-00001.parquet", "receive-buffer-80ms-1.json"] {
        fs::write(folder.join(name), "").unwrap();
        assert_eq!(found(owner + 1).as_deref(), Some(name));
        assert_eq!(found(owner), None);
        set(0o777);
        assert_eq!(found(owner + 1), None, "who may write to it may replace all");
        set(0o1777);
        fs::remove_file(folder.join(name)).unwrap();
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// `--force` would remove the capture that it is to read.
#[test]
fn no_input_is_removed_through_a_link() {
    let folder = std::env::temp_dir().join(format!("longhaul-beside-{}", std::process::id()));
    let (result, captures) = (folder.join("result"), folder.join("captures"));
    fs::create_dir_all(&result).unwrap();
    fs::create_dir(&captures).unwrap();
    for name in ["packets.parquet", "other.parquet", SERIES] {
        fs::write(result.join(name), "").unwrap();
    }
    fs::write(result.join(RESULT), r#"{"schema":"longhaul.udp/1","packets_file":"packets.parquet"}"#).unwrap();
    let refused = |input: &Path| {
        let prepared =
            Folder::prepare_beside(result.clone(), Overwrite::by(true), &[input.to_owned()], |name| name == SERIES);
        prepared.map(drop).err().map(|failure| failure.message().to_owned())
    };
    let link = captures.join("monday.parquet");
    symlink(result.join("other.parquet"), &link).unwrap();
    assert_eq!((refused(&link), refused(&captures)), (None, None), "it stays");
    fs::remove_file(&link).unwrap();
    symlink(result.join("packets.parquet"), &link).unwrap();
    // Another name of the file, also one that an open file has, and what the new result has itself.
    let (hard, opened) = (folder.join("hard.parquet"), File::open(result.join("packets.parquet")).unwrap());
    fs::hard_link(result.join("packets.parquet"), &hard).unwrap();
    let by_descriptor = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd()));
    for input in
        [&link, &captures, &result, &result.join("packets.parquet"), &hard, &by_descriptor, &result.join(SERIES)]
    {
        assert!(refused(input).unwrap().contains("take the place of"), "{}", input.display());
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// What is saved again and again while an experiment runs is this command's own.
#[test]
fn a_file_that_was_made_meanwhile_stays() {
    let folder = std::env::temp_dir().join(format!("longhaul-meanwhile-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    symlink("nowhere", folder.join(DELAYS)).unwrap();
    let prepared = Folder::prepare(folder.clone(), Overwrite::by(false)).unwrap();
    for text in ["one", "two"] {
        prepared.write_text(REPORT, text).unwrap();
        assert_eq!(fs::read_to_string(folder.join(REPORT)).unwrap(), text);
    }
    for name in [RESULT, SERIES, RUNS] {
        fs::write(folder.join(name), "theirs").unwrap();
    }
    // Only the last one is kept.
    prepared.save_meanwhile(&"early").unwrap_err();
    let told = [
        prepared.save(&"ours").unwrap_err().message().to_owned(),
        prepared.table(SERIES).unwrap().finish().unwrap_err().message().to_owned(),
        prepared.write_text(RUNS, "ours").unwrap_err(),
    ];
    for (name, told) in [RESULT, SERIES, RUNS].into_iter().zip(told) {
        assert!(told.contains(&format!("{name}: a file of this name was created meanwhile")), "{told}");
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "theirs");
    }
    // What nobody may be able to measure again is kept.
    let kept = |name: &str| fs::read_to_string(folder.join(format!("{}-{name}", std::process::id()))).ok();
    assert_eq!([RESULT, SERIES, RUNS].map(kept), [Some("\"ours\"\n".to_owned()), Some(String::new()), None]);
    prepared.table(DELAYS).unwrap().finish().unwrap();
    assert_eq!(fs::read_to_string(folder.join(DELAYS)).unwrap(), "");
    drop(prepared);

    let prepared = Folder::prepare(folder.clone(), Overwrite::by(true)).unwrap();
    fs::write(folder.join(REPORT), "theirs").unwrap();
    prepared.write_text(REPORT, "ours").unwrap();
    assert_eq!(fs::read_to_string(folder.join(REPORT)).unwrap(), "ours");
    fs::remove_dir_all(&folder).unwrap();
}

/// A folder without a result may have one, such as what somebody copied out of another result.
#[test]
fn a_file_of_the_users_own_is_replaced_by_force_alone() {
    let folder = std::env::temp_dir().join(format!("longhaul-own-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let own = folder.join(SERIES);
    fs::write(&own, "mine").unwrap();
    let prepared = |force: bool, writes: fn(&str) -> bool| {
        Folder::prepare_beside(folder.clone(), Overwrite::by(force), &[], writes)
    };
    let refused = prepared(false, |name| name == SERIES).unwrap_err();
    assert!(refused.message().ends_with("/series.parquet: the file is there already"), "{refused:?}");
    // It is in nobody's way.
    prepared(false, |name| name == DELAYS).unwrap();
    assert_eq!(fs::read_to_string(&own).unwrap(), "mine");
    let forced = prepared(true, |name| name == SERIES).unwrap();
    forced.table(SERIES).unwrap().finish().unwrap();
    assert_eq!(fs::read_to_string(&own).unwrap(), "");
    fs::remove_dir_all(&folder).unwrap();
}

/// `convert` may have made a table of the same name of a capture, and a person a page or a note.
#[test]
fn only_tables_of_this_result_are_removed() {
    let folder = std::env::temp_dir().join(format!("longhaul-tables-{}", std::process::id()));
    for (files, gone) in [
        (&[(RESULT, r#"{"schema":"longhaul.analyze/1"}"#)][..], &[SERIES][..]),
        (&[(RESULT, r#"{"schema":"longhaul.compare/1"}"#)], &[DELAYS]),
        (&[(RESULT, r#"{"schema":"longhaul.rtt/1"}"#)], &["probes-00000.parquet"]),
        (&[(RESULT, r#"{"schema":"longhaul.udp/1","losses_file":"losses.parquet"}"#)], &["losses.parquet"]),
        (&[(RESULT, r#"{"samples_file":"samples.parquet","host":"mine.parquet"}"#)], &["samples.parquet"]),
        (&[(RESULT, "cut")], &[]),
        (&[(RUNS, "")], &["losses-1-1-1.parquet", REPORT]),
        (&[(RESULT, r#"{"schema":"longhaul.lab.run/2"}"#)], &[REPORT]),
        (&[(RESULT, r#"{"schema":"longhaul.lab.run.faults/1"}"#)], &["receive-buffer-80ms-1.json"]),
    ] {
        fs::create_dir_all(&folder).unwrap();
        let tables = [SERIES, DELAYS, "packets.parquet", "losses.parquet", "losses-1-1-1.parquet"];
        let beside = [REPORT, "receive-buffer-80ms-1.json", "mine-80ms-1.json"];
        let tables = [&tables[..], &["samples.parquet", "probes-00000.parquet", "mine.parquet"], &beside].concat();
        tables.iter().for_each(|name| fs::write(folder.join(name), "").unwrap());
        files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
        let prepared = Folder::prepare(folder.clone(), Overwrite::by(true)).unwrap();
        assert!(prepared.replaces() && !prepared.has(files[0].0) && prepared.has("packets.parquet"));
        // The one of before is whole until the new one is: a table that is complete waits for its result.
        let table = prepared.table(SERIES).unwrap();
        table.file().unwrap().write_all(b"new").unwrap();
        table.finish().unwrap();
        let of_before = tables.iter().map(|name| (*name, "")).chain(files.iter().copied());
        for (name, text) in of_before {
            assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), text, "{name} of {files:?}");
        }
        prepared.save(&"new").unwrap();
        assert_eq!(fs::read(folder.join(SERIES)).unwrap(), b"new");
        let left = |name: &&str| **name == *SERIES || !gone.contains(name);
        for name in &tables {
            assert_eq!(folder.join(name).exists(), left(name), "{name} of {files:?}");
        }
        assert_eq!(fs::read_to_string(folder.join(RESULT)).unwrap(), "\"new\"\n", "{files:?}");
        assert!(!prepared.replaces() && !folder.join(RUNS).exists(), "{files:?}");
        fs::remove_dir_all(&folder).unwrap();
    }
}

/// Its result goes first: without that, what stays is no result.
#[test]
fn what_is_left_of_a_result_is_told_where_a_file_of_it_cannot_be_removed() {
    let folder = std::env::temp_dir().join(format!("longhaul-partly-{}", std::process::id()));
    fs::create_dir_all(folder.join("samples.parquet")).unwrap();
    fs::write(folder.join(RESULT), r#"{"samples_file":"samples.parquet"}"#).unwrap();
    let prepared = Folder::prepare(folder.clone(), Overwrite::by(true)).unwrap();
    let told = prepared.save(&"new").unwrap_err().message().to_owned();
    assert!(told.ends_with("the result is not saved, and a part of the previous result is removed"), "{told}");
    assert!(!folder.join(RESULT).exists());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn only_tables_of_results_are_removed() {
    for name in [
        "losses.parquet",
        "losses-backward.parquet",
        "packets-forward.parquet",
        "losses-1-2-3-try2.parquet",
        "samples.parquet",
        "series.parquet",
        "delays.parquet",
        "probes-00017.parquet",
    ] {
        assert!(is_table(name), "{name}");
    }
    for name in [
        "packets-of-2024.parquet",
        "samples_of_blood.parquet",
        "seriesfoo.parquet",
        "losses-try.parquet",
        "a.parquet",
        "losses",
    ] {
        assert!(!is_table(name), "{name}");
    }
}

/// A result may name any file as its table.
#[test]
fn tables_are_those_of_the_folder() {
    let folder = std::env::temp_dir().join(format!("longhaul-tables-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let result = folder.join(RESULT);
    for name in [RESULT, "samples.parquet", "other.json", "secret.parquet"] {
        fs::write(folder.join(name), "").unwrap();
    }
    symlink("/etc/passwd", folder.join("losses.parquet")).unwrap();
    fs::create_dir(folder.join("packets.parquet")).unwrap();
    assert!(open_table(&result, "samples.parquet").is_ok());
    for name in ["../samples.parquet", "/etc/passwd", "secret.parquet", "", "losses-../1.parquet", "result.json"] {
        assert_eq!(open_table(&result, name).unwrap_err().to_string(), "no name of a table", "{name}");
    }
    for name in ["losses.parquet", "packets.parquet", "delays.parquet"] {
        assert!(open_table(&result, name).is_err(), "{name}: a link, a folder, and none");
    }
    assert!(open_table(&folder.join("other.json"), "samples.parquet").is_err(), "not in a folder of -o");
    // What a table may have follows from its length: that of a hole costs nobody anything.
    let samples = File::options().write(true).open(folder.join("samples.parquet")).unwrap();
    samples.set_len(80 << 20).unwrap();
    let refused = open_table(&result, "samples.parquet").unwrap_err().to_string();
    assert!(refused.contains("mostly holes"), "{refused}");
    fs::remove_dir_all(&folder).unwrap();
}
