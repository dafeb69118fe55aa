//! How a page begins: what was found, how sure that is, its caveats.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt::Write;

use longhaul_result::Caveat;

use crate::html::page::escape;

/// Caveats of a kind, and of all kinds, that a page tells: each is told with its place, so that a file of thousands would make a page that is a
/// hundred times as long.
const TOLD_OF_A_KIND: usize = 100;
const TOLD: usize = 1_000;

/// What was `found`, in words, and how sure that is (`certainty`). `of` names the direction where there are several. `class` is `good` where all
/// is as it should be, `alert` where something is not, else empty.
pub(crate) fn verdict(of: Option<&str>, class: &str, found: &str, certainty: &str) -> String {
    let of = of.map_or_else(String::new, |name| format!("<strong>{}:</strong> ", escape(name)));
    let class = if class.is_empty() { "verdict".to_owned() } else { format!("verdict {class}") };
    let certainty = match certainty {
        "" => String::new(),
        text => format!("<p class=\"certainty\">{}</p>\n", escape(text)),
    };
    format!("<p class=\"{class}\">{of}{}</p>\n{certainty}", escape(found))
}

/// The caveats of a result, on one line: how many and of what kinds. It unfolds.
pub(crate) fn caveats<C: Borrow<Caveat>>(caveats: impl IntoIterator<Item = C>) -> String {
    let mut kinds: BTreeMap<String, Vec<C>> = BTreeMap::new();
    let (mut all, mut told) = (0_usize, 0_usize);
    for caveat in caveats {
        all += 1;
        let of: &Caveat = caveat.borrow();
        let kind = kinds.entry(of.code.clone()).or_default();
        if kind.len() < TOLD_OF_A_KIND && told < TOLD {
            kind.push(caveat);
            told += 1;
        }
    }
    if all == 0 {
        return "<p class=\"quiet\">No known problem affects these figures.</p>\n".into();
    }
    let names: Vec<String> = kinds.keys().map(|code| code.replace('_', " ")).collect();
    let count = match all {
        1 => "1 caveat applies".to_owned(),
        many => format!("{many} caveats apply"),
    };
    let items = kinds.values().flatten().map(|caveat| {
        let caveat: &Caveat = caveat.borrow();
        if caveat.remedy.is_empty() {
            caveat.message.clone()
        } else {
            format!("{} — {}", caveat.message, caveat.remedy)
        }
    });
    unfolding(&format!("{count}: {}", names.join("; ")), "", items, all - told)
}

/// A line that unfolds to `items`, below a `lead` if it has one: the first of them, and how many more there are.
pub(crate) fn folded(line: &str, lead: &str, items: &[String]) -> String {
    let told = items.iter().take(TOLD_OF_A_KIND).cloned();
    unfolding(line, lead, told, items.len().saturating_sub(TOLD_OF_A_KIND))
}

fn unfolding(line: &str, lead: &str, items: impl Iterator<Item = String>, more: usize) -> String {
    let mut html = format!("<details class=\"caveats\"><summary>{}</summary>\n", escape(line));
    // Writing to a string cannot fail.
    if !lead.is_empty() {
        let _ = write!(html, "<p>{}</p>", escape(lead));
    }
    html += "<ul>";
    for item in items {
        let _ = write!(html, "<li>{}</li>", escape(&item));
    }
    if more > 0 {
        let _ = write!(html, "<li>and {more} more, which the result has</li>");
    }
    html + "</ul></details>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_names_its_direction_and_how_sure_it_is() {
        let html = verdict(Some("a < b"), "alert", "1 & 2", "one test");
        let expected = "<p class=\"verdict alert\"><strong>a &lt; b:</strong> 1 &amp; 2</p>\n<p class=\"certainty\">one test</p>\n";
        assert_eq!(html, expected);
        assert_eq!(verdict(None, "", "found", ""), "<p class=\"verdict\">found</p>\n");
    }

    #[test]
    fn caveats_are_one_line_by_kind_that_unfolds() {
        let caveat = |code, message: &str| Caveat::new(code, message, "wait");
        const LATE: longhaul_result::CaveatCode = longhaul_result::CaveatCode::of_table("emulator_late");
        let html = caveats(&[caveat(LATE, "by 3 ms"), caveat(LATE, "by <8> ms")]);
        assert!(html.contains("<summary>2 caveats apply: emulator late</summary>"), "{html}");
        assert!(html.contains("<li>by &lt;8&gt; ms — wait</li>"), "{html}");
        assert!(!caveats(&[] as &[Caveat]).contains("details"));
    }

    /// Of as many as a file of others may have.
    #[test]
    fn a_page_tells_the_first_caveats_and_counts_the_others() {
        let caveat = |code: &str| Caveat::of_error(code, "late", "");
        let html = caveats(vec![caveat("emulator_late"); 26_000]);
        assert!(html.contains("26000 caveats apply") && html.contains("<li>and 25900 more, which the result has</li>"));
        assert_eq!(html.matches("<li>").count(), 101);
        let html = caveats((0..26_000).map(|number| caveat(&format!("code_{number}"))));
        assert_eq!(html.matches("<li>").count(), 1_001);
        let html = folded("many", "why", &vec!["one".to_owned(); 26_000]);
        assert!(html.contains("<summary>many</summary>\n<p>why</p><ul><li>one</li>"), "{html}");
        assert_eq!(html.matches("<li>").count(), 101);
    }
}
