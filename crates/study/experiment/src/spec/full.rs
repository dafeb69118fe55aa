//! The source's own sizes in the text of an experiment: a table `full` has keys that stand in place of those beside it.
//!
//! ```toml
//! title = "TCP in short form"
//! path = "nlr-small"
//! full.each.time = "60s"       # of each series; what a series says in a `full` of its own comes before
//! [[tcp]]
//! name = "One flow"
//! congestion = ["reno"]
//! window = "200K"
//! time = "6s"
//! full.window = "2M"
//! ```

use std::fmt::Display;

use toml::{Table, Value};

use super::ExperimentError;

/// The series in a text, by what their lists are called.
const SERIES: [&str; 3] = ["udp", "tcp", "series"];
const FINDINGS: &str = "finding";
/// Bytes of `full.each` at most: each series has them once more.
const EACH_MOST: usize = 16 << 10;

/// The experiment with the sizes of `full`; `None` where `text` has none. `text` was read before: it has no more series and findings than an
/// experiment may have.
///
/// # Errors
/// A `full` is no table or cannot be read, or has a list of series or findings, or a long `full.each`.
pub(super) fn with_sources_sizes(text: &str) -> Result<Option<Table>, ExperimentError> {
    let remedy = "write it otherwise, or leave it out";
    let unreadable = |error: toml::de::Error| ExperimentError::of_toml(&error, text).and_do(remedy);
    let mut whole: Table = toml::from_str(text).map_err(unreadable)?;
    let mut of_all = take(&mut whole, "full", "full")?.unwrap_or_default();
    if let Some(list) = SERIES.iter().chain(&[FINDINGS]).find(|list| of_all.contains_key(**list)) {
        let why = format!("not here: give each `[[{list}]]` a `full` of its own");
        return Err(ExperimentError::at(format_args!("full.{list}"), why));
    }
    let each = take(&mut of_all, "each", "full.each")?.unwrap_or_default();
    let bytes: usize = each.iter().map(|(key, value)| key.len() + size(value)).sum();
    if bytes > EACH_MOST {
        return Err(ExperimentError::at("full.each", format!("{bytes} bytes, at most {EACH_MOST}")));
    }
    let mut found = !of_all.is_empty() || !each.is_empty();
    whole.extend(of_all);
    for list in SERIES.iter().chain(&[FINDINGS]) {
        let Some(Value::Array(tables)) = whole.get_mut(*list) else { continue };
        for (number, table) in tables.iter_mut().filter_map(Value::as_table_mut).enumerate() {
            let own = take(table, "full", format_args!("{list}[{number}].full"))?;
            found |= own.is_some();
            if SERIES.contains(list) {
                table.extend(each.clone());
            }
            table.extend(own.unwrap_or_default());
        }
    }
    Ok(found.then_some(whole))
}

/// About how many bytes of memory a value takes.
fn size(value: &Value) -> usize {
    let inner: usize = match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(size).sum(),
        Value::Table(table) => table.iter().map(|(key, value)| key.len() + size(value)).sum(),
        _ => 0,
    };
    size_of::<Value>() + inner
}

