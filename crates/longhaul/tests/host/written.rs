//! Key files, and files that are whole or not there.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::common::{longhaul, object, side_by_side};
use longhaul_kernel::capability::is_root_in_namespace;
use longhaul_testing::program::Program;
use longhaul_testing::waiting::until;

/// A folder; gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("longhaul-host-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `script` where `disk` is a file system of its own of 4 KiB, all used.
fn on_a_full_disk(folder: &Folder, script: &str) -> Output {
    on_a_disk(folder, "4k", &format!("head -c 4096 /dev/zero > {}/used && {script}", folder.path("disk")))
}

/// Runs `script` where `disk` is a file system of its own of this size.
fn on_a_disk(folder: &Folder, size: &str, script: &str) -> Output {
    let disk = folder.path("disk");
    fs::create_dir_all(&disk).unwrap();
    let script = format!("mount -t tmpfs -o size={size} none {disk} && {script}");
    Command::new("unshare").args(["-m", "--propagation", "private", "sh", "-c", &script]).output().unwrap()
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let _side = side_by_side();
    let folder = Folder::new("mode");
    let key = folder.path("key");
    assert!(longhaul(&["key", "new", &key]).status.success());
    let try_it = || longhaul(&["udp", "127.0.0.1", "-p", "1", "--key", &key]);
    for mode in [0o666, 0o604, 0o602, 0o640] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        let output = try_it();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{mode:o}: {output:?}");
        assert!(said.contains(&key) && said.contains(&format!("{mode:04o}")) && said.contains("chmod 600"), "{said}");
    }
    // Nobody listens there: the key was taken.
    for mode in [0o600, 0o400] {
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(try_it().status.code(), Some(1), "{mode:o}");
    }
    if is_root_in_namespace() {
        // As systemd(1) hands credentials to a service's user.
        fs::set_permissions(&key, fs::Permissions::from_mode(0o440)).unwrap();
        chown(&key, Some(0), Some(12_345)).unwrap();
        fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        let mut service = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        service.uid(12_345).gid(12_345).args(["udp", "127.0.0.1", "-p", "1", "--key", &key]);
        let output = service.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "the group of root's key may read it: {output:?}");
        // Another user knows what is in a key of his own.
        chown(&key, Some(12_345), None).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let output = try_it();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("user 12345 owns"), "{output:?}");
        let mut sudo = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        sudo.env("SUDO_UID", "12345").args(["udp", "127.0.0.1", "-p", "1", "--key", &key]);
        assert_eq!(sudo.output().unwrap().status.code(), Some(1), "a key of who called sudo");
    }
}

#[test]
fn a_key_is_whole_or_not_there() {
    let _side = side_by_side();
    let folder = Folder::new("key");
    let key = folder.path("key");
    assert!(longhaul(&["key", "new", &key]).status.success());
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o7777, 0o600);
    let before = fs::read(&key).unwrap();
    let again = longhaul(&["key", "new", &key]);
    assert_eq!((again.status.code(), fs::read(&key).unwrap()), (Some(1), before), "{again:?}");
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to mount a small disk");
        return;
    }
    let disk = folder.path("disk");
    let output =
        on_a_full_disk(&folder, &format!("{} key new {disk}/key; ls -A {disk}", env!("CARGO_BIN_EXE_longhaul")));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "used\n", "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"), "{output:?}");
}

#[test]
fn a_result_is_whole_or_not_there() {
    let _side = side_by_side();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to mount a small disk");
        return;
    }
    let folder = Folder::new("result");
    let disk = folder.path("disk");
    let run = format!("{} watch -t 10ms -o {disk}; echo $?; ls -A {disk}", env!("CARGO_BIN_EXE_longhaul"));
    let output = on_a_full_disk(&folder, &run);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.ends_with("1\nused\n"), "{said} {output:?}");
}

