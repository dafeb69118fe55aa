//! The flags of what library crates name by field. They write a field between backticks, as JSON names it.

/// Each field and its flag, in all commands.
const FLAGS: [(&str, &str); 48] = [
    ("affinity", "-A"),
    ("block_bytes", "-l"),
    ("burst_packets", "--burst"),
    ("bytes", "-n"),
    ("bytes_cap", "--bytes-cap"),
    ("captures", "--captures"),
    ("coalesce_us", "--coalesce"),
    ("collect", "--collect"),
    ("congestion", "-C"),
    ("cpus", "--cpu"),
    ("dont_fragment", "--df"),
    ("duration_ns", "-t"),
    ("folder_cap", "--folder-cap"),
    ("gro_flush_timeout_ns", "--defer"),
    ("host_settings", "longhaul serve --host-settings allow"),
    ("interval_ns", "-i"),
    ("irq_cpus", "--irq-cpu"),
    ("key", "--key FILE"),
    ("memory", "--memory"),
    ("memory_cap", "--memory-cap"),
    ("most_hops", "--max-hops"),
    ("mptcp", "--mptcp"),
    ("mss_bytes", "-M"),
    ("napi_defer_hard_irqs", "--defer"),
    ("no_auth", "--no-auth"),
    ("omit_ns", "--omit"),
    ("pace_bps", "--pace"),
    ("packets", "-k"),
    ("payload_bytes", "-l"),
    ("probes", "-c"),
    ("rate_bps", "-b"),
    ("rate_goal_bps", "--rate-goal"),
    ("read_rate_bps", "--read-rate"),
    ("realtime", "--realtime"),
    ("ring_packets", "--ring"),
    ("sample_ns", "--sample"),
    ("sizes", "--sizes"),
    ("sockbuf_bytes", "-w"),
    ("softirq", "--softirq"),
    ("spacing_ns", "--spacing"),
    ("spin", "--spin"),
    ("streams", "-P"),
    ("timeout_ns", "--timeout"),
    ("timestamps", "--timestamps"),
    ("transfers", "--size, --every"),
    ("window_bytes", "-w"),
    ("wire", "--wire"),
    ("write_rate_bps", "-b"),
];

/// `text` with flags in place of fields.
pub(crate) fn with_flags(text: &str) -> String {
    FLAGS.iter().fold(text.to_owned(), |text, (field, flag)| text.replace(&format!("`{field}`"), flag))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Not of options: a measurement that is resumed sets the first; the others are JSON's.
    const WITHOUT: [&str; 4] = ["first_sequence", "network", "path_changes", "unexplained"];

    /// Rust files below `folder`, without those that are tests.
    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let programs = entries.filter(|path| path.file_stem().is_some_and(|stem| stem != "tests"));
        programs.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
    }

    fn is_name(text: &str) -> bool {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    }

    /// The fields that the program `text` names: as parameters out of range, and between backticks in what it says.
    fn fields(text: &str) -> Vec<String> {
        let dense: String = text.split_whitespace().collect();
        let calls = ["ParameterError::new(\"", "check_range(\"", "check_sockbuf(\"", "check_memory(\""];
        let refused = calls.iter().flat_map(|call| dense.split(call).skip(1)).filter_map(|rest| rest.split('"').next());
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let said = lines.flat_map(|line| line.split(" // ").next().unwrap_or(line).split('`').skip(1).step_by(2));
        refused.chain(said).filter(|name| is_name(name)).map(str::to_owned).collect()
    }

    #[test]
    fn every_field_that_an_error_names_has_a_flag() {
        let mut seen = 0;
        for library in ["terms", "session", "udp", "tcp", "rtt", "peer"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../test").join(library).join("src");
            for file in sources(&folder) {
                let text = fs::read_to_string(&file).unwrap();
                let named = fields(text.split("#[cfg(test)]").next().unwrap());
                seen += named.len();
                for field in named.iter().filter(|field| !WITHOUT.contains(&field.as_str())) {
                    let has_flag = FLAGS.iter().any(|(known, _)| known == field);
                    assert!(has_flag, "{}: `{field}` has no flag in FLAGS", file.display());
                }
            }
        }
        assert!(seen > 60, "{seen}");
        let text = "check_range(\n    \"a_b\", 1);\nsay(\"use `c` or `d e`\"); // `f`\n/// `g`";
        assert_eq!(fields(text), ["a_b", "c"]);
    }

    /// They are of the control protocol, which knows no command line. Only `peer` says how to start the other end.
    #[test]
    fn libraries_of_tests_name_no_flag() {
        fn names_flag(line: &str) -> bool {
            let mut after = line.split("--").skip(1);
            !line.trim_start().starts_with("//") && after.any(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))
        }
        for library in ["terms", "session", "udp", "tcp", "rtt"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../test").join(library).join("src");
            for file in sources(&folder) {
                let text = fs::read_to_string(&file).unwrap();
                let flag = text.lines().find(|line| names_flag(line));
                assert!(flag.is_none(), "{}: name a field between backticks: {flag:?}", file.display());
            }
        }
        assert!(names_flag("\"give --time\"") && !names_flag("    /// `--time`") && !names_flag("a -- b"));
    }

    #[test]
    fn only_fields_become_flags() {
        assert_eq!(with_flags("`streams` 0: 1 to 64 streams"), "-P 0: 1 to 64 streams");
        assert_eq!(with_flags("use `bytes` or `duration_ns`, see `longhaul tcp`"), "use -n or -t, see `longhaul tcp`");
    }
}
