//! Bytes of a connection to the page of a mesh's coordinator: by everybody where it is public, and without a token.

use std::fs;
use std::path::PathBuf;

use longhaul_mesh::store::{
    Archive, Cause, Diagnosis, Measured, Measurement, Quantiles, RoundTrips, TcpFlow, TestResult,
};
use longhaul_mesh::web::InProcess;

/// What only who may read is told: a site of the mesh.
const SECRET: &[u8] = b"ithaca";
/// Nanoseconds since 1970 of all results: 2026-01-31 12:00.
const AT_NS: i64 = 1_769_860_800_000_000_000;
/// Longer answers are a finding: the store has four results.
const ANSWER_BYTES_MOST: usize = 4 << 20;
/// Ids of the results: of kind `udp`, `rtt`, `tcp` and `diagnose`.
const IDS: [&str; 4] = [
    "00000000000000000000000000000001",
    "00000000000000000000000000000002",
    "00000000000000000000000000000003",
    "00000000000000000000000000000004",
];

/// A coordinator's folder in memory with a result of each kind.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(format!("/dev/shm/longhaul-fuzz-{}/{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder in memory");
    let site = |name: &str| format!("[[site]]\nname = '{name}'\naddress = '192.0.2.1'\nrate = '1Gbit'\n");
    let test = "[[test]]\nname = 'probes'\nkind = 'udp'\nevery = '1h'\ntime = '5s'\nrate = '1M'\nlength = 1000\n";
    let mesh = format!("name = 'fuzzed'\n{}{}{test}", site("ithaca"), site("geneva"));
    fs::write(folder.join("mesh.toml"), mesh).expect("memory");
    let mut archive = Archive::open(&folder.join("archive")).expect("a store");
    archive.take(&[udp()]).expect("memory");
    archive.take_measurements(&measurements()).expect("memory");
    folder
}

fn udp() -> TestResult {
    let [sender, receiver] = ["ithaca", "geneva"].map(str::to_owned);
    TestResult {
        id: IDS[0].to_owned(),
        test: "probes".to_owned(),
        sender,
        receiver,
        at_ns: AT_NS,
        sent: 1000,
        lost: 3,
        at_sender: Some(1),
        at_receiver: Some(1),
        received_rate_bps: 1_000_000,
    }
}

fn measurements() -> Vec<Measurement> {
    let quantiles = Some(Quantiles { min_ns: 1, p50_ns: 2, p90_ns: 3, p99_ns: 4, max_ns: 5 });
    let trips = RoundTrips {
        duration_ns: 60_000_000_000,
        sent: 600,
        lost: 2,
        quantiles,
        outages: 1,
        longest_outage_ns: 1_000_000_000,
        gaps_ns: 0,
    };
    let flow = TcpFlow {
        duration_ns: 30_000_000_000,
        bytes: 1 << 30,
        goodput_bps: 286_331_153,
        paced_bps: 300_000_000,
        retransmits: 7,
        retransmitted_bytes: None,
        min_rtt_ns: Some(1),
        congestion_control: "cubic".to_owned(),
        limited_by: "congestion_window".to_owned(),
        limited_share: 0.5,
    };
    let cause = Cause { code: "loss".to_owned(), place: String::new(), bound_bps: None, remedy: "fix it".to_owned() };
    let diagnosis =
        Diagnosis { alarm: String::new(), target_bps: None, goodput_bps: Some(1), causes: vec![cause], failed: None };
    let all = [Measured::Rtt(trips), Measured::Tcp(flow), Measured::Diagnose(diagnosis)];
    let one = |(id, measured): (&&str, Measured)| Measurement {
        id: (*id).to_owned(),
        test: "probes".to_owned(),
        sender: "ithaca".to_owned(),
        receiver: "geneva".to_owned(),
        at_ns: AT_NS,
        measured,
    };
    IDS[1..].iter().zip(all).map(one).collect()
}

/// One for everybody, and one that wants a token.
struct Pages {
    public: InProcess,
    guarded: InProcess,
}

impl Pages {
    fn open() -> Self {
        let page = |name: &str, is_public| {
            let page = InProcess::open(&folder(name), is_public).expect("a page");
            page.follow().expect("memory");
            page
        };
        Self { public: page("public", true), guarded: page("guarded", false) }
    }
}

thread_local! {
    static PAGES: Pages = Pages::open();
}

/// Bytes of a connection, which then ends. Each answer has a status that this page gives and a bound of size; without the token none names a site.
pub fn mesh_request(input: &[u8]) {
    PAGES.with(|pages| {
        let answers = pages.public.answer(input);
        assert!(answers.len() <= ANSWER_BYTES_MOST, "{} bytes", answers.len());
        if !answers.is_empty() {
            let status = answers.get(9..12).unwrap_or_default();
            let known: [&[u8]; 10] = [b"100", b"200", b"303", b"400", b"401", b"404", b"405", b"413", b"414", b"431"];
            assert!(
                answers.starts_with(b"HTTP/1.") && known.contains(&status),
                "{}",
                answers[..answers.len().min(200)].escape_ascii()
            );
        }
        // Whoever names a site knows it.
        if !contains(input, SECRET) {
            let answers = pages.guarded.answer(input);
            assert!(!contains(&answers, SECRET), "{}", answers.escape_ascii());
        }
    });
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
