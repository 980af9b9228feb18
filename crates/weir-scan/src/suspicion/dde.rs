//! Documents that have another program run a command (DDE): by the fields of Word and its like, and by formulas of tables.

use super::document::{group_end, is_flat, rtf_text, text};
use super::{has, is_stream, is_workbook, name_ends, name_has};
use crate::little_endian::u16_at;
use crate::markup::{self, Tag};
use crate::walk::kind::Kind;
use crate::walk::{File, workbook};

/// Nobody writes fields in fields in fields any deeper.
const NESTED_MAX: usize = 64;

pub(super) fn dde(file: &File<'_>) -> bool {
    let fields = fields(file);
    fields.has_computed_name || has_dde(&fields.text) || old_document(file) || sheet(file)
}

/// What the fields of a document say, each in a line, with what fields in them stand for.
#[derive(Default)]
pub(super) struct DocumentFields {
    pub(super) text: Vec<u8>,
    /// One of them has its name from another one, of which nobody here knows what it stands for.
    has_computed_name: bool,
}

pub(super) fn fields(file: &File<'_>) -> DocumentFields {
    if file.kind == Kind::Rtf {
        return DocumentFields { text: rtf_fields(file.data), has_computed_name: false };
    }
    // The parts of a document may have any name.
    let part = || file.in_archive && matches!(file.kind, Kind::Xml | Kind::Unknown);
    let known = || part() && has(text(file), "wordprocessingml");
    if is_flat(file) || (name_has(file, "word/") && name_ends(file, ".xml")) || known() {
        return word_fields(text(file));
    }
    DocumentFields::default()
}

/// A field that is not at its end yet.
#[derive(Default)]
struct Open {
    code: Vec<u8>,
    in_result: bool,
    has_computed_name: bool,
}

fn word_fields(data: &[u8]) -> DocumentFields {
    let (mut out, mut open) = (DocumentFields::default(), Vec::<Open>::new());
    for tag in markup::tags(data) {
        let content = || {
            let rest = data.get(tag.end()..).unwrap_or_default();
            markup::resolved(&rest[..memchr::memchr(b'<', rest).unwrap_or(rest.len())])
        };
        let is_code = tag.is("instrText");
        if is_code || tag.is("t") {
            match open.last_mut() {
                Some(field) if is_code || !field.in_result => field.code.extend(content()),
                None if is_code => out.text.extend(in_one_line(&content())),
                _ => {}
            }
        } else if let Some(code) = tag.is("fldSimple").then(|| tag.value("instr")).flatten() {
            ended(&Open { code, ..Open::default() }, &mut open, &mut out);
        } else if tag.is("fldChar") {
            match tag.value("fldCharType").unwrap_or_default().as_slice() {
                b"begin" if open.len() < NESTED_MAX => open.push(Open::default()),
                b"separate" => open.last_mut().into_iter().for_each(|field| field.in_result = true),
                b"end" => {
                    if let Some(field) = open.pop() {
                        ended(&field, &mut open, &mut out);
                    }
                }
                _ => {}
            }
        }
    }
    while let Some(field) = open.pop() {
        ended(&field, &mut open, &mut out);
    }
    out
}

/// A field is at its end: what it stands for is a piece of the one around it.
fn ended(field: &Open, around: &mut [Open], out: &mut DocumentFields) {
    out.text.extend([b"\n".as_slice(), &in_one_line(&field.code), b"\n"].concat());
    out.has_computed_name |= field.has_computed_name;
    let Some(outer) = around.last_mut().filter(|outer| !outer.in_result) else { return };
    match value(&field.code) {
        Some(value) => outer.code.extend(value),
        None => outer.has_computed_name |= outer.code.trim_ascii().is_empty(),
    }
}

