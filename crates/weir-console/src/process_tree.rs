//! The processes of a sample drawn as a tree, each under the process that started it.
//!
//! The list comes from a guest that ran malware: lines, texts and indentation are bounded; the time is in proportion to the list.

use crate::html;
use crate::html::Html;
use crate::words;
use weir_lab::report::{Acted, Process};

/// How many processes are drawn.
const DRAWN_MAX: usize = 300;
/// Deeper ones are not indented further.
const INDENT_MAX: usize = 16;
/// Characters of one text.
const TEXT_MAX: usize = 240;

/// The tree, and how many were left out.
pub(crate) fn draw(acted: &Acted) -> Html {
    let order = acted.tree();
    let depth_at =
        |at: usize| order.get(at).filter(|_| at < DRAWN_MAX).map_or(0, |(depth, _)| (*depth).min(INDENT_MAX));
    let mut tree = html!("<ul class=\"tree\" tabindex=\"0\">");
    for (at, (_, process)) in order.iter().take(DRAWN_MAX).enumerate() {
        tree.push(&html!("<li>{}", line(process)));
        let (depth, next) = (depth_at(at), depth_at(at + 1));
        if next > depth {
            tree.push(&html!("<ul>"));
            continue;
        }
        tree.push(&html!("</li>"));
        for _ in next..depth {
            tree.push(&html!("</ul></li>"));
        }
    }
    tree.push(&html!("</ul>"));
    if order.len() > DRAWN_MAX {
        let left = order.len() - DRAWN_MAX;
        tree.push(&html!("<p class=\"faint\">… and {} more; the raw report has them.</p>", left));
    }
    tree
}

fn line(process: &Process) -> Html {
    let command = command(process);
    let user = process.user.map(|user| format!(", user {user}"));
    let ended = match process.ended.as_str() {
        "" => String::new(),
        ended => format!(", {}", cut(ended)),
    };
    let threads = match process.threads {
        0 => String::new(),
        more => format!(", {}", words::count(u64::from(more), "more thread")),
    };
    let path = if command == process.path { String::new() } else { format!("{}, ", cut(&process.path)) };
    html!(
        "<code>{}</code> <span class=\"faint\">{}process {}{}{}{}</span>",
        command,
        path,
        process.pid,
        user,
        threads,
        ended
    )
}

/// Its command line, as far as it is shown.
fn command(process: &Process) -> String {
    let mut whole = String::new();
    for argument in &process.arguments {
        if whole.len() > 4 * TEXT_MAX {
            break;
        }
        if !whole.is_empty() {
            whole.push(' ');
        }
        whole.push_str(&cut(argument));
    }
    if whole.is_empty() { cut(&process.path) } else { cut(&whole) }
}

fn cut(text: &str) -> String {
    words::cut(text, TEXT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_lab::report::Behaviour;

    fn process(pid: u32, parent: u32) -> Process {
        Process { pid, parent, path: format!("/bin/{pid}"), ..Process::default() }
    }

    fn drawn(processes: Vec<Process>) -> Html {
        draw(&Acted { seen: Behaviour { processes, ..Behaviour::default() }, ..Acted::default() })
    }

    #[test]
    fn ten_thousand_deep_and_long_names_are_drawn_in_bounds() {
        let deep: Vec<Process> = (1..10_000).map(|pid| process(pid, pid - 1)).collect();
        let page = drawn(deep.clone()).into_string();
        assert!(page.len() < 100_000 && page.contains("and 9699 more"), "{}", page.len());
        let wide: Vec<Process> = (0..10_000).map(|n| process(5 + n % 2, 6 - n % 2)).collect();
        assert!(drawn(wide.clone()).into_string().len() < 100_000);
        let long = |times: usize, arguments: usize| {
            let name = "<script>é".repeat(times);
            Process { path: name.clone(), arguments: vec![name; arguments], ..process(1, 0) }
        };
        for processes in [vec![long(8_000, 1_000)], vec![long(80, 50); 1_000]] {
            let page = drawn(processes).into_string();
            assert!(page.len() < 2_000_000 && !page.contains("<script"), "{}", page.len());
        }
        for markup in [&drawn(deep), &drawn(wide), &drawn(Vec::new())] {
            let count = |tag: &str| markup.as_str().matches(tag).count();
            assert_eq!((count("<ul"), count("<li>")), (count("</ul>"), count("</li>")), "what is opened is closed");
        }
    }
}
