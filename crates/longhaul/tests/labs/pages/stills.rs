//! Pages with still figures and surfaces: `analyze`, `compare`, `verify`, `sweep`, `lab run`, `report` and an experiment with a mix.

use std::fs;
use std::process::Output;

use longhaul_kernel::capability;
use serde_json::{Value, json};

use super::{saved, serving};
use crate::common::browser::{Browser, axe};
use crate::common::captures::{Capture, Folder, missing, on};
use crate::common::page::{fits, pictures};
use crate::common::{TestLab, longhaul, root};

/// Each still figure: how large it is, and how much is drawn in it.
const STILLS: &str = r#"[...document.querySelectorAll("svg[data-csv], canvas.heat")].map(still => {
    const { width, height } = still.getBoundingClientRect();
    const marks = still.dataset.painted ?? still.querySelectorAll("rect, line, path, polyline, polygon").length;
    return { width, height, marks: Number(marks), named: Boolean(still.querySelector("title") ?? still.ariaLabel), lines: still.dataset.csv?.split("\n").length };
})"#;

/// What `ping` prints of round trips about 40 ms long.
fn ping() -> String {
    let line = |number: u32| {
        let tenths = 400 + number * 7919 % 31;
        format!("64 bytes from 192.0.2.1: icmp_seq={number} ttl=60 time={}.{} ms\n", tenths / 10, tenths % 10)
    };
    let probes = (1..=600).filter(|number| number % 100 != 0).map(line);
    format!("PING far.example (192.0.2.1) 56(84) bytes of data.\n{}", probes.collect::<String>())
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// At 1280 and at 400 points, on a light and a dark ground: with `stills` figures at least.
fn in_a_browser(browser: &mut Browser, file: &str, axe: Option<&str>, stills: usize) {
    let page = format!("file://{file}");
    for (width, mobile, scheme) in [(1280, false, "light"), (400, true, "dark")] {
        let scheme = json!({ "media": "screen", "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.ask("Emulation.setEmulatedMedia", scheme);
        browser.open(&page, width, mobile);
        let seen = browser.evaluate(STILLS);
        let seen = seen.as_array().unwrap();
        assert!(seen.len() >= stills, "{file}: {} of {stills}", seen.len());
        for still in seen {
            let number = |key: &str| still[key].as_f64().unwrap();
            assert!(number("width") > 200.0 && number("height") > 40.0, "{file} at {width}: {still:#}");
            assert!(number("marks") >= 1.0 && still["named"] == true, "{file} at {width}: {still:#}");
            assert!(still["lines"].is_null() || number("lines") > 1.0, "{file}: {still:#}");
        }
        let found = browser.evaluate("document.querySelector('.verdict')?.textContent ?? ''");
        assert!(found.as_str().unwrap().len() > 20, "{file}: {found}");
        let against = browser.evaluate("/caveat|known problem|doubtful/.test(document.body.innerText)");
        assert_eq!(against, true, "{file}");
        fits(browser, file, width, axe);
    }
    let requests = browser.requests();
    assert_eq!(requests, [page], "nothing comes from elsewhere");
}

/// Each figure saves itself and its numbers; a surface is no drawing. The keyboard reaches each button.
fn saves(browser: &mut Browser, file: &str) {
    let count = |browser: &mut Browser, what: &str| {
        browser.evaluate(&format!("document.querySelectorAll('{what}').length")).as_u64().unwrap() as usize
    };
    let [svgs, surfaces] = ["svg[data-csv]", "canvas.heat"].map(|what| count(browser, what));
    let buttons = browser.evaluate(
        "[...document.querySelectorAll('.still-buttons button')].map(button => { button.focus(); return document.activeElement === button && button.ariaLabel.length > 10; })",
    );
    assert_eq!(buttons.as_array().unwrap().len(), svgs * 3 + surfaces * 2, "{file}");
    assert!(buttons.as_array().unwrap().iter().all(|reached| *reached == true), "{file}: {buttons}");
    let [drawings, pictures, tables] = saved(browser, ".still-buttons");
    assert!(drawings.len() >= svgs, "{file}: {}", drawings.len());
    assert_eq!([pictures.len(), tables.len()], [svgs + surfaces; 2], "{file}");
    for drawing in drawings {
        let text = drawing["text"].as_str().unwrap();
        // Nothing is left to a style that the file does not have.
        assert!(text.starts_with("<svg xmlns=") && !text.contains("var(--"), "{file}: {text}");
    }
    for table in tables {
        let text = table["text"].as_str().unwrap();
        assert!(text.ends_with("\r\n") && text.lines().count() > 1, "{file}: {text}");
    }
}

/// On paper, of the width of A4, the figures are there in dark on white, without what only a screen has.
fn prints(browser: &mut Browser, file: &str) {
    let dark = json!([{ "name": "prefers-color-scheme", "value": "dark" }]);
    browser.ask("Emulation.setEmulatedMedia", json!({ "media": "print", "features": dark }));
    browser.open(&format!("file://{file}"), 794, false);
    let printed = browser.evaluate(STILLS);
    for still in printed.as_array().unwrap() {
        assert!(still["width"].as_f64() > Some(150.0) && still["height"].as_f64() > Some(40.0), "{file}: {still:#}");
    }
    let shown = browser.evaluate(
        "[[...document.querySelectorAll('svg[data-csv], canvas.heat')].every(still => still.checkVisibility()), \
         [...document.querySelectorAll('.still-buttons')].some(buttons => buttons.checkVisibility()), getComputedStyle(document.body).color]",
    );
    assert_eq!(shown, json!([true, false, "rgb(0, 0, 0)"]), "{file}");
    browser.ask("Emulation.setEmulatedMedia", json!({ "media": "screen" }));
}

#[test]
fn still_figures_are_drawn_fit_and_save_themselves() {
    let Some(lab) = TestLab::up("stills", "lan") else { return };
    succeeded(&longhaul(&["lab", "set", "--name", &lab.name, "forward.loss=every(200)"]));
    let _server = serving(&lab);
    let folder = Folder::new("stills");
    let file = |name: &str| folder.file(&format!("{name}.html"));
    let client = |command: &[&str]| on(&lab, "client", &[&[env!("CARGO_BIN_EXE_longhaul")], command].concat());
    // Each page, and how many still figures it has at least.
    let mut pages: Vec<(String, usize)> = Vec::new();

    if !missing("tcpdump") {
        let captures = ["client", "server"].map(|host| Capture::start(&lab, host, &folder));
        succeeded(&client(&["tcp", "server", "-4", "-t", "1s", "-C", "reno", "-b", "20M"]).output().unwrap());
        let [near, far] = captures.map(Capture::finish);
        succeeded(&longhaul(&["analyze", "--html", &file("analyze"), &near]));
        succeeded(&longhaul(&["compare", "--same-clock", "--html", &file("compare"), &near, &far]));
        // Two surfaces; of each direction the delay and intervals of data or acknowledgments.
        pages.extend([(file("analyze"), 2), (file("compare"), 4)]);
    }
    let swept = ["sweep", "server", "--sizes", "300,1400", "-b", "4M,20M", "-t", "200ms", "--repeat", "1", "--html"];
    let sweep = file("sweep");
    succeeded(&client(&[&swept[..], &[sweep.as_str()]].concat()).output().unwrap());
    // Where it has no script this was built without any.
    let is_built = fs::read_to_string(&sweep).unwrap().contains("; script-src");
    pages.push((sweep, 1));

    let measured = folder.file("far.txt");
    fs::write(&measured, ping()).unwrap();
    // That the path differs is no failure here.
    longhaul(&["verify", "lan", "--against", &measured, "-i", "10ms", "--html", &file("verify")]);
    pages.push((file("verify"), 4));

    let is_root = capability::is_root_in_namespace();
    if is_root {
        let experiment = |name: &str| root().join("crates/longhaul/tests").join(name).to_str().unwrap().to_owned();
        let (places, mix) = (folder.file("places"), folder.file("mix"));
        let once = ["--repeat", "1", "--tries", "1", "--realtime", "10"];
        succeeded(&longhaul(&[&["lab", "run", &experiment("three-places.toml"), "-o", &places], &once[..]].concat()));
        succeeded(&longhaul(&["lab", "run", &experiment("one-mix.toml"), "-o", &mix]));
        succeeded(&longhaul(&["report", &places, "--html", &file("report")]));
        succeeded(&longhaul(&["report", &places, &places, "--html", &file("beside")]));
        pages.extend([(format!("{mix}/report.html"), 4), (file("report"), 1)]);
    } else {
        longhaul_testing::no_judge!("polling a receiver's ring and sending a mix take root");
    }

    let Some(mut browser) = Browser::start(&folder.0) else { return };
    let axe = axe();
    for (page, stills) in &pages {
        in_a_browser(&mut browser, page, axe.as_deref(), *stills);
        if is_built {
            saves(&mut browser, page);
        }
        prints(&mut browser, page);
        let name = page[folder.0.to_str().unwrap().len()..].trim_end_matches(".html").replace('/', "-");
        pictures(&mut browser, page, &format!("stills{name}"));
    }
    if !is_built {
        longhaul_testing::no_judge!(
            "this was built without the script of still figures (scripts/web.sh, which needs Node)"
        );
    }
    // Side by side there are tables alone.
    for (width, mobile) in [(1280, false), (400, true)].into_iter().filter(|_| is_root) {
        browser.open(&format!("file://{}", file("beside")), width, mobile);
        fits(&mut browser, &file("beside"), width, axe.as_deref());
    }

    // A surface zooms by the keyboard.
    if let Some((page, _)) = pages.first().filter(|(page, _)| page.contains("analyze")) {
        browser.open(&format!("file://{page}"), 1280, false);
        let view = |browser: &mut Browser| browser.evaluate("document.querySelector('canvas.heat').dataset.view");
        let whole: Value = view(&mut browser);
        browser.evaluate("document.querySelector('canvas.heat').focus()");
        browser.ask("Input.dispatchKeyEvent", json!({ "type": "keyDown", "key": "+" }));
        assert_ne!(view(&mut browser), whole);
        browser.ask("Input.dispatchKeyEvent", json!({ "type": "keyDown", "key": "0" }));
        assert_eq!(view(&mut browser), whole);
    }
}
