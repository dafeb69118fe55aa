//! Each law against a distribution function computed another way, and iproute2's own tables where they are installed.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use statrs::function::erf::erfc;

use super::*;

fn uniforms(count: usize, seed: u64) -> Vec<f64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..count).map(|_| ((random.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64).collect()
}

/// Φ(z) and 1 − Φ(z).
fn normal_below(z: f64) -> f64 {
    0.5 * erfc(-z / std::f64::consts::SQRT_2)
}

/// The distribution function of a law, by formulas and bisection that share nothing with `quantile`.
fn below(law: &Law, x: f64) -> f64 {
    match law {
        Law::Normal => normal_below(x),
        Law::Uniform => ((x / 3f64.sqrt() + 1.0) / 2.0).clamp(0.0, 1.0),
        Law::Pareto => 1.0 - (x * 0.75f64.sqrt() + 1.5).max(1.0).powi(-3),
        Law::ParetoNormal => {
            // ¼ z + p(Φ(z)) − 3/2 grows with z, so find the z that gives x.
            let (mut low, mut high) = (-38.0, 37.0);
            for _ in 0..80 {
                let z = (low + high) / 2.0;
                let value: f64 = 0.25 * z + normal_below(-z).powf(-1.0 / 3.0) - 1.5;
                if value < x * PARETO_NORMAL_STDDEV { low = z } else { high = z }
            }
            normal_below(low)
        }
        Law::Table(table) => {
            let (mut low, mut high) = (0.0, 1.0);
            for _ in 0..60 {
                let u = (low + high) / 2.0;
                if table.quantile(u) < x { low = u } else { high = u }
            }
            low
        }
    }
}

/// √n · sup |F_n − F|, of Kolmogorov and Smirnov. Samples of the law exceed 1.628 in 1 % of all cases, 1.949 in 0.1 %.
pub(crate) fn deviation(samples: &[f64], law: &Law) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let distance = sorted.iter().enumerate().fold(0f64, |distance, (index, &x)| {
        let share = below(law, x);
        distance.max(share - index as f64 / count).max((index + 1) as f64 / count - share)
    });
    count.sqrt() * distance
}

const FUNCTIONS: [Law; 4] = [Law::Normal, Law::Uniform, Law::Pareto, Law::ParetoNormal];

#[test]
fn samples_follow_their_law() {
    for (seed, law) in FUNCTIONS.into_iter().enumerate() {
        let samples: Vec<f64> = uniforms(50_000, seed as u64 + 1).into_iter().map(|u| law.quantile(u)).collect();
        let found = deviation(&samples, &law);
        assert!(found < 1.628, "{law}: {found}");
        // The test must be able to fail: the same samples, 2 % wider.
        let wider: Vec<f64> = samples.iter().map(|x| x * 1.02 + 0.02).collect();
        assert!(deviation(&wider, &law) > 1.628, "{law}");
    }
}

#[test]
fn quantiles_invert_the_distribution_function() {
    for law in FUNCTIONS {
        for u in [1e-12, 1e-6, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 0.999_999] {
            let back = below(&law, law.quantile(u));
            // What the oracle itself, statrs's erfc, is good for.
            assert!((back - u).abs() < 1e-10, "{law}: {u} came back as {back}");
        }
    }
    // Φ⁻¹ by 40-digit arithmetic, and the Pareto median 2^(1/3).
    for (u, z) in [(0.1, -1.281_551_565_544_600_5), (1e-6, -4.753_424_308_822_899), (1e-12, -7.034_483_825_301_132)] {
        assert!((Law::Normal.quantile(u) / z - 1.0).abs() < 1e-14, "{u}: {}", Law::Normal.quantile(u));
    }
    assert!((Law::Normal.quantile(0.975) - 1.959_963_984_540_054).abs() < 1e-14);
    assert!((Law::Pareto.quantile(0.5) - (2f64.cbrt() - 1.5) / 0.75f64.sqrt()).abs() < 1e-14);
}

#[test]
fn mean_is_0_and_standard_deviation_1() {
    for law in FUNCTIONS {
        // With u = Φ(z) the tails get the points that they need.
        let step = 0.001;
        let (mut mean, mut square) = (0.0, 0.0);
        for index in 0..16_400 {
            let z = -8.2 + (index as f64 + 0.5) * step;
            let weight = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * step;
            let value = law.quantile(normal_below(z));
            mean += weight * value;
            square += weight * value * value;
        }
        assert!(mean.abs() < 1e-6, "{law}: mean {mean}");
        // 2e-5 of Pareto's variance lies beyond the last share that f64 can tell from 1.
        assert!((square.sqrt() - 1.0).abs() < 3e-5, "{law}: standard deviation {}", square.sqrt());
    }
}