/// Also where a table of the new one has room: that gets its name with the result.
#[test]
fn a_result_that_is_replaced_stays_while_the_new_one_has_no_room() {
    let _side = side_by_side();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to mount a small disk");
        return;
    }
    let folder = Folder::new("replaced");
    let (disk, before) = (folder.path("disk"), folder.path("before"));
    // Nobody has a connection with this port: all tables are of one length.
    let watch = format!("{} watch --port 1 -t 10ms -o {disk}/kept", env!("CARGO_BIN_EXE_longhaul"));
    let fill = |left: &str| format!("head -c $(($(stat -fc '%a * %S' {disk}) - {left})) /dev/zero > {disk}/used");
    let of_table = format!("($(stat -c %s {disk}/kept/samples.parquet) + 4095) / 4096 * 4096");
    let again = format!("{watch} --force; echo $?; diff -r {before} {disk}/kept && rm {disk}/used && echo the same");
    let script = [
        format!("{watch} && cp -r {disk}/kept {before}"),
        format!("{} && {again}", fill("0")),
        format!("{} && {again}", fill(&of_table)),
        format!("{watch} --force && ls -A {disk}/kept"),
    ];
    let output = on_a_disk(&folder, "1m", &script.join(" && "));
    let (said, beside) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.matches("1\nthe same\n").count(), 2, "{said} {beside}");
    assert_eq!(beside.matches("the result is not saved, and the previous result is kept").count(), 2, "{beside}");
    assert_eq!(beside.matches("kept/samples.parquet: ").count(), 1, "the table had room once: {beside}");
    assert!(said.ends_with("result.json\nsamples.parquet\n"), "{said} {beside}");
}

/// A file that was not there at the start is somebody's at the end. The command that is watched makes it.
#[test]
fn a_file_that_was_made_meanwhile_stays_and_what_was_measured_is_beside_it() {
    let _side = side_by_side();
    let folder = Folder::new("meanwhile");
    let (kept, page) = (folder.path("kept"), folder.path("page.html"));
    let of_result = ["result.json", "samples.parquet"].map(|name| format!("{kept}/{name}"));
    let watch = |words: &[&str], made: &[String]| {
        let make = format!("for file in {}; do echo theirs > $file; done", made.join(" "));
        let output = longhaul(&[&["watch", "-J"][..], words, &["--", "sh", "-c", &make]].concat());
        (output.status.code(), object(&output.stdout), String::from_utf8(output.stderr).unwrap())
    };
    let beside = |folder: &str, name: &str| {
        let ending = format!("-{name}");
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut named = entries.filter(|path| path.to_str().unwrap().ends_with(&ending));
        fs::read(named.next().unwrap_or_else(|| panic!("no {ending}"))).unwrap()
    };

    let (code, result, said) = watch(&["-o", &kept], &of_result);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("result.json: a file of this name was created meanwhile; it is kept"), "{said}");
    let mut caveats = result["caveats"].as_array().unwrap().iter();
    assert!(caveats.any(|caveat| caveat["code"] == "samples_not_saved"), "{result:#}");
    assert_eq!(object(&beside(&kept, "result.json")), result);
    assert!(beside(&kept, "samples.parquet").starts_with(b"PAR1"));
    let (code, _, said) = watch(&["--html", &page], std::slice::from_ref(&page));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("page.html: a file of this name was created meanwhile; it is kept"), "{said}");
    assert!(String::from_utf8(beside(&folder.path(""), "page.html")).unwrap().contains("<html"));
    for name in of_result.iter().chain([&page]) {
        assert_eq!(fs::read_to_string(name).unwrap(), "theirs\n", "{name}");
    }
    // Each of two is told.
    let (both, drawn) = (folder.path("both"), folder.path("both.html"));
    let (code, _, said) = watch(&["-o", &both, "--html", &drawn], &[format!("{both}/result.json"), drawn.clone()]);
    assert_eq!((code, said.matches("a file of this name was created meanwhile").count()), (Some(1), 2), "{said}");

    let (code, result, said) =
        watch(&["-o", &kept, "--html", &page, "--force"], &[&of_result[..], std::slice::from_ref(&page)].concat());
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(object(&fs::read(&of_result[0]).unwrap()), result);
    assert!(fs::read(&of_result[1]).unwrap().starts_with(b"PAR1"));
    assert!(fs::read_to_string(&page).unwrap().contains("<html"));
}

