//! Files that little around them declares: streams of PDFs without a type, names in another object, folded fields of calendars, names of notes and
//! discs that stand elsewhere, scripts that put their words together. Written by somebody who read the walk for what it takes for granted. Each
//! class has its honest twin.

use super::carriers::{note, rtf, zipped};
use super::expected::{Bad, End, Mail, bad};
use crate::mail::{attached, base64};
use weir_scan::test_files;

const SCRIPT: &[u8] = b"WScript.Echo(1)\r\n";
const SCRIPT_SAYS: &str = "extension .js: run.js";

pub(crate) fn all() -> Vec<Bad> {
    [pdfs(), calendars(), notes(), discs(), pages(), formats(), names(), beginnings()].into_iter().flatten().collect()
}

fn held(class: &'static str, name: &str, message: Vec<u8>, says: &'static str) -> Bad {
    bad(class, name, message, &[End::Forbidden], says)
}

/// A PDF that carries a text: what stands before its objects, what names the file, and the dictionary of its stream.
fn pdf(before: &str, names: &str, dictionary: &str, text: &str) -> Vec<u8> {
    format!(
        "%PDF-1.7\n1 0 obj<</Type/Catalog/Names<</EmbeddedFiles<</Names[(a) 2 0 R]>>>>>>endobj\n{before}\
         2 0 obj<</Type/Filespec{names}>>endobj\n3 0 obj<<{dictionary}/Length {}>>stream\n{text}\nendstream endobj\n\
         trailer<</Root 1 0 R>>\n%%EOF",
        text.len()
    )
    .into_bytes()
}

fn pdfs() -> Vec<Bad> {
    const TYPE: &str = "/Type/EmbeddedFile";
    const NAMED: &str = "/F(run.js)/EF<</F 3 0 R>>";
    let others: String =
        (0..20).map(|n| format!("{} 0 obj<</Type/Filespec/F(notes{n}.txt)>>endobj\n", n + 20)).collect();
    let packed = "9 0 obj<</Type/ObjStm/N 1/First 4/Length 12>>stream\n8 0 (run.js)\nendstream endobj\n";
    let long = format!("{TYPE}{}", " ".repeat(10_000));
    [
        ("no type", "", NAMED, ""),
        ("no type, streams named elsewhere", "9 0 obj<</F 3 0 R>>endobj\n", "/UF(run.js)/EF 9 0 R", ""),
        ("no type, and a line before the object", "", "/F(run.js)/EF<</F\n3 0\nR>>", ""),
        ("a long dictionary", "", NAMED, long.as_str()),
        ("a comment like a stream", "% a stream\n", NAMED, TYPE),
        ("a string like a stream", "8 0 obj(stream\n)endobj\n", NAMED, TYPE),
        ("another type beside it", "", NAMED, "/Type/EmbeddedFile/EmbeddedFiles 1"),
        ("behind many names", others.as_str(), NAMED, TYPE),
        ("a name in another object", "8 0 obj(run.js)endobj\n", "/F 8 0 R/EF<</F 3 0 R>>", TYPE),
        ("a name in a packed object", packed, "/UF 8 0 R/EF<</F 3 0 R>>", TYPE),
        ("a name behind a comment", "", "/F%x\n(run.js)/EF<</F 3 0 R>>", TYPE),
        ("a key in digits", "", "/#46(run.js)/EF<</F 3 0 R>>", TYPE),
        ("a name for one system", "", "/Unix(run.js)/EF<</Unix 3 0 R>>", TYPE),
    ]
    .into_iter()
    .map(|(name, before, names, dictionary)| {
        let document = pdf(before, names, dictionary, "WScript.Echo(1)");
        held("undeclared file in a PDF", name, attached("a.pdf", &document), SCRIPT_SAYS)
    })
    .collect()
}

fn calendars() -> Vec<Bad> {
    let file: String = String::from_utf8(base64(SCRIPT)).unwrap().split_whitespace().collect();
    let event =
        |attach: &str| format!("BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\n{attach}{file}\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n");
    [
        ("a fold in the name", event("ATT\r\n ACH;ENCODING=BASE64;VALUE=BINARY;X-FILENAME=run.js:")),
        ("a fold before the name", event("\r\n\tATTACH;ENCODING=BASE64;VALUE=BINARY;X-FILENAME=run.js:")),
        ("returns alone", event("SUMMARY:x\rATTACH;ENCODING=BASE64;VALUE=BINARY;X-FILENAME=run.js:")),
        ("a label", event("ATTACH;ENCODING=BASE64;VALUE=BINARY;X-LABEL=run.js:")),
        (
            "another line before it",
            format!("X-A:b\r\n{}", event("ATTACH;ENCODING=BASE64;VALUE=BINARY;FILENAME=\"run.js\":")),
        ),
    ]
    .into_iter()
    .map(|(name, event)| held("file in a folded calendar", name, attached("a.ics", event.as_bytes()), SCRIPT_SAYS))
    .collect()
}

