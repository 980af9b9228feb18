//! The plugin `strings`: text in a file, and the links, addresses, names and paths in that text.
//!
//! Text is a run of printable ASCII, as it is or as UTF-16 (Windows programs keep theirs so). Words are taken out of it as they come, so that time is in
//! proportion to the file and memory to what is reported. All findings are `info`: that a name is in a file proves nothing.

mod indicator;
mod path;

use crate::findings::Findings;
use crate::sample::Sample;
use indicator::Indicator;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use weir_scan::plain::shown;

/// A shorter run is chance.
const RUN_MIN: usize = 6;
/// A longer run is looked at in pieces.
const RUN_MAX: usize = 64 << 10;
/// Strings that a report shows, and how much of each.
const SHOWN_MAX: usize = 500;
const SHOWN_LENGTH: usize = 200;
/// A longer word is no name.
const WORD_MAX: usize = 2048;
/// Different indicators that are remembered.
const INDICATORS_MAX: usize = 5000;

/// What was found so far.
#[derive(Default)]
struct FoundStrings {
    ascii: u64,
    wide: u64,
    shown: Vec<String>,
    indicators: BTreeSet<Indicator>,
}

/// Text and indicators.
pub fn look(sample: &Sample, findings: &mut Findings<'_>) -> Result<Value, String> {
    let mut found = FoundStrings::default();
    for run in sample.data.split(|byte| !is_printable(*byte)).filter(|run| run.len() >= RUN_MIN) {
        found.ascii += 1;
        found.run(run);
    }
    wide(&sample.data, |run| {
        found.wide += 1;
        found.run(run);
    });
    Ok(found.told(findings))
}

fn is_printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t')
}

/// Runs of ASCII in UTF-16 with its smaller octet first, at even and at odd places.
fn wide(data: &[u8], mut each: impl FnMut(&[u8])) {
    let mut run = Vec::new();
    for start in 0..2_usize.min(data.len()) {
        let pairs =
            data[start..].chunks_exact(2).map(|pair| (pair[1] == 0 && is_printable(pair[0])).then_some(pair[0]));
        for letter in pairs.chain([None]) {
            match letter {
                Some(letter) if run.len() < RUN_MAX => run.push(letter),
                _ => {
                    if run.len() >= RUN_MIN {
                        each(&run);
                    }
                    run.clear();
                    run.extend(letter);
                }
            }
        }
    }
}

impl FoundStrings {
    fn run(&mut self, run: &[u8]) {
        if self.shown.len() < SHOWN_MAX {
            let text = String::from_utf8_lossy(&run[..run.len().min(SHOWN_LENGTH)]);
            self.shown.push(shown(text.trim(), SHOWN_LENGTH));
        }
        for piece in run.chunks(RUN_MAX) {
            path::all(piece, |path| self.note(path));
        }
        for word in run.split(|byte| indicator::ends_word(*byte)).filter(|word| (4..=WORD_MAX).contains(&word.len())) {
            indicator::all(word, |indicator| self.note(indicator));
        }
    }

    fn note(&mut self, indicator: Indicator) {
        if self.indicators.len() < INDICATORS_MAX {
            self.indicators.insert(indicator);
        }
    }

    fn told(self, findings: &mut Findings<'_>) -> Value {
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut listed: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        for indicator in self.indicators {
            let (kind, text) = (indicator.data_type(), indicator.text());
            *counts.entry(kind).or_default() += 1;
            // Names of vocabularies stand in every document and lead nowhere.
            if !indicator.is_vocabulary() && findings.observable(kind, text) {
                listed.entry(kind).or_default().push(shown(text, WORD_MAX));
            }
        }
        for (kind, count) in &counts {
            findings.info(kind, count.to_string());
        }
        json!({
            "ascii_strings": self.ascii, "utf16_strings": self.wide, "counts": counts, "indicators": listed, "strings": self.shown,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Memory;

    fn of(data: &[u8]) -> Value {
        look(&Sample::of_bytes("a", data), &mut Findings::new("strings", &mut Memory::default())).unwrap()
    }

    fn listed(data: &[u8], kind: &str) -> Vec<String> {
        let all = of(data)["indicators"][kind].as_array().cloned().unwrap_or_default();
        all.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
    }

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn text_of_both_kinds_is_found() {
        let data = [b"\0\x01hello world\0\xff".as_slice(), &utf16("wide words"), b"\xff\xff\0short\0"].concat();
        let said = of(&data);
        assert_eq!((&said["ascii_strings"], &said["utf16_strings"]), (&1.into(), &1.into()));
        assert_eq!(said["strings"], json!(["hello world", "wide words"]));
    }

    #[test]
    fn wide_text_at_odd_places_has_its_links() {
        let data = [b"\xff".as_slice(), &utf16("see http://evil.example/x now")].concat();
        assert_eq!(listed(&data, "url"), ["http://evil.example/x"]);
        assert_eq!(listed(&data, "domain"), ["evil.example"]);
    }

    #[test]
    fn vocabularies_are_counted_and_not_listed() {
        let said = of(b"xmlns=\"http://schemas.openxmlformats.org/wordprocessingml/2006/main\" \"http://evil.test/a\"");
        assert_eq!(said["counts"]["url"], 2);
        assert_eq!(said["indicators"]["url"], json!(["http://evil.test/a"]));
    }

    #[test]
    fn a_flood_of_names_is_bounded() {
        let data: String = (0..20_000).map(|n| format!("http://h{n}.example/ ")).collect();
        let mut shelf = Memory::default();
        let mut findings = Findings::new("strings", &mut shelf);
        let said = look(&Sample::of_bytes("a", data.as_bytes()), &mut findings).unwrap();
        assert!(said["counts"]["url"].as_u64().unwrap() <= INDICATORS_MAX as u64);
        assert!(serde_json::to_vec(&findings.report(&said).unwrap()).unwrap().len() < 1 << 20);
    }
}
