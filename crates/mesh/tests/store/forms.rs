//! Stores that are not as this longhaul makes them, and stores that are only read.

use std::fs;
use std::os::unix::fs::{chown, lchown, symlink};

use longhaul_mesh::store::{Archive, Kept, Listed, Measured, Outbox, Reader, Series, Wanted};
use tokio::runtime::Builder;

use super::{BEGIN_NS, DAY_NS, Folder, Place, beside, change, measurements, result, runtime};

pub(super) fn a_store_that_is_read_is_not_changed(place: &Place) {
    let is_file = place.server.is_none();
    if is_file {
        let missing = Archive::open_to_read(place.address()).unwrap().hours(0).unwrap();
        assert_eq!((missing, place.folder.0.join("archive").exists()), (vec![], false));
    }
    place.open().take(&[result(1)]).unwrap();
    let mut read = Archive::open_to_read(place.address()).unwrap();
    assert_eq!(read.since(0).unwrap().len(), 1);
    let refused = read.take(&[result(2)]).unwrap_err().to_string();
    assert!(refused.contains("read"), "{refused}");
    place.set_form(2);
    let refused = Archive::open_to_read(place.address()).unwrap_err().to_string();
    assert!(refused.contains("has form 2") && refused.contains("run the coordinator"), "{refused}");
    // The coordinator changes it, and keeps what is there.
    assert_eq!(place.open().since(0).unwrap().len(), 1);
    assert_eq!(Archive::open_to_read(place.address()).unwrap().since(0).unwrap().len(), 1);
}

pub(super) fn a_store_of_another_form_is_refused(place: &Place) {
    drop(place.open());
    drop(place.open());
    place.set_form(9);
    let error = Archive::open(place.address()).unwrap_err().to_string();
    assert_eq!(error, "the store has form 9, this longhaul knows 5: use the newer longhaul");
    place.set_form(1);
    let error = Archive::open(place.address()).unwrap_err().to_string();
    assert!(error.contains("move it away"), "{error}");
}

/// As another version may have written them: a diagnosis of another form, and results of a flow that has no names.
pub(super) fn a_row_that_cannot_be_read_is_left_out(place: &Place) {
    let all = measurements();
    let mut archive = place.open();
    archive.take(&[result(1), result(2)]).unwrap();
    archive.take_measurements(&all).unwrap();
    place.change("UPDATE diagnoses SET diagnosis = '{\"alarm\":7}'");
    place.change("DELETE FROM flows WHERE test = 'probes'");
    assert_eq!(archive.measurements(0).unwrap(), all[..2]);
    assert_eq!((archive.since(0).unwrap(), archive.hours(0).unwrap()), (vec![], vec![]));
    let took_part = archive.took_part(0).unwrap().into_iter().map(|(site, (tests, _))| (site, tests));
    assert_eq!(took_part.collect::<Vec<_>>(), [("geneva".to_owned(), 2), ("ithaca".to_owned(), 2)]);
    let one = &all[2];
    let Measured::Diagnose(diagnosis) = &one.measured else { unreachable!() };
    let [alarm, test, sender, receiver] = [&diagnosis.alarm, &one.test, &one.sender, &one.receiver].map(String::clone);
    assert_eq!(archive.diagnosis_of(&Wanted { alarm, test, sender, receiver }, 0).unwrap(), None);

    let runtime = runtime();
    let series = runtime.block_on(Series::open(place.address())).unwrap();
    let within = (BEGIN_NS - DAY_NS, BEGIN_NS + DAY_NS);
    let list = |listed, number: usize| {
        let pair = (all[number].sender.as_str(), all[number].receiver.as_str());
        runtime.block_on(series.measurements(listed, pair, within, 9)).unwrap()
    };
    assert_eq!(list(Listed::Diagnoses, 2), []);
    assert_eq!(list(Listed::Tcp, 1), all[1..2]);
    let test = |id: &str| runtime.block_on(series.test(id, within)).unwrap();
    assert_eq!(test(&one.id), None);
    assert_eq!(test(&all[0].id), Some(Kept::Measurement(all[0].clone())));
}

/// They stay: a version that can read them may deliver them.
#[test]
fn what_cannot_be_read_in_an_outbox_keeps_nothing_else() {
    let folder = Folder::new("outbox-unreadable");
    let path = folder.0.join("outbox");
    let mut outbox = Outbox::open(&path).unwrap();
    for number in 1..=4 {
        outbox.put_both(&Kept::Udp(result(number)), Some(&beside(number, "AAAA"))).unwrap();
    }
    change(&path, "UPDATE outbox SET result = '{}' WHERE number <= 2");
    change(&path, "UPDATE files SET file = 'of another version' WHERE number <= 3");
    // More of them than are asked for at a time.
    assert_eq!(outbox.after(0, 2).unwrap(), [(3, Kept::Udp(result(3))), (4, Kept::Udp(result(4)))]);
    assert_eq!(outbox.all().unwrap().len(), 2);
    assert_eq!(outbox.file_after(0, None).unwrap(), Some((4, beside(4, "AAAA"))));
    outbox.confirmed(&[result(3).id, result(4).id]).unwrap();
    outbox.file_confirmed(&result(4).id).unwrap();
    assert_eq!((outbox.all().unwrap(), outbox.file_after(0, None).unwrap()), (vec![], None));
    let fixed = serde_json::to_string(&Kept::Udp(result(1))).unwrap();
    change(&path, &format!("UPDATE outbox SET result = '{fixed}' WHERE number = 1"));
    assert_eq!(outbox.all().unwrap(), [Kept::Udp(result(1))]);
}

