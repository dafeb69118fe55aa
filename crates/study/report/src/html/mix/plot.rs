//! Panels of a mix experiment's report: lines over the rates.

use std::fmt::Write;

use super::{Run, Series};
use crate::html::page::{escape, number, with_numbers};

/// Width and height of a panel; left, top, right and bottom of its plot.
const SIZE: [f64; 2] = [400.0, 240.0];
const EDGES: [f64; 4] = [52.0, 18.0, 390.0, 200.0];
/// Colours that differ without colour vision (Okabe and Ito 2008), and dashes for print.
const LINES: [(&str, &str); 5] =
    [("#d55e00", ""), ("#0072b2", "6 3"), ("#009e73", "2 3"), ("#cc79a7", "8 3 2 3"), ("#56b4e9", "1 4")];

/// One line for each series, over the rates.
pub(crate) fn panel(title: &str, series: &[&Series], of: fn(&Run) -> f64) -> String {
    let [left, _, right, _] = EDGES;
    let runs = || series.iter().flat_map(|series| &series.runs);
    let most_rate = runs().map(|run| run.rate_bps as f64).fold(1.0, f64::max);
    let most = runs().map(of).fold(1e-9, f64::max);
    let step = crate::html::axis::step(most);
    let steps = (most / step - 1e-6).ceil().max(1.0);
    let x = |run: &Run| left + (right - left) * run.rate_bps as f64 / most_rate;
    let y = |value: f64| crate::html::axis::height(EDGES, step, steps, value);
    let mut svg = start(title);
    crate::html::axis::grid(&mut svg, EDGES, step, steps, crate::html::axis::short);
    for (one, (colour, dashes)) in series.iter().zip(LINES.iter().cycle()) {
        let points: Vec<String> = one.runs.iter().map(|run| format!("{:.1},{:.1}", x(run), y(of(run)))).collect();
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
            points.join(" ")
        );
    }
    let names: Vec<&str> = series.iter().map(|one| &*one.receiver).collect();
    let line = |one: &&Series| {
        let points: Vec<(f64, f64)> = one.runs.iter().map(|run| (run.rate_bps as f64, of(run))).collect();
        (one.receiver.clone(), points)
    };
    let lines: Vec<_> = series.iter().map(line).collect();
    end(svg, most_rate, &names, table(&lines))
}

/// Lines of points (rate, value) by name. The axis of values is logarithmic: some values are a hundred times others.
pub(crate) fn decades(title: &str, lines: &[(String, Vec<(f64, f64)>)]) -> String {
    let [left, top, right, bottom] = EDGES;
    let points = || lines.iter().flat_map(|(_, points)| points).copied().filter(|(_, value)| *value > 0.0);
    let most_rate = points().map(|(rate, _)| rate).fold(1.0, f64::max);
    let least = points().map(|(_, value)| value).fold(f64::MAX, f64::min).min(1e9).log10().floor();
    let most = points().map(|(_, value)| value).fold(1.0, f64::max).log10().ceil().max(least + 1.0);
    let y = |value: f64| bottom - (bottom - top) * (value.log10() - least) / (most - least);
    let mut svg = start(title);
    for decade in least as i32..=most as i32 {
        let at = y(10_f64.powi(decade));
        let label = match decade {
            6.. => format!("{} M", 10_i64.pow(decade as u32 - 6)),
            3.. => format!("{} k", 10_i64.pow(decade as u32 - 3)),
            _ => crate::html::axis::short(10_f64.powi(decade)),
        };
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            left - 6.0,
            at + 4.0
        );
    }
    for ((_, points), (colour, dashes)) in lines.iter().zip(LINES.iter().cycle()) {
        let points: Vec<String> = (points.iter().filter(|(_, value)| *value > 0.0))
            .map(|(rate, value)| format!("{:.1},{:.1}", left + (right - left) * rate / most_rate, y(*value)))
            .collect();
        let _ = write!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
            points.join(" ")
        );
    }
    let names: Vec<&str> = lines.iter().map(|(name, _)| &**name).collect();
    end(svg, most_rate, &names, table(lines))
}

fn start(title: &str) -> String {
    let title = escape(title);
    format!("<figure><h3>{title}</h3><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{title}\">", SIZE[0], SIZE[1])
}

/// The numbers of lines: a row for each point.
fn table(lines: &[(String, Vec<(f64, f64)>)]) -> Vec<Vec<String>> {
    let mut table = vec![["line", "Mb/s", "value"].map(str::to_owned).to_vec()];
    for (name, points) in lines {
        table.extend(points.iter().map(|(bps, value)| vec![name.clone(), number(bps / 1e6), number(*value)]));
    }
    table
}

/// The axis of rates, the numbers, and the legend.
fn end(mut svg: String, most_rate: f64, names: &[&str], table: Vec<Vec<String>>) -> String {
    let [left, _, right, bottom] = EDGES;
    let _ = write!(
        svg,
        "<text x=\"{left}\" y=\"{:.0}\">0</text><text x=\"{right}\" y=\"{:.0}\" text-anchor=\"end\">{:.0} Mb/s</text></svg>",
        bottom + 18.0,
        bottom + 18.0,
        most_rate / 1e6
    );
    svg = with_numbers(&svg, table) + "<ul class=\"legend\">";
    for (name, (colour, dashes)) in names.iter().zip(LINES.iter().cycle()) {
        let _ = write!(
            svg,
            "<li><svg viewBox=\"0 0 24 8\"><line x1=\"0\" x2=\"24\" y1=\"4\" y2=\"4\" stroke=\"{colour}\" stroke-width=\"4\" \
             stroke-dasharray=\"{dashes}\"/></svg>{}</li>",
            escape(name)
        );
    }
    svg + "</ul></figure>\n"
}
