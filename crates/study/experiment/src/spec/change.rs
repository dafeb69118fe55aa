//! `change`: what an experiment, and each of its series, changes of the path.

use longhaul_path::spec::{Change, LIST_MAX, LossSpec, PathSpec, Setting};

use super::ExperimentError;

/// Makes `changes` together, as they have no order. `listed_packets` are those that the loss lists of all changes of the experiment have named so far: each of
/// 64 series may have lists, and a list of millions is a few letters.
pub(super) fn apply(
    key: &str,
    changes: &[String],
    path: &mut PathSpec,
    listed_packets: &mut usize,
) -> Result<(), ExperimentError> {
    let mut read: Vec<Change> = Vec::new();
    for (number, text) in changes.iter().enumerate() {
        let key = format!("{key}[{number}]");
        let change = Change::parse(text).map_err(|error| ExperimentError::at(&key, error))?;
        if let Setting::Loss(LossSpec::List(list)) = &change.setting {
            *listed_packets += list.count();
            if *listed_packets > LIST_MAX {
                let why = format!("the lists of an experiment's changes have at most {LIST_MAX} packets together");
                return Err(ExperimentError::at(&key, why));
            }
        }
        read.push(change);
    }
    Change::apply(&read, path).map(drop).map_err(|error| ExperimentError::at(key, error))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::Experiment;
    use super::*;

    /// An experiment with `common` as its changes and a series for each of `own`.
    fn text(kind: &str, common: &str, own: &[String]) -> String {
        let points = if kind == "udp" { "rates = ['200M']" } else { "congestion = ['reno']" };
        let series = |(number, changes): (usize, &String)| {
            format!("[[{kind}]]\nname = '{number}'\n{points}\nchange = [{changes}]\n")
        };
        let series: String = own.iter().enumerate().map(series).collect();
        format!("title = 'lists'\npath = 'nlr-small'\nchange = [{common}]\n{series}")
    }

    fn read(text: &str) -> Result<Experiment, String> {
        Experiment::parse(text, Path::new("")).map_err(|error| error.to_string())
    }

    /// `count` changes of one list each.
    fn lists(count: usize, last: usize) -> String {
        vec![format!("'forward.loss=list(1-{last})'"); count].join(", ")
    }

    /// A file of some kilobytes must not take all memory, wherever its lists are.
    #[test]
    fn the_lists_of_all_changes_are_bounded_together() {
        let of_series = vec![lists(1, LIST_MAX); 64];
        let one = [lists(1, 1)];
        for (text, key) in [
            (text("udp", "", &of_series), "11:udp[1].change[0]"),
            (text("tcp", "", &of_series), "11:tcp[1].change[0]"),
            (text("udp", "", &[lists(64, LIST_MAX)]), "7:udp[0].change[1]"),
            (text("udp", &lists(64, LIST_MAX), &one), "change[1]"),
            (text("tcp", &lists(1, LIST_MAX), &one), "7:tcp[0].change[0]"),
        ] {
            let why = "the lists of an experiment's changes have at most 10000000 packets together";
            assert_eq!(read(&text).unwrap_err(), format!("{key}: {why}"));
        }
    }

    #[test]
    fn many_changes_have_lists() {
        let own = vec![lists(64, 1_000); 64];
        let experiment = read(&text("udp", &lists(64, 10_000), &own)).unwrap();
        let list = |last: usize| format!("list(1-{last})");
        assert_eq!(experiment.path.forward[0].loss.to_string(), list(10_000));
        assert_eq!(experiment.udp.len(), 64);
        assert!(experiment.udp.iter().all(|series| series.path.forward[0].loss.to_string() == list(1_000)));
        // All of them, to the last packet.
        assert!(read(&text("tcp", &lists(1, LIST_MAX - 64), &vec![lists(1, 1); 64])).is_ok());
    }

    /// What differs in a list has another identity, also where it is another file's; a series more does not print the list once more.
    #[test]
    fn an_identity_is_short_and_tells_lists_apart() {
        let identity = |text: &str| read(text).unwrap().identity();
        let none = vec![String::new(); 64];
        let common = |last| identity(&text("udp", &lists(1, last), &none));
        let long = common(LIST_MAX);
        assert_eq!(long, common(LIST_MAX));
        assert_ne!(long, common(LIST_MAX - 1));
        assert!(long.len() < common(1).len() + 100 && long.len() < 1 << 20, "{} bytes", long.len());
        let own = |last| identity(&text("tcp", "", &[lists(1, 7), lists(1, last)]));
        assert_eq!(own(1_000_000), own(1_000_000));
        assert_ne!(own(1_000_000), own(999_999));

        let folder = std::env::temp_dir().join(format!("longhaul-listed-packets-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("ours.toml"), "[[forward]]\nloss = { list = \"drops.txt\" }\n[[backward]]\n")
            .unwrap();
        let text = text("udp", "", &none).replace("nlr-small", "ours.toml");
        let of_file = |drops: &str| {
            std::fs::write(folder.join("drops.txt"), drops).unwrap();
            Experiment::parse(&text, &folder).map(|experiment| experiment.identity())
        };
        let [odd, odder, again] = ["1\n3\n5\n", "1\n3\n7\n", "5\n1\n3 # in another order\n"].map(of_file);
        std::fs::remove_dir_all(&folder).unwrap();
        let [odd, odder, again] = [odd.unwrap(), odder.unwrap(), again.unwrap()];
        assert_eq!(odd, again);
        assert_ne!(odd, odder);
        assert_eq!(odd.matches("1,3,5").count(), 1, "{odd}");
    }
}
