//! A page that was saved as a file.

use std::fs;

use serde_json::json;

use super::browser::{Browser, PICTURES};

/// Fails if the page has 2 MB or more, or 1 MB of data, or is not good in the browser ([`Browser::is_good`]).
pub(crate) fn fits(browser: &mut Browser, file: &str, width: u32, axe: Option<&str>) {
    let page = fs::read_to_string(file.trim_start_matches("file://")).unwrap();
    let parts = page.split("<script type=\"application/json\"").skip(1);
    let data: usize = parts.map(|part| part.split("</script>").next().unwrap_or_default().len()).sum();
    assert!(page.len() < 2_000_000 && data < 1_000_000, "{file}: {} bytes, {data} of them data", page.len());
    browser.is_good(&format!("{file} at {width}"), axe);
}

/// Fails where two pages of one result differ, and shows where.
pub(crate) fn same_pages(what: &str, page: &str, again: &str) {
    let differ = page.bytes().zip(again.bytes()).position(|(one, other)| one != other);
    let at = differ.unwrap_or(page.len().min(again.len()));
    let near = |page: &str| {
        let near = &page.as_bytes()[at.saturating_sub(200)..(at + 200).min(page.len())];
        String::from_utf8_lossy(near).into_owned()
    };
    assert!(page == again, "{what} differ at byte {at}:\n{}\n\n{}", near(page), near(again));
}

/// Keeps pictures of the page that `file` is, all of it unfolded, for people ([`Browser::picture`]): at 1280 and at 400 points, on a light and a dark ground.
pub(crate) fn pictures(browser: &mut Browser, file: &str, name: &str) {
    if std::env::var_os(PICTURES).is_none() {
        return;
    }
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")] {
        let ground = json!({ "media": "screen", "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.ask("Emulation.setEmulatedMedia", ground);
        browser.open(&format!("file://{}", file.trim_start_matches("file://")), width, width < 600);
        browser.evaluate("document.querySelectorAll('details.folded').forEach(each => { each.open = true; })");
        // What was unfolded is drawn soon after.
        browser.evaluate("new Promise(done => setTimeout(() => done(0), 500))");
        browser.picture(&format!("{name}-{width}-{scheme}"));
    }
    browser.ask("Emulation.setEmulatedMedia", json!({ "media": "screen" }));
}
