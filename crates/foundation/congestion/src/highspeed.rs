//! HighSpeed TCP's increase a(w) and decrease b(w), and the table of them that the kernel uses.
//!
//! Source: RFC 3649 §5 and Appendix B.

/// The most rows that the BPF program holds: `ROWS` in `highspeed.bpf.c`.
pub const MOST_ROWS: usize = 128;

/// A row of the table: from this window on, a(w) is the number of the row, from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The window, in packets.
    pub window: u32,
    /// b(w), in 256ths, rounded down.
    pub decrease_256: u32,
}

/// The response function between its two ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Curve {
    low_window: f64,
    high_window: f64,
    low_loss: f64,
    high_loss: f64,
    high_decrease: f64,
}

/// Standard TCP's decrease.
const LOW_DECREASE: f64 = 0.5;
/// Standard TCP's window at a rate of loss p is `sqrt(1.5/p)`, and that at low_window: RFC 3649 §5.
const STANDARD: f64 = 1.5;
/// The RFC's Appendix B computes p(w) as `1/(w^1.2·12.8)`, rounded figures of its own parameters.
const APPENDIX_EXPONENT: f64 = 1.2;
const APPENDIX_FACTOR: f64 = 12.8;
/// The table ends where the RFC's does, or at the high window if that is higher.
const APPENDIX_TOP: u32 = 100_000;

impl Curve {
    /// The RFC's: 38 and 83,000 packets, 10⁻⁷, 0.1.
    pub const RFC_3649: Self =
        Self { low_window: 38.0, high_window: 83_000.0, low_loss: 1e-3, high_loss: 1e-7, high_decrease: 0.1 };

    /// A curve through (`low_window`, standard TCP's loss there) and (`high_window`, `high_loss`). `None` where that is no curve.
    pub fn new(low_window: u32, high_window: u32, high_loss: f64, high_decrease: f64) -> Option<Self> {
        let low = f64::from(low_window);
        let low_loss = STANDARD / (low * low);
        if low_window < 2
            || high_window <= low_window
            || high_loss <= 0.0
            || high_loss >= low_loss
            || high_decrease <= 0.0
        {
            return None;
        }
        // The RFC rounds standard TCP's 1.04·10⁻³ at 38 packets to 10⁻³.
        let low_loss = if low_window == 38 { 1e-3 } else { low_loss };
        Some(Self { low_window: low, high_window: f64::from(high_window), low_loss, high_loss, high_decrease })
    }

    /// The position of `window` between the ends, in logarithms.
    fn position(&self, window: f64) -> f64 {
        (window / self.low_window).ln() / (self.high_window / self.low_window).ln()
    }

    /// p(w): the rate of loss at which the mean window is `window`. §5, Eq. 3: `0.078/w^1.2` with the RFC's parameters.
    pub fn loss(&self, window: f64) -> f64 {
        if *self == Self::RFC_3649 {
            return 1.0 / (window.powf(APPENDIX_EXPONENT) * APPENDIX_FACTOR);
        }
        (self.low_loss.ln() + self.position(window) * (self.high_loss / self.low_loss).ln()).exp()
    }

    /// The mean window at a rate of loss. `w = 0.12/p^0.835` with the RFC's parameters (§5).
    pub fn window(&self, loss: f64) -> f64 {
        if loss >= self.low_loss {
            return (STANDARD / loss).sqrt();
        }
        let slope = (self.high_window / self.low_window).ln() / (self.high_loss / self.low_loss).ln();
        (self.low_window.ln() + slope * (loss / self.low_loss).ln()).exp()
    }

    /// The end of the table; beyond it a and b stay constant.
    fn top(&self) -> f64 {
        f64::from(APPENDIX_TOP).max(self.high_window)
    }

    /// b(w), §5 Eq. 4.
    pub fn decrease(&self, window: f64) -> f64 {
        let window = window.min(self.top());
        if window <= self.low_window {
            return LOW_DECREASE;
        }
        LOW_DECREASE + (self.high_decrease - LOW_DECREASE) * self.position(window)
    }

