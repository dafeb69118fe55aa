//! The catalogue as text: a line for each diagnosis, then the confusion matrix.

use std::fmt::Write;

use longhaul_experiment::faults::run::Price;
use longhaul_experiment::faults::score::{Cell, Named, Share, Summary};
use longhaul_experiment::faults::spec::Form;
use longhaul_units::{BitRate, Nanos};

pub(super) const HEADING: &str = "\
fault                               RTT    seed  goodput   fixing brings            promised  right  first causes
                                                    Mb/s            Mb/s                Mb/s";

pub(super) const PRICE_HEADING: &str = "\
fault                               RTT     faulty     fixed   ratio";

/// Causes of a line.
const CAUSES_SHOWN: usize = 3;

/// One diagnosis. Rates are Mb/s of payload.
pub(super) fn row(cell: &Cell) -> String {
    let name = match cell.form {
        Form::Test => cell.fault.clone(),
        form => format!("{}, {}", cell.fault, form.name()),
    };
    let head = format!("{name:<35} {:<6} {:>4}", Nanos(cell.rtt_ns).to_string(), cell.seed);
    let void = if cell.void_runs > 0 { format!("  (void before: {})", cell.void_runs) } else { String::new() };
    if !cell.error.is_empty() {
        return format!("{head}  not diagnosed: {}{void}", cell.error);
    }
    let brings = cell.measured_bps.map_or_else(|| "?".into(), |[faulty, fixed]| mbit(fixed.saturating_sub(faulty)));
    let last = cell.named.get(cell.expected.len().max(1) - 1);
    let promised = last.map_or_else(String::new, |cause| interval(cause.worth_bps));
    let wrong: Vec<&str> = [
        (Some(cell.right), "cause"),
        (cell.place_right, "location"),
        (cell.host_right, "host"),
        (cell.price_right, "price"),
    ]
    .into_iter()
    .filter_map(|(right, what)| (right == Some(false)).then_some(what))
    .collect();
    let right = match (wrong.is_empty(), cell.should_find) {
        (true, _) => "yes".to_owned(),
        (false, true) => format!("no: {}", wrong.join(", ")),
        (false, false) => "not asked".to_owned(),
    };
    let causes: Vec<String> = cell.named.iter().take(CAUSES_SHOWN).map(cause).collect();
    let causes = if causes.is_empty() { "none".into() } else { causes.join(", ") };
    let goodput = cell.goodput_bps.map_or_else(|| "?".into(), mbit);
    let tuned = cell.tuned.as_ref().map(|tuned| {
        let kept = match (tuned.kept, tuned.is_a_setting) {
            (true, _) => "",
            (false, true) => "no: ",
            (false, false) => "left to its owner: ",
        };
        format!("  tuned: {kept}{} of {}", mbit(tuned.came_bps), mbit(tuned.promised_bps))
    });
    format!("{head} {goodput:>8} {brings:>15} {promised:>19}  {right}  {causes}{}{void}", tuned.unwrap_or_default())
}

/// What fixing a fault brings.
pub(super) fn price(price: &Price) -> String {
    let head = format!("{:<35} {:<6}", price.fault, Nanos(price.rtt_ns).to_string());
    let mut error = if price.error.is_empty() { String::new() } else { format!("  {}", price.error) };
    if price.void_runs > 0 {
        error += &format!("  (void before: {})", price.void_runs);
    }
    match price.means() {
        Some(row) => {
            let (faulty, fixed) = (mbit(row.faulty.0), mbit(row.fixed.0));
            format!("{head} {faulty:>8} {fixed:>9} {:>7.2}{error}", row.ratio())
        }
        None => format!("{head}  not measured: {}", price.error),
    }
}

/// The confusion matrix and the shares.
pub(super) fn summary(summary: &Summary) -> String {
    let mut text = String::from("\nexpected             first cause named\n");
    for (expected, named) in &summary.confusion {
        let named: Vec<String> = named.iter().map(|(code, count)| format!("{code} {count}")).collect();
        let _ = writeln!(text, "{:<20} {}", expected.name(), named.join(", "));
    }
    let _ = writeln!(text);
    for (what, share) in [
        ("single faults: the first cause is right", summary.single),
        ("pairs: both are among the first two", summary.pair),
        ("healthy paths: no cause is named", summary.healthy),
        ("too small to matter: no other cause is named", summary.finding),
        ("of right causes: the location", summary.place),
        ("of right causes: the host", summary.host),
        ("of right causes: the price, within 1.5 times", summary.price),
        ("of those that a setting fixes: 80 % of the promise, tuned", summary.tuned),
    ] {
        if share.of > 0 {
            let Share { right, of } = share;
            let _ = writeln!(text, "{what:<54} {right:>4} of {of:<4} {:>5.1} %", right as f64 * 100.0 / of as f64);
        }
    }
    for (form, Share { right, of }) in &summary.without_test {
        let what = format!("{} without a test: as the fault's file expects", form.name());
        let _ = writeln!(text, "{what:<54} {right:>4} of {of:<4} {:>5.1} %", *right as f64 * 100.0 / *of as f64);
    }
    if summary.left_to_owners > 0 {
        let what = "a rule, program, CPU or disk, which tune does not change";
        let _ = writeln!(text, "{what:<54} {:>4}", summary.left_to_owners);
    }
    if summary.void_runs > 0 {
        let _ = writeln!(text, "{:<54} {:>4}", "void, because the machine was busy", summary.void_runs);
    }
    if summary.failed > 0 {
        let _ = writeln!(text, "{:<54} {:>4}", "not diagnosed", summary.failed);
    }
    text.truncate(text.trim_end().len());
    text
}

fn cause(cause: &Named) -> String {
    let host = cause.host.map_or("", |host| host.name());
    let place = cause.place.map_or("", |place| place.name());
    let words: Vec<&str> = [host, place].into_iter().filter(|word| !word.is_empty()).collect();
    let place = if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
    format!("{}{place} {}", cause.code, interval(cause.bound_bps))
}

fn interval((least, most): (u64, Option<u64>)) -> String {
    match most {
        Some(most) if most == least => mbit(least),
        Some(most) => format!("{}-{}", mbit(least), mbit(most)),
        None => format!("{}-?", mbit(least)),
    }
}

fn mbit(bps: u64) -> String {
    format!("{:.1}", BitRate(bps).0 as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use longhaul_experiment::faults::score::Kind;

    use super::*;

    /// A line says what is wrong.
    #[test]
    fn kinds_have_lines() {
        let fault = longhaul_experiment::faults::find("receive-buffer").unwrap();
        let cell = Cell::new(&fault, Nanos::from_millis(80), 1, None);
        assert_eq!(cell.kind, Kind::Single);
        let line = row(&cell.failed("no lab"));
        assert!(line.starts_with("receive-buffer") && line.ends_with("not diagnosed: no lab"), "{line}");
    }
}
