//! The page of a report: one file that needs nothing else, also from a disk and without a network.
//!
//! The page is the same for all reports: script and style that the dashboard's sources make
//! (`dashboard/src/report`). It reads its document from a script element that is JSON. This module puts the
//! document there, and the title where browsers look for it.
//!
//! Texts in the document are names of users, and errors of programs. Within a script element only `<` can
//! end it or change how it is parsed, so that each is written as `\u003c`: the same text in JSON. So are the
//! two line separators that old parsers of scripts do not take.

use super::document::Document;
use crate::error::{Error, Result};

/// The page without a document.
const PAGE: &str = include_str!("../../../dashboard/dist/report.html");

/// The place of the document, without one.
const PLACE: &str = "<script type=\"application/json\" id=\"document\">null</script>";
/// The same with one: what stands before it and after it.
const AROUND: [&str; 2] = ["<script type=\"application/json\" id=\"document\">", "</script>"];
/// What stands before and after the title.
const TITLE: [&str; 2] = ["<title>", "</title>"];

/// The page that shows a document.
pub fn page(document: &Document) -> Result<String> {
    filled(PAGE, document)
}

/// A page with a document in it.
fn filled(page: &str, document: &Document) -> Result<String> {
    let failed = |what: String| Error::Results { path: "report.html".into(), what };
    let json = serde_json::to_string(document).map_err(|error| failed(error.to_string()))?;
    let lacks =
        |what: &str| failed(format!("this program's page for reports has no {what}: build dashboard/ anew"));
    let (before, after) = page.split_once(PLACE).ok_or_else(|| lacks("place for a document"))?;
    let (head, rest) = before.split_once(TITLE[0]).ok_or_else(|| lacks("title"))?;
    let (_, rest) = rest.split_once(TITLE[1]).ok_or_else(|| lacks("end of its title"))?;
    let title = escaped(&document.title);
    Ok([head, TITLE[0], &title, TITLE[1], rest, AROUND[0], &in_script(&json), AROUND[1], after].concat())
}

/// JSON as it may stand in a script element.
fn in_script(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// A text as it may stand in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::Block;

    /// The document in a page.
    fn read(page: &str) -> Document {
        let (_, rest) = page.split_once(AROUND[0]).unwrap();
        serde_json::from_str(rest.split_once(AROUND[1]).unwrap().0).unwrap()
    }

    #[test]
    fn there_is_one_place_for_the_document_and_the_title_stands_before_it() {
        assert_eq!(PAGE.matches(PLACE).count(), 1);
        assert_eq!(PAGE.matches(AROUND[0]).count(), 1);
        let at = |what: &str| PAGE.find(what).unwrap();
        assert!(at(TITLE[0]) < at(TITLE[1]) && at(TITLE[1]) < at(PLACE));
        // Scripts that come first would hide the title from whatever reads only the beginning of a file.
        assert!(at(TITLE[0]) < 1024);
    }

    #[test]
    fn hostile_names_stay_texts() {
        let names = [
            "</script><script>alert(1)</script>",
            "<!--<script>",
            "a\u{2028}b\u{2029}c",
            "\"quoted\" 'so' \\ \\u003c `code`",
            "</title><img src=x onerror=alert(1)>",
            "$& $1 {} null",
            "\u{0}\u{1f}\u{7f}",
        ];
        for name in names {
            let mut document = Document::new(name, name);
            document.notes = vec![name.to_owned()];
            document.blocks = vec![
                Block::heading(2, name),
                Block::table(vec![vec![name.to_owned()], vec![name.to_owned()]]),
            ];
            let page = page(&document).unwrap();
            assert_eq!(read(&page), document, "{name:?}");
            // There are as many tags as without, and no more line separators in scripts.
            for part in ["</script", "<script", "<!--", "</title", "<img"] {
                assert_eq!(page.matches(part).count(), PAGE.matches(part).count(), "{name:?}: {part:?}");
            }
            let (_, behind) = page.split_once(TITLE[1]).unwrap();
            for part in ["\u{2028}", "\u{2029}"] {
                assert_eq!(behind.matches(part).count(), PAGE.matches(part).count(), "{name:?}: {part:?}");
            }
        }
        let page = page(&Document::new("a & \"<b>\"", "")).unwrap();
        assert!(page.contains("<title>a &amp; &quot;&lt;b&gt;&quot;</title>"));
    }

    #[test]
    fn a_page_without_a_place_is_refused() {
        for page in ["", "<title>x</title>", PLACE] {
            let error = filled(page, &Document::new("x", "")).unwrap_err().to_string();
            assert!(error.contains("build dashboard/ anew"), "{error}");
        }
    }
}