/// A section of OneNote with a file, and texts in it.
fn section(texts: &[String], data: &[u8]) -> Vec<u8> {
    let (mut section, mut at) = (note(data), 64);
    for text in texts {
        let units: Vec<u8> = text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
        let entry = [(units.len() as u32).to_le_bytes().as_slice(), &units].concat();
        section[at..at + entry.len()].copy_from_slice(&entry);
        at += entry.len() + 3;
    }
    section
}

fn notes() -> Vec<Bad> {
    let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let mut many: Vec<String> = (0..20).map(|n| format!("a{n}.txt")).collect();
    many.push("run.js".into());
    [("its name", texts(&["run.js"])), ("its path", texts(&["Title", "C:\\Users\\ann\\run.js"])), ("many names", many)]
        .into_iter()
        .map(|(name, texts)| {
            let message = attached("a.one", &section(&texts, b"hello"));
            held("name in a note", name, message, "extension .js: ")
        })
        .collect()
}

/// A disc with a long name for Unix beside the usual one.
fn disc(long: &str, data: &[u8]) -> Vec<u8> {
    let mut image = test_files::iso("NOTES.TXT", data);
    let record = image.windows(11).position(|name| name == b"NOTES.TXT;1").unwrap() - 33;
    let behind = record + usize::from(image[record]);
    let entry = [b"NM".as_slice(), &[5 + long.len() as u8, 1, 0], long.as_bytes()].concat();
    image[behind..behind + entry.len()].copy_from_slice(&entry);
    image[record] += entry.len().next_multiple_of(2) as u8;
    image
}

fn discs() -> Vec<Bad> {
    vec![held("name on a disc", "Rock Ridge", attached("photos.dat", &disc("run.js", SCRIPT)), SCRIPT_SAYS)]
}

fn page(script: &str) -> Vec<u8> {
    attached("fax.html", format!("<html><body><script>{script}</script></body></html>").as_bytes())
}

fn pages() -> Vec<Bad> {
    let says = "a page that makes a file by itself";
    let class = "page that saves a file";
    vec![
        held(class, "brackets", page("a['href']='data:,x';a['download']='run.js';a.click()"), SCRIPT_SAYS),
        held(
            class,
            "attributes",
            page("a.setAttribute('href','data:,x');a.setAttribute( \"download\", \"run.js\" );a.click()"),
            SCRIPT_SAYS,
        ),
        held(class, "a picker", page("showSaveFilePicker({suggestedName:n}).then(f=>f.createWritable())"), says),
        held(class, "it goes there", page("var f=new File([d.map(x=>x^7)],n);location=URL.createObjectURL(f)"), says),
        held(
            class,
            "words in pieces",
            page("var u=URL['createObject'+'URL'](new window['Bl'+'ob']([q]));location=u"),
            says,
        ),
    ]
}

fn formats() -> Vec<Bad> {
    let sign = b"\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\x02".as_slice();
    let raw: Vec<u8> = (0..20).flat_map(|number| [sign, &[number, 1], &[0; 2336]].concat()).collect();
    let program = [b"\xca\xfe\xba\xbf\0\0\0\x02\x01\0\0\x07".as_slice(), &[0; 100]].concat();
    let archive = [b"ArC\x01\x02\0".as_slice(), &[0x5a; 300]].concat();
    let closed = |name: &str, file: &str, data: &[u8], says| {
        bad("undeclared format", name, attached(file, data), &[End::NotOpened], says)
    };
    vec![
        held("undeclared format", "a program for two processors", attached("tool", &program), "a macOS program"),
        closed("FreeArc", "photos.dat", &archive, "a FreeArc archive is not opened"),
        closed("a raw disc", "photos.bin", &raw, "a disk image is not opened"),
    ]
}