/// Another user tells the name and has a folder there, which nobody else may remove from a folder such as `/tmp`.
#[test]
fn a_taken_name_keeps_no_capture_from_its_file() {
    let _side = side_by_side();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to capture");
        return;
    }
    let folder = Folder::new("taken");
    let (taken, file) = (folder.path(".x.pcapng.$$.spool"), folder.path("x.pcapng"));
    // The command has the number of the shell.
    let run = format!(
        "ip link set lo up && mkdir {taken} && exec {} capture lo -t 100ms -w {file}",
        env!("CARGO_BIN_EXE_longhaul")
    );
    let output = Command::new("unshare").args(["-n", "sh", "-c", &run]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut names: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let [taken, file] = &names[..] else { panic!("{names:?}") };
    assert!(taken.to_str().unwrap().ends_with(".spool") && file == "x.pcapng", "{names:?}");
}

/// With room again the next one begins in the same folder.
#[test]
fn a_capture_that_cannot_begin_leaves_no_spool() {
    let _side = side_by_side();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to mount a small disk");
        return;
    }
    let folder = Folder::new("spool");
    let disk = folder.path("disk");
    let capture = format!("{} capture lo -t 100ms", env!("CARGO_BIN_EXE_longhaul"));
    let run = format!("{capture} -o {disk}/o; {capture} -w {disk}/x.pcapng; ls -A {disk}; ls -A {disk}/o");
    let output = on_a_full_disk(&folder, &run);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "o\nused\n", "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr).matches("No space left").count(), 2, "{output:?}");
}

/// It says so before it measures, by the name that the user gave.
#[test]
fn an_experiment_without_room_for_its_runs_does_not_begin() {
    let _side = side_by_side();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to mount a small disk");
        return;
    }
    let folder = Folder::new("runs");
    let disk = folder.path("disk");
    let run = format!(
        "{} lab run datatag-loss --share-cpus -o {disk}; echo $?; ls -A {disk}",
        env!("CARGO_BIN_EXE_longhaul")
    );
    let output = on_a_full_disk(&folder, &run);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1\nused\n", "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("cannot write {disk}/runs.jsonl: No space left")), "{said}");
}

/// Where the disk is full before the end, the result is printed all the same.
#[test]
fn an_experiment_without_room_for_its_result_prints_it() {
    let _side = side_by_side();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to mount a small disk");
        return;
    }
    let folder = Folder::new("no-room");
    let (disk, file) = (folder.path("disk"), folder.path("experiment.toml"));
    let run = format!("{} lab run {file} --json -o {disk}", env!("CARGO_BIN_EXE_longhaul"));
    // Of the first line and of the hosts a part fits.
    let of_path = "title = 'p'\npath = 'lan'\n[[udp]]\nname = 'u'\nrates = ['1M']\ntime = '100ms'\n";
    fs::write(&file, of_path).unwrap();
    let output = on_a_disk(&folder, "16k", &format!("{run} --repeat 1 --tries 1; echo $?; ls -A {disk}"));
    let (said, beside) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(beside.contains("what follows is in the result alone"), "{beside}");
    let (result, others) = said.split_once('\n').unwrap_or_else(|| panic!("{said} {beside}"));
    assert_eq!(object(result.as_bytes())["schema"], "longhaul.lab.run/2", "{beside}");
    assert_eq!(others, "1\nruns.jsonl\n", "{beside}");
    assert!(beside.contains("the result is not saved") && !beside.contains("report: "), "{beside}");
}

/// In a folder as `/tmp` is, only its owner replaces a file: at the end of an experiment nobody wants to learn that.
#[test]
fn a_file_that_only_another_user_may_replace_is_told_before_the_experiment() {
    let _side = side_by_side();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to be another user");
        return;
    }
    let folder = Folder::new("sticky");
    fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(folder.path("report.html"), "mine").unwrap();
    let mut run = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    let output = run.uid(12_345).gid(12_345).args(["lab", "run", "nlr-tcp", "-o", &folder.path("")]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("report.html in it belongs to another user") && said.contains("of your own"), "{said}");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
}

