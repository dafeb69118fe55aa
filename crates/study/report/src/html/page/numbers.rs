//! The numbers of a still figure, which its script saves as a table (`web/src/stills.ts`).

use crate::html::axis::six_digits;
use crate::html::page::escape;

/// The drawing `svg`, with its numbers: a row of `table` for each place, the first for the names of columns.
pub(crate) fn with_numbers(svg: &str, table: impl IntoIterator<Item = Vec<String>>) -> String {
    let row = |cells: Vec<String>| cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",");
    let rows: Vec<String> = table.into_iter().map(row).collect();
    svg.replacen("<svg ", &format!("<svg data-csv=\"{}\" ", escape(&rows.join("\n"))), 1)
}

/// A number of such a table; empty where it is not known.
pub(crate) fn number(value: impl Into<Option<f64>>) -> String {
    value.into().filter(|value| value.is_finite()).map_or_else(String::new, |value| six_digits(value).to_string())
}

/// A cell as RFC 4180 has it. A name that a spreadsheet would take for a formula begins with an apostrophe.
fn quoted(cell: &str) -> String {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err();
    let cell = if is_formula { format!("'{cell}") } else { cell.to_owned() };
    if cell.contains([',', '"', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::page::page;
    use crate::html::page::scripts::stills;

    #[test]
    fn a_drawing_has_its_numbers_and_no_markup() {
        let table = [vec!["a, \"b\"".to_owned(), "<c>".into()], vec![number(12.345_678_9), number(None::<f64>)]];
        let svg = with_numbers("<svg role=\"img\"><svg></svg></svg>", table);
        let numbers = "&quot;a, &quot;&quot;b&quot;&quot;&quot;,&lt;c&gt;\n12.3457,";
        assert_eq!(svg, format!("<svg data-csv=\"{numbers}\" role=\"img\"><svg></svg></svg>"));
        let has_script = |body: &str| page("", body).contains("script-src 'sha256-");
        assert_eq!([has_script(&svg), has_script("<svg></svg>")], [stills().is_some(), false]);
        assert_eq!(["=1+1", "-2.5", "-x", "a=b"].map(quoted), ["'=1+1", "-2.5", "'-x", "a=b"]);
        assert_eq!([1e12, f64::NAN, 0.0].map(number), ["1000000000000", "", "0"]);
    }
}
