//! A panel of stacked bars as SVG: one bar for each point, one piece for each place of losses.

use std::fmt::Write;

use crate::html::axis::{grid, height, short, step};
use crate::html::page::{escape, number, with_numbers};

pub(crate) const WIDTH: f64 = 400.0;
pub(crate) const HEIGHT: f64 = 260.0;
/// Of the bars' ground: left, top, right, bottom.
pub(crate) const EDGES: [f64; 4] = [60.0, 22.0, 396.0, 212.0];
/// Of the room that a bar has.
pub(crate) const BAR_SHARE: f64 = 0.62;
/// How much higher than the highest bar the axis is at least.
pub(crate) const HEADROOM: f64 = 1.08;
/// Of the text beside a bar, with some room.
pub(crate) const LETTER_WIDE: f64 = 7.5;

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    /// The text below it.
    pub(crate) label: String,
    /// For programs: the rate in bits a second, where that is what differs.
    pub(crate) rate_bps: Option<u64>,
    /// What was lost at each place, from below; `None` if not measured.
    pub(crate) pieces: Option<Vec<Piece>>,
    /// Half of the interval of their sum, percent; `None` if not known.
    pub(crate) half_width: Option<f64>,
    /// It should not be trusted: pale.
    pub(crate) doubtful: bool,
}

/// A place of losses.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    pub(crate) place: &'static str,
    /// The value of `fill` in SVG.
    pub(crate) fill: String,
    /// Percent of what was sent.
    pub(crate) percent: f64,
}

impl Bar {
    pub(crate) fn total(&self) -> f64 {
        self.pieces.iter().flatten().map(|piece| piece.percent).sum()
    }

    /// What was lost somewhere.
    fn lossy(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().flatten().filter(|piece| piece.percent > 0.0)
    }

    /// The upper end of its interval.
    pub(crate) fn top(&self) -> f64 {
        self.total() + self.half_width.unwrap_or_default()
    }
}

/// The panel, with an axis from 0 to at least `highest` percent. `x_title` and `y_title` label the axes. Without `x_title` there is room for a
/// second row of labels.
pub(crate) fn panel(title: &str, bars: &[Bar], highest: f64, x_title: &str, y_title: &str) -> String {
    let [left, top, right, bottom] = EDGES;
    // The totals are above the bars and below the uppermost line.
    let highest = if highest > 0.0 { highest * HEADROOM } else { 1.0 };
    let step = step(highest);
    let steps = (highest / step).ceil();
    let y = |percent: f64| height(EDGES, step, steps, percent);
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" class=\"plot\"><title>{}</title>",
        escape(title)
    );
    grid(&mut svg, EDGES, step, steps, short);
    let room = (right - left) / bars.len().max(1) as f64;
    let wide = room * BAR_SHARE;
    // If labels would overlap, some are left out in turn; the table has all.
    let longest = bars.iter().map(|bar| bar.label.chars().count()).max().unwrap_or_default();
    let apart = ((longest as f64 * LETTER_WIDE).max(44.0) / room).ceil().max(1.0) as usize;
    let rows = apart.min(if x_title.is_empty() { 2 } else { 1 });
    let every = apart.div_ceil(rows);
    for (number, bar) in bars.iter().enumerate() {
        let middle = left + room * (number as f64 + 0.5);
        let class = if bar.doubtful { "bar doubtful" } else { "bar" };
        let rate = bar.rate_bps.map_or_else(String::new, |bps| format!(" data-rate=\"{bps}\""));
        let _ = write!(svg, "<g class=\"{class}\"{rate}><title>{}</title>", escape(&told(bar)));
        let mut below = 0.0;
        for Piece { place, fill, percent } in bar.lossy() {
            let (low, high) = (y(below), y(below + percent));
            below += percent;
            let _ = write!(
                svg,
                "<rect class=\"piece\" data-location=\"{place}\" x=\"{:.1}\" y=\"{high:.2}\" width=\"{wide:.1}\" height=\"{:.2}\" fill=\"{fill}\"/>",
                middle - wide / 2.0,
                low - high,
            );
        }
        if let Some(half) = bar.half_width {
            svg += &error_bar(middle, y(below - half), y(below + half));
        }
        let total = if bar.pieces.is_some() { short(below) } else { "–".into() };
        if number % every == 0 {
            let _ = write!(
                svg,
                "<text class=\"total\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{total}</text>\
                 <text x=\"{middle:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                y(below + bar.half_width.unwrap_or_default()) - 5.0,
                bottom + 17.0 + 14.0 * (number / every % rows) as f64,
                escape(&bar.label)
            );
        }
        svg += "</g>\n";
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
         <text transform=\"translate(13 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n</svg>",
        (left + right) / 2.0,
        HEIGHT - 8.0,
        escape(x_title),
        (top + bottom) / 2.0,
        escape(y_title),
    );
    with_numbers(&svg, table(bars, if x_title.is_empty() { "test" } else { x_title }))
}

