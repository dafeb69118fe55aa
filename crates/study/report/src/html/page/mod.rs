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
    let has_stills = ["<svg data-csv=", "<canvas class=\"heat\""].into_iter().any(|still| body.contains(still));
    framed(title, body, scripts.into_iter().chain(scripts::stills().filter(|_| has_stills)))
}

/// A page with these scripts and no other.
fn framed<'a>(title: &str, body: &str, scripts: impl IntoIterator<Item = &'a Script>) -> String {
    let (mut policy, mut elements) = (String::new(), String::new());
    for script in scripts {
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

/// Figures that a page lacks, a line each, which says why.
pub(crate) fn left_out(lines: &[String]) -> String {
    lines.iter().map(|line| format!("<p class=\"quiet\">{}</p>\n", escape(line))).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::lines::{Line, Panel};
    use crate::html::over_time::timeline;

    /// A binary that was built without Node has no script: the drawings stay, and nothing but a script hides them.
    #[test]
    fn without_scripts_a_page_shows_its_drawings() {
        let points = vec![Some((0.0, 1.0)), Some((1.0, 2.0))];
        let lines = vec![Line { name: "a flow", colour: "--blue", points }];
        let panel = Panel { title: "Rate", units: &[(1.0, "B")], lines, ..Panel::default() };
        let still = with_numbers("<svg class=\"still\"></svg>", [vec![number(1.0)]]);
        let body = timeline([(panel, "")]) + &still;

        let html = framed("", &body, None);
        assert!(html.contains("<div class=\"drawn\"><svg ") && html.contains("<polyline"), "{html}");
        assert!(html.contains(&still), "{html}");
        assert!(!html.contains("<script>") && !html.contains("script-src"), "{html}");
        let hiding = html.lines().filter(|line| line.contains(".drawn") && line.contains("display: none"));
        let hiding: Vec<&str> = hiding.map(str::trim_start).collect();
        assert!(!hiding.is_empty() && hiding.iter().all(|rule| rule.starts_with(".with-charts ")), "{hiding:?}");
        assert!(!html.contains("class=\"with-charts"), "that is for the script to say: {html}");

        let script = Script { text: "draw()".into(), hash: "abc" };
        let html = framed("", &body, [&script]);
        assert!(html.contains("<script>draw()</script>") && html.contains("; script-src 'sha256-abc';"), "{html}");
    }
}
