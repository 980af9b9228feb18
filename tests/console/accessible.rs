//! Runs axe-core on pages in the browser. It finds barriers for people who cannot see, hear or point like others.

use super::browser::Browser;
use std::path::Path;
use std::sync::LazyLock;

/// The script of axe-core.
static AXE: LazyLock<String> = LazyLock::new(|| {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a folder");
    let file = target.join("axe/axe.min.js");
    std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("{} is missing: tools/setup installs it", file.display()))
});

/// Runs it. Returns each kind of barrier with its first elements.
const LOOK: &str = "return axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations.map((barrier) =>
  barrier.id + ' (' + barrier.help + '): ' + barrier.nodes.slice(0, 5).map((node) => node.target.join(' ')).join(', ')))";

/// Whether this look of a page is checked: every page is checked light on a desk and dark on a telephone; in tools/soak, the other
/// combinations too.
pub(super) fn is_due(look: &str) -> bool {
    matches!(look, "light" | "narrow-dark") || std::env::var_os("WEIR_AXE").is_some()
}

/// The barriers on the current page.
pub(super) fn barriers(browser: &Browser) -> Vec<String> {
    browser.run(&AXE);
    let found = browser.run(LOOK);
    found.as_array().expect("a list").iter().filter_map(|barrier| barrier.as_str().map(str::to_owned)).collect()
}