/// As root a file beside and a rename would put a plain file in the place of the device.
#[test]
fn a_device_is_written_to_and_not_replaced() {
    let _side = side_by_side();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to make a device");
        return;
    }
    let folder = Folder::new("device");
    let null = folder.path("null");
    let made = Command::new("mknod").args([&null, "c", "1", "3"]).status().unwrap();
    assert!(made.success());
    let run = format!(
        "ip link set lo up; ip link add name v0 type veth peer name v1; ip link set v0 up; ip link set v1 up; \
         {} emulate --left v0 --right v1 --path lan --stats {null} -t 10ms",
        env!("CARGO_BIN_EXE_longhaul")
    );
    let output = Command::new("unshare").args(["-n", "sh", "-c", &run]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(fs::metadata(&null).unwrap().file_type().is_char_device());
}

/// A state has room on the disk, and its successor has none. Only the folder of this one knows what was before.
#[test]
fn settings_that_stay_changed_for_want_of_room_are_told() {
    let _side = side_by_side();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to mount a small disk");
        return;
    }
    let folder = Folder::new("half");
    let (disk, tune) = (folder.path("disk"), format!("{} tune", env!("CARGO_BIN_EXE_longhaul")));
    let is_as_before = "[ \"$(cat /proc/sys/net/ipv4/tcp_rmem)\" = \"$before\" ]; echo $?";
    let script = format!(
        "unshare -n sh -c 'ip link set lo up; before=$(cat /proc/sys/net/ipv4/tcp_rmem);
         {tune} --rate 10G --rtt 100ms --apply --state {disk}/st >/dev/null; {is_as_before};
         {tune} undo --state {disk}/st >/dev/null; {is_as_before}'"
    );
    let mut told = 0;
    // How many inodes the lock and the state take is the kernel's.
    for inodes in 3..=6 {
        let output = on_a_disk(&folder, &format!("1m,nr_inodes={inodes}"), &script);
        let (as_before, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let is_left = as_before.starts_with('1') && said.contains("No space left");
        let is_told = said.contains("some settings are changed") && said.contains("longhaul tune undo");
        assert_eq!(is_told, is_left, "{inodes}: {as_before} {said}");
        assert!(as_before.ends_with("\n0\n"), "{inodes}: {as_before} {said}");
        told += u32::from(is_told);
    }
    assert!(told > 0, "with none of these the settings stayed changed");
}

/// Others may fill the disk. Programs on both ends use the path.
#[test]
fn a_full_disk_ends_no_path() {
    let _side = side_by_side();
    if !is_root_in_namespace() {
        longhaul_testing::no_judge!("needs root, to mount a small disk");
        return;
    }
    let folder = Folder::new("stats");
    let (disk, said) = (folder.path("disk"), folder.path("said"));
    fs::create_dir(&disk).unwrap();
    let script = format!(
        "mount -t tmpfs -o size=256k none {disk} && ip link add name v0 type veth peer name v1 && ip link set v0 up && \
         ip link set v1 up && exec {} emulate --left v0 --right v1 --path lan --stats {disk}/stats.json",
        env!("CARGO_BIN_EXE_longhaul")
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "-n", "--propagation", "private", "sh", "-c", &script]);
    let stderr = fs::File::create(&said).unwrap();
    let mut emulator = Program(command.stdout(Stdio::null()).stderr(stderr).spawn().unwrap());
    let inside = PathBuf::from(format!("/proc/{}/root{disk}", emulator.0.id()));
    // Each time it is another file.
    let number = || fs::metadata(inside.join("stats.json")).ok().map(|file| file.ino());
    until("the status", || number().is_some());
    let said = || fs::read_to_string(&said).unwrap();
    until("a status that has no room", || {
        let used = fs::OpenOptions::new().create(true).append(true).open(inside.join("used"));
        let _ = used.and_then(|mut used| used.write_all(&[0; 1 << 16]));
        said().contains("No space left")
    });
    let before = number();
    assert!(before.is_some(), "the last one stays");
    fs::remove_file(inside.join("used")).unwrap();
    until("another status", || number() != before);
    assert!(Command::new("kill").arg(emulator.0.id().to_string()).status().unwrap().success());
    assert!(emulator.0.wait().unwrap().success(), "{}", said());
    assert_eq!(said().matches("No space left").count(), 1, "{}", said());
}
