//! The frame of a page, and escaped text for it.

mod numbers;
mod scripts;
mod verdict;

use longhaul_units::is_obeyed;
pub(crate) use numbers::{number, with_numbers};
pub(crate) use scripts::{Script, charts};
pub(crate) use verdict::{caveats, folded, verdict};

/// A page as HTML. `body` is HTML, `title` text. Its content security policy keeps every browser from fetching anything, and from running anything
/// but the script that saves figures, whatever a text brought in.
pub(crate) fn page(title: &str, body: &str) -> String {
    page_with(title, body, &[])
}

/// The same with scripts, which the policy allows. They may make pictures of what they draw.
pub(crate) fn page_with<'a>(title: &str, body: &str, scripts: impl IntoIterator<Item = &'a Script>) -> String {
    let (mut policy, mut elements) = (String::new(), String::new());
    let has_stills = ["<svg data-csv=", "<canvas class=\"heat\""].into_iter().any(|still| body.contains(still));
    for script in scripts.into_iter().chain(scripts::stills().filter(|_| has_stills)) {
        policy += &format!(" 'sha256-{}'", script.hash);
        elements += &format!("<script>{}</script>\n", script.text);
    }
    if !policy.is_empty() {
        policy = format!("; script-src{policy}; img-src data: blob:");
    }
    // The style has no placeholder, and the title has no `<`.
    include_str!("page.html")
        .replace("<!--style-->", concat!(include_str!("page.css"), include_str!("../over_time/figures.css")))
        .replace("<!--scripts-allowed-->", &policy)
        .replace("<!--title-->", &escape(title))
        // Last: what was brought in must not be taken for a placeholder.
        .replace("<!--body-->", &format!("{body}{elements}"))
}

/// The head of a page: its subject, the version of longhaul and the time.
pub(crate) fn heading(title: &str, longhaul: &str, started_at: &str) -> String {
    let [title, longhaul, started_at] = [title, longhaul, started_at].map(escape);
    format!("<h1>{title}</h1>\n<p class=\"quiet\">longhaul {longhaul}, {started_at}</p>\n")
}

/// `text` with markup escaped: names of hosts and drop reasons come from outside.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            // What a terminal would obey, and what turns the order of letters: a name must not look like another.
            c if is_obeyed(c) && c != '\n' => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