/// Takes the table `key`, which `place` is in the text, out of `table`.
///
/// # Errors
/// It is no table. A date passes as one where the text is read first.
fn take(table: &mut Table, key: &str, place: impl Display) -> Result<Option<Table>, ExperimentError> {
    match table.remove(key) {
        None => Ok(None),
        Some(Value::Table(taken)) => Ok(Some(taken)),
        Some(_) => Err(ExperimentError::at(place, "give a table of keys, such as { time = \"60s\" }")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longhaul_terms::Amount;
    use longhaul_units::{BitRate, Nanos};

    use super::super::Experiment;

    const SHORT: &str = "title = 'x'\npath = 'nlr-small'\nchange = ['rate=1Gbit']\n\
        full = { change = ['rate=5Gbit'], each = { time = '60s', omit = '5s' } }\n\
        [[tcp]]\nname = 'a'\ncongestion = ['reno']\ntime = '6s'\nwindow = '200K'\nfull.window = '2M'\n\
        [[tcp]]\nname = 'b'\ncongestion = ['reno:3s,cubic:3s']\nfull = { congestion = ['reno:3m,cubic:3m'], time = '6m' }\n\
        [[finding]]\nsays = 'f'\npoints = ['b, reno:3s,cubic:3s']\nwithin = [0, 1]\nfull.points = ['b, reno:3m,cubic:3m']\n";

    #[test]
    fn the_sources_sizes_stand_in_place_of_the_short_ones() {
        let (short, full) = Experiment::forms(SHORT, Path::new("")).unwrap();
        let full = full.unwrap();
        let seen = |experiment: &Experiment, series: usize| {
            let series = &experiment.tcp[series];
            let own = &series.tests[0].flows.parameters;
            (series.path.forward[0].rate, own.amount, own.omit_ns, own.window_bytes)
        };
        let gbit = |rate| Some(BitRate::from_gbit(rate));
        let lasts = |seconds| Amount::DurationNs(Nanos::from_secs(seconds).0);
        assert_eq!(seen(&short, 0), (gbit(1), lasts(6), 0, Some(200 << 10)));
        assert_eq!(seen(&full, 0), (gbit(5), lasts(60), 5_000_000_000, Some(2 << 20)));
        // What a series says itself comes before what is said of each.
        assert_eq!(seen(&full, 1), (gbit(5), lasts(360), 5_000_000_000, None));
        assert_eq!(full.tcp[1].tests[0].label, "reno:3m,cubic:3m", "and the finding has this point");
    }

    #[test]
    fn without_other_sizes_there_is_one_form() {
        let text = "title = 'x'\npath = 'lan'\n[[udp]]\nname = 'a'\nrates = ['1M']\ntime = '2s'\n";
        for (own, differs) in [("", false), ("full.time = '2s'\n", false), ("full.time = '1m'\n", true)] {
            let (_, full) = Experiment::forms(&format!("{text}{own}"), Path::new("")).unwrap();
            assert_eq!(full.is_some(), differs, "{own}");
        }
    }

    /// Nobody has to ask for them to be told.
    #[test]
    fn what_is_wrong_in_them_is_said_at_once() {
        for (wrong, said) in [
            ("full.window = '2M'", "with `full`: tcp[0].windows: give `window` or `windows`"),
            ("full.wndow = '2M'", "with `full`: unknown field `wndow`"),
            ("full.time = '60'", "with `full`: tcp.time: "),
            ("full = 3", "tcp.full: "),
            ("full.full = 3", "with `full`: tcp.full: "),
        ] {
            let text = format!(
                "title = 'x'\npath = 'lan'\n[[tcp]]\nname = 'a'\ncongestion = ['reno']\nwindows = ['1M']\n{wrong}\n"
            );
            let error = Experiment::parse(&text, Path::new("")).unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
        }
        let text = "title = 'x'\npath = 'lan'\nfull.each = 3\n[[udp]]\nname = 'a'\nrates = ['1M']\n";
        let error = Experiment::parse(text, Path::new("")).unwrap_err().to_string();
        assert!(error.contains("full.each: give a table of keys"), "{error}");
    }

    /// TOML's dates, and the table that the crate `toml` makes of one, pass as tables where nobody reads their keys.
    #[test]
    fn what_cannot_be_read_is_not_passed_over() {
        let of_all = |full: &str| format!("title = 'x'\npath = 'lan'\n{full}\n[[udp]]\nname = 'a'\nrates = ['1M']\n");
        let of_series = |full: &str| of_all("") + full;
        let (key, remedy) = ("full.$__toml_private_datetime: ", "; write it otherwise, or leave it out");
        for (full, said) in [
            ("full = 1979-05-27", ["full: give a table of keys"; 2]),
            ("full = { '$__toml_private_datetime' = '1979-05-27' }", ["full: give a table of keys"; 2]),
            ("full = { '$__toml_private_datetime' = 'x' }", [key, remedy]),
        ] {
            for text in [of_all(full), of_series(full)] {
                let error = Experiment::parse(&text, Path::new("")).unwrap_err().to_string();
                assert!(said.iter().all(|said| error.contains(said)), "{text}: {error}");
            }
        }
    }

    /// What would be copied into each series, or make series that nobody counted, is refused before.
    #[test]
    fn nothing_is_multiplied() {
        let series = "[[udp]]\nname = 'a'\nrates = ['1M']\n";
        let long = format!("full.each.quick = [{}]", "'1', ".repeat(10_000));
        let many = format!("full.udp = [{}]", "{}, ".repeat(10_000));
        for (wrong, said) in [(long, "full.each: "), (many, "full.udp: not here")] {
            let text = format!("title = 'x'\npath = 'lan'\n{wrong}\n{series}");
            let error = Experiment::parse(&text, Path::new("")).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
