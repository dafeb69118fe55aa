//! The frame of a page, and escaped text for it.

/// A page as HTML. `body` is HTML, `title` text. Its content security policy keeps every browser from fetching or running
/// anything, whatever a text brought in.
pub(crate) fn page(title: &str, body: &str) -> String {
    // The style has no placeholder, and the title has no `<`.
    include_str!("page.html")
        .replace("<!--style-->", include_str!("page.css"))
        .replace("<!--title-->", &escape(title))
        .replace("<!--body-->", body)
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
            c => escaped.push(c),
        }
    }
    escaped
}
