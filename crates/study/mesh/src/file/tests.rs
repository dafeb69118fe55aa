use proptest::prelude::*;

use super::*;

const TEXT: &str = r#"
name = "three"
[[site]]
name = "ithaca"
address = ["192.0.2.1", "2001:db8::1"]
rate = "10Gbit"
tags = ["east"]
[[site]]
name = "chicago"
address = "chicago.example"
rate = "1Gbit"
[[site]]
name = "geneva"
nat = true
rate = "10Gbit"
tags = ["europe"]
[[site]]
name = "zurich"
nat = true
rate = "10Gbit"
tags = ["europe"]
[[group]]
name = "america"
members = ["@east", "chicago"]
[[link]]
name = "atlantic"
between = ["america", "@europe"]
rate = "1Gbit"
share = "10%"
[[test]]
name = "probes"
kind = "udp"
every = "1h"
time = "60s"
rate = "1M"
[[test]]
name = "bulk"
kind = "tcp"
between = ["america", "@europe"]
every = "6h"
share = "50%"
[[test]]
name = "delay"
kind = "rtt"
"#;

#[test]
fn a_mesh_reads_as_it_is_written() {
    let mesh = Mesh::parse(TEXT).unwrap();
    let [ithaca, chicago, geneva, zurich] =
        ["ithaca", "chicago", "geneva", "zurich"].map(|name| mesh.site(name).unwrap());
    assert_eq!(mesh.of(ithaca).addresses, ["192.0.2.1", "2001:db8::1"]);
    let probes = &mesh.tests[0];
    // Twelve ordered pairs, two of them between sites that nobody can connect to.
    assert_eq!(probes.untestable, [(geneva, zurich), (zurich, geneva)]);
    assert_eq!(probes.pairs.len(), 10);
    let bulk = &mesh.tests[1];
    assert_eq!(bulk.pairs.len(), 8);
    assert!(!bulk.pairs.contains(&(ithaca, chicago)));
    // Half of 10 Gb/s, 70 % of a tenth of the shared 1 Gb/s, half of 1 Gb/s.
    assert_eq!(mesh.rate_most(bulk, ithaca, geneva), BitRate(70_000_000));
    assert_eq!(mesh.rate_most(bulk, ithaca, chicago), BitRate(500_000_000));
    assert_eq!(mesh.links[0].direction(geneva, chicago), Some(1));
    assert_eq!(mesh.links[0].direction(geneva, zurich), None);
}

/// Those between the groups of a test that somebody can connect to; a round trip has no direction.
#[test]
fn a_plan_knows_which_pairs_it_tests() {
    let mesh = Mesh::parse(TEXT).unwrap();
    let [ithaca, chicago, geneva, zurich] =
        ["ithaca", "chicago", "geneva", "zurich"].map(|name| mesh.site(name).unwrap());
    let [probes, bulk, delay] = [0, 1, 2].map(|number| &mesh.tests[number]);
    assert!(probes.has((ithaca, chicago)) && probes.has((chicago, ithaca)) && !probes.has((geneva, zurich)));
    assert!(bulk.has((geneva, ithaca)) && bulk.has((ithaca, geneva)) && !bulk.has((ithaca, chicago)));
    assert_eq!(delay.pairs.len(), 5);
    assert!(delay.has((ithaca, chicago)) && delay.has((chicago, ithaca)));
    assert!(!delay.has((zurich, geneva)) && !delay.has((ithaca, ithaca)));
}

#[test]
fn a_plan_knows_how_many_packets_it_sends() {
    let mesh = Mesh::parse(TEXT).unwrap();
    // 1 Mb/s of 1250 bytes for a minute, ten round trips a second for ten minutes: 6,000 packets each.
    assert_eq!([0, 1, 2].map(|number| mesh.tests[number].packets_most()), [Some(6_700), None, Some(6_700)]);
    let small = TEXT.replace("rate = \"1M\"", "rate = \"10M\"\nlength = 64");
    assert_eq!(Mesh::parse(&small).unwrap().tests[0].packets_most(), Some(1_171_875 + 117_187 + 100));
}

