//! A profile for netem, drawn from as netem draws.

use longhaul_profile::{Netem, Probes, Profile, ProfileOptions};

use crate::probes;

fn netem(measured: &Probes) -> (Profile, Netem) {
    let profile = Profile::of(measured, &ProfileOptions { same_clock: true, ..Default::default() }).unwrap();
    let netem = Netem::of(&profile);
    (profile, netem)
}

/// The word behind `name` in the script's line for the forward direction.
fn option<'a>(script: &'a str, name: &str, nth: usize) -> &'a str {
    let line = script.lines().find(|line| line.contains("\"$1\"")).unwrap();
    let mut words = line.split(' ').skip_while(|word| *word != name);
    words.nth(nth).unwrap_or_else(|| panic!("{name} in {line}"))
}

fn ns(script: &str, name: &str, nth: usize) -> i64 {
    let text = option(script, name, nth);
    (text.strip_suffix("us").unwrap_or_else(|| panic!("{text}")).parse::<f64>().unwrap() * 1e3).round() as i64
}

/// Every delay that netem would draw of the table, ascending. In integers, as the kernel computes it: whole units and what is left of them
/// apart, the latter rounded.
fn drawn(netem: &Netem) -> Vec<i64> {
    let (delay, jitter) = (ns(&netem.script, "delay", 1), ns(&netem.script, "delay", 2));
    let (name, table) = &netem.tables[0];
    assert_eq!(option(&netem.script, "distribution", 1), *name);
    let numbers = table.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_ascii_whitespace);
    let mut all: Vec<i64> = numbers
        .map(|number| {
            let number = i64::from(number.parse::<i16>().unwrap());
            let left = (jitter % 8192) * number;
            let left = (left + if left >= 0 { 4096 } else { -4096 }) / 8192;
            delay + jitter / 8192 * number + left
        })
        .collect();
    assert!((1_000..=16_384).contains(&all.len()), "{}", all.len());
    all.sort_unstable();
    all
}

/// Quantiles are those of the measurement: of a law within 4 standard deviations, and of one whose tail reaches to 30.
#[test]
fn netem_draws_what_was_measured() {
    for law in ["normal", "pareto"] {
        let path = format!(
            "[[forward]]\ndelay = '20ms'\njitter = {{ law = '{law}', stddev = '1ms', order = 'free' }}\n[[backward]]\ndelay = '5ms'\n"
        );
        let measured = probes(&path, 100_000, 100.0, 3);
        let (profile, netem) = netem(&measured);
        let mut source: Vec<i64> = measured.rows.iter().filter_map(|row| row.forward_ns).collect();
        source.sort_unstable();
        let drawn = drawn(&netem);
        let mean = |all: &[i64]| all.iter().sum::<i64>() as f64 / all.len() as f64;
        assert!((mean(&drawn) - mean(&source)).abs() < 5e3, "{law}: mean {} {}", mean(&drawn), mean(&source));
        // An entry is the mean of its part of the measurement, to half a step of the table.
        let (part, jitter) = (source.len() / drawn.len(), ns(&netem.script, "delay", 2) as f64);
        for share in [0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999] {
            let of_netem = drawn[(share * drawn.len() as f64) as usize] as f64;
            let of_source = mean(&source[(share * source.len() as f64) as usize..][..part]);
            assert!((of_netem - of_source).abs() < jitter / 8192.0 + 500.0, "{law} at {share}: {of_netem} {of_source}");
        }
        // The longest that it draws is the mean of the last part.
        let last = &source[source.len() - 50..];
        let longest = drawn[drawn.len() - 1] as f64;
        assert!((longest / mean(last) - 1.0).abs() < 0.01, "{law}: {longest} {}", mean(last));
        let stddev = profile.forward.as_ref().unwrap().stddev_ns;
        assert_eq!(jitter > stddev * 1.01, law == "pareto", "{law}: {jitter} {stddev}");
        assert!(!netem.not_expressed.iter().any(|said| said.contains("cut")), "{:?}", netem.not_expressed);
    }
}

/// Bursts that are seen each 10 ms: as many packets are lost, and as many in a row. What has no word in netem is said.
#[test]
fn loss_and_what_is_left_out() {
    let path = "[[forward]]\ndelay = '20ms'\nduplicate = '1%'\nloss = { bursts = { for = '40ms', every = '1s' } }\n\
        jitter = { law = 'normal', stddev = '1ms', correlation = '30ms' }\n[[backward]]\ndelay = '20ms'\n";
    let measured = probes(path, 200_000, 10.0, 7);
    let (_, netem) = netem(&measured);
    let share =
        |nth: usize| option(&netem.script, "gemodel", nth).trim_end_matches('%').parse::<f64>().unwrap() / 100.0;
    let [to_bad, to_good] = [share(1), share(2)];
    let lost = measured.lost() as f64 / measured.rows.len() as f64;
    assert!((to_bad / (to_bad + to_good) / lost - 1.0).abs() < 0.1, "{to_bad} {to_good} {lost}");
    let runs = measured.rows.windows(2).filter(|pair| pair[0].rtt_ns.is_some() && pair[1].rtt_ns.is_none()).count();
    let run = measured.lost() as f64 / runs as f64;
    assert!((1.0 / to_good / run - 1.0).abs() < 0.1, "{to_good} {run}");
    // As the path, netem keeps the order.
    assert_eq!(option(&netem.script, "rate", 1), "1000000000000bit");
    let duplicates = option(&netem.script, "duplicate", 1).trim_end_matches('%').parse::<f64>().unwrap();
    assert!((0.8..1.2).contains(&duplicates), "{duplicates}");
    for said in ["both directions", "over which delays change", "how long bursts of loss last"] {
        assert!(
            netem.not_expressed.iter().any(|sentence| sentence.contains(said)),
            "{said}: {:?}",
            netem.not_expressed
        );
        assert!(netem.script.contains(said), "{}", netem.script);
    }
}

/// A delay of seconds now and then: the kernel's jitter has 32 bits, and what lies farther out is cut, which is said.
#[test]
fn what_is_cut_is_said() {
    let mut measured = probes("[[forward]]\ndelay = '20ms'\n[[backward]]\ndelay = '20ms'\n", 4_000, 1_000.0, 1);
    for row in measured.rows.iter_mut().step_by(1_000) {
        row.forward_ns = row.forward_ns.map(|forward| forward + 9_500_000_000);
        row.rtt_ns = row.rtt_ns.map(|rtt| rtt + 9_500_000_000);
    }
    let (_, netem) = netem(&measured);
    assert_eq!(ns(&netem.script, "delay", 2), i64::from(i32::MAX));
    let said = netem.not_expressed.iter().find(|said| said.contains("are cut")).unwrap_or_else(|| panic!("{netem:?}"));
    assert!(said.contains("0.1"), "{said}");
    let longest = *drawn(&netem).last().unwrap();
    assert!((8_500_000_000..9_000_000_000).contains(&longest), "{longest}");
}