/// The code of a field without ends of lines, which would end it.
fn in_one_line(code: &[u8]) -> Vec<u8> {
    code.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

/// What `QUOTE` stands for: its arguments, numbers as the letters that they are of. None for other fields.
fn value(code: &[u8]) -> Option<Vec<u8>> {
    let code = code.trim_ascii();
    let end = code.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(code.len());
    let arguments = code[..end].eq_ignore_ascii_case(b"quote").then(|| &code[end..])?;
    let mut out = Vec::new();
    for (number, piece) in arguments.split(|byte| *byte == b'"').enumerate() {
        if number % 2 == 1 {
            out.extend_from_slice(piece);
            continue;
        }
        let words = piece.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        for word in words.take_while(|word| !word.starts_with(b"\\")) {
            match std::str::from_utf8(word).ok().and_then(|word| word.parse::<u8>().ok()) {
                Some(letter) => out.push(letter),
                None => out.extend_from_slice(word),
            }
        }
    }
    Some(out)
}

fn rtf_fields(data: &[u8]) -> Vec<u8> {
    let (mut out, mut values) = (Vec::new(), Vec::new());
    for at in memchr::memmem::find_iter(data, b"\\fldinst").take(10_000) {
        let rest = &data[at + 8..data.len().min(at + 8 + 4096)];
        let code = in_one_line(&rtf_text(&rest[..group_end(rest)]));
        values.extend(value(&code).unwrap_or_default());
        out.extend([b"\n".as_slice(), &code].concat());
    }
    // Pieces of a name come one after the other.
    [out.as_slice(), b"\n", &values].concat()
}

/// Whether a field is called so; the words in quotes are its arguments.
fn has_dde(fields: &[u8]) -> bool {
    let is = |word: &[u8]| word.eq_ignore_ascii_case(b"dde") || word.eq_ignore_ascii_case(b"ddeauto");
    fields.split(|byte| *byte == b'\n').any(|field| {
        let unquoted = field.split(|byte| *byte == b'"').step_by(2);
        unquoted.flat_map(|text| text.split(|byte| !byte.is_ascii_alphanumeric())).any(is)
    })
}

/// Old Word marks the start of a field with one control character, in octets or in UTF-16.
fn old_document(file: &File<'_>) -> bool {
    if !is_stream(file, "WordDocument") {
        return false;
    }
    let mut values = Vec::new();
    let named = memchr::memchr_iter(0x13, text(file)).any(|at| {
        let near = &file.data[at + 1..file.data.len().min(at + 1025)];
        let letters = near.iter().filter(|byte| **byte != 0).take_while(|byte| !(0x13..=0x15).contains(*byte));
        let code: Vec<u8> = letters.copied().collect();
        values.extend(value(&code).unwrap_or_default());
        code.trim_ascii_start().get(..3).is_some_and(|word| word.eq_ignore_ascii_case(b"dde"))
    });
    named || has_dde(&values)
}

/// Formulas that ask another program: in a table of any format.
fn sheet(file: &File<'_>) -> bool {
    let named = || file.declared == "text/csv" || [".csv", ".tsv", ".tab"].iter().any(|end| name_ends(file, end));
    let csv = || named() && is_command_in_list(text(file));
    let page = || {
        is_table(file)
            && (text(file).split(|byte| b"<>".contains(byte)).any(|cell| is_command(&markup::resolved(cell)))
                || markup::tags(text(file)).any(|tag| formula(&tag).is_some_and(|formula| is_command(&formula))))
    };
    csv()
        || page()
        || workbook_part(file)
        || old_workbook(file)
        || symbolic(file).any(is_command)
        || open_document(file)
}

/// Whether a cell of a list is a command. Its first line may name the sign between cells (`sep=|`), and a cell in quotes may have such signs in it.
fn is_command_in_list(list: &[u8]) -> bool {
    let list = list.strip_prefix(b"\xef\xbb\xbf").unwrap_or(list);
    let named = list.get(..4).filter(|word| word.eq_ignore_ascii_case(b"sep=")).and_then(|_| list.get(4));
    let parts = |byte: &u8| b"\r\n,;\t".contains(byte) || named == Some(byte);
    let begins = |cell: &[u8]| {
        let cell = cell.trim_ascii_start();
        matches!(cell.strip_prefix(b"\"").unwrap_or(cell).first(), Some(b'=' | b'+' | b'-' | b'@'))
    };
    let whole = |line: &[u8]| is_call(line) && line.split(parts).any(begins);
    let in_line = |list: &[u8]| list.split(|byte| b"\r\n".contains(byte)).any(whole);
    list.split(parts).any(is_command) || in_line(list) || in_line(&without_ends_in_quotes(list))
}

/// A formula in quotes may go on in the next line.
fn without_ends_in_quotes(list: &[u8]) -> Vec<u8> {
    let mut is_quoted = false;
    let plain = |byte: &u8| {
        is_quoted ^= *byte == b'"';
        if is_quoted && matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }
    };
    list.iter().map(plain).collect()
}

