//! Loss by rate, stacked by place: figure 5 of the NLR Rings paper.

use std::collections::BTreeMap;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::DrawError;

const WIDTH: u32 = 960;
const PANEL_HEIGHT: u32 = 320;

/// Colours that differ for the colour-blind as well (Okabe and Ito 2008), for locations in the order of the path.
const COLOURS: [(u8, u8, u8); 8] = [
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (240, 228, 66),
    (120, 120, 120),
];

/// One test: a bar of the figure.
#[derive(Debug, Clone, PartialEq)]
pub struct LossBar {
    /// Which panel it belongs to, such as `1 MiB socket buffer`.
    pub panel: String,
    /// What stands below it, such as `400 Mb/s`.
    pub label: String,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets lost by location, in the order of the path; locations without loss may be left out.
    pub lost_packets: Vec<(String, u64)>,
}

impl LossBar {
    fn share(&self, packets: u64) -> f64 {
        packets as f64 * 100.0 / self.sent_packets.max(1) as f64
    }

    fn lost(&self) -> u64 {
        self.lost_packets.iter().map(|(_, packets)| packets).sum()
    }
}

/// Locations that lost something in any bar, in the order of their first appearance, with a colour each.
fn legend(bars: &[LossBar]) -> Vec<(String, RGBColor)> {
    let mut names: Vec<String> = Vec::new();
    for (name, packets) in bars.iter().flat_map(|bar| &bar.lost_packets) {
        if *packets > 0 && !names.contains(name) {
            names.push(name.clone());
        }
    }
    names.into_iter().enumerate().map(|(i, name)| (name, rgb(COLOURS[i % COLOURS.len()]))).collect()
}

fn rgb((r, g, b): (u8, u8, u8)) -> RGBColor {
    RGBColor(r, g, b)
}

/// The figure as SVG: a panel for each `panel` of `bars`, in the order of their first appearance; the share of the packets sent
/// that each location lost, in percent.
///
/// # Errors
/// Where the drawing library fails.
pub fn loss_figure(bars: &[LossBar]) -> Result<String, DrawError> {
    let mut panels: Vec<&str> = Vec::new();
    for bar in bars {
        if !panels.contains(&bar.panel.as_str()) {
            panels.push(&bar.panel);
        }
    }
    let legend = legend(bars);
    let mut svg = String::new();
    {
        let root =
            SVGBackend::with_string(&mut svg, (WIDTH, PANEL_HEIGHT * panels.len().max(1) as u32)).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        for (area, panel) in root.split_evenly((panels.len().max(1), 1)).iter().zip(&panels) {
            let bars: Vec<&LossBar> = bars.iter().filter(|bar| bar.panel == *panel).collect();
            draw_panel(area, panel, &bars, &legend)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

fn draw_panel(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    bars: &[&LossBar],
    legend: &[(String, RGBColor)],
) -> Result<(), DrawError> {
    let highest = bars.iter().map(|bar| bar.share(bar.lost())).fold(0.0, f64::max);
    // A panel without loss still has an axis.
    let top = if highest > 0.0 { highest * 1.15 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((0..bars.len().max(1)).into_segmented(), 0.0..top)
        .map_err(failed)?;
    let label = |at: &SegmentValue<usize>| match at {
        SegmentValue::CenterOf(i) => bars.get(*i).map_or_else(String::new, |bar| bar.label.clone()),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .y_desc("packets lost, %")
        .x_label_formatter(&label)
        .x_labels(bars.len().max(1))
        .label_style(("sans-serif", 13))
        .draw()
        .map_err(failed)?;
    for (name, colour) in legend {
        let pieces = bars.iter().enumerate().filter_map(|(i, bar)| {
            let before =
                bar.lost_packets.iter().take_while(|(other, _)| other != name).map(|(_, packets)| packets).sum();
            let own = bar.lost_packets.iter().find(|(other, _)| other == name)?.1;
            let (low, high) = (bar.share(before), bar.share(before + own));
            let mut piece =
                Rectangle::new([(SegmentValue::Exact(i), low), (SegmentValue::Exact(i + 1), high)], colour.filled());
            piece.set_margin(0, 0, 14, 14);
            (own > 0).then_some(piece)
        });
        let colour = *colour;
        chart
            .draw_series(pieces)
            .map_err(failed)?
            .label(name.clone())
            .legend(move |(x, y)| Rectangle::new([(x, y - 6), (x + 12, y + 6)], colour.filled()));
    }
    if !legend.is_empty() {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.2))
            .label_font(("sans-serif", 13))
            .draw()
            .map_err(failed)?;
    }
    Ok(())
}

fn failed(error: impl std::fmt::Display) -> DrawError {
    DrawError(error.to_string())
}

/// The same as a table: a row a bar, a column for each location that lost something.
pub fn loss_table(bars: &[LossBar]) -> Vec<Vec<String>> {
    let legend = legend(bars);
    let mut head: Vec<String> = ["", "rate", "sent", "lost", "lost %"].map(str::to_owned).into();
    head.extend(legend.iter().map(|(name, _)| name.clone()));
    let mut rows = vec![head];
    for bar in bars {
        let by_name: BTreeMap<_, _> = bar.lost_packets.iter().map(|(name, packets)| (name, packets)).collect();
        let mut row = vec![
            bar.panel.clone(),
            bar.label.clone(),
            bar.sent_packets.to_string(),
            bar.lost().to_string(),
            format!("{:.4}", bar.share(bar.lost())),
        ];
        row.extend(legend.iter().map(|(name, _)| by_name.get(name).map_or(0, |packets| **packets).to_string()));
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars() -> Vec<LossBar> {
        [(400, 0, 0), (2400, 50, 200)]
            .map(|(rate, network, socket)| LossBar {
                panel: "1 MiB".into(),
                label: format!("{rate} Mb/s"),
                sent_packets: 1000,
                lost_packets: vec![("network".into(), network), ("receiver_socket_buffer".into(), socket)],
            })
            .into()
    }

    #[test]
    fn the_figure_names_what_lost() {
        let svg = loss_figure(&bars()).unwrap();
        for text in ["1 MiB", "2400 Mb/s", "network", "receiver_socket_buffer", "packets lost"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(loss_figure(&[]).is_ok(), "nothing to show is no error");
    }

    #[test]
    fn the_table_adds_up() {
        let rows = loss_table(&bars());
        assert_eq!(rows[0][5..], ["network", "receiver_socket_buffer"]);
        assert_eq!(rows[2], ["1 MiB", "2400 Mb/s", "1000", "250", "25.0000", "50", "200"]);
    }
}
