//! The frame around what a report shows, and text made safe for it.

/// A page as HTML. `body` is HTML, `title` text.
pub(crate) fn page(title: &str, body: &str) -> String {
    let style = include_str!("page.css");
    let title = escape(title);
    // The policy keeps every browser from fetching or running anything, whatever a text brought in.
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{style}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
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
