//! The frame around what a report shows, and text made safe for it.

/// A page as HTML. `body` is HTML, `title` text. Its content security policy keeps every browser from fetching or running
/// anything, whatever a text brought in.
pub(crate) fn page(title: &str, body: &str) -> String {
    // What is put in first has no placeholder: the style is ours, and the title has no `<` any more.
    include_str!("page.html")
        .replace("<!--style-->", include_str!("page.css"))
        .replace("<!--title-->", &escape(title))
        .replace("<!--body-->", body)
}

/// What a page begins with: what it is about, and which longhaul found it when.
pub(crate) fn heading(title: &str, longhaul: &str, started_at: &str) -> String {
    let [title, longhaul, started_at] = [title, longhaul, started_at].map(escape);
    format!("<h1>{title}</h1>\n<p class=\"quiet\">longhaul {longhaul}, {started_at}</p>\n")
}

/// `text` with what HTML would take for markup made harmless: names of hosts and drop reasons come from outside.
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
