//! A sweep as a page: a heat map for each metric, by size and rate.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::Hash;

use longhaul_sweep::{Knee, Metric, PointResult, SweepResult, common};
use longhaul_udp::Pace;

use crate::html::AboutHost;
use crate::html::page::{caveats, escape, page, verdict, with_numbers};

/// Width and height of a cell, and the room for labels at the left and below, in units of the drawing.
const CELL: (usize, usize) = (84, 34);
const LEFT: usize = 78;
const BELOW: usize = 46;
const ABOVE: usize = 26;

/// The content of the page.
#[derive(Debug)]
pub struct Report<'a> {
    /// The host to which it sent.
    pub about: AboutHost<'a>,
    /// Its result.
    pub result: &'a SweepResult,
    /// What `longhaul sweep` prints.
    pub text: String,
}

/// A metric, its title, and how a value is written.
type Map = (Metric, &'static str, fn(f64) -> String);

const MAPS: [Map; 7] = [
    (Metric::Lost, "Packets lost, %", percent),
    (Metric::ReceivedBps, "Payload received, Mb/s", mbit),
    (Metric::Reordered, "Packets reordered, %", percent),
    (Metric::SpacingOutNs, "Median time between arrivals, µs", us),
    (Metric::BatchOutPackets, "Packets that arrived together, median", |packets| format!("{packets:.0}")),
    (Metric::ReceiverCpu, "CPU of the receiving thread, %", percent),
    (Metric::SenderCpu, "CPU of the sending thread, %", percent),
];

impl Report<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let title = format!("UDP to {} over sizes and rates", self.about.host);
        let mut body = self.about.heading(&title);
        body += &verdict(None, "", &found(&self.result.knees), &certainty(&self.result.points));
        body += &caveats(self.about.caveats);
        body += "<h2>Where losses begin</h2>\n<ul>";
        for knee in &self.result.knees {
            let evidence: String = knee.evidence.iter().map(|words| format!("; {words}")).collect();
            // Writing to a string cannot fail.
            let _ = write!(
                body,
                "<li><strong>{}</strong>: {}{}</li>",
                escape(&place(knee)),
                escape(&knee.verdict()),
                escape(&evidence)
            );
        }
        body += "</ul>\n";
        body += "<div class=\"panels\">\n";
        for (metric, title, write) in MAPS {
            let known = || self.result.points.iter().filter_map(|point| point.mean(metric));
            // A figure in which all are alike says nothing.
            let (Some(least), Some(most)) = (known().reduce(f64::min), known().reduce(f64::max)) else { continue };
            if most <= least {
                continue;
            }
            // The setting changes last. In a result of others it may change back and forth: each point is drawn once all the same.
            for points in self.result.points.chunk_by(|one, next| one.point.setting == next.point.setting) {
                let words = points[0].point.setting.words().join(", ");
                let title = if words.is_empty() { title.to_owned() } else { format!("{title}, {words}") };
                let svg = heat(points, &title, most, |point| point.mean(metric), write);
                let _ = writeln!(body, "<figure>{svg}</figure>");
            }
        }
        body += "</div>\n";
        let _ = writeln!(body, "<h2>All figures</h2>\n<pre tabindex=\"0\">{}</pre>", escape(&self.text));
        page(&title, &body)
    }
}

/// The size and setting of a knee.
fn place(knee: &Knee) -> String {
    let mut words = knee.setting.words();
    words.insert(0, format!("{} bytes", knee.payload_bytes));
    words.join(", ")
}

/// What was found, in words: what all sizes have in common, or the one with the lowest limit.
fn found(knees: &[Knee]) -> String {
    let broken = knees.iter().filter(|knee| knee.broken_bps.is_some());
    let first = broken.clone().min_by_key(|knee| knee.carried_bps.unwrap_or(0));
    match (first, common(knees)) {
        (None, _) if knees.iter().all(|knee| knee.carried_bps.is_none()) => "No test has a result.".into(),
        (None, _) => "No limit was found: every rate with a result was carried.".into(),
        (Some(_), Some(sentence)) => format!("{sentence}."),
        (Some(first), None) => format!(
            "{} of {} sizes and settings have a limit. The lowest is that of {}: {}.",
            broken.count(),
            knees.len(),
            place(first),
            first.verdict()
        ),
    }
}