/// Each wrong line, and what is said of it.
#[test]
fn errors_say_where_what_and_what_is_allowed() {
    for (good, wrong, said) in [
        (
            "kind = \"tcp\"",
            "kind = \"tpc\"",
            "38:8: test[1].kind: `tpc`: did you mean tcp? use udp, rtt, tcp, diagnose",
        ),
        (
            "nat = true",
            "natt = true",
            "14:1: site[2].`natt`: no such key, did you mean nat? use name, address, port, rate, tags, nat",
        ),
        ("rate = \"1Gbit\"\n[[site]]", "rate = \"1Gbyte\"\n[[site]]", "11:8: site[1].rate: `1Gbyte`: unknown unit"),
        (
            "\"chicago\"]",
            "\"chicgo\"]",
            "24:21: group[0].members[1]: `chicgo`: no such site, @tag or group above, did you mean chicago?",
        ),
        ("share = \"10%\"", "share = \"110%\"", "29:9: link[0].share: `110%`: use above 0% and 100% at most"),
        ("every = \"1h\"\n", "", "test[0]: needs every, such as every = \"1h\""),
        ("every = \"1h\"", "every = \"1s\"", "33:9: test[0].every: 1s: use 10s to 720h"),
        (
            "rate = \"1M\"",
            "rate = \"100M\"",
            "35:8: test[0].rate: 100Mbit of payload is 106.88 Mbit/s on the wire, but from ithaca to chicago this test may take 50Mbit",
        ),
        ("name = \"zurich\"", "name = \"geneva\"", "18:8: site[3].name: `geneva` is there twice"),
        ("name = \"zurich\"", "name = \"-zurich\"", "18:8: site[3].name: `-zurich`: use 1 to 40 letters"),
        ("\"chicago.example\"", "\"-evil\"", "10:11: site[1].address: `-evil`: use an address or the name of a host"),
        ("\"@europe\"]\nrate", "\"@east\"]\nrate", "27:11: link[0].between: a site is at both ends of the link"),
        ("name = \"three\"", "name = three", "2:8: "),
    ] {
        let text = TEXT.replacen(good, wrong, 1);
        assert_ne!(text, TEXT, "{good}");
        let error = Mesh::parse(&text).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}\n{said}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn a_site_refuses_what_exceeds_its_limits() {
    let mesh = Mesh::parse(TEXT).unwrap();
    let mut limits = Limits::default();
    assert_eq!(limits.check(&mesh.tests[0], BitRate(0)), Ok(()));
    assert_eq!(limits.check(&mesh.tests[1], BitRate(0)).unwrap_err().message, "this site allows no tests of TCP");
    limits.allow("tcp=90M").unwrap();
    limits.allow("udp=500k").unwrap();
    assert_eq!(limits.check(&mesh.tests[0], BitRate(0)).unwrap_err().message, "1Mbit asked, this site allows 500kbit");
    let refused = limits.check(&mesh.tests[1], BitRate(100_000_000)).unwrap_err();
    assert_eq!((refused.limit, refused.message.as_str()), ("tcp", "100Mbit asked, this site allows 90Mbit"));
    limits.allow("udp=1M").unwrap();
    limits.allow("time=10s").unwrap();
    assert_eq!(limits.check(&mesh.tests[0], BitRate(0)).unwrap_err().message, "60s asked, this site allows 10s");
    for (text, said) in [
        ("tpc=1M", "`tpc`: no such limit, did you mean tcp? use udp, tcp, rtt, diagnose, time, busy"),
        ("udp", "`udp`: use LIMIT=VALUE, such as udp=100M"),
        ("busy=101%", "busy=`101%`: use 0% to 100%"),
    ] {
        assert_eq!(limits.allow(text).unwrap_err().to_string(), said);
    }
}

#[test]
fn leases_and_safe_shares_together_are_the_share() {
    let mesh = Mesh::parse(TEXT).unwrap();
    let link = &mesh.links[0];
    assert_eq!((link.allowed(), link.leased()), (BitRate(100_000_000), BitRate(70_000_000)));
    // Four sites: 7.5 Mb/s each.
    assert!((7_499_998..=7_500_000).contains(&link.safe_share().0), "{}", link.safe_share());
}

proptest! {
    /// A changed letter is never a panic, nor an error of several lines.
    #[test]
    fn no_text_panics(at in 0..TEXT.len(), with in "\\PC{0,3}") {
        let mut text = TEXT.to_owned();
        text.replace_range(at..=at, &with);
        if let Err(error) = Mesh::parse(&text) {
            prop_assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}

/// As many sites and links as a file may have. The links are too slow for the tests, whose pairs do not cross them: each pair is looked up in each link.
/// It took minutes when links were lists of sites.
#[test]
fn the_largest_file_is_read() {
    let site = |number: usize| {
        let tag = ["near", "near", "east", "west"][number / 250];
        format!("[[site]]\nname = 's{number}'\naddress = 'a'\nrate = '1Gbit'\ntags = ['{tag}']\n")
    };
    let link = |number| format!("[[link]]\nname = 'l{number}'\nbetween = ['@east', '@west']\nrate = '1kbit'\n");
    let test = |number| {
        format!(
            "[[test]]\nname = 't{number}'\nkind = 'udp'\nbetween = ['@near']\nevery = '720h'\ntime = '1s'\nrate = '1M'\n"
        )
    };
    let text: String = (0..1000).map(site).chain((0..64).map(link)).chain((0..8).map(test)).collect();
    let mesh = Mesh::parse(&format!("name = 'large'\n{text}")).unwrap();
    assert_eq!((mesh.tests.len(), mesh.tests[0].pairs.len()), (8, 500 * 499));
    let [near, east, west] = [0, 500, 750].map(SiteId);
    let directions = [(near, east), (east, west), (west, east), (west, west)];
    assert_eq!(directions.map(|(from, to)| mesh.links[63].direction(from, to)), [None, Some(0), Some(1), None]);
}

/// A hostile file cannot ask for hours of work: all pairs of all tests together, and links on a path, are limited.
#[test]
fn what_takes_long_to_schedule_is_refused() {
    let site = |number: usize| {
        format!("[[site]]\nname = 's{number}'\naddress = 'a'\nrate = '1Gbit'\ntags = ['t{}']\n", number % 2)
    };
    let link = |number| format!("[[link]]\nname = 'l{number}'\nbetween = ['@t0', '@t1']\nrate = '1Gbit'\n");
    let test =
        |number| format!("[[test]]\nname = 't{number}'\nkind = 'udp'\nevery = '720h'\ntime = '1s'\nrate = '1M'\n");
    let mesh = |sites, links, tests| {
        let text: String = (0..sites).map(site).chain((0..links).map(link)).chain((0..tests).map(test)).collect();
        Mesh::parse(&format!("name = 'large'\n{text}")).map(|mesh| mesh.tests.len()).map_err(|error| error.to_string())
    };
    let crossed = mesh(4, 9, 1).unwrap_err();
    assert!(crossed.contains("the path from s0 to s1 crosses 9 shared links, 8 at most"), "{crossed}");
    assert_eq!(mesh(4, 8, 1), Ok(1));
    let pairs = mesh(1000, 0, 5).unwrap_err();
    assert!(pairs.contains("4995000 pairs of sites: 4000000 at most"), "{pairs}");
    assert_eq!(mesh(1000, 0, 4), Ok(4));
}

/// Two bytes of a key are a table, which takes a kilobyte.
#[test]
fn more_tables_than_a_file_has_are_refused() {
    let error = Mesh::parse(&"a.b.b.b.b.b.b.b.b = 1\n".repeat(45_000)).unwrap_err().to_string();
    assert!(error.ends_with(": more tables, lists and dots in keys than a file of this length has"), "{error}");
}