/// Whether a program and what it is asked stand somewhere in a formula: `SUM(1,cmd|'/c calc'!A0)`.
fn is_call(line: &[u8]) -> bool {
    // One search for the end of what is asked: from each program on it would take time by the square.
    let asked = memchr::memmem::rfind(line, b"'!").unwrap_or_default();
    memchr::memmem::find_iter(line, b"|'").take_while(|at| at + 2 <= asked).any(|at| {
        let word = line[..at].iter().rev().take_while(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(byte));
        word.count() > 1
    })
}

fn is_table(file: &File<'_>) -> bool {
    let excel = || ["xls", "xlsx", "xlt", "xlsb", "csv"].iter().any(|own| name_ends(file, &format!(".{own}")));
    let says = || ["office:excel", "office:spreadsheet", "Excel.Sheet"].iter().any(|word| has(text(file), word));
    matches!(file.kind, Kind::Html | Kind::Xml) && (excel() || says())
}

/// A formula that stands in a tag: in a table of Excel 2003, or in a page that Excel wrote.
fn formula(tag: &Tag<'_>) -> Option<Vec<u8>> {
    tag.value("Formula").or_else(|| tag.value("fmla"))
}

/// `=cmd|'/c calc'!A0`.
fn is_command(cell: &[u8]) -> bool {
    let cell = cell.trim_ascii().strip_prefix(b"\"").unwrap_or(cell.trim_ascii());
    let formula = matches!(cell.first(), Some(b'=' | b'+' | b'-' | b'@'));
    let pipe = memchr::memchr(b'|', cell).filter(|at| *at > 1);
    formula && pipe.is_some_and(|at| memchr::memchr(b'!', &cell[at..]).is_some() && !cell[..at].contains(&b' '))
}

/// A part of a workbook of today's Excel, under whatever name: a link to another program, or a formula that asks one.
fn workbook_part(file: &File<'_>) -> bool {
    if name_has(file, "xl/externallinks/") && binary_link(file.data) {
        return true;
    }
    let data = text(file);
    let part = file.in_archive && matches!(file.kind, Kind::Xml | Kind::Unknown);
    if !(part && (name_has(file, "xl/") || has(data, "spreadsheetml"))) {
        return false;
    }
    let linked = || has(data, "ddeLink") && markup::tags(data).any(|tag| tag.is("ddeLink"));
    let asks = |tag: Tag<'_>| {
        let rest = data.get(tag.end()..).unwrap_or_default();
        let known = ["f", "formula", "formula1", "formula2", "definedName"].iter().any(|name| tag.is(name));
        known && is_bare_command(&markup::resolved(&rest[..memchr::memchr(b'<', rest).unwrap_or(rest.len())]))
    };
    linked() || (memchr::memchr(b'|', data).is_some() && markup::tags(data).any(asks))
}

/// The same formula as a file keeps it, without the sign: `cmd|'/c calc'!A0`.
fn is_bare_command(formula: &[u8]) -> bool {
    let formula = formula.trim_ascii();
    let word = formula.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"_.$'".contains(byte)).count();
    word > 0 && formula.get(word) == Some(&b'|') && memchr::memchr(b'!', &formula[word..]).is_some()
}

/// In a binary workbook the first record of a link says what it is to: 1 is another program (*[MS-XLSB]*, section 2.4.236).
fn binary_link(data: &[u8]) -> bool {
    let Some(rest) = data.strip_prefix(b"\xe8\x02") else { return false };
    let length = rest.iter().take(4).position(|octet| octet & 0x80 == 0).map_or(0, |last| last + 1);
    u16_at(rest, length) == Some(1)
}

