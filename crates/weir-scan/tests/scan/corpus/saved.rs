//! Saved pages (WARC, Safari's web archives), each with what real programs write and with what hides something.

use super::carriers::program;
use super::expected::{Bad, End, Mail, bad};
use super::misread::apple_double;
use crate::mail::{attached, base64, deflated, gzipped, member, zip};

const SCRIPT: &[u8] = b"WScript.Echo(1)\r\n";

pub(crate) fn all() -> Vec<Bad> {
    [saved(), answers()].into_iter().flatten().collect()
}

fn held(class: &'static str, name: &str, message: Vec<u8>, says: &'static str) -> Bad {
    bad(class, name, message, &[End::Forbidden], says)
}

fn record(address: &str, data: &[u8]) -> Vec<u8> {
    let head = format!(
        "WARC/1.0\r\nWARC-Type: resource\r\nWARC-Target-URI: {address}\r\nWARC-Date: 2026-11-18T00:00:00Z\r\nContent-Length: {}\r\n\r\n",
        data.len()
    );
    [head.as_bytes(), data, b"\r\n\r\n"].concat()
}

fn web_archive(page: &str) -> String {
    let data = String::from_utf8(base64(page.as_bytes())).unwrap();
    format!(
        "<?xml version=\"1.0\"?><plist version=\"1.0\"><dict><key>WebMainResource</key><dict><key>WebResourceData</key><data>{data}</data>\
         <key>WebResourceMIMEType</key><string>text/html</string></dict></dict></plist>"
    )
}

/// An answer of a server with these fields, as a record.
fn answer(fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: x/y\r\n{fields}\r\n");
    record("https://a.example/a", &[head.as_bytes(), body].concat())
}

/// A body as servers send one whose length they do not know yet.
fn chunked(data: &[u8]) -> Vec<u8> {
    let piece = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
    data.chunks(7).map(piece).chain([b"0\r\n\r\n".to_vec()]).collect::<Vec<_>>().concat()
}

/// What Safari saves: a list in octets of a key and its data.
fn binary_web_archive(page: &[u8]) -> Vec<u8> {
    let mut list = b"bplist00\xd1\x01\x02\x5f\x10\x0fWebResourceData\x4f\x11".to_vec();
    list.extend((page.len() as u16).to_be_bytes());
    list.extend(page);
    let table = list.len() as u64;
    list.extend([0, 8, 0, 11, 0, 29]);
    list.extend([0, 0, 0, 0, 0, 0, 2, 1]);
    list.extend([3, 0, table].iter().flat_map(|number: &u64| number.to_be_bytes()));
    list
}

fn answers() -> Vec<Bad> {
    let class = "answer of a server";
    let sent = "Transfer-Encoding: chunked\r\n";
    let unopened = |name: &str, data: &[u8], says| bad(class, name, attached("a.warc", data), &[End::NotOpened], says);
    let program = program();
    let zlib = {
        use std::io::Write;
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(&program).unwrap();
        packer.finish().unwrap()
    };
    let open = [
        ("in pieces", answer(sent, &chunked(&program))),
        ("in pieces, a fold", answer("Transfer-Encoding:\r\n chunked\r\n", &chunked(&program))),
        ("said to be in pieces", answer(sent, &program)),
        ("packed in pieces", answer(&format!("{sent}Content-Encoding: gzip\r\n"), &chunked(&gzipped(&program)))),
        ("deflate", answer("Content-Encoding: deflate\r\n", &zlib)),
        ("deflate without a mark", answer("Content-Encoding: deflate\r\n", &deflated(&program))),
    ];
    let mut out: Vec<Bad> =
        open.iter().map(|(name, data)| held(class, name, attached("site.warc", data), "a Windows program")).collect();
    let cut = &chunked(b"hello, this is a line of text")[..40];
    out.push(unopened("in pieces, cut", &answer(sent, cut), "breaks off"));
    out.push(unopened("packed on its way", &answer("Transfer-Encoding: gzip, chunked\r\n", cut), "an unusual way"));
    let twice = "Content-Encoding: identity\r\nContent-Encoding: br\r\n";
    out.push(unopened("two fields", &answer(twice, b"x"), "an unusual way"));
    let mut damaged = binary_web_archive(b"<html>hello</html>");
    let width = damaged.len() - 26;
    damaged[width] = 0;
    out.push(bad(class, "a damaged list", attached("a.webarchive", &damaged), &[End::NotOpened], "is damaged"));
    let other = b"{ WebMainResource = { WebResourceData = <3c68>; }; }";
    out.push(bad(class, "another list", attached("a.webarchive", other), &[End::NotOpened], "none that we know"));
    out
}

fn saved() -> Vec<Bad> {
    let class = "saved page";
    let first = record("https://a.example/", b"<html>hello</html>");
    let exe = [first.as_slice(), &record("file://host/a.dat", &program())].concat();
    let js = [first.as_slice(), &record("<http://a.example/b/run.js?x>", SCRIPT)].concat();
    let answer = [b"HTTP/1.1 200 OK\r\nContent-Type: x/y\r\n\r\n".as_slice(), &program()].concat();
    let cut = first[..first.len() - 12].to_vec();
    let page = "<html><script>location='search-ms:query=x'</script></html>";
    vec![
        held(class, "a program", attached("site.warc", &exe), "a Windows program"),
        held(class, "a script", attached("site.warc", &js), "extension .js"),
        held(class, "an answer", attached("site.dat", &record("https://a.example/a", &answer)), "a Windows program"),
        held(class, "packed", attached("site.warc.gz", &gzipped(&exe)), "a Windows program"),
        bad(class, "cut", attached("site.warc", &cut), &[End::NotOpened], "breaks off"),
        held(
            class,
            "by Safari, in octets",
            attached("a.webarchive", &binary_web_archive(page.as_bytes())),
            "a stranger's computer",
        ),
        held(class, "by Safari", attached("a.webarchive", web_archive(page).as_bytes()), "a stranger's computer"),
    ]
}

/// Mail that looks the same and hides nothing.
pub(crate) fn twins() -> Vec<Mail> {
    let twin = |name: &str, message: Vec<u8>| Mail { class: "honest saved page", name: name.to_owned(), message };
    let site =
        [record("https://a.example/", b"<html>hello</html>"), record("https://a.example/a.png", b"\x89PNG\r\n\x1a\n")]
            .concat();
    let page = binary_web_archive(b"<html>hello</html>");
    let from_mac = zip(&[
        member("page.webarchive", &page),
        member("__MACOSX/._page.webarchive", &apple_double(b"page.webarchive")),
    ]);
    vec![
        twin("a saved page", attached("site.warc", &site)),
        twin("a zip archive of a Macintosh", attached("page.zip", &from_mac)),
        twin(
            "an answer in pieces",
            attached("site.warc", &answer("Transfer-Encoding: chunked\r\n", &chunked(b"<html>hello</html>"))),
        ),
        twin(
            "an answer that was in pieces",
            attached("site.warc", &answer("Transfer-Encoding: chunked\r\n", b"<html>hello</html>")),
        ),
        twin("a page of Safari in octets", attached("a.webarchive", &binary_web_archive(b"<html>hello</html>"))),
        twin("a page of Safari", attached("a.webarchive", web_archive("<html>hello</html>").as_bytes())),
    ]
}
