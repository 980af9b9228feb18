//! Files that a page or script puts together ([`super::super::unfold`]).

use super::super::kind::Kind;
use super::super::unfold::unfold;
use super::super::{File, Walk};
use crate::budget::Exceeded;
use crate::file_name;

const SCRIPTS: [&str; 17] = [
    "bat", "cmd", "hta", "htm", "html", "js", "jse", "mht", "ps1", "shtml", "svg", "vbe", "vbs", "wsf", "wsh", "xht",
    "xhtml",
];

pub(super) fn open(walk: &mut Walk<'_>, file: &File<'_>, level: u32) -> Result<(), Exceeded> {
    if !is_page(file) {
        return Ok(());
    }
    walk.budget.time()?;
    walk.depth += 1;
    walk.budget.depth(walk.depth)?;
    for found in unfold(file.data) {
        walk.budget.entry()?;
        walk.holding(&found, |walk, found| walk.file(&["put together by a script".into()], "", found, level))?;
    }
    walk.depth -= 1;
    Ok(())
}

/// Whether some program runs it as a script, or shows it as a page.
fn is_page(file: &File<'_>) -> bool {
    let by_name =
        || file.names.iter().flat_map(|name| file_name::extensions(name)).any(|own| SCRIPTS.contains(&own.as_str()));
    matches!(file.kind, Kind::Html | Kind::Xml | Kind::Script) && !file.in_archive
        || file.declared == "text/html"
        || file.declared.ends_with("javascript")
        || file.declared.starts_with("image/svg")
        || by_name()
}