/// A file of some kilobytes could give rows without end, and values of any size.
#[test]
fn a_store_with_something_that_longhaul_did_not_make_is_refused() {
    for (name, kind, sql) in [
        ("view", "view", "DROP TABLE results; CREATE VIEW results AS SELECT 1 AS hour, zeroblob(900000000) AS id"),
        ("column", "column", "ALTER TABLE flows ADD COLUMN big BLOB AS (zeroblob(900000000)) VIRTUAL"),
        (
            "trigger",
            "trigger",
            "CREATE TRIGGER grow AFTER INSERT ON flows BEGIN INSERT INTO seen SELECT * FROM seen; END",
        ),
        ("virtual", "virtual table", "CREATE VIRTUAL TABLE many USING fts5(text)"),
        ("expression", "index of an expression", "CREATE INDEX slow ON flows (zeroblob(length(test) * 100000000))"),
        (
            "check",
            "check",
            "DROP TABLE early; CREATE TABLE early (id BLOB PRIMARY KEY CHECK (zeroblob(900000000) <> id)) WITHOUT ROWID",
        ),
        ("table", "table", "CREATE TABLE own (note TEXT)"),
    ] {
        let folder = Folder::new(name);
        let path = folder.0.join("archive");
        Archive::open(&path).unwrap().take(&[result(1)]).unwrap();
        sql.split("; CREATE").enumerate().for_each(|(number, part)| {
            change(&path, &if number == 0 { part.to_owned() } else { format!("CREATE{part}") });
        });
        for error in [Archive::open(&path).unwrap_err(), Archive::open_to_read(&path).unwrap_err()] {
            assert!(error.to_string().contains("did not make"), "{kind}: {error}");
        }
    }
}

/// Also where a link of one's own leads to it. One's own links alone are followed.
#[test]
fn a_link_of_another_user_is_no_store() {
    let folder = Folder::new("linked");
    let [store, link, second] = ["store", "link", "archive"].map(|name| folder.0.join(name));
    Archive::open(&store).unwrap().take(&[result(1)]).unwrap();
    symlink(&store, &link).unwrap();
    symlink("link", &second).unwrap();
    let is_there = |path| Archive::open_to_read(path).is_ok_and(|mut read| read.since(0).unwrap().len() == 1);
    assert!(is_there(&link) && is_there(&second));
    if lchown(&link, Some(65534), None).is_err() {
        longhaul_testing::no_judge!("needs another user (run as root)");
        return;
    }
    for path in [&link, &second] {
        for error in [Archive::open(path).unwrap_err(), Archive::open_to_read(path).unwrap_err()] {
            assert!(error.to_string().contains("link of another user"), "{error}");
        }
    }
    // What does not exist yet is made nowhere else.
    fs::remove_file(&store).unwrap();
    assert!(Archive::open(&second).is_err() && !store.exists());
}

/// The page opens connections of its own.
#[test]
fn a_file_that_is_put_in_the_place_of_the_store_gives_the_page_nothing() {
    let folder = Folder::new("swapped");
    let path = folder.0.join("archive");
    Archive::open(&path).unwrap().take(&[result(1)]).unwrap();
    change(&path, "CREATE VIEW many AS SELECT 1");
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let refused = runtime.block_on(Reader::open(&path)).map(drop).unwrap_err();
    assert!(refused.to_string().contains("did not make"), "{refused}");
}

/// Pages that name one page many times give rows without end. Root may read a file that somebody else made so.
#[test]
fn a_store_of_another_user_is_refused_if_its_pages_do_not_fit() {
    if !rustix::process::geteuid().is_root() {
        longhaul_testing::skipped!("run as root");
        return;
    }
    let folder = Folder::new("damaged");
    let path = folder.0.join("archive");
    let many: Vec<_> = (1..3000).map(result).collect();
    Archive::open(&path).unwrap().take(&many).unwrap();
    change(&path, "PRAGMA wal_checkpoint(TRUNCATE)");
    chown(&path, Some(65534), Some(65534)).unwrap();
    assert_eq!(
        Archive::open_to_read(&path).unwrap().hours(0).unwrap().iter().map(|hour| hour.tests).sum::<i64>(),
        2999
    );

    let mut bytes = fs::read(&path).unwrap();
    // An interior page of an index: its cells begin with the number of a page (sqlite.org, "Database File Format", section 1.6).
    let page = bytes.chunks_mut(4096).find(|page| page[0] == 2 && u16::from_be_bytes([page[3], page[4]]) > 4).unwrap();
    let cell = |number: usize| usize::from(u16::from_be_bytes([page[12 + 2 * number], page[13 + 2 * number]]));
    let (first, second) = (cell(0), cell(1));
    page.copy_within(first..first + 4, second);
    fs::write(&path, bytes).unwrap();
    let refused = Archive::open_to_read(&path).unwrap_err().to_string();
    assert!(refused.contains("damaged") && refused.contains("move it away"), "{refused}");
}

/// An administrator may run `ANALYZE`.
#[test]
fn a_store_with_statistics_is_taken() {
    let folder = Folder::new("statistics");
    let path = folder.0.join("archive");
    Archive::open(&path).unwrap().take(&[result(1)]).unwrap();
    change(&path, "ANALYZE");
    assert_eq!(Archive::open(&path).unwrap().since(0).unwrap().len(), 1);
}

/// Also where it has tables that this one does not know.
#[test]
fn a_newer_outbox_is_refused() {
    let folder = Folder::new("newer");
    let path = folder.0.join("outbox");
    drop(Outbox::open(&path).unwrap());
    change(&path, "PRAGMA user_version = 9");
    change(&path, "CREATE TABLE of_later (id INTEGER PRIMARY KEY)");
    let error = Outbox::open(&path).unwrap_err().to_string();
    assert_eq!(error, "the store has form 9, this longhaul knows 1: use the newer longhaul");
}
