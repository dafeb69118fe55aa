//! A page that was saved as a file.

use std::fs;

use super::browser::Browser;

/// Fails if the page has 2 MB or more, or 1 MB of data, or is not good in the browser ([`Browser::is_good`]).
pub(crate) fn fits(browser: &mut Browser, file: &str, width: u32, axe: Option<&str>) {
    let page = fs::read_to_string(file.trim_start_matches("file://")).unwrap();
    let parts = page.split("<script type=\"application/json\"").skip(1);
    let data: usize = parts.map(|part| part.split("</script>").next().unwrap_or_default().len()).sum();
    assert!(page.len() < 2_000_000 && data < 1_000_000, "{file}: {} bytes, {data} of them data", page.len());
    browser.is_good(&format!("{file} at {width}"), axe);
}
