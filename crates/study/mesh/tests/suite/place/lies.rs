//! One member lies about its own path with a site that loses packets: that site is named, and stays named.

use longhaul_mesh_model::place::{Alarm, Locator, Step, Suspect};
use longhaul_mesh_model::{Sample, SiteId};
use longhaul_units::Nanos;

const HOUR: u64 = 3_600_000_000_000;
/// Hours of results.
const HOURS: u64 = 11 * 24;
/// The site that loses packets.
const BAD: SiteId = SiteId(0);

/// Results of one path in an hour: packets sent and lost.
type Results = Vec<(u32, u32)>;

/// The alarm about the first of `sites` at the end: what it receives, or what it sends, loses `lost` of 1,000 packets from hour `begin` on, in a test an
/// hour with each other one. `said`: the results of its path with the last site, which that one has written in part or as a whole.
fn alarm(suspect: Suspect, sites: u16, begin: u64, lost: u32, said: impl Fn(u64) -> Results) -> Alarm {
    let mut locator = Locator::default();
    let mut steps = Vec::new();
    for hour in 0..HOURS {
        let honest = vec![(1000, if hour < begin { 0 } else { lost })];
        for other in 1..sites {
            let results = if other == sites - 1 { said(hour) } else { honest.clone() };
            let other = SiteId(other);
            let (from, to) = if suspect == Suspect::Sender(BAD) { (BAD, other) } else { (other, BAD) };
            for (sent, lost) in results {
                locator.push(Sample { at: Nanos(hour * HOUR), from, to, sent, lost, placed: None });
            }
        }
        steps.extend(locator.advance(Nanos((hour + 1) * HOUR)));
    }
    let is_over = |step: &Step| matches!(step, Step::Over(over, _) if *over == suspect);
    assert!(!steps.iter().any(is_over), "{steps:?}");
    let named = locator.open().find(|alarm| alarm.suspects == [suspect]);
    named.cloned().unwrap_or_else(|| panic!("{suspect:?} is not named: {steps:?}"))
}

fn check(alarm: &Alarm, begin: u64, loss: f64) {
    assert_eq!(alarm.since, Some(Nanos(begin * HOUR)), "{alarm:?}");
    assert!((alarm.loss - loss).abs() < 2e-4, "{alarm:?}");
}

/// It says for days that its path loses all, by a day with many tests of one packet and two an hour later, and then that it loses nothing.
#[test]
fn a_path_that_usually_loses_all_hides_no_site() {
    for (sites, hours, lost, loss) in [(8, 5, 20, 0.0168), (30, 6, 4, 0.0037)] {
        let begin = HOURS - hours;
        let said = |hour: u64| match hour {
            ..24 => vec![(1, 1); 13],
            24..48 => Vec::new(),
            _ if hour < begin => vec![(1, 1); 2],
            _ => vec![(1000, 0)],
        };
        check(&alarm(Suspect::Receiver(BAD), sites, begin, lost, said), begin, loss);
    }
}

/// It says that its path loses as much of each test as counts, and nothing for a day. The others lose 0.4 %.
#[test]
fn a_path_that_usually_loses_much_hides_no_receiver_and_ends_no_alarm() {
    let begin = HOURS - 24;
    let said = |hour: u64| if hour < begin { vec![(5000, 66)] } else { vec![(1000, 0)] };
    check(&alarm(Suspect::Receiver(BAD), 6, begin, 4, said), begin, 0.0027);
}

/// The same of what the site sends, and itself delivers.
#[test]
fn results_beside_those_of_its_partner_hide_no_sender_and_end_no_alarm() {
    let begin = HOURS - 24;
    let said = |hour: u64| if hour < begin { vec![(1000, 0), (5000, 66)] } else { vec![(1000, 4), (5000, 0)] };
    check(&alarm(Suspect::Sender(BAD), 6, begin, 4, said), begin, 0.0027);
}