/// The numbers of `bars`, percent: a row for each, a column for each place that lost anything.
fn table(bars: &[Bar], x_title: &str) -> Vec<Vec<String>> {
    let mut places: Vec<&str> = Vec::new();
    for piece in bars.iter().flat_map(Bar::lossy) {
        if !places.contains(&piece.place) {
            places.push(piece.place);
        }
    }
    let names = [x_title].into_iter().chain(places.iter().copied()).chain(["all", "±"]);
    let mut table = vec![names.map(str::to_owned).collect::<Vec<_>>()];
    for bar in bars {
        let of = |place: &&str| {
            let pieces = bar.pieces.as_ref()?.iter().filter(|piece| piece.place == *place);
            Some(pieces.map(|piece| piece.percent).sum::<f64>())
        };
        let mut row = vec![bar.label.clone()];
        row.extend(places.iter().map(|place| number(of(place))));
        row.extend([bar.pieces.as_ref().map(|_| bar.total()), bar.half_width].map(number));
        table.push(row);
    }
    table
}

/// A bar from `low` to `high` with a short line at each end.
pub(crate) fn error_bar(x: f64, low: f64, high: f64) -> String {
    let (left, right) = (x - 4.0, x + 4.0);
    format!(
        "<path class=\"interval\" d=\"M{left:.1} {high:.2}H{right:.1}M{x:.1} {high:.2}V{low:.2}M{left:.1} {low:.2}H{right:.1}\"/>"
    )
}

/// A bar in words, for whoever points at it or cannot see it.
fn told(bar: &Bar) -> String {
    if bar.pieces.is_none() {
        return format!("{}: not measured", bar.label);
    }
    let half = bar.half_width.map_or_else(String::new, |half| format!(" ± {}", short(half)));
    let mut parts = vec![format!("{}: {}{half} % lost", bar.label, short(bar.total()))];
    parts.extend(bar.lossy().map(|piece| format!("{} {} %", piece.place, short(piece.percent))));
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_steps() {
        for (highest, expected) in [(47.3, 10.0), (1.0, 0.2), (0.03, 0.01), (100.0, 20.0), (12.0, 2.5), (0.0, 1e-6)] {
            assert!((step(highest) - expected).abs() < expected * 1e-9, "{highest}: {}", step(highest));
        }
        for (value, text) in [(0.0, "0"), (47.31, "47"), (2.5, "2.5"), (0.0157, "0.016"), (100.0, "100"), (20.0, "20")]
        {
            assert_eq!(short(value), text);
        }
    }

    /// Bars of up to 18 % have an axis to 20 %, 190 units high: the network's 5 % take 47.5, the ring's 10 % above them 95.
    #[test]
    fn pieces_stand_on_each_other_in_the_order_of_travel() {
        let pieces = [("network", 5.0), ("receiver_ring", 10.0), ("receiver_filter", 0.0)];
        let pieces = pieces.map(|(place, percent)| Piece { place, fill: "#000".into(), percent }).to_vec();
        let bar = Bar {
            label: "400".into(),
            rate_bps: Some(1),
            pieces: Some(pieces),
            half_width: Some(1.0),
            doubtful: false,
        };
        let bars = [bar];
        let svg = panel("<b>", &bars, 18.0, "", "");
        let network = svg.find("data-location=\"network\"").unwrap();
        let ring = svg.find("data-location=\"receiver_ring\"").unwrap();
        assert!(network < ring && !svg.contains("receiver_filter") && !svg.contains("<b>"));
        assert!(
            svg[network..ring].contains("y=\"164.50\"") && svg[network..ring].contains("height=\"47.50\""),
            "{svg}"
        );
        assert!(svg[ring..].contains("y=\"69.50\"") && svg[ring..].contains("height=\"95.00\""), "{svg}");
        assert!(svg.contains(">15</text>"), "the total is above");
        let numbers = "data-csv=\"test,network,receiver_ring,all,±\n400,5,10,15,1\"";
        assert!(svg.contains(numbers), "{svg}");
        let narrow: Vec<Bar> = (0..12).map(|_| bars[0].clone()).collect();
        let labels = |x_title: &str| panel("", &narrow, 18.0, x_title, "").matches(">400</text>").count();
        assert_eq!([labels("Mbit/s"), labels("")], [6, 12], "without a title of the axis in two rows");
        assert!(svg.contains("V79.00M") && svg.contains(": 15 ± 1 % lost"), "from 14 to 16 %: {svg}");
    }
}
