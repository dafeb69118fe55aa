//! Reduces the points of a line to the lowest and the highest of each interval of time: no point is invented, no extreme is lost.

/// A moment, seconds, and the value then.
type Point = (f64, f64);

/// A bin, and its lowest and highest point so far.
type Extremes = (usize, Point, Point);

/// At most some `most` of `points`, which are in the order of time; `None` parts the line and stays. The first, the last, the lowest and the
/// highest point of all are among them.
pub(crate) fn thin(points: &[Option<Point>], most: usize) -> Vec<Option<Point>> {
    let known = || points.iter().flatten();
    let (Some(first), Some(last)) = (known().next(), known().next_back()) else { return Vec::new() };
    if points.len() <= most {
        return points.to_vec();
    }
    // Each bin leaves two points, and the ends are kept.
    let bins = (most.saturating_sub(2) / 2).max(1) as f64;
    let bin = |at: f64| ((at - first.0) / (last.0 - first.0) * bins).min(bins - 1.0).max(0.0) as usize;
    let mut thinned: Vec<Option<Point>> = vec![Some(*first)];
    let mut extremes: Option<Extremes> = None;
    let flush = |thinned: &mut Vec<Option<Point>>, extremes: &mut Option<Extremes>| {
        if let Some((_, low, high)) = extremes.take() {
            let (one, other) = if low.0 <= high.0 { (low, high) } else { (high, low) };
            for point in [one, other] {
                if thinned.last() != Some(&Some(point)) {
                    thinned.push(Some(point));
                }
            }
        }
    };
    for point in points {
        let Some(point) = point else {
            flush(&mut thinned, &mut extremes);
            if thinned.last().is_some_and(Option::is_some) {
                thinned.push(None);
            }
            continue;
        };
        let number = bin(point.0);
        match &mut extremes {
            Some((own, low, high)) if *own == number => {
                if point.1 < low.1 {
                    *low = *point;
                }
                if point.1 > high.1 {
                    *high = *point;
                }
            }
            _ => {
                flush(&mut thinned, &mut extremes);
                extremes = Some((number, *point, *point));
            }
        }
    }
    flush(&mut thinned, &mut extremes);
    if thinned.last() != Some(&Some(*last)) {
        thinned.push(Some(*last));
    }
    thinned
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_peak_of_one_sample_stays() {
        let points: Vec<_> = (0..100_000).map(|n| Some((f64::from(n), if n == 71_234 { 9.0 } else { 1.0 }))).collect();
        let thinned = thin(&points, 1_000);
        assert!(thinned.len() <= 1_000 && thinned.contains(&Some((71_234.0, 9.0))), "{}", thinned.len());
        assert_eq!((thinned[0], thinned.last().copied().flatten()), (Some((0.0, 1.0)), Some((99_999.0, 1.0))));
        // What is short stays whole.
        assert_eq!(thin(&points[..1_000], 1_000), points[..1_000]);
    }

    #[test]
    fn nothing_and_points_of_one_moment_are_no_trouble() {
        assert_eq!(thin(&[], 10), []);
        assert_eq!(thin(&[None, None], 10), []);
        let moment: Vec<_> = (0..50).map(|n| Some((3.0, f64::from(n)))).collect();
        assert!(thin(&moment, 10).contains(&Some((3.0, 49.0))));
    }

    proptest! {
        #[test]
        fn points_are_of_the_line_in_its_order_with_its_extremes(
            values in prop::collection::vec(prop::option::weighted(0.98, 0_u32..1_000), 1..2_000), most in 10_usize..300,
        ) {
            let points: Vec<Option<(f64, f64)>> =
                values.iter().zip(0..).map(|(value, at)| value.map(|value| (f64::from(at), f64::from(value)))).collect();
            let thinned = thin(&points, most);
            let parts = points.iter().filter(|point| point.is_none()).count();
            // A bin that is parted leaves two points for each part.
            prop_assert!(thinned.len() <= most.max(12) + 3 * parts, "{} {most} {parts}", thinned.len());
            prop_assert!(thinned.iter().flatten().all(|point| points.contains(&Some(*point))));
            prop_assert!(thinned.iter().flatten().is_sorted_by(|one, other| one.0 <= other.0));
            let extreme = |points: &[Option<(f64, f64)>], of: fn(f64, f64) -> f64| points.iter().flatten().map(|point| point.1).reduce(of);
            prop_assert_eq!(extreme(&thinned, f64::max), extreme(&points, f64::max));
            prop_assert_eq!(extreme(&thinned, f64::min), extreme(&points, f64::min));
        }
    }
}