/// How sure that is.
fn certainty(points: &[PointResult]) -> String {
    let tests = |point: &PointResult| point.tests.iter().filter(|test| test.figures.is_some()).count();
    match points.iter().map(tests).min() {
        None | Some(0) => "Some points have no test with a result.".into(),
        Some(1) => "Some points have only one test: how much results vary is unknown.".into(),
        Some(least) => format!("Each figure is the mean of at least {least} tests."),
    }
}

fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// Megabits, with three digits or as whole numbers.
fn mbit(bps: f64) -> String {
    digits(bps / 1e6)
}

fn us(ns: f64) -> String {
    digits(ns / 1e3)
}

fn digits(value: f64) -> String {
    let places = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.places$}")
}

/// The points of a setting as cells: rates to the right, sizes upwards, darker the nearer to `most`.
fn heat(
    points: &[PointResult],
    title: &str,
    most: f64,
    value: impl Fn(&PointResult) -> Option<f64>,
    write: impl Fn(f64) -> String,
) -> String {
    let paces: Vec<String> = points.iter().map(pace).collect();
    let (columns, column_of) = different(paces.iter().map(String::as_str));
    let (sizes, row_of) = different(points.iter().map(|point| point.point.payload_bytes));
    let (width, height) = (LEFT + CELL.0 * columns.len() + 8, ABOVE + CELL.1 * sizes.len() + BELOW);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width} {height}\" style=\"max-width:{width}px\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>\
         <text x=\"{LEFT}\" y=\"16\" font-weight=\"600\">{0}</text>",
        escape(title)
    );
    for (((point, pace), column), row) in points.iter().zip(&paces).zip(column_of).zip(row_of) {
        let (x, y) = (LEFT + column * CELL.0, ABOVE + (sizes.len() - 1 - row) * CELL.1);
        let found = value(point);
        let share = found.map_or(0.0, |found| (found / most).clamp(0.0, 1.0));
        let text = found.map_or_else(|| "–".into(), &write);
        let _ = write!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"#0072b2\" fill-opacity=\"{share:.3}\" stroke=\"var(--line)\">\
             <title>{} bytes, {}: {}</title></rect><text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"12\"{}>{}</text>",
            CELL.0 - 2,
            CELL.1 - 2,
            point.point.payload_bytes,
            escape(pace),
            escape(&text),
            x + CELL.0 / 2,
            y + CELL.1 / 2 + 4,
            if share > 0.6 { " style=\"fill:#fff\"" } else { "" },
            escape(&text)
        );
    }
    for (row, bytes) in sizes.iter().rev().enumerate() {
        let y = ABOVE + row * CELL.1 + CELL.1 / 2 + 4;
        let _ = write!(svg, "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\" font-size=\"12\">{bytes} B</text>", LEFT - 8);
    }
    let bottom = ABOVE + CELL.1 * sizes.len();
    for (column, pace) in columns.iter().enumerate() {
        let x = LEFT + column * CELL.0 + CELL.0 / 2;
        let _ = write!(
            svg,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" font-size=\"12\">{}</text>",
            bottom + 16,
            escape(pace)
        );
    }
    let middle = LEFT + CELL.0 * columns.len() / 2;
    let _ = write!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\" font-size=\"12\">payload rate asked, by payload of a packet</text></svg>",
        bottom + 36
    );
    let names = ["payload, bytes", "payload rate asked", title].map(str::to_owned).to_vec();
    let row = |(point, pace): (&PointResult, &String)| {
        let text = value(point).map_or_else(String::new, &write);
        vec![point.point.payload_bytes.to_string(), pace.clone(), text]
    };
    with_numbers(&svg, std::iter::once(names).chain(points.iter().zip(&paces).map(row)))
}

/// How fast a point sends, in words.
fn pace(point: &PointResult) -> String {
    match point.point.pace {
        Pace::SpacingNs(ns) => format!("each {} µs", us(ns as f64)),
        _ => point.point.rate().map_or_else(|| "unlimited".into(), |rate| format!("{} Mb/s", mbit(rate.0 as f64))),
    }
}

