//! The figures over time of an experiment's page: in a browser, and their numbers in the result.

use serde_json::{Value, json};

use crate::common::browser::Browser;

/// What a figure shows, as a browser laid it out; nothing before it was unfolded.
const FIGURES: &str = r#"(timelines => [...document.querySelectorAll("[data-figure]")].map(figure => {
    const canvas = figure.querySelector(".live-canvas"), box = canvas?.getBoundingClientRect();
    const inked = [...canvas?.querySelectorAll("svg path") ?? []].filter(path => {
        const { width, height } = path.getBBox();
        return width > 20 || height > 20;
    });
    return {
        title: figure.dataset.figure, timeline: timelines.indexOf(figure.closest(".timeline")), inked: inked.length, left: box?.left, top: box && box.top + scrollY, width: box?.width,
        values: [...figure.querySelectorAll(".live-legend button b")].map(value => value.textContent),
        words: [...canvas?.querySelectorAll("svg text") ?? []].map(text => text.textContent),
    };
}))([...document.querySelectorAll(".timeline")])"#;

fn has_script(page: &str) -> bool {
    let has_script = page.contains("; script-src");
    if !has_script {
        longhaul_testing::no_judge!("this was built without the script of figures (scripts/web.sh, which needs Node)");
    }
    has_script
}

/// The figures of the page once it is unfolded and all are drawn, or after some seconds.
fn unfolded(browser: &mut Browser) -> Vec<Value> {
    browser.evaluate("document.querySelectorAll('details.folded').forEach(each => { each.open = true; })");
    until(browser, |figures| figures.iter().all(|figure| figure["inked"].as_u64() > Some(0)))
}

/// The figures when they are as `done` asks, or after some seconds.
fn until(browser: &mut Browser, done: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let mut figures = Vec::new();
    for _ in 0..100 {
        figures = browser.evaluate(FIGURES).as_array().unwrap().clone();
        if done(&figures) {
            break;
        }
        browser.evaluate("new Promise(done => setTimeout(() => done(0), 50))");
    }
    figures
}

fn title(figure: &Value) -> &str {
    figure["title"].as_str().unwrap()
}

/// Fails unless dragging in the figure whose title begins with `begin` zooms the figures of its timeline and no others, and a key shows all again.
/// The titles of that timeline.
fn zooms(browser: &mut Browser, begin: &str) -> Vec<String> {
    let whole = until(browser, |_| true);
    let dragged = whole.iter().position(|figure| title(figure).starts_with(begin)).unwrap();
    let together = |number: usize| whole[number]["timeline"] == whole[dragged]["timeline"];
    let place = browser.evaluate(&format!(
        "(canvas => {{ canvas.scrollIntoView({{ block: 'center', behavior: 'instant' }}); canvas.focus(); const {{ left, top, width }} = canvas.getBoundingClientRect(); \
         return [left, top, width]; }})(document.querySelectorAll('[data-figure]')[{dragged}].querySelector('.live-canvas'))"
    ));
    let [left, top, width] = [0, 1, 2].map(|number| place[number].as_f64().unwrap());
    let at = |share: f64| (left + width * share, top + 60.0);
    browser.mouse(&[at(0.4), at(0.45), at(0.5)], true);
    let is_zoomed = |now: &[Value]| {
        let differs = |number: usize| whole[number]["words"] != now[number]["words"];
        (0..whole.len()).all(|number| differs(number) == together(number))
    };
    let near = until(browser, is_zoomed);
    assert!(is_zoomed(&near), "{begin}: {whole:#?} {near:#?}");
    browser.ask("Input.dispatchKeyEvent", json!({ "type": "keyDown", "key": "0" }));
    let is_whole = |now: &[Value]| whole.iter().zip(now).all(|(before, now)| before["words"] == now["words"]);
    let again = until(browser, is_whole);
    assert!(is_whole(&again), "{begin}: {whole:#?} {again:#?}");
    (0..whole.len()).filter(|number| together(*number)).map(|number| title(&whole[number]).to_owned()).collect()
}

/// Fails if the rates of the page's one captured run do not zoom with what samples show of it, or are not those of the result.
pub(super) fn zooms_with_captured(browser: &mut Browser, (report, page): (&str, &str), rates: &Value) {
    if !has_script(page) {
        return;
    }
    browser.open(report, 1280, false);
    unfolded(browser);
    let together = zooms(browser, "Rate, ");
    for begin in ["Goodput", "Congestion window", "Round trip", "Retransmissions", "What limits ", "Rate, "] {
        assert!(together.iter().any(|title| title.starts_with(begin)), "{begin}: {together:?}");
    }
    let drawn = browser
        .evaluate("JSON.parse(document.querySelector('[data-figure^=\"Rate, \"] script').textContent).bands[0].high");
    // What was captured before the first sample is not drawn.
    let [begins_ns, column_ns] = ["begins_ns", "column_ns"].map(|key| rates[key].as_i64().unwrap());
    let before = usize::try_from(-begins_ns / column_ns).unwrap_or(0);
    let most = |list: &Value, from: usize| {
        list.as_array().unwrap().iter().skip(from).filter_map(Value::as_f64).fold(0.0, f64::max)
    };
    assert_eq!(most(&drawn, 0), most(&rates["most_1ms_bps"], before), "{drawn} {rates}");
}

/// Fails if `page`, which `browser` shows, has other figures than these, one is not drawn once it is unfolded, the pointer shows no values, or
/// dragging zooms none or too many.
pub(super) fn are_drawn(browser: &mut Browser, page: &str, titles: &[&str]) {
    assert!(page.len() < 2_000_000, "{}", page.len());
    if !has_script(page) {
        return;
    }
    let folded = browser.evaluate("document.querySelectorAll('details.folded:not([open]) .live-canvas').length");
    assert_eq!(folded, 0, "what is folded is not drawn yet");
    let figures = unfolded(browser);
    assert_eq!(figures.iter().map(title).collect::<Vec<_>>(), titles);
    assert!(figures.iter().all(|figure| figure["inked"].as_u64() > Some(0)), "{figures:#?}");
    let [left, top, width] = ["left", "top", "width"].map(|key| figures[0][key].as_f64().unwrap());
    browser.evaluate(&format!("scrollTo(0, {})", top - 100.0));
    browser.mouse(&[(left + width * 0.5, 160.0)], false);
    let pointed = browser.evaluate(FIGURES);
    let values = pointed[0]["values"].as_array().unwrap();
    assert!(values.iter().any(|value| value != &json!("")), "no value below the pointer: {pointed:#}");
    zooms(browser, titles[0]);
}

/// The sum of a list of a result.
pub(super) fn sum(list: &Value) -> u64 {
    list.as_array().unwrap_or_else(|| panic!("no list: {list:#}")).iter().filter_map(Value::as_u64).sum()
}
