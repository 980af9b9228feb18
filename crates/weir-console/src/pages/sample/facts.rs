//! What is known of a sample without running it: its hashes, its entropy, its sections, and the texts in it.

use super::{LINES_MAX, cut, name};
use crate::html;
use crate::html::Html;
use crate::trouble::sentence;
use crate::words::{count, grouped, size, time_ns};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use weir_lab::operations::SamplePage;
use weir_lab::report::Merged;

/// How many sections are shown without folding them.
const FEW: usize = 8;
/// How many strings are shown.
const STRINGS_MAX: usize = 200;

/// The report of `identify`.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Identity {
    md5: String,
    sha1: String,
    tlsh: Option<String>,
    entropy_bits_per_byte: Option<f64>,
}

/// The report of `elf-pe`.
#[derive(Deserialize, Default)]
#[serde(default)]
struct ProgramReport {
    format: Option<String>,
    machine: String,
    kind: String,
    entry: String,
    regions: Vec<Region>,
    libraries: Vec<String>,
    import_count: u64,
    noted_imports: Vec<Noted>,
    packers: Vec<String>,
    signature_present: bool,
    damage: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Region {
    name: String,
    bytes: u64,
    memory_bytes: u64,
    writable: bool,
    executable: bool,
    entropy: Option<f64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Noted {
    name: String,
    about: String,
}

/// The report of `strings`.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Strings {
    ascii_strings: u64,
    utf16_strings: u64,
    strings: Vec<String>,
}

#[derive(Deserialize)]
struct Full<T> {
    full: T,
}

/// The full report of a plugin, if it has this form: a plugin of that name may be another one.
fn full<T: DeserializeOwned>(page: &SamplePage, plugin: &str) -> Option<T> {
    let result = page.results.iter().rev().find(|result| result.accepted && result.plugin == plugin)?;
    serde_json::from_str::<Full<T>>(result.report.get()).ok().map(|report| report.full)
}

pub(super) fn facts(merged: &Merged) -> Html {
    let page = &merged.page;
    html!("{}{}{}", file(page), program(page), strings(page))
}

fn file(page: &SamplePage) -> Html {
    let (sample, identity) = (&page.sample, full::<Identity>(page, "identify").unwrap_or_default());
    let line = |name: &str, value: &str| match value {
        "" => Html::none(),
        value => html!("<dt>{}</dt><dd><code>{}</code></dd>", name, cut(value)),
    };
    let random = identity.entropy_bits_per_byte.filter(|bits| bits.is_finite()).map(|bits| {
        let about = if bits > 7.2 { "packed, encrypted or compressed" } else { "as usual files" };
        html!("<dt>Entropy</dt><dd>{} bits a byte: {}</dd>", format!("{bits:.2}"), about)
    });
    html!(
        "<section><h2>The file</h2><dl class=\"facts\"><dt>Name</dt><dd>{}</dd><dt>Type</dt><dd>{}</dd><dt>Size</dt><dd>{}</dd>{}{}{}{}{}\
         <dt>Handed in by</dt><dd>{}, with priority {}</dd>{}<dt>Came</dt><dd>{}</dd><dt>Ended</dt><dd>{}</dd></dl></section>",
        name(sample),
        cut(&sample.file_type),
        size(sample.size.max(0) as u64),
        random,
        line("SHA-256", &sample.hash),
        line("SHA-1", &identity.sha1),
        line("MD5", &identity.md5),
        line("TLSH", identity.tlsh.as_deref().unwrap_or_default()),
        cut(&sample.submitter),
        sample.priority,
        chosen(page),
        time_ns(sample.arrived_at),
        sample.ended_at.map_or_else(|| html!("not yet"), time_ns)
    )
}

/// The choices that were made when it was submitted.
fn chosen(page: &SamplePage) -> Html {
    let words = page.choices.words();
    let line = |(label, text): &(&str, String)| {
        html!("<dt>{}</dt><dd>{}</dd>", sentence(label).trim_end_matches('.'), cut(text))
    };
    words.iter().map(line).collect()
}

fn program(page: &SamplePage) -> Html {
    let Some(program) = full::<ProgramReport>(page, "elf-pe") else { return Html::none() };
    let Some(format) = &program.format else { return Html::none() };
    let fact = |name: &str, value: String| match value.as_str() {
        "" => Html::none(),
        value => html!("<dt>{}</dt><dd>{}</dd>", name, value),
    };
    let imports = match program.import_count {
        0 => String::new(),
        number => format!("{} functions", grouped(number)),
    };
    let noted: Vec<String> = program
        .noted_imports
        .iter()
        .take(20)
        .map(|noted| format!("{} ({})", cut(&noted.name), cut(&noted.about)))
        .collect();
    html!(
        "<section><h2>The program</h2><dl class=\"facts\">{}{}{}{}{}{}{}{}</dl>{}</section>",
        fact("Format", cut(&format!("{format}, {}, {}", program.machine, program.kind))),
        fact("Begins at", cut(&program.entry)),
        fact("Packed with", cut(&program.packers.join(", "))),
        fact("Libraries", cut(&program.libraries.join(", "))),
        fact("Imports", imports),
        fact("Worth a look", noted.join(", ")),
        fact(
            "Signature",
            if program.signature_present { "there is one; it was not checked".to_owned() } else { String::new() }
        ),
        fact("Damage", cut(program.damage.as_deref().unwrap_or_default())),
        regions(&program.regions)
    )
}

fn regions(regions: &[Region]) -> Html {
    if regions.is_empty() {
        return Html::none();
    }
    let row = |region: &Region| {
        let may = match (region.writable, region.executable) {
            (true, true) => "write and run",
            (true, false) => "write",
            (false, true) => "run",
            (false, false) => "read",
        };
        html!(
            "<tr><td><code>{}</code></td><td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td><td class=\"number\">{}</td></tr>",
            if region.name.is_empty() { "(no name)".to_owned() } else { cut(&region.name) },
            size(region.bytes),
            size(region.memory_bytes),
            may,
            region.entropy.map_or_else(|| "–".to_owned(), |bits| format!("{bits:.2}"))
        )
    };
    let table = html!(
        "<div class=\"scroll\" tabindex=\"0\"><table class=\"rows\"><thead><tr><th>Section</th><th class=\"number\">In the file</th><th class=\"number\">In memory</th>\
         <th>May</th><th class=\"number\">Entropy</th></tr></thead><tbody>{}</tbody></table></div>",
        regions.iter().take(LINES_MAX).map(row).collect::<Html>()
    );
    match regions.len() {
        0..=FEW => table,
        many => html!("<details class=\"raw\"><summary>{}</summary>{}</details>", count(many as u64, "section"), table),
    }
}

fn strings(page: &SamplePage) -> Html {
    let Some(found) = full::<Strings>(page, "strings").filter(|found| !found.strings.is_empty()) else {
        return Html::none();
    };
    let lines: Vec<String> = found.strings.iter().take(STRINGS_MAX).map(|text| cut(text)).collect();
    let known = found.ascii_strings.saturating_add(found.utf16_strings);
    let some = lines.len() as u64;
    let shown = (some < known).then(|| html!(" <span class=\"faint\">the first {} are shown</span>", some));
    let all = count(known, "text");
    html!(
        "<section><h2>Texts in it</h2><details class=\"raw\"><summary>{}{}</summary><pre>{}</pre></details></section>",
        all,
        shown,
        lines.join("\n")
    )
}
