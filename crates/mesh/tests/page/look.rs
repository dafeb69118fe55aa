//! The page in a real browser: its numbers beside those of the interface, keys, narrow and dark, and what axe-core says of it.

use longhaul_mesh::store::TestResult;
use serde_json::{Value, json};

use crate::browser::{Browser, axe};
use crate::common::{Coordinator, Folder, hub, names, results};

/// Waits until an expression is true.
pub(crate) fn until(browser: &mut Browser, condition: &str) {
    for _ in 0..200 {
        if browser.evaluate(&format!("Boolean({condition})")) == json!(true) {
            return;
        }
        browser.evaluate("new Promise(done => setTimeout(() => done(0), 50))");
    }
    panic!("never: {condition}; the page says {}", browser.evaluate("document.body.innerText"));
}

pub(crate) struct Looked {
    pub(crate) browser: Browser,
    axe: Option<String>,
}

impl Looked {
    pub(crate) fn start(folder: &Folder) -> Option<Self> {
        Some(Self { browser: Browser::start(&folder.0)?, axe: axe() })
    }

    pub(crate) fn open(&mut self, url: &str, width: u32, scheme: &str) {
        let scheme = json!({ "media": "screen", "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.browser.ask("Emulation.setEmulatedMedia", scheme);
        self.browser.open("about:blank", width, width < 600);
        self.browser.open(url, width, width < 600);
    }

    /// Nothing is wider than the window, nothing complains, all can read it, and nothing came from elsewhere.
    pub(crate) fn is_good(&mut self, address: &str, what: &str) {
        self.browser.is_good(what, self.axe.as_deref());
        let requests = self.browser.requests();
        assert!(requests.iter().all(|url| url.starts_with(address) || url.starts_with("data:")), "{requests:?}");
    }
}

#[test]
fn the_page_has_the_numbers_of_the_interface() {
    let folder = Folder::new("look");
    let sites = names(&["ithaca", "geneva", "chicago", "tokyo", "seattle", "atlanta", "houston", "denver"]);
    // One receiver is bad since yesterday, one path always; the others lose a little now and then.
    let lost = |from: usize, to: usize, ago: i64| match (from, to) {
        (_, 2) if ago <= 12 => 44 + (from as i64),
        (3, 4) => 200,
        _ => i64::from((from as i64 * 31 + to as i64 * 17 + ago * 7) % 23 == 0) * 2,
    };
    let mut all = results(&sites, 24 * 12, lost);
    // Denver, which lies, says that very many of its packets came to chicago.
    let (id, sender, receiver) = ("f".repeat(32), "denver".into(), "chicago".into());
    let at_ns = all.last().unwrap().at_ns;
    all.push(TestResult { id, sender, receiver, at_ns, sent: 100_000_000, lost: 0, ..all[0].clone() });
    let coordinator = Coordinator::start(&hub(&folder, &sites, &all), &["--public"]);
    if coordinator.get("/").1.contains("without the script") {
        longhaul_testing::no_judge!("this was built without the script of the page (scripts/web.sh, which needs Node)");
        return;
    }
    let alarms = coordinator.alarms();
    let Some(mut looked) = Looked::start(&folder) else { return };
    let address = coordinator.address.clone();
    for (width, scheme) in [(1280, "light"), (400, "dark"), (1280, "dark"), (400, "light")] {
        let name = format!("{width}-{scheme}");
        looked.open(&format!("{address}/"), width, scheme);
        until(
            &mut looked.browser,
            "document.querySelector('.histogram') && document.querySelectorAll('.alarms .alert').length",
        );
        let pairs = coordinator.json("pairs?days=1");
        let cells = looked.browser.evaluate(
            "[...document.querySelectorAll('[data-at]')].filter(cell => cell.tabIndex >= -1 && !cell.classList.contains('same')).map(cell => cell.getAttribute('aria-label'))",
        );
        let cells: Vec<&str> = cells.as_array().unwrap().iter().map(|cell| cell.as_str().unwrap()).collect();
        assert_eq!(cells.len(), 56);
        for pair in pairs["pairs"].as_array().unwrap() {
            let text = |key: &str| pair[key].as_str().unwrap();
            let packets = |key: &str| grouped(pair[key].as_i64().unwrap());
            let begin = format!("{} to {}: ", text("sender"), text("receiver"));
            let end = format!(
                ", {} of {} packets, {} tests",
                packets("lost_packets"),
                packets("sent_packets"),
                pair["tests"]
            );
            assert!(cells.iter().any(|cell| cell.starts_with(&begin) && cell.ends_with(&end)), "{pair}: {cells:#?}");
        }
        let said = looked
            .browser
            .evaluate("[...document.querySelectorAll('.alarms .alert')].map(line => line.firstChild.textContent)");
        let expected: Vec<&Value> = alarms["alarms"].as_array().unwrap().iter().map(|alarm| &alarm["text"]).collect();
        assert_eq!(said.as_array().unwrap().iter().collect::<Vec<_>>(), expected);
        let losses = coordinator.json("losses?days=100");
        let caption = looked.browser.evaluate("document.querySelector('.histogram figcaption').textContent");
        assert!(
            caption.as_str().unwrap().starts_with(&format!("{} tests: ", grouped(losses["tests"].as_i64().unwrap()))),
            "{caption}"
        );
        let bars = looked.browser.evaluate("document.querySelectorAll('.histogram .bar').length");
        assert_eq!(bars.as_u64().unwrap() as usize, losses["buckets"].as_array().unwrap().len());
        // What six of seven others sent lost 0.4 to 0.5 % in half of the day.
        let received = looked.browser.evaluate(
            "parseFloat([...document.querySelectorAll('table')].find(table => table.caption?.textContent === 'Sites').tBodies[0].rows[2].cells[4].textContent)",
        );
        assert!((0.19..0.24).contains(&received.as_f64().unwrap()), "{received}");
        looked.browser.picture(&format!("mesh-all-{name}"));
        looked.is_good(&address, &format!("all pairs, {name}"));

        // By keys: from ithaca → geneva down twice and right twice to chicago → seattle, and open it.
        looked.browser.evaluate("document.querySelector('.cell[tabindex=\"0\"]').focus()");
        for key in ["ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "Enter"] {
            looked.browser.ask("Input.dispatchKeyEvent", json!({ "type": "keyDown", "key": key }));
        }
        until(
            &mut looked.browser,
            "document.querySelector('.live-canvas svg') && document.querySelector('.view h2').textContent.includes(' and ')",
        );
        let heading = looked.browser.evaluate("document.querySelector('.view h2').textContent");
        let (one, other) = heading.as_str().unwrap().split_once(" and ").unwrap();
        let rows = looked.browser.evaluate("[...document.querySelector('.view table').tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent))");
        for (row, (from, to)) in rows.as_array().unwrap().iter().zip([(one, other), (other, one)]) {
            let points = coordinator.json(&format!("pairs/{from}/{to}?days=1"));
            let sum = |key: &str| {
                points["points"].as_array().unwrap().iter().map(|point| point[key].as_i64().unwrap()).sum::<i64>()
            };
            let numbers = ["tests", "sent_packets", "lost_packets"].map(|key| json!(grouped(sum(key))));
            assert_eq!(
                (&row[0], &row[1], &row[2], &row[3]),
                (&json!(format!("{from} to {to}")), &numbers[0], &numbers[1], &numbers[2])
            );
        }
        looked.browser.evaluate("new Promise(done => setTimeout(() => done(0), 300))");
        looked.browser.picture(&format!("mesh-pair-{name}"));
        looked.is_good(&address, &format!("pair, {name}"));

        // By pointer: a cell of all pairs.
        looked.open(&format!("{address}/"), width, scheme);
        until(&mut looked.browser, "document.querySelector('.histogram')");
        let place = looked.browser.evaluate(
            "(() => { const { x, y, width, height } = document.querySelector('[data-at=\"1 0\"]').getBoundingClientRect(); return [x + width / 2, y + height / 2]; })()",
        );
        let place = (place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
        looked.browser.mouse(&[place, place], true);
        until(&mut looked.browser, "document.querySelector('.view h2').textContent === 'geneva and ithaca'");

        looked.open(&format!("{address}/#/site/chicago?days=7"), width, scheme);
        until(&mut looked.browser, "document.querySelectorAll('.view table').length === 2");
        let worst = looked.browser.evaluate(
            "[...document.querySelector('.view table').tBodies[0].rows[0].cells].map(cell => cell.textContent)",
        );
        let pairs = coordinator.json("pairs?days=7");
        let own = pairs["pairs"].as_array().unwrap().iter().filter(|pair| pair["receiver"] == "chicago");
        let most =
            own.max_by(|one, other| one["loss"].as_f64().unwrap().total_cmp(&other["loss"].as_f64().unwrap())).unwrap();
        assert_eq!((&worst[0], &worst[3]), (&most["sender"], &json!(grouped(most["lost_packets"].as_i64().unwrap()))));
        looked.browser.picture(&format!("mesh-site-{name}"));
        looked.is_good(&address, &format!("site, {name}"));
    }
}

/// A number with commas.
pub(crate) fn grouped(number: i64) -> String {
    let digits = number.to_string();
    let parts: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|part| std::str::from_utf8(part).unwrap()).collect();
    parts.join(",")
}

#[test]
fn sixty_sites_a_login_and_a_coordinator_that_goes_away() {
    let folder = Folder::new("sixty");
    let sites: Vec<String> = (1..=60).map(|number| format!("site-{number:02}")).collect();
    let all = results(&sites, 3, |from, to, _| if (from * 7 + to) % 5 == 0 { 10i64.pow((from % 4) as u32) } else { 0 });
    let hub = hub(&folder, &sites, &all);
    let coordinator = Coordinator::start(&hub, &[]);
    if coordinator.get("/").1.contains("without the script") {
        return;
    }
    let Some(mut looked) = Looked::start(&folder) else { return };
    let address = coordinator.address.clone();
    looked.open(&format!("{address}/"), 400, "light");
    assert_eq!(looked.browser.evaluate("document.querySelectorAll('.matrix').length"), json!(0));
    looked.browser.picture("mesh-login");
    // The browser notes that the page answered 401.
    looked.browser.evaluate(&format!("document.querySelector('#token').value = '{}'; 0", coordinator.token));
    looked.browser.evaluate("document.querySelector('form button').click()");
    until(
        &mut looked.browser,
        "document.querySelectorAll('.cell').length === 3600 && document.querySelector('.histogram')",
    );
    looked.open(&format!("{address}/"), 400, "light");
    until(
        &mut looked.browser,
        "document.querySelectorAll('.cell').length === 3600 && document.querySelector('.histogram')",
    );
    looked.browser.picture("mesh-sixty-400-light");
    looked.is_good(&address, "60 sites, 400");
    looked.open(&format!("{address}/"), 1280, "light");
    until(
        &mut looked.browser,
        "document.querySelectorAll('.cell').length === 3600 && document.querySelector('.histogram')",
    );
    looked.browser.picture("mesh-sixty-1280-light");
    looked.is_good(&address, "60 sites, 1280");
    // What is shown stays when the coordinator is gone, and the page says so.
    drop(coordinator);
    until(&mut looked.browser, "document.querySelector('.state.failed')");
    assert_eq!(looked.browser.evaluate("document.querySelectorAll('.cell').length"), json!(3600));
}
