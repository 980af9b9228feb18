//! The plugin `office-pdf`: finds what documents do when they are opened, and the files that they contain.
//!
//! It unpacks macros to their source, and searches that for names that make a macro run by itself and for calls that reach outside the
//! document. It also reports content that is fetched from elsewhere, embedded files, and the scripts and actions of PDF files. What honest
//! documents rarely have is `suspicious`, for example a macro that runs by itself and reaches outside, macros without their source, sheets
//! of Excel 4 macros, fields that start a program (DDE), a template or object from elsewhere, an embedded program, and a PDF file that
//! starts a program or runs a script when it is opened. The rest is `info`. Files inside PDF and RTF become samples of their own; those
//! inside other documents are handed back by the plugin `archive`.
//!
//! Not examined: formulas, and compiled macros without their source (that the source is missing is reported).

mod compound;
mod ole;
mod ooxml;
mod pdf;
mod rtf;
mod vba;

use crate::findings::Findings;
use crate::sample::Sample;
use serde_json::{Value, json};
use std::time::Duration;
use weir_scan::budget::Limits;
use weir_scan::walk::kind::Kind;

/// What one document may cost.
fn limits() -> Limits {
    Limits {
        levels: 4,
        parts: 1000,
        depth: 2,
        entries: 5000,
        bytes: 256 << 20,
        held_bytes: 128 << 20,
        time: Duration::from_secs(30),
        ..Limits::default()
    }
}

/// What a document does and carries.
pub fn look(sample: &Sample, findings: &mut Findings<'_>) -> Result<Value, String> {
    match Kind::of(&sample.data) {
        Kind::Ole => Ok(ole::look(&sample.data, findings)),
        Kind::Zip => Ok(ooxml::look(&sample.data, findings)),
        Kind::Pdf => pdf::look(&sample.data, findings),
        Kind::Rtf => rtf::look(&sample.data, findings),
        _ => Ok(json!({ "format": null })),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::findings::Memory;
    use weir_lab::job::Level;

    /// All lines, names of the children, everything.
    pub(super) fn said(data: &[u8]) -> (Vec<(Level, String)>, Vec<String>, Value) {
        let mut shelf = Memory::default();
        let mut findings = Findings::new("office-pdf", &mut shelf);
        let full = look(&Sample::of_bytes("a", data), &mut findings).unwrap();
        let report = findings.report(&full).unwrap();
        let lines =
            report.summary.taxonomies.iter().map(|line| (line.level, format!("{} {}", line.predicate, line.value)));
        let names = report.artifacts.iter().filter_map(|artifact| artifact.filename.clone());
        (lines.collect(), names.collect(), full)
    }

    pub(super) fn suspicions(data: &[u8]) -> Vec<String> {
        said(data).0.into_iter().filter(|(level, _)| *level >= Level::Suspicious).map(|(_, text)| text).collect()
    }

    #[test]
    fn documents_that_break_off_end() {
        use crate::fixtures;
        let source = "Sub AutoOpen()\nShell \"calc\"\nEnd Sub\n";
        for whole in [
            fixtures::macro_doc(source),
            fixtures::macro_docm(source),
            fixtures::pdf(true),
            fixtures::rtf(),
            fixtures::packaged_object("a.exe", b"MZ\x90\0"),
        ] {
            let step = (whole.len() / 400).max(1);
            for cut in (0..whole.len()).step_by(step) {
                let _ = said(&whole[..cut]);
            }
            for place in (0..whole.len()).step_by(step) {
                let mut damaged = whole.clone();
                damaged[place] ^= 0xff;
                let _ = said(&damaged);
            }
        }
    }
}