/// A link of an old workbook to another program: its name, a sign, and what is asked (*[MS-XLS]*, section 2.5.277). With a dot the name is that of a
/// class, and the link is to a document.
fn old_workbook(file: &File<'_>) -> bool {
    const LINK: u16 = 0x01ae;
    // Before Excel 97 the names of sheets stood in the same record.
    const OLD_LINK: u16 = 0x17;
    if !is_workbook(file) {
        return false;
    }
    let is_old = u16_at(file.data, 4) != Some(0x600);
    // What is encrypted is shown once more as it is decrypted.
    let data = &file.data[..workbook::encrypted_from(file.data)];
    let mut at = 0;
    while let (Some(kind), Some(length)) = (u16_at(data, at), u16_at(data, at + 2)) {
        let end = at + 4 + usize::from(length);
        let record = data.get(at + 4..end.min(data.len())).unwrap_or_default();
        let path = match kind {
            LINK => record.get(5..),
            OLD_LINK if is_old => record.get(1..),
            _ => None,
        };
        if path.is_some_and(names_program) {
            return true;
        }
        at = end;
    }
    false
}

fn names_program(path: &[u8]) -> bool {
    let path: Vec<u8> = path.iter().filter(|byte| **byte != 0).copied().collect();
    let name = memchr::memchr(3, &path).map_or(&[][..], |sign| &path[..sign]);
    // The path of another workbook begins with a sign, and has the same between its folders.
    name.first().is_some_and(|first| *first >= b' ') && !name.contains(&b'.')
}

/// The formulas of a symbolic link file (SYLK), which Excel opens under many names.
pub(super) fn symbolic<'f>(file: &File<'f>) -> impl Iterator<Item = &'f [u8]> {
    let known = file.data.starts_with(b"ID;") || file.data.starts_with(b"\xef\xbb\xbfID;");
    let formulas = if known { text(file) } else { &[] };
    let fields = formulas.split(|byte| b"\r\n;".contains(byte));
    fields.filter_map(|field| field.strip_prefix(b"E"))
}

