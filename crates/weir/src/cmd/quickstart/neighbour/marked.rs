//! Changes to a text that can be found and undone later. Every line that changes is kept as a comment, between two marks.

use std::ops::Range;

const BEGIN: &str = "# >>> weir quickstart: put in for Weir; `weir quickstart undo` takes it out";
const END: &str = "# <<< weir quickstart";
/// Stands before an original line that was turned into a comment.
const WAS: &str = "#weir#";

/// A range of octets in a text, and the text that replaces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) span: Range<usize>,
    pub(super) by: String,
}

/// Makes these changes, which must not overlap.
pub(super) fn put_in(text: &str, changes: &[Change]) -> String {
    let mut changes = changes.to_vec();
    changes.sort_by_key(|change| change.span.start);
    let (mut out, mut done) = (String::new(), 0);
    let mut waiting = changes.into_iter().peekable();
    while let Some(first) = waiting.next() {
        let mut lines = whole_lines(text, &first.span);
        let mut here = vec![first];
        while let Some(next) = waiting.next_if(|next| next.span.start < lines.end) {
            lines.end = lines.end.max(whole_lines(text, &next.span).end);
            here.push(next);
        }
        out.push_str(&text[done..lines.start]);
        out.push_str(&marked(&text[lines.clone()], lines.start, &here));
        done = lines.end;
    }
    out.push_str(&text[done..]);
    out
}

fn marked(lines: &str, at: usize, changes: &[Change]) -> String {
    let was: String = lines.lines().map(|line| format!("{WAS}{line}\n")).collect();
    let (mut now, mut done) = (String::new(), 0);
    for change in changes {
        now.push_str(&lines[done..change.span.start - at]);
        now.push_str(&change.by);
        done = change.span.end - at;
    }
    now.push_str(&lines[done..]);
    let now: String = now.lines().filter(|line| !line.trim().is_empty()).map(|line| format!("{line}\n")).collect();
    format!("{BEGIN}\n{was}{now}{END}\n")
}

fn whole_lines(text: &str, span: &Range<usize>) -> Range<usize> {
    let start = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
    // If the span ends with a line break, the next line does not belong to it.
    let last = span.end.saturating_sub(1).max(span.start);
    let end = text[last..].find('\n').map_or(text.len(), |at| last + at + 1);
    start..end
}

/// The text without our changes; none if it contains no complete ones.
pub(super) fn taken_out(text: &str) -> Option<String> {
    let (mut out, mut inside, mut found) = (String::new(), false, false);
    for line in text.split_inclusive('\n') {
        let bare = line.trim_end();
        match inside {
            false if bare == BEGIN => (inside, found) = (true, true),
            false => out.push_str(line),
            true if bare == END => inside = false,
            true => out.push_str(line.strip_prefix(WAS).unwrap_or_default()),
        }
    }
    // Without the mark at the end, we cannot know which lines are ours.
    (found && !inside).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(text: &str, part: &str, by: &str) -> Change {
        let at = text.find(part).unwrap();
        Change { span: at..at + part.len(), by: by.to_owned() }
    }

    #[test]
    fn what_is_put_in_can_be_taken_out() {
        let text = "server {\n  listen 80;  root x;\n  listen 443;\n}\nend\n";
        let changes = [change(text, "listen 80;", "listen 8080;"), change(text, "listen 443;", "")];
        let now = put_in(text, &changes);
        assert!(now.contains("\n  listen 8080;  root x;\n# <<<") && now.contains("\n#weir#  listen 80;"), "{now}");
        assert!(!now.contains("\n  listen 443"), "{now}");
        assert_eq!(taken_out(&now).as_deref(), Some(text));
        // Lines that somebody wrote around it stay.
        let later = now.replace("end\n", "end\nmore\n");
        assert_eq!(taken_out(&later), Some(text.replace("end\n", "end\nmore\n")));
    }

    #[test]
    fn changes_in_one_line_and_at_both_ends_of_a_text() {
        let text = "a b\nc";
        let now = put_in(text, &[change(text, "a", "A"), change(text, "b", "B"), change(text, "c", "C")]);
        assert!(now.contains("\nA B\n") && now.contains("\nC\n"), "{now}");
        assert_eq!(taken_out(&now).as_deref(), Some("a b\nc\n"));
        let put = put_in(text, &[Change { span: 1..1, by: "!".to_owned() }]);
        assert!(put.contains("\na! b\n"), "{put}");
    }

    #[test]
    fn a_text_without_marks_or_with_half_of_them_is_left() {
        assert_eq!(taken_out("a\n"), None);
        assert_eq!(taken_out(&format!("{BEGIN}\n#weir#a\n")), None);
    }
}
