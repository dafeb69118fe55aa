//! The figures over time of an experiment's page: in a browser, and their numbers in the result.

use serde_json::{Value, json};

use crate::common::browser::Browser;

/// What a figure shows, as a browser laid it out; nothing before it was unfolded.
const FIGURES: &str = r#"[...document.querySelectorAll("[data-figure]")].map(figure => {
    const canvas = figure.querySelector(".live-canvas"), box = canvas?.getBoundingClientRect();
    const inked = [...canvas?.querySelectorAll("svg path") ?? []].filter(path => {
        const { width, height } = path.getBBox();
        return width > 20 || height > 20;
    });
    return {
        title: figure.dataset.figure, inked: inked.length, left: box?.left, top: box && box.top + scrollY, width: box?.width,
        values: [...figure.querySelectorAll(".live-legend button b")].map(value => value.textContent),
    };
})"#;

/// Fails if `page`, which `browser` shows, has other figures than these, one is not drawn once it is unfolded, or the pointer shows no values.
pub(super) fn are_drawn(browser: &mut Browser, page: &str, titles: &[&str]) {
    assert!(page.len() < 2_000_000, "{}", page.len());
    if !page.contains("; script-src") {
        longhaul_testing::no_judge!("this was built without the script of figures (scripts/web.sh, which needs Node)");
        return;
    }
    let folded = browser.evaluate("document.querySelectorAll('details.folded:not([open]) .live-canvas').length");
    assert_eq!(folded, 0, "what is folded is not drawn yet");
    browser.evaluate("document.querySelectorAll('details.folded').forEach(each => { each.open = true; })");
    let mut seen = Value::Null;
    for _ in 0..100 {
        seen = browser.evaluate(FIGURES);
        if seen.as_array().unwrap().iter().all(|figure| figure["inked"].as_u64() > Some(0)) {
            break;
        }
        browser.evaluate("new Promise(done => setTimeout(() => done(0), 50))");
    }
    let figures = seen.as_array().unwrap();
    assert_eq!(figures.iter().map(|figure| figure["title"].as_str().unwrap()).collect::<Vec<_>>(), titles);
    assert!(figures.iter().all(|figure| figure["inked"].as_u64() > Some(0)), "{seen:#}");
    let [left, top, width] = ["left", "top", "width"].map(|key| figures[0][key].as_f64().unwrap());
    browser.evaluate(&format!("scrollTo(0, {})", top - 100.0));
    browser.mouse(&[(left + width * 0.5, 160.0)], false);
    let pointed = browser.evaluate(FIGURES);
    let values = pointed[0]["values"].as_array().unwrap();
    assert!(values.iter().any(|value| value != &json!("")), "no value below the pointer: {pointed:#}");
}

/// The sum of a list of a result.
pub(super) fn sum(list: &Value) -> u64 {
    list.as_array().unwrap_or_else(|| panic!("no list: {list:#}")).iter().filter_map(Value::as_u64).sum()
}
