//! Tables of numbers, in groups of rows.

use crate::html::page::escape;

/// A table. Each cell carries its column's name: on a narrow screen a row becomes a list of names and values (`page.css`).
pub(crate) struct Table {
    columns: Vec<String>,
    html: String,
}

impl Table {
    /// An empty table of the class `class` below `heading`.
    pub(crate) fn new(heading: &str, class: &str, columns: &[impl ToString]) -> Self {
        let columns: Vec<String> = columns.iter().map(|column| escape(&column.to_string())).collect();
        let heads: String = columns.iter().map(|column| format!("<th scope=\"col\">{column}</th>")).collect();
        let html = format!("<h2>{heading}</h2>\n<table class=\"{class}\">\n<thead><tr>{heads}</tr></thead>\n<tbody>\n");
        Self { columns, html }
    }

    /// The rows that follow belong to `name`.
    pub(crate) fn group(&mut self, name: &str) {
        let (columns, name) = (self.columns.len(), escape(name));
        self.html += &format!("<tr class=\"series\"><th scope=\"rowgroup\" colspan=\"{columns}\">{name}</th></tr>\n");
    }

    /// A row: its name, which scripts find as `data-row`, then the cells of the other columns.
    pub(crate) fn row(&mut self, name: &str, cells: impl IntoIterator<Item = String>) {
        let name = escape(name);
        self.html += &format!("<tr data-row=\"{name}\"><th scope=\"row\">{name}</th>");
        for (column, cell) in self.columns[1..].iter().zip(cells) {
            // A mean and its interval stay on one line, as in `12.5 ± 0.1`.
            let class = if cell.contains('±') && !cell.contains(',') { " class=\"mean\"" } else { "" };
            self.html += &format!("<td data-label=\"{column}\"{class}>{}</td>", escape(&cell));
        }
        self.html += "</tr>\n";
    }

    /// The whole.
    pub(crate) fn finish(self) -> String {
        self.html + "</tbody>\n</table>\n"
    }
}
