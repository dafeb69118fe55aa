//! The most likely parameters, and how sure they are: the top of a smooth hill and how it bends there.

/// Moves after which a hill counts as one without a top. Losses of a path take some 75, most of them towards a chance of loss of 1; fates that no
/// path has took up to 160.
const MOVES_MOST: usize = 400;

/// The top near `start`, by steps along each axis and each diagonal of two axes that shrink by half down to `finest`; `None` where it is too far.
pub(crate) fn climb<const N: usize>(hill: impl Fn([f64; N]) -> f64, start: [f64; N], finest: f64) -> Option<[f64; N]> {
    let mut ways = Vec::new();
    for axis in 0..N {
        ways.extend([1.0, -1.0].map(|by| moved([0.0; N], &[(axis, by)])));
        for other in axis + 1..N {
            for (by, other_by) in [(1.0, 1.0), (-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0)] {
                ways.push(moved([0.0; N], &[(axis, by), (other, other_by)]));
            }
        }
    }
    let (mut at, mut height, mut step, mut moves) = (start, hill(start), 0.5, 0);
    while step > finest {
        let next = ways.iter().map(|way| std::array::from_fn(|axis| at[axis] + way[axis] * step));
        let best = next.map(|place| (hill(place), place)).max_by(|a, b| a.0.total_cmp(&b.0));
        match best {
            Some(_) if moves == MOVES_MOST => return None,
            Some((higher, place)) if higher > height => (height, at, moves) = (higher, place, moves + 1),
            _ => step /= 2.0,
        }
    }
    Some(at)
}

/// The inverse of the observed information at the top (Efron and Hinkley, 1978). What the hill says nothing of has a variance of 100.
pub(crate) fn covariance<const N: usize>(hill: impl Fn([f64; N]) -> f64, top: [f64; N]) -> [[f64; N]; N] {
    const STEP: f64 = 1e-3;
    const UNKNOWN: f64 = 100.0;
    let height = hill(top);
    let information: [[f64; N]; N] = std::array::from_fn(|a| {
        std::array::from_fn(|b| {
            let at = |x: f64, y: f64| hill(moved(top, &[(a, x * STEP), (b, y * STEP)]));
            let bent = if a == b {
                at(1.0, 0.0) - 2.0 * height + at(-1.0, 0.0)
            } else {
                (at(1.0, 1.0) - at(1.0, -1.0) - at(-1.0, 1.0) + at(-1.0, -1.0)) / 4.0
            };
            -bent / (STEP * STEP)
        })
    });
    let unknown = || std::array::from_fn(|a| std::array::from_fn(|b| if a == b { UNKNOWN } else { 0.0 }));
    inverse(information).unwrap_or_else(unknown)
}

fn moved<const N: usize>(mut place: [f64; N], by: &[(usize, f64)]) -> [f64; N] {
    by.iter().for_each(|(axis, by)| place[*axis] += by);
    place
}

/// Of a positive definite matrix, by Gauss and Jordan; `None` if it is none.
fn inverse<const N: usize>(mut of: [[f64; N]; N]) -> Option<[[f64; N]; N]> {
    let mut inverse: [[f64; N]; N] = std::array::from_fn(|a| std::array::from_fn(|b| f64::from(u8::from(a == b))));
    for axis in 0..N {
        let pivot = of[axis][axis];
        if pivot.is_nan() || pivot <= 0.0 {
            return None;
        }
        for column in 0..N {
            of[axis][column] /= pivot;
            inverse[axis][column] /= pivot;
        }
        for row in (0..N).filter(|row| *row != axis) {
            let factor = of[row][axis];
            for column in 0..N {
                of[row][column] -= factor * of[axis][column];
                inverse[row][column] -= factor * inverse[axis][column];
            }
        }
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hill of which all is known: its top, and its covariance.
    #[test]
    fn a_normal_hill() {
        let hill = |[x, y, z]: [f64; 3]| {
            let (x, y, z) = (x - 1.0, y + 2.0, z - 0.5);
            -0.5 * (2.0 * x * x + 2.0 * x * y + 3.0 * y * y + 4.0 * z * z)
        };
        let top = climb(hill, [0.0; 3], 1e-6).unwrap();
        assert!(top.iter().zip([1.0, -2.0, 0.5]).all(|(found, true_)| (found - true_).abs() < 1e-4), "{top:?}");
        let found = covariance(hill, top);
        let expected = [[0.6, -0.2, 0.0], [-0.2, 0.4, 0.0], [0.0, 0.0, 0.25]];
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
        assert_eq!(covariance(|_: [f64; 2]| 1.0, [0.0; 2]), [[100.0, 0.0], [0.0, 100.0]]);
    }

    #[test]
    fn a_hill_without_a_top() {
        let looks = std::cell::Cell::new(0);
        let hill = |[x]: [f64; 1]| {
            looks.set(looks.get() + 1);
            x
        };
        assert_eq!(climb(hill, [0.0], 1e-6), None);
        assert!(looks.get() < 1_000, "{}", looks.get());
    }
}