/// The different ones of `values`, in the order in which they first come, and the place of each value among these. In a result of others all may be
/// different.
fn different<T: Copy + Eq + Hash>(values: impl Iterator<Item = T>) -> (Vec<T>, Vec<usize>) {
    let (mut different, mut known) = (Vec::new(), HashMap::new());
    let of_value = |value: T| {
        *known.entry(value).or_insert_with(|| {
            different.push(value);
            different.len() - 1
        })
    };
    let of_each = values.map(of_value).collect();
    (different, of_each)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use longhaul_result::Caveat;
    use longhaul_sweep::{Estimate, Limit, Point, PointSetting};

    use super::*;

    fn html(result: &SweepResult, caveats: &[Caveat]) -> String {
        let (host, longhaul, started_at) = ("far".into(), "1".into(), "now".into());
        Report { about: AboutHost { host, longhaul, started_at, caveats }, result, text: String::new() }.html()
    }

    #[test]
    fn a_page_begins_with_the_lowest_limit_how_sure_it_is_and_what_speaks_against_it() {
        let knee = |payload_bytes: u32, carried| Knee {
            payload_bytes,
            setting: PointSetting::default(),
            carried_bps: Some(carried),
            carried_pps: Some(carried / 8 / u64::from(payload_bytes)),
            broken_bps: Some(carried * 2),
            limit: Limit::Sender,
            lost: None,
            evidence: Vec::new(),
        };
        let knees = vec![knee(1_000, 40_000_000), knee(64, 10_000_000)];
        let said = "2 of 2 sizes and settings have a limit. The lowest is that of 64 bytes: carried 10";
        assert!(found(&knees).starts_with(said), "{}", found(&knees));
        assert_eq!(found(&[]), "No test has a result.");
        let result = SweepResult { points: Vec::new(), knees };
        let caveats = [Caveat::of_error("sender_late", "by <3> ms", "")];
        let html = html(&result, &caveats);
        let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}: {html}"));
        let places = [
            "<p class=\"verdict\">2 of 2 sizes",
            "<p class=\"certainty\">Some points have no test",
            "<summary>1 caveat applies: sender late</summary>",
            "<li>by &lt;3&gt; ms</li>",
            "<h2>Where losses begin",
        ];
        assert!(places.map(place).is_sorted(), "{html}");
    }

    /// In a result of others GRO may be on and off in turn.
    #[test]
    fn each_point_is_drawn_once_in_whatever_order_they_are() {
        let point = |number: u32| {
            let setting = PointSetting { gro: Some(number.is_multiple_of(2)), ..PointSetting::default() };
            let lost = Estimate { mean: f64::from(number) / 10.0, standard_error: None, tests: 1 };
            let point = Point { payload_bytes: 100 + number, pace: Pace::Unlimited, setting };
            PointResult { means: BTreeMap::from([(Metric::Lost, lost)]), ..PointResult::new(point) }
        };
        let result = SweepResult { points: (0..6).map(point).collect(), knees: Vec::new() };
        let html = html(&result, &[]);
        assert!(html.contains("<title>Packets lost, %, gro on</title>"), "{html}");
        assert_eq!(html.matches(" bytes, unlimited: ").count(), 6, "{html}");
    }

    /// Also where two rates are written alike.
    #[test]
    fn a_cell_is_in_the_column_of_its_rate_and_the_row_of_its_size() {
        let point = |payload_bytes: u32, bps: u64| {
            let lost = Estimate { mean: bps as f64 / 1e9, standard_error: None, tests: 1 };
            let point = Point { payload_bytes, pace: Pace::RateBps(bps), setting: PointSetting::default() };
            PointResult { means: BTreeMap::from([(Metric::Lost, lost)]), ..PointResult::new(point) }
        };
        let rates = [5_000_000, 2_000_000, 2_000_001, 9_000_000];
        let points: Vec<PointResult> =
            [100, 200].into_iter().flat_map(|bytes| rates.map(|bps| point(bytes, bps))).collect();
        let svg = heat(&points, "lost", 0.01, |point| point.mean(Metric::Lost), percent);
        let cells: Vec<&str> = svg.split("<rect ").skip(1).map(|cell| cell.split(" width").next().unwrap()).collect();
        let [left, middle, right] = [0, 1, 2].map(|column| LEFT + column * CELL.0);
        let at = |y: usize| [left, middle, middle, right].map(|x| format!("x=\"{x}\" y=\"{y}\""));
        assert_eq!(cells, [at(ABOVE + CELL.1), at(ABOVE)].concat(), "{svg}");
        assert_eq!(svg.matches(" Mb/s</text>").count(), 3, "{svg}");
    }
}
