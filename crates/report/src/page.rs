//! The frame around figures and tables.

/// A page in the making.
#[derive(Debug, Default)]
pub struct Page {
    title: String,
    body: String,
}

const STYLE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1a1a1a;background:#fff}\
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;display:block;overflow-x:auto}\
th,td{padding:.25rem .7rem;text-align:right;border-bottom:1px solid #ddd}\
th:first-child,td:first-child{text-align:left}\
svg{max-width:100%;height:auto}\
pre{background:#f5f5f5;padding:.7rem;overflow-x:auto}\
.note{color:#555}";

impl Page {
    /// An empty page.
    pub fn new(title: &str) -> Self {
        Self { title: title.to_owned(), body: String::new() }
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) -> &mut Self {
        self.body += &format!("<h2>{}</h2>\n", escape(text));
        self
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) -> &mut Self {
        self.body += &format!("<p>{}</p>\n", escape(text));
        self
    }

    /// Text as it stands, such as commands.
    pub fn verbatim(&mut self, text: &str) -> &mut Self {
        self.body += &format!("<pre>{}</pre>\n", escape(text));
        self
    }

    /// A figure as SVG, with its caption.
    pub fn figure(&mut self, svg: &str, caption: &str) -> &mut Self {
        self.body += &format!("<figure>{svg}<figcaption class=\"note\">{}</figcaption></figure>\n", escape(caption));
        self
    }

    /// A table: its first row heads the columns.
    pub fn table(&mut self, rows: &[Vec<String>]) -> &mut Self {
        let row = |cells: &[String], tag: &str| {
            let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
            format!("<tr>{cells}</tr>\n")
        };
        if let Some((head, rest)) = rows.split_first() {
            self.body += &format!("<table>\n<thead>{}</thead>\n<tbody>", row(head, "th"));
            for cells in rest {
                self.body += &row(cells, "td");
            }
            self.body += "</tbody></table>\n";
        }
        self
    }

    /// The whole page.
    pub fn to_html(&self) -> String {
        let title = escape(&self.title);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{}</body>\n</html>\n",
            self.body
        )
    }
}

/// `text` with what HTML would take for markup made harmless: names of hosts and drop reasons come from outside.
pub fn escape(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_outside_are_no_markup() {
        let mut page = Page::new("<b>");
        page.table(&[vec!["a".into()], vec!["<script>alert('x')</script>".into()]]).paragraph("x & y");
        let html = page.to_html();
        assert!(!html.contains("<script") && html.contains("&lt;script&gt;") && html.contains("x &amp; y"));
        assert!(html.contains("<title>&lt;b&gt;</title>"));
    }
}