/// A link in a tar archive: a file that has its content elsewhere.
fn link(name: &str, flag: u8) -> Vec<u8> {
    let mut header = test_files::tar(name, b"")[..512].to_vec();
    header[156] = flag;
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|octet| u32::from(*octet)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

/// Names that a file has besides the usual one.
fn names() -> Vec<Bad> {
    let class = "another name";
    let linked = |flag| [link("run.js", flag), test_files::tar("notes.txt", SCRIPT)].concat();
    let sent = test_files::tnef("run.js", SCRIPT);
    // Behind the mark and the attribute that begins an attachment.
    let (head, rest) = sent.split_at(6 + 25);
    let title =
        |name: &str| [&[2, 0x10, 0x80, 1, 0, name.len() as u8 + 1, 0, 0, 0][..], name.as_bytes(), &[0; 3]].concat();
    let titles: Vec<u8> = (0..20).flat_map(|n| title(&format!("notes{n}.txt"))).collect();
    let transport = {
        let mut sent = sent.clone();
        let at = sent.windows(4).position(|id| id == [0x10, 0x80, 1, 0]).unwrap();
        sent[at..at + 4].copy_from_slice(&[1, 0x90, 6, 0]);
        sent
    };
    vec![
        held(class, "a link in a tar archive", attached("a.tar", &linked(b'1')), SCRIPT_SAYS),
        held(class, "a symbolic link in a tar archive", attached("a.tar", &linked(b'2')), SCRIPT_SAYS),
        held(class, "of the transport", attached("winmail.dat", &transport), SCRIPT_SAYS),
        held(
            class,
            "after many others",
            attached("winmail.dat", &[head, &titles, rest].concat()),
            "an attachment with more than 16 names",
        ),
    ]
}

/// An object of OLE 1 that is a file with a name.
fn package(name: &str, data: &[u8]) -> Vec<u8> {
    let number = |number: usize| (number as u32).to_le_bytes();
    let name = [name.as_bytes(), &[0]].concat();
    let length = [number(name.len()), number(data.len())];
    let file = [b"\x02\0".as_slice(), &name, &name, b"\0\0\x03\0", &length[0], &name, &length[1], data].concat();
    let head = [number(0x501), number(2), number(8)].concat();
    [head.as_slice(), b"Package\0", &[0; 8], &number(file.len()), &file].concat()
}

/// Files that begin a little later than they should.
fn beginnings() -> Vec<Bad> {
    let class = "late beginning";
    let document = [b"\r\n".as_slice(), &rtf(&package("run.js", SCRIPT))].concat();
    let mail = [b"\r\n\r\n".as_slice(), &attached("run.js", SCRIPT)].concat();
    let marked = [b"\xef\xbb\xbf".as_slice(), &attached("run.js", SCRIPT)[80..]].concat();
    assert!(marked.starts_with(b"\xef\xbb\xbfContent-Type"));
    vec![
        held(class, "RTF", attached("a.rtf", &document), SCRIPT_SAYS),
        held(class, "mail behind empty lines", attached("a.eml", &mail), SCRIPT_SAYS),
        held(class, "mail behind a mark", attached("a.eml", &marked), SCRIPT_SAYS),
    ]
}

/// Mail that looks the same and hides nothing.
pub(crate) fn twins() -> Vec<Mail> {
    let twin = |name: &str, message: Vec<u8>| Mail {
        class: "honest twin of what is undeclared",
        name: name.to_owned(),
        message,
    };
    let links: String = (0..20).map(|n| format!("{} 0 obj<</S/GoToR/F(chapter{n}.pdf)>>endobj\n", n + 20)).collect();
    let picture = "9 0 obj<</XObject<</F 5 0 R>>>>endobj\n5 0 obj<</Subtype/Image/Filter/DCTDecode/Length 4>>stream\nabcd\nendstream endobj\n";
    let notes = "/F(notes.txt)/UF(notes.txt)/EF<</F 3 0 R/UF 3 0 R>>";
    let text = "What we agreed on.\r\n";
    let event = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDESCRIPTION:We look at run.js and att\r\n ach the result\r\nATTACH;FILENAME=agenda.pdf:https://a.example/agenda.p\r\n df\r\n\
                 END:VEVENT\r\nEND:VCALENDAR\r\n";
    let texts = ["report.docx", "plan.pdf", "www.example.com", "Meeting. With all of us."].map(str::to_owned);
    vec![
        twin("a PDF with links to chapters", attached("a.pdf", &pdf(&links, notes, "/Type/EmbeddedFile", text))),
        twin("a PDF with notes of no type", attached("a.pdf", &pdf("", notes, "", text))),
        twin("a PDF with a picture", attached("a.pdf", &pdf(picture, "", "/Type/Metadata", text))),
        twin("a PDF about streams", attached("a.pdf", &pdf("% a stream\n", notes, "/Type/EmbeddedFile", text))),
        twin("a folded calendar", attached("a.ics", event.as_bytes())),
        twin("a note with a document", attached("a.one", &section(&texts, &zipped("word/document.xml", b"<w:p/>")))),
        twin("a disc with long names", attached("photos.dat", &disc("meeting notes.txt", b"hello"))),
        twin(
            "a tar archive with a link",
            attached("a.tar", &[link("latest.txt", b'2'), test_files::tar("notes.txt", b"hello")].concat()),
        ),
        twin(
            "a page with a table",
            page(
                "var t=document.createElement('a');t['download']='table.csv';t['href']='data:text/csv,a%2Cb';t.click()",
            ),
        ),
        twin("a page that goes on", page("if (!window.fetch) { location='https://a.example/old' }")),
    ]
}
