//! Stores that are not as this longhaul makes them, and stores that are only read.

use longhaul_mesh::store::{Archive, Outbox};

use super::{Folder, Place, change, result};

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
    assert_eq!(error, "the store has form 9, this longhaul knows 3: use the newer longhaul");
    place.set_form(1);
    let error = Archive::open(place.address()).unwrap_err().to_string();
    assert!(error.contains("move it away"), "{error}");
}

/// A file of some kilobytes could give rows without end, and values of any size.
#[test]
pub(super) fn a_store_that_computes_what_it_gives_is_refused() {
    for (name, kind, sql) in [
        ("view", "view", "DROP TABLE results; CREATE VIEW results AS SELECT 1 AS hour, zeroblob(900000000) AS id"),
        ("column", "column", "ALTER TABLE flows ADD COLUMN big BLOB AS (zeroblob(900000000)) VIRTUAL"),
        (
            "trigger",
            "trigger",
            "CREATE TRIGGER grow AFTER INSERT ON flows BEGIN INSERT INTO seen SELECT * FROM seen; END",
        ),
        ("virtual", "virtual table", "CREATE VIRTUAL TABLE many USING fts5(text)"),
    ] {
        let folder = Folder::new(name);
        let path = folder.0.join("archive");
        Archive::open(&path).unwrap().take(&[result(1)]).unwrap();
        sql.split("; CREATE").enumerate().for_each(|(number, part)| {
            change(&path, &if number == 0 { part.to_owned() } else { format!("CREATE{part}") });
        });
        for error in [Archive::open(&path).unwrap_err(), Archive::open_to_read(&path).unwrap_err()] {
            assert!(error.to_string().contains("move it away"), "{kind}: {error}");
        }
    }
}

#[test]
fn a_newer_outbox_is_refused() {
    let folder = Folder::new("newer");
    let path = folder.0.join("outbox");
    drop(Outbox::open(&path).unwrap());
    change(&path, "PRAGMA user_version = 9");
    let error = Outbox::open(&path).unwrap_err().to_string();
    assert_eq!(error, "the store has form 9, this longhaul knows 1: use the newer longhaul");
}