/// A formula of LibreOffice that asks another program, or a link to one that is not LibreOffice.
fn open_document(file: &File<'_>) -> bool {
    let known = name_ends(file, "content.xml") || name_ends(file, ".fods") || name_ends(file, ".fodt");
    known
        && markup::tags(text(file)).any(|tag| {
            let formula = tag
                .value("formula")
                .is_some_and(|formula| memchr::memmem::find(&formula.to_ascii_uppercase(), b"DDE(").is_some());
            formula || tag.value("dde-application").is_some_and(|own| !own.eq_ignore_ascii_case(b"soffice"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(pieces: &str) -> DocumentFields {
        let tags = pieces
            .replace('{', "<w:fldChar w:fldCharType=\"begin\"/>")
            .replace('}', "<w:fldChar w:fldCharType=\"end\"/>");
        word_fields(tags.replace('[', "<w:instrText>").replace(']', "</w:instrText>").as_bytes())
    }

    #[test]
    fn fields_in_fields_are_what_they_stand_for() {
        for nested in
            ["{[ ]{[ QUOTE 68 68 69 65 85 84 79 ]}[ c:\\x]}", "{{[quote \"DD\"]}{[QUOTE 69]}[ x]}", "{[DD][EAUTO x]}"]
        {
            assert!(has_dde(&field(nested).text), "{nested}");
        }
        assert!(field("{[ ]{[ REF a ]}[ x]}").has_computed_name);
        for usual in
            ["{[ IF ]{[ PAGE ]}[ = 1 \"dde\" \"\"]}", "{[ QUOTE 72 105 ]}", "{[ HYPERLINK \"]{[ MERGEFIELD a ]}[\"]}"]
        {
            let fields = field(usual);
            assert!(!has_dde(&fields.text) && !fields.has_computed_name, "{usual}");
        }
    }

    #[test]
    fn each_field_has_a_line() {
        let two = field("{[INCLUDETEXT\n\"C:\\a.docx\"]}{[ HYPERLINK \"https://a.example\" ]}");
        assert_eq!(two.text, b"\nINCLUDETEXT \"C:\\a.docx\"\n\n HYPERLINK \"https://a.example\" \n");
        for hidden in [b"\\\\{}}".as_slice(), b"\\bin1 }}"] {
            let field = [b"{\\field{\\*\\fldinst{\\*\\x", hidden, b"DDEAUTO cmd \"/c calc\"}{\\fldrslt x}}"].concat();
            assert!(has_dde(&rtf_fields(&field)), "{}", String::from_utf8_lossy(&field));
        }
        let rtf = rtf_fields(b"{\\field{\\*\\fldinst {DDE\\'0aAUTO} x}{\\fldrslt shown}}");
        assert_eq!(rtf, b"\n DDE AUTO x\n");
    }

    #[test]
    fn commands_in_lists() {
        for list in [
            "\u{feff}=cmd|'/c calc'!A0",
            "sep=#\r\n1#=cmd|'/c calc'!A0#2\r\n",
            "1,\"=SUM(1,cmd|'/c calc'!A0)\",2\n",
            "1\r2\r=cmd|'/c calc'!A0\r",
            "= 1+cmd|' /c calc'!A0",
            "1,\"=1+\ncmd|'/c calc'!A0\",2",
            "a \"quoted\" word\n1;\"=1+\r\n\r\ncmd|'/c\ncalc'!A0\"\n",
        ] {
            assert!(is_command_in_list(list.as_bytes()), "{list}");
        }
        let long = format!("=1,{}", "aa|'".repeat(500_000));
        for list in [
            "sep=|\n1|'a'|2\n-3|b!|c\n",
            "a,b|'c'!,d\n",
            "=SUM(1,2),\"it's\"\n",
            "1,\"a note\nof two lines\",=A1\nab|'c'!\n",
            "sep=",
            "|'",
            "",
            &long,
        ] {
            assert!(!is_command_in_list(list.as_bytes()), "{}", &list[..list.len().min(100)]);
        }
    }

    #[test]
    fn links_to_another_program() {
        assert!(is_bare_command(b"cmd|'/c calc'!A0") && !is_bare_command(b"IF(A1=\"a|b\",Sheet1!B2,0)"));
        assert!(binary_link(b"\xe8\x02\x10\x01\0") && !binary_link(b"\xe8\x02\x10\0\0"));
        let names = ["WORKBOOK".to_owned()];
        let told = |version: u8, kind: u16, record: &[u8]| {
            let begin = [9, 8, 4, 0, 0, version, 5, 0];
            let data = [&begin[..], &kind.to_le_bytes(), &[record.len() as u8, 0], record].concat();
            old_workbook(&File { names: &names, declared: "", kind: Kind::Unknown, data: &data, in_archive: true })
        };
        let link = |path: &[u8]| told(6, 0x1ae, &[&[1, 0, path.len() as u8, 0, 0][..], path].concat());
        assert!(link(b"cmd\x03/c calc") && !link(b"Word.Document.8\x03C:\\a.doc") && !link(b"\x01a.xls"));
        // A lock before the link: then the link is encrypted, and says nothing.
        let (begin, link_of) = ([9, 8, 4, 0, 0, 6, 5, 0], b"\xae\x01\x09\0\x01\0\x04\0\0cmd\x03");
        let locked = |kind: u8| [&begin[..], &[kind, 0, 6, 0, 0, 0, 1, 2, 3, 4], link_of].concat();
        let judged = |data: &[u8]| {
            old_workbook(&File { names: &names, declared: "", kind: Kind::Unknown, data, in_archive: true })
        };
        assert!(!judged(&locked(0x2f)) && judged(&locked(0)));
        assert!(!link(b"\x01\x01Cfolder\x03b.xls") && !link(b"\x01folder\x03b.xls"));
        let old = |version: u8, path: &[u8]| told(version, 0x17, &[&[path.len() as u8][..], path].concat());
        assert!(old(5, b"cmd\x03/c calc") && !old(5, b"\x03Sheet1") && !old(5, b"\x01[a.xls]Sheet1"));
        assert!(!old(6, b"\x01\0\0\x03\0\x03\0"));
    }
}