#[test]
fn any_share_has_a_quantile() {
    let table = Law::Table(Arc::new(Table::new(vec![1.0]).unwrap()));
    for law in FUNCTIONS.iter().chain([&table]) {
        for u in [-1.0, 0.0, 5e-324, 0.5, 1.0, 2.0, f64::INFINITY] {
            assert!(law.quantile(u).is_finite(), "{law}, {u}");
        }
        assert!((0.0..=3.0).contains(&law.reach_below()), "{law}");
    }
    assert_eq!(Law::Normal.reach_below(), 3.0);
    assert!((Law::Pareto.reach_below() - 1.0 / 3f64.sqrt()).abs() < 1e-6);
}

#[test]
fn names_lead_back_to_their_law() {
    for law in FUNCTIONS {
        assert!(Law::NAMES.contains(&law.name()));
        assert_eq!(Law::named(law.name()), Some(law));
    }
    assert_eq!(Law::named("table"), None);
}

/// The table as a `.dist` file.
fn dist(table: &Table) -> String {
    table.quantiles().iter().map(|quantile| format!(" {}", (quantile * DIST_SCALE).round() as i16)).collect()
}

#[test]
fn a_dist_file_reads_back() {
    let normal = Table::new((0..4096).map(|i| Law::Normal.quantile((i as f64 + 0.5) / 4096.0)).collect()).unwrap();
    let text = dist(&normal);
    let read = Table::parse(&text).unwrap();
    assert_eq!(dist(&read), text);
    let (mean, variance) = read.quantiles().iter().fold((0.0, 0.0), |(m, v), q| (m + q / 4096.0, v + q * q / 4096.0));
    assert!(mean.abs() < 1e-4 && (variance.sqrt() - 1.0).abs() < 2e-3, "{mean} {variance}");
    assert_eq!(Table::parse("# one\n 8192 -8192 # two 3\n\n0").unwrap().quantiles(), [-1.0, 0.0, 1.0]);
}

#[test]
fn what_is_no_dist_file_is_refused() {
    assert_eq!(Table::parse("# nothing\n"), Err(TableError::TooFew { least: 1 }));
    assert_eq!(
        Table::parse("1 2\n3 40000").unwrap_err().to_string(),
        "line 2: `40000` is not an integer from -32768 to 32767 (standard deviations × 8192)"
    );
    assert_eq!(Table::new(vec![f64::NAN]), Err(TableError::NotFinite));
}

/// Debian's iproute2 ships the tables. Their generators put the last x whose share rounds to 4i/16384 into entry i of
/// the normal table, which is the quantile at (i + ⅛)/4096, and the quantile at i/4096 into that of Pareto.
#[test]
fn iproute2_tables_have_the_same_shape() {
    let folder = ["/usr/lib/x86_64-linux-gnu/tc", "/usr/lib/tc", "/usr/lib64/tc", "/usr/share/tc"]
        .map(std::path::Path::new)
        .into_iter()
        .find(|folder| folder.join("normal.dist").exists());
    let Some(folder) = folder else {
        longhaul_testing::no_judge!("iproute2's .dist files are not installed");
        return;
    };
    let normal = |i: f64| Law::Normal.quantile((i + 0.125) / 4096.0);
    let pareto = |i: f64| pareto_quantile(i / 4096.0) - 1.5;
    let scaled_pareto = |i: f64| Law::Pareto.quantile(i / 4096.0) * 0.75f64.sqrt() * 4.0 / 3.0;
    let mixed = |i: f64| 0.25 * normal(i) + pareto(i);
    let tables: [(&str, &dyn Fn(f64) -> f64); 3] =
        [("normal", &normal), ("pareto", &scaled_pareto), ("paretonormal", &mixed)];
    for (name, want) in tables {
        let table = Table::parse(&std::fs::read_to_string(folder.join(format!("{name}.dist"))).unwrap()).unwrap();
        let entries = table.quantiles();
        assert_eq!(entries.len(), 4096);
        for (index, entry) in entries.iter().enumerate().skip(1) {
            let want = want(index as f64);
            // Pareto is cut at 4, for paretonormal before it is added.
            if want < 3.0 {
                assert!((entry - want).abs() < 2e-4, "{name} {index}: {entry}, not {want}");
            }
        }
    }
    // And the law of that name is this shape at standard deviation 1.
    let share = 1000.0 / 4096.0;
    let shape = 0.25 * Law::Normal.quantile(share) + pareto(1000.0);
    assert!((Law::ParetoNormal.quantile(share) * PARETO_NORMAL_STDDEV - shape).abs() < 1e-14);
    let experimental = Table::parse(&std::fs::read_to_string(folder.join("experimental.dist")).unwrap()).unwrap();
    assert_eq!(Table::parse(&dist(&experimental)), Ok(experimental));
}