    /// a(w), §5 Eq. 5: `w²·p(w)·2·b(w)/(2 - b(w))`; 1 up to the low window.
    pub fn increase(&self, window: f64) -> f64 {
        let window = window.min(self.top());
        if window <= self.low_window {
            return 1.0;
        }
        let b = self.decrease(window);
        window * window * self.loss(window) * 2.0 * b / (2.0 - b)
    }

    /// The table: one row for each whole a(w), as the RFC's program prints it.
    pub fn rows(&self) -> Vec<Row> {
        let row =
            |window: u32| Row { window, decrease_256: (self.decrease(f64::from(window)) * 256.0).max(1.0) as u32 };
        let (first, last) = (self.low_window as u32, self.top() as u32);
        let mut rows = vec![row(first)];
        let mut reached = 1.0;
        for window in first..last {
            // Where a small decrease at the top would make a(w) fall, it stays.
            let increase = self.increase(f64::from(window));
            if increase > reached + 1.0 && rows.len() < MOST_ROWS {
                rows.push(row(window));
                reached = increase;
            }
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3649, Table 12: w, a(w), b(w), as printed.
    const TABLE_12: &str = include_str!("../rfc3649-table12.txt");

    #[test]
    fn the_table_of_appendix_b() {
        let rows = Curve::RFC_3649.rows();
        let printed: Vec<Vec<&str>> = TABLE_12.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!((rows.len(), printed.len()), (73, 73));
        for (number, (row, printed)) in (1..).zip(rows.iter().zip(&printed)) {
            let b = Curve::RFC_3649.decrease(f64::from(row.window));
            assert_eq!(
                [row.window.to_string(), number.to_string(), format!("{b:.2}")],
                [printed[0], printed[1], printed[2]],
                "row {number}"
            );
            assert_eq!(row.decrease_256, (b * 256.0) as u32);
        }
    }

    #[test]
    fn the_ends_of_the_curve() {
        let curve = Curve::RFC_3649;
        let near =
            |value: f64, wanted: f64, within: f64| assert!((value / wanted - 1.0).abs() < within, "{value} {wanted}");
        // §5: w = 0.12/p^0.835; 10⁻⁷ at 83,000, and Table 1 (10⁻³: 38, 10⁻⁵: 1795, 10⁻¹⁰: 26,864,653).
        for (loss, window) in
            [(1e-2, 12.0), (1e-3, 38.0), (1e-4, 263.0), (1e-5, 1795.0), (1e-6, 12_279.0), (1e-7, 83_981.0)]
        {
            near(curve.window(loss), window, 0.03);
        }
        near(curve.loss(83_000.0), 1e-7, 0.03);
        near(curve.increase(83_000.0), 72.0, 0.02);
        near(curve.decrease(83_000.0), 0.1, 1e-9);
        assert_eq!((curve.increase(38.0), curve.decrease(38.0)), (1.0, 0.5));
    }

    #[test]
    fn other_curves() {
        // §7: with High_Window 380 and the like the table shortens; a(w) never falls.
        let curve = Curve::new(38, 12_000, 1e-5, 0.2).unwrap();
        let rows = curve.rows();
        assert!(
            rows.windows(2).all(|pair| pair[0].window < pair[1].window && pair[0].decrease_256 >= pair[1].decrease_256)
        );
        assert!((curve.window(1e-5) - 12_000.0).abs() < 1.0);
        assert_eq!(Curve::new(38, 83_000, 1e-7, 0.1), Some(Curve::RFC_3649));
        for (low, high, loss, decrease) in
            [(38, 38, 1e-7, 0.1), (38, 83_000, 0.0, 0.1), (0, 83_000, 1e-7, 0.1), (38, 83_000, 1e-2, 0.1)]
        {
            assert_eq!(Curve::new(low, high, loss, decrease), None);
        }
    }
}
