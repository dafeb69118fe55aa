//! Pages with figures over time, in a real browser: what is drawn, that it zooms, and that its numbers are those of the result.

mod again;
mod stills;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use longhaul_testing::program::Program;
use serde_json::{Value, json};

use crate::common::browser::{Browser, axe};
use crate::common::captures::{Capture, Folder, missing};
use crate::common::page::{fits, pictures};
use crate::common::{TestLab, longhaul, object};

/// A server that listens.
fn serving(lab: &TestLab) -> Program {
    let mut server = Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["lab", "exec", "--name", &lab.name, "server", env!("CARGO_BIN_EXE_longhaul"), "serve", "--no-auth"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It says when it listens.
    let said = server.stderr.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(said), &mut String::new()).unwrap();
    Program(server)
}

/// The figures of a page as they are there for its script, by title.
fn figures(page: &str) -> Value {
    let parts = page.split("<script type=\"application/json\">").skip(1);
    let figures = parts.map(|part| serde_json::from_str::<Value>(part.split("</script>").next().unwrap()).unwrap());
    figures
        .map(|figure| (figure["title"].as_str().unwrap().to_owned(), figure))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn line<'a>(figure: &'a Value, name: &str) -> &'a [Value] {
    let lines = figure["lines"].as_array().unwrap();
    let line = lines.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{name}: {figure:#}"));
    line["values"].as_array().unwrap()
}

fn most(values: &[Value]) -> u64 {
    values.iter().filter_map(Value::as_f64).fold(0.0, f64::max) as u64
}

fn sum(figure: &Value, part: &str) -> u64 {
    let parts = figure["stack"]["parts"].as_array().unwrap();
    let values = parts.iter().filter(|own| own["name"] == part).flat_map(|own| own["values"].as_array().unwrap());
    values.filter_map(Value::as_f64).sum::<f64>().round() as u64
}

/// What a figure shows, as a browser laid it out.
const FIGURES: &str = r#"[...document.querySelectorAll("[data-figure]")].map(figure => {
    const canvas = figure.querySelector(".live-canvas"), box = canvas.getBoundingClientRect();
    const inked = [...canvas.querySelectorAll("svg path")].filter(path => {
        const style = getComputedStyle(path), { width, height } = path.getBBox();
        return (style.stroke !== "none" || style.fill !== "none") && (width > 20 || height > 20);
    });
    return {
        title: figure.dataset.figure, width: box.width, height: box.height, inked: inked.length,
        left: box.left, top: box.top + scrollY, drawing: figure.querySelector(".drawn").checkVisibility(),
        words: [...canvas.querySelectorAll("svg text")].map(text => text.textContent),
        values: [...figure.querySelectorAll(".live-legend button b")].map(value => value.textContent),
        label: canvas.getAttribute("aria-label"),
    };
})"#;

/// Of a flow that was captured.
const CAPTURED: [&str; 4] = [
    "Rate",
    "Sequence and acknowledgment",
    "Bytes in flight, as seen at the capture point",
    "Round trip from the capture point to the receiver",
];

/// What each button of PLACE saves.
const SAVED: &str = r#"(async () => {
    const blobs = [], make = URL.createObjectURL;
    URL.createObjectURL = blob => { blobs.push(blob); return make(blob); };
    HTMLAnchorElement.prototype.click = () => {};
    const buttons = [...document.querySelectorAll("PLACE button")];
    for (const button of buttons) button.click();
    const pictures = buttons.filter(({ textContent }) => textContent === "PNG").length;
    for (let wait = 0; wait < 100 && blobs.filter(({ type }) => type === "image/png").length < pictures; wait++)
        await new Promise(done => setTimeout(done, 50));
    return await Promise.all(blobs.map(async blob => ({
        type: blob.type, size: blob.size, text: blob.type === "image/png" ? "" : await blob.text(),
    })));
})()"#;

/// What the buttons in `place` save, of a kind each.
fn saved(browser: &mut Browser, place: &str) -> [Vec<Value>; 3] {
    let saved = browser.evaluate(&SAVED.replace("PLACE", place));
    ["image/svg+xml", "image/png", "text/csv"].map(|kind| {
        let of = saved.as_array().unwrap().iter().filter(|blob| blob["type"] == kind).cloned().collect::<Vec<_>>();
        assert!(of.iter().all(|blob| blob["size"].as_u64() > Some(40)), "{kind}: {of:#?}");
        of
    })
}

/// Of `Input.dispatchKeyEvent`.
const SHIFT: u8 = 8;

fn press(browser: &mut Browser, key: &str, modifiers: u8) {
    browser.ask("Input.dispatchKeyEvent", json!({ "type": "keyDown", "key": key, "modifiers": modifiers }));
}

