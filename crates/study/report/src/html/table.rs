//! Tables of numbers, in groups of rows.

use crate::html::page::escape;

/// A table. Each cell carries its column's name: on a narrow screen a row becomes a list of names and values (`page.css`). Columns in which
/// no row has a value are left out.
pub(crate) struct Table {
    head: String,
    columns: Vec<String>,
    rows: Vec<Row>,
}

enum Row {
    /// The name of a group.
    Group(String),
    /// A name, and the cells of the other columns.
    Cells(String, Vec<String>),
}

impl Table {
    /// An empty table of the class `class` below `heading`.
    pub(crate) fn new(heading: &str, class: &str, columns: &[impl ToString]) -> Self {
        let columns = columns.iter().map(|column| escape(&column.to_string())).collect();
        Self { head: format!("<h2>{heading}</h2>\n<table class=\"{class}\">\n"), columns, rows: Vec::new() }
    }

    /// The rows that follow belong to `name`.
    pub(crate) fn group(&mut self, name: &str) {
        self.rows.push(Row::Group(escape(name)));
    }

    /// A row: its name, which scripts find as `data-row`, then the cells of the other columns.
    pub(crate) fn row(&mut self, name: &str, cells: impl IntoIterator<Item = String>) {
        self.rows.push(Row::Cells(escape(name), cells.into_iter().collect()));
    }

    /// Whether a row has a value in this column, or there is none that could have one.
    fn is_used(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| match row {
            Row::Group(_) => None,
            Row::Cells(_, cells) => cells.get(column),
        });
        let has_value = |cell: &String| !matches!(cell.as_str(), "" | "–");
        cells.clone().next().is_none() || cells.any(has_value)
    }

    /// The whole.
    pub(crate) fn finish(self) -> String {
        let (first, others) = self.columns.split_first().map_or(("", &[][..]), |(first, others)| (first, others));
        let used: Vec<usize> = (0..others.len()).filter(|column| self.is_used(*column)).collect();
        let heads: String = used.iter().map(|column| format!("<th scope=\"col\">{}</th>", others[*column])).collect();
        let mut html = format!("{}<thead><tr><th scope=\"col\">{first}</th>{heads}</tr></thead>\n<tbody>\n", self.head);
        for row in &self.rows {
            match row {
                Row::Group(name) => {
                    let columns = used.len() + 1;
                    html += &format!(
                        "<tr class=\"series\"><th scope=\"rowgroup\" colspan=\"{columns}\">{name}</th></tr>\n"
                    );
                }
                Row::Cells(name, cells) => {
                    html += &format!("<tr data-row=\"{name}\"><th scope=\"row\">{name}</th>");
                    for (column, cell) in used.iter().filter_map(|column| Some((&others[*column], cells.get(*column)?)))
                    {
                        // A line may end before the interval, never inside it: tables with many columns need the room.
                        let cell = escape(cell).replace("± ", "±\u{a0}");
                        html += &format!("<td data-label=\"{column}\">{cell}</td>");
                    }
                    html += "</tr>\n";
                }
            }
        }
        html + "</tbody>\n</table>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_without_a_value_are_left_out() {
        let mut table = Table::new("Numbers", "numbers", &["test", "time, s", "rate", "note"]);
        table.group("a <group>");
        table.row("one", ["–", "1.0 ± 0.1", ""].map(str::to_owned));
        table.row("two", ["–", "–", ""].map(str::to_owned));
        let html = table.finish();
        assert!(html.contains("<th scope=\"col\">test</th><th scope=\"col\">rate</th></tr>"), "{html}");
        assert!(html.contains("colspan=\"2\">a &lt;group&gt;</th>"), "{html}");
        assert!(html.contains("<th scope=\"row\">two</th><td data-label=\"rate\">–</td></tr>"), "{html}");
        assert!(html.contains("<td data-label=\"rate\">1.0 ±\u{a0}0.1</td>"), "{html}");
        assert!(!html.contains("time") && !html.contains("note"), "{html}");
    }
}