/// At 1280 and at 400 points, on a light and a dark ground, on paper.
fn in_a_browser(browser: &mut Browser, file: &str, axe: Option<&str>, titles: &[&str]) {
    let page = format!("file://{file}");
    for (width, mobile, scheme) in [(1280, false, "light"), (400, true, "dark")] {
        let scheme = json!({ "media": "screen", "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.ask("Emulation.setEmulatedMedia", scheme);
        browser.open(&page, width, mobile);
        let seen = browser.evaluate(FIGURES);
        let seen = seen.as_array().unwrap();
        assert_eq!(seen.iter().map(|figure| figure["title"].as_str().unwrap()).collect::<Vec<_>>(), titles, "{file}");
        for figure in seen {
            assert!(figure["inked"].as_u64() > Some(0) && figure["drawing"] == false, "{width}: {figure:#}");
            assert!(figure["width"].as_f64() > Some(300.0) && figure["height"].as_f64() > Some(150.0), "{figure:#}");
            assert!(figure["label"].as_str().unwrap().len() > 60, "{figure:#}");
        }

        // The pointer over one figure shows the values of all.
        browser.evaluate("scrollTo(0, 0)");
        let number = |figure: &Value, key: &str| figure[key].as_f64().unwrap();
        let first = &seen[0];
        let place = |share: f64| (number(first, "left") + number(first, "width") * share, number(first, "top") + 60.0);
        let down = number(first, "top") - 100.0;
        browser.evaluate(&format!("scrollTo(0, {down})"));
        let below = |share: f64| (place(share).0, 160.0_f64.min(place(share).1));
        browser.mouse(&[below(0.5)], false);
        for figure in browser.evaluate(FIGURES).as_array().unwrap() {
            let values = figure["values"].as_array().unwrap();
            assert!(values.iter().any(|value| !value.as_str().unwrap().is_empty()), "no value below it: {figure:#}");
        }

        // Dragging zooms all; a key shows all again.
        let words = |browser: &mut Browser| {
            let seen = browser.evaluate(FIGURES);
            seen.as_array().unwrap().iter().map(|figure| figure["words"].clone()).collect::<Vec<_>>()
        };
        let until = |browser: &mut Browser, done: &dyn Fn(&[Value]) -> bool| {
            // It draws with its next frame.
            for _ in 0..60 {
                if done(&words(browser)) {
                    return;
                }
                browser.evaluate("new Promise(done => setTimeout(() => done(0), 50))");
            }
            panic!("{file} at {width}: {:?}", words(browser));
        };
        let whole = words(browser);
        browser.mouse(&[below(0.4), below(0.45), below(0.5)], true);
        until(browser, &|now| whole.iter().zip(now).all(|(whole, near)| whole != near));
        browser.evaluate("document.querySelector('.live-canvas').focus()");
        press(browser, "0", 0);
        until(browser, &|now| whole == now);

        // Shift and arrows read values; plus looks nearer, arrows move and minus shows more, until that is all.
        let moment = |browser: &mut Browser| {
            browser.evaluate("parseFloat(document.querySelector('.when').textContent.replace('at ', ''))").as_f64()
        };
        press(browser, "ArrowRight", SHIFT);
        let later = moment(browser);
        press(browser, "ArrowLeft", SHIFT);
        assert!(moment(browser).is_some() && moment(browser) < later, "{file}: {later:?}");
        press(browser, "+", 0);
        until(browser, &|now| whole.iter().zip(now).all(|(whole, near)| whole != near));
        let near = words(browser);
        // By more than half of what is shown, so that what was read is no more there.
        (0..3).for_each(|_| press(browser, "ArrowRight", 0));
        until(browser, &|now| near.iter().zip(now).all(|(near, moved)| near != moved));
        assert_eq!(moment(browser), None, "{file}: later times are to the right");
        let moved = words(browser);
        press(browser, "ArrowLeft", 0);
        until(browser, &|now| moved.iter().zip(now).all(|(moved, back)| moved != back));
        (0..3).for_each(|_| press(browser, "-", 0));
        until(browser, &|now| whole == now);

        // What the legend switches off is gone.
        let toggled = browser.evaluate(
            "(() => { const button = document.querySelector('.live-legend button'); button.click(); return button.ariaPressed; })()",
        );
        assert_eq!(toggled, "false");
        let inked = |browser: &mut Browser| browser.evaluate(FIGURES)[0]["inked"].as_u64();
        let fewer = (0..60).map(|_| {
            browser.evaluate("new Promise(done => setTimeout(() => done(0), 50))");
            inked(browser)
        });
        assert!(fewer.into_iter().any(|now| now < first["inked"].as_u64()), "{first:#}");
        browser.evaluate("document.querySelector('.live-legend button').click()");

        fits(browser, file, width, axe);
    }

    let [drawings, stills, tables] = saved(browser, "[data-figure] .live-buttons");
    // A picture begins as a drawing, which is saved by itself, too.
    assert!(drawings.len() >= titles.len() && stills.len() == titles.len() && tables.len() == titles.len());
    for table in tables {
        let text = table["text"].as_str().unwrap();
        assert!(text.starts_with("time_s,") && text.lines().count() > 2, "{text}");
    }
    let requests = browser.requests();
    assert!(
        requests.iter().all(|url| url == &page || url.starts_with("blob:") || url.starts_with("data:")),
        "{requests:?}"
    );

    browser.ask("Emulation.setEmulatedMedia", json!({ "media": "print" }));
    let printed = browser.evaluate(
        "[...document.querySelectorAll('[data-figure]')].map(figure => [figure.querySelector('.drawn'), figure.querySelector('.live')].map(part => part.checkVisibility()))",
    );
    assert!(printed.as_array().unwrap().iter().all(|shown| *shown == json!([true, false])), "{printed}");
    pictures(browser, file, Path::new(file).file_stem().unwrap().to_str().unwrap());
}

/// Names of lines become names of columns, but no formulas of a spreadsheet.
fn saves_no_formula(browser: &mut Browser, folder: &Folder, page: &str) {
    let file = folder.file("formula.html");
    fs::write(&file, page.replace(r#""lines":[{"name":""#, r#""lines":[{"name":"=1,+"#)).unwrap();
    browser.ask("Emulation.setEmulatedMedia", json!({ "media": "screen" }));
    browser.open(&format!("file://{file}"), 1280, false);
    let [_, _, tables] = saved(browser, "[data-figure] .live-buttons");
    let heads: Vec<&str> = tables.iter().filter_map(|table| table["text"].as_str()?.lines().next()).collect();
    assert!(heads.iter().any(|head| head.contains(r#","'=1,+"#)), "{heads:#?}");
    assert!(heads.iter().all(|head| !head.contains(r#","="#)), "{heads:#?}");
}

#[test]
fn figures_over_time_are_drawn_zoom_and_have_the_numbers_of_the_result() {
    let Some(lab) = TestLab::up("pages", "lan") else { return };
    assert!(longhaul(&["lab", "set", "--name", &lab.name, "forward.loss=every(200)"]).status.success());
    let _server = serving(&lab);
    let folder = Folder::new("pages");
    let made = |kind: &str, options: &[&str]| {
        let file = folder.file(&format!("{kind}.html"));
        let command = ["lab", "exec", "--name", &lab.name, "client", env!("CARGO_BIN_EXE_longhaul"), kind, "server"];
        let output = longhaul(&[&command[..], &["--html", &file, "--json"], options].concat());
        assert!(output.status.success(), "{output:?}");
        let page = fs::read_to_string(&file).unwrap();
        assert!(page.len() < 2_000_000, "{kind}: {}", page.len());
        (file, figures(&page), page, object(&output.stdout))
    };

    let capture = (!missing("tcpdump")).then(|| Capture::start(&lab, "client", &folder));
    let (tcp_file, drawn, page, result) = made("tcp", &["-4", "-t", "2s", "-C", "reno:1s,cubic:1s", "-b", "20M"]);
    let capture = capture.map(Capture::finish);
    let stream = &result["result"]["streams"][0];
    let windows = &drawn["Congestion window and data in flight"];
    assert_eq!(Some(most(line(windows, "congestion window"))), stream["max_cwnd_bytes"].as_u64());
    assert_eq!(Some(most(line(&drawn["Round trip"], "round trip"))), stream["max_rtt_ns"].as_u64());
    let again = ["lost", "spurious"].map(|part| sum(&drawn["Retransmissions"], part)).iter().sum::<u64>();
    assert!(again > 0 && Some(again) == stream["retransmits"].as_u64(), "{again}: {stream:#}");
    assert_eq!(drawn["Goodput"]["events"][0][1], "cubic");
    let switched = drawn["Goodput"]["events"][0][0].as_f64().unwrap();
    assert!((0.8..1.5).contains(&switched), "{switched}");
    let shown = page.split_once("<dt>Goodput</dt><dd>").unwrap().1.split_once(" Mbit/s").unwrap().0;
    let goodput = result["result"]["goodput_bps"].as_f64().unwrap() / 1e6;
    assert!((shown.parse::<f64>().unwrap() - goodput).abs() < 0.001, "{shown} {goodput}");

    // The same flow, as it was captured at its sender.
    let analyzed = capture.map(|capture| {
        let file = folder.file("analyze.html");
        let output = longhaul(&["analyze", "--top", "1", "--html", &file, "--json", &capture]);
        assert!(output.status.success(), "{output:?}");
        let (drawn, result) = (figures(&fs::read_to_string(&file).unwrap()), object(&output.stdout));
        let sent = &result["result"]["flows"][0]["forward"];
        let highest = |title: &str| most(drawn[title]["bands"][0]["high"].as_array().unwrap());
        assert_eq!(Some(highest(CAPTURED[0])), sent["peak_1ms_bps"].as_u64(), "{sent:#}");
        assert_eq!(Some(highest(CAPTURED[2])), sent["tcp"]["max_in_flight_bytes"].as_u64(), "{sent:#}");
        file
    });

    let (udp_file, drawn, page, result) = made("udp", &["-t", "1s", "-b", "20M"]);
    let lost = result["result"]["lost_packets"].as_u64().unwrap();
    assert!(lost > 0, "{result:#}");
    assert!(page.contains(&format!("<dt>Packets lost</dt><dd>{lost}</dd>")), "{lost}");
    for (place, packets) in result["result"]["loss_by_location"].as_object().unwrap() {
        let told = sum(&drawn["Packets lost, by location"], &place.replace('_', " "));
        assert_eq!(Some(told), packets.as_u64(), "{place}");
    }

    let (rtt_file, drawn, _, result) = made("rtt", &["-t", "1s", "-i", "2ms", "--timeout", "200ms"]);
    let bands = &drawn["Round trips over time"]["bands"][0];
    let stretches = result["result"]["over_time"]["stretches"].as_array().unwrap();
    let longest = stretches.iter().filter_map(|stretch| stretch["rtt"]["max_ns"].as_u64()).max();
    assert_eq!(Some(most(bands["high"].as_array().unwrap())), longest);

    // Connections of another program, which sends over one and receives over another.
    let watch_file = folder.file("watch.html");
    let program = [env!("CARGO_BIN_EXE_longhaul"), "tcp", "server", "-t", "2s", "-C", "reno", "-b", "20M", "--bidir"];
    let watch = ["lab", "exec", "--name", &lab.name, "client", env!("CARGO_BIN_EXE_longhaul"), "watch"];
    let output = longhaul(&[&watch[..], &["--html", &watch_file, "--json", "--"], &program].concat());
    assert!(output.status.success(), "{output:?}");
    let (drawn, result) = (figures(&fs::read_to_string(&watch_file).unwrap()), object(&output.stdout));
    let connections = result["result"]["connections"].as_array().unwrap();
    let of = |flow: &'static str| {
        connections.iter().filter(move |one| one["flow"] == flow && one["samples"].as_u64() > Some(1))
    };
    let again: u64 = of("sending").map(|one| one["retransmits"].as_u64().unwrap()).sum();
    let told = ["lost", "spurious"].map(|part| sum(&drawn["Retransmissions"], part)).iter().sum::<u64>();
    assert!(again > 0 && again == told, "{again} {told}");
    let arrived: u64 = of("receiving").map(|one| one["out_of_order_packets"].as_u64().unwrap()).sum();
    assert_eq!(sum(&drawn["Packets out of order"], "out of order"), arrived);
    let window = of("receiving").map(|one| one["max_receive_window_bytes"].as_u64().unwrap()).max();
    let lines = drawn["Window that this host offers"]["lines"].as_array().unwrap();
    assert_eq!(lines.iter().map(|line| most(line["values"].as_array().unwrap())).max(), window);

    if !page.contains("; script-src") {
        longhaul_testing::no_judge!("this was built without the script of figures (scripts/web.sh, which needs Node)");
        return;
    }
    let Some(mut browser) = Browser::start(&folder.0) else { return };
    let axe = axe();
    let tcp =
        ["Goodput", "What limits the sender", "Congestion window and data in flight", "Round trip", "Retransmissions"];
    in_a_browser(&mut browser, &tcp_file, axe.as_deref(), &tcp);
    in_a_browser(&mut browser, &udp_file, axe.as_deref(), &["Rate", "Packets lost, by location", "Share lost"]);
    in_a_browser(&mut browser, &rtt_file, axe.as_deref(), &["Round trips over time"]);
    let received =
        ["Received", "Window that this host offers", "Round trip as the receiver sees it", "Packets out of order"];
    in_a_browser(&mut browser, &watch_file, axe.as_deref(), &[&tcp[..], &received].concat());
    if let Some(file) = analyzed {
        in_a_browser(&mut browser, &file, axe.as_deref(), &CAPTURED);
    }
    saves_no_formula(&mut browser, &folder, &fs::read_to_string(&tcp_file).unwrap());
}
