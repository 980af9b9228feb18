//! Mail as real mailers write it.

use super::carriers::{document, leaked, opaque_signed, pdf, sealed, zipped};
use super::expected::Mail;
use super::wrapped::{armoured, literal};
use crate::mail::{base64, gzipped};
use weir_scan::test_files;

/// How many there are of each class, each with other words, names and boundaries.
const EACH: usize = 9;

type Maker = fn(usize) -> String;

pub(crate) fn all() -> Vec<Mail> {
    let makers: [(&'static str, Maker); 29] = [
        ("plain text", plain),
        ("Gmail, text and HTML", gmail),
        ("Gmail, a PDF", gmail_pdf),
        ("Outlook, HTML with pictures", outlook),
        ("Outlook, a document", outlook_document),
        ("Outlook, winmail.dat", outlook_tnef),
        ("Outlook, a forwarded message", outlook_forward),
        ("Apple Mail, files in the text", apple),
        ("Apple Mail, AppleDouble", apple_double),
        ("Thunderbird, format=flowed", thunderbird),
        ("a mailing list with a footer", list),
        ("a digest of a mailing list", digest),
        ("a report of failure", dsn),
        ("a receipt", receipt),
        ("an invitation", invitation),
        ("an invitation with a picture", invitation_picture),
        ("signed by S/MIME", smime),
        ("signed by S/MIME, content inside", smime_opaque),
        ("encrypted by S/MIME", smime_sealed),
        ("signed by PGP", pgp_signed),
        ("encrypted by PGP", pgp_sealed),
        ("zipped documents", zipped_documents),
        ("an invoice with XML in its PDF", invoice),
        ("a newsletter", newsletter),
        ("names in the charsets of the world", charsets),
        ("OpenPGP in a text and in files", open_pgp),
        ("files with a signature around them", signed_files),
        ("reports for programs", reports),
        ("odd and harmless", odd),
    ];
    let mails = makers.into_iter().flat_map(|(class, maker)| {
        (0..EACH).map(move |n| Mail { class, name: format!("{class} {n}"), message: maker(n).into_bytes() })
    });
    mails.collect()
}

const WORDS: [&str; 9] = [
    "the minutes of Monday",
    "your order 4711",
    "Grüße aus Köln",
    "next week's plan",
    "the password policy",
    "holiday pictures",
    "Re: Re: the contract",
    "a question about the exe installer",
    "日本語の件名",
];

fn head(n: usize) -> String {
    format!(
        "Received: from mx.a.example ([192.0.2.{n}]) by mx.b.example with ESMTPS id x{n}; Tue, 17 Nov 2026 10:00:0{n} +0000\r\n\
         Message-ID: <{n}.17@a.example>\r\nDate: Tue, 17 Nov 2026 11:00:0{n} +0100\r\nFrom: \"Ann Example\" <ann@a.example>\r\n\
         To: Bob <bob@b.example>\r\nSubject: {}\r\nMIME-Version: 1.0\r\n",
        WORDS[n]
    )
}

fn text(n: usize) -> String {
    format!(
        "Hello Bob,\r\n\r\nthis is about {}. We begin 644 things on Monday -- see below.\r\n\r\n-- \r\nAnn\r\n",
        WORDS[n]
    )
}

fn encoded(data: &[u8]) -> String {
    String::from_utf8(base64(data)).unwrap()
}

fn plain(n: usize) -> String {
    match n % 3 {
        0 => format!("From: ann@a.example\r\nSubject: {n}\r\n\r\n{}", text(n)),
        1 => format!(
            "{}Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n{}",
            head(n),
            text(n)
        ),
        _ => format!(
            "{}Content-Type: text/plain; charset=\"utf-8\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}",
            head(n),
            encoded(text(n).as_bytes())
        ),
    }
}

fn alternative(n: usize, boundary: &str) -> String {
    format!(
        "Content-Type: multipart/alternative; boundary=\"{boundary}\"\r\n\r\n--{boundary}\r\nContent-Type: text/plain; charset=\"UTF-8\"\r\n\r\n{}\r\n\
         --{boundary}\r\nContent-Type: text/html; charset=\"UTF-8\"\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n\
         <div dir=3D\"ltr\">Hello <b>Bob</b>, <a href=3D\"https://a.example/?q=3D{n}\">look=\r\n</a></div>\r\n\r\n--{boundary}--\r\n",
        text(n)
    )
}

fn gmail(n: usize) -> String {
    format!("{}{}", head(n), alternative(n, &format!("000000000000abc{n}06")))
}

fn mixed(n: usize, boundary: &str, first: &str, parts: &[String]) -> String {
    let mut out =
        format!("{}Content-Type: multipart/mixed; boundary=\"{boundary}\"\r\n\r\n--{boundary}\r\n{first}", head(n));
    for part in parts {
        out += &format!("\r\n--{boundary}\r\n{part}");
    }
    out + &format!("\r\n--{boundary}--\r\n")
}

fn file(kind: &str, name: &str, data: &[u8]) -> String {
    format!(
        "Content-Type: {kind}; name=\"{name}\"\r\nContent-Disposition: attachment; filename=\"{name}\"\r\n\
         Content-Transfer-Encoding: base64\r\nContent-ID: <f_{}>\r\nX-Attachment-Id: f_1\r\n\r\n{}",
        name.len(),
        encoded(data)
    )
}

fn usual_pdf(n: usize) -> Vec<u8> {
    format!("%PDF-1.7\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n3 0 obj<</Length 40>>stream\nBT /F1 12 Tf (page {n}) Tj ET\nendstream endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n").into_bytes()
}

fn usual_document(n: usize) -> Vec<u8> {
    let rels = "<Relationships><Relationship Type=\"http://schemas.example/hyperlink\" Target=\"https://a.example/\" TargetMode=\"External\"/></Relationships>";
    document(&[
        ("word/document.xml", &format!("<w:document><w:t>{}</w:t></w:document>", WORDS[n])),
        ("word/_rels/document.xml.rels", rels),
        ("docProps/app.xml", "<x/>"),
    ])
}

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";

fn gmail_pdf(n: usize) -> String {
    let name = ["scan.pdf", "Rechnung 2026-11.pdf", "minutes_final (2).pdf"][n % 3];
    mixed(
        n,
        &format!("000000000000f{n}"),
        &alternative(n, &format!("000000000000e{n}")),
        &[file("application/pdf", name, &usual_pdf(n))],
    )
}

fn outlook(n: usize) -> String {
    let boundary = format!("_004_DB9PR{n}eurprd05prodoutlook_");
    format!(
        "{}Content-Language: en-US\r\nX-MS-Has-Attach: yes\r\nContent-Type: multipart/related;\r\n\tboundary=\"{boundary}\";\r\n\ttype=\"multipart/alternative\"\r\n\r\n\
         --{boundary}\r\n{}\r\n--{boundary}\r\nContent-Type: image/png; name=\"image001.png\"\r\nContent-Description: image001.png\r\n\
         Content-Disposition: inline; filename=\"image001.png\"; size=68;\r\n\tcreation-date=\"Tue, 17 Nov 2026 10:00:00 GMT\"\r\nContent-ID: <image001.png@01DA>\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n{}\r\n--{boundary}--\r\n",
        head(n),
        alternative(n, &format!("_000_DB9PR{n}eurprd05prodoutlook_")),
        encoded(PNG)
    )
}

fn outlook_document(n: usize) -> String {
    let kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
    mixed(
        n,
        &format!("_002_AM0PR{n}_"),
        &alternative(n, &format!("_000_AM0PR{n}_")),
        &[file(kind, "Report Q3.docx", &usual_document(n))],
    )
}

fn outlook_tnef(n: usize) -> String {
    let inside = if n.is_multiple_of(2) {
        test_files::tnef("Report.docx", &usual_document(n))
    } else {
        test_files::tnef("photo.png", PNG)
    };
    mixed(
        n,
        &format!("----_=_NextPart_{n}"),
        &format!("Content-Type: text/plain\r\n\r\n{}", text(n)),
        &[file("application/ms-tnef", "winmail.dat", &inside)],
    )
}

fn outlook_forward(n: usize) -> String {
    let inner = gmail_pdf(n);
    let part = format!(
        "Content-Type: message/rfc822\r\nContent-Disposition: attachment;\r\n\tcreation-date=\"Tue, 17 Nov 2026 10:00:00 GMT\"\r\n\r\n{inner}"
    );
    mixed(n, &format!("_003_X{n}_"), &format!("Content-Type: text/plain\r\n\r\n{}", text(n)), &[part])
}

fn apple(n: usize) -> String {
    let boundary = format!("Apple-Mail=_ABC{n}");
    format!(
        "{}X-Mailer: Apple Mail (2.3774)\r\nContent-Type: multipart/alternative;\r\n\tboundary=\"{boundary}\"\r\n\r\n--{boundary}\r\nContent-Transfer-Encoding: 7bit\r\nContent-Type: text/plain;\r\n\tcharset=us-ascii\r\n\r\n\
         Hello\r\n\r\n--{boundary}\r\nContent-Type: multipart/mixed;\r\n\tboundary=\"{boundary}X\"\r\n\r\n\r\n--{boundary}X\r\nContent-Type: text/html;\r\n\tcharset=us-ascii\r\n\r\n<html><body>Hello</body></html>\r\n\
         --{boundary}X\r\nContent-Disposition: inline;\r\n\tfilename*=utf-8''M%C3%A4rz%20{n}.pdf\r\nContent-Type: application/pdf;\r\n\tx-unix-mode=0644;\r\n\tname=\"=?utf-8?Q?Ma=CC=88rz_{n}.pdf?=\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}\r\n\
         --{boundary}X--\r\n\r\n--{boundary}--\r\n",
        head(n),
        encoded(&usual_pdf(n))
    )
}

fn apple_double(n: usize) -> String {
    let fork = b"\0\x05\x16\x07\0\x02\0\0Mac OS X        \0\x02\0\0\0\x09";
    let part = format!(
        "Content-Type: multipart/appledouble;\r\n\tboundary=Apple-Mail-{n}\r\nContent-Disposition: attachment\r\n\r\n--Apple-Mail-{n}\r\nContent-Transfer-Encoding: base64\r\n\
         Content-Type: application/applefile;\r\n\tname=\"report.pdf\"\r\n\r\n{}\r\n--Apple-Mail-{n}\r\nContent-Type: application/pdf;\r\n\tname=\"report.pdf\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}\r\n--Apple-Mail-{n}--\r\n",
        encoded(fork),
        encoded(&usual_pdf(n))
    );
    mixed(n, &format!("Apple-Mail-{n}--99"), &format!("Content-Type: text/plain\r\n\r\n{}", text(n)), &[part])
}

fn thunderbird(n: usize) -> String {
    let boundary = format!("------------{n}B0C1D2E3F4");
    format!(
        "{}User-Agent: Mozilla Thunderbird\r\nContent-Language: en-US\r\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\r\n\r\nThis is a multi-part message in MIME format.\r\n\
         --{boundary}\r\nContent-Type: text/plain; charset=UTF-8; format=flowed\r\nContent-Transfer-Encoding: 7bit\r\n\r\nHello, \r\nflowing on.\r\n--{boundary}\r\n{}\r\n--{boundary}--\r\n",
        head(n),
        file("image/jpeg", "IMG_0017.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01")
    )
}

fn list(n: usize) -> String {
    let body = format!(
        "{}_______________________________________________\r\nusers mailing list\r\nusers@lists.example\r\n",
        text(n)
    );
    match n % 3 {
        0 => format!("{}List-Id: <users.lists.example>\r\nContent-Type: text/plain; charset=\"utf-8\"\r\n\r\n{body}", head(n)),
        1 => {
            // The footer behind an encoded body, as a list that knows no MIME puts it there.
            let signed = format!("Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n{}", encoded(text(n).as_bytes()));
            format!("{}List-Id: <users.lists.example>\r\n{signed}\r\n_______________\r\nusers mailing list\r\n", head(n))
        }
        _ => mixed(n, &format!("==============={n}=="), &alternative(n, "inner"), &["Content-Type: text/plain; charset=\"us-ascii\"\r\nContent-Disposition: inline\r\n\r\n____\r\nusers mailing list\r\n".into()]),
    }
}

fn digest(n: usize) -> String {
    let one = |n: usize| {
        format!(
            "\r\n--D{n}\r\n\r\nFrom: ann@a.example\r\nSubject: {}\r\nMessage-ID: <{n}@x>\r\nContent-Type: text/plain\r\n\r\n{}",
            WORDS[n],
            text(n)
        )
    };
    let parts: String =
        (0..3).map(|at| one((n + at) % 9).replace(&format!("--D{}", (n + at) % 9), &format!("--D{n}"))).collect();
    format!("{}Content-Type: multipart/digest; boundary=\"D{n}\"\r\n{parts}\r\n--D{n}--\r\n", head(n))
}

fn dsn(n: usize) -> String {
    let returned = if n.is_multiple_of(2) {
        format!("Content-Type: message/rfc822\r\n\r\n{}", gmail(n))
    } else {
        format!("Content-Type: text/rfc822-headers\r\n\r\n{}", head(n))
    };
    format!(
        "Return-Path: <>\r\n{}Auto-Submitted: auto-replied\r\nContent-Type: multipart/report; report-type=delivery-status;\r\n\tboundary=\"{n}.1700/mx.b.example\"\r\n\r\nThis is a MIME-encapsulated message.\r\n\r\n\
         --{n}.1700/mx.b.example\r\nContent-Description: Notification\r\nContent-Type: text/plain; charset=us-ascii\r\n\r\nI'm sorry.\r\n\r\n--{n}.1700/mx.b.example\r\n\
         Content-Description: Delivery report\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.b.example\r\n\r\nFinal-Recipient: rfc822; x@c.example\r\nAction: failed\r\nStatus: 5.1.1\r\n\r\n\
         --{n}.1700/mx.b.example\r\nContent-Description: Undelivered Message\r\n{returned}\r\n--{n}.1700/mx.b.example--\r\n",
        head(n)
    )
}

fn receipt(n: usize) -> String {
    format!(
        "{}Content-Type: multipart/report; report-type=disposition-notification; boundary=\"r{n}\"\r\n\r\n--r{n}\r\nContent-Type: text/plain\r\n\r\nIt was shown.\r\n\r\n--r{n}\r\n\
         Content-Type: message/disposition-notification\r\n\r\nReporting-UA: b.example; Mailer\r\nFinal-Recipient: rfc822;bob@b.example\r\nDisposition: manual-action/MDN-sent-manually; displayed\r\n\r\n--r{n}--\r\n",
        head(n)
    )
}

fn event(n: usize, more: &str) -> String {
    format!(
        "BEGIN:VCALENDAR\r\nPRODID:-//Google Inc//Google Calendar 70.9054//EN\r\nVERSION:2.0\r\nMETHOD:REQUEST\r\nBEGIN:VEVENT\r\nDTSTART:20261120T10000{n}Z\r\nSUMMARY:{}\r\n\
         ATTENDEE;CN=Bob:mailto:bob@b.example\r\nURL:https://meet.example/{n}\r\n{more}BEGIN:VALARM\r\nACTION:DISPLAY\r\nEND:VALARM\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n",
        WORDS[n]
    )
}

fn invitation(n: usize) -> String {
    let calendar = format!(
        "Content-Type: text/calendar; charset=\"UTF-8\"; method=REQUEST\r\nContent-Transfer-Encoding: 7bit\r\n\r\n{}",
        event(n, "")
    );
    mixed(
        n,
        &format!("cal{n}"),
        &alternative(n, "calalt"),
        &[calendar, file("application/ics", "invite.ics", event(n, "").as_bytes())],
    )
}

fn invitation_picture(n: usize) -> String {
    let picture: String = encoded(PNG).split_whitespace().collect();
    let more = format!(
        "ATTACH;FMTTYPE=image/png;X-FILENAME=plan.png;ENCODING=BASE64;VALUE=BINARY:\r\n {picture}\r\nATTACH:https://a.example/agenda.pdf\r\n"
    );
    mixed(
        n,
        &format!("calp{n}"),
        &format!("Content-Type: text/plain\r\n\r\n{}", text(n)),
        &[file("text/calendar", "meeting.ics", event(n, &more).as_bytes())],
    )
}

fn smime(n: usize) -> String {
    let boundary = format!("----{n}5A6B7C");
    format!(
        "{}Content-Type: multipart/signed; protocol=\"application/x-pkcs7-signature\"; micalg=\"sha-256\"; boundary=\"{boundary}\"\r\n\r\nThis is an S/MIME signed message\r\n\r\n--{boundary}\r\n{}\r\n--{boundary}\r\n\
         Content-Type: application/x-pkcs7-signature; name=\"smime.p7s\"\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: attachment; filename=\"smime.p7s\"\r\n\r\n{}\r\n--{boundary}--\r\n",
        head(n),
        alternative(n, "inner"),
        encoded(&[b"\x30\x80\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02\xa0\x80".as_slice(), &[7; 200]].concat())
    )
}

fn smime_opaque(n: usize) -> String {
    let entity = if n.is_multiple_of(2) {
        format!("Content-Type: text/plain\r\n\r\n{}", text(n))
    } else {
        alternative(n, "inner")
    };
    let signed = encoded(&opaque_signed(entity.as_bytes()));
    format!(
        "{}Content-Type: application/pkcs7-mime; smime-type=signed-data; name=\"smime.p7m\"\r\nContent-Disposition: attachment; filename=\"smime.p7m\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{signed}",
        head(n)
    )
}

fn smime_sealed(n: usize) -> String {
    format!(
        "{}Content-Type: application/pkcs7-mime; smime-type=enveloped-data; name=\"smime.p7m\"\r\nContent-Disposition: attachment; filename=\"smime.p7m\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}",
        head(n),
        encoded(&sealed())
    )
}

fn pgp_signed(n: usize) -> String {
    format!(
        "{}Content-Type: multipart/signed; micalg=pgp-sha256;\r\n protocol=\"application/pgp-signature\"; boundary=\"pgp{n}\"\r\n\r\nThis is an OpenPGP/MIME signed message (RFC 4880 and 3156)\r\n--pgp{n}\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nHello =E2=80=93 here\r\n--pgp{n}\r\nContent-Type: application/pgp-signature; name=\"OpenPGP_signature.asc\"\r\n\
         Content-Description: OpenPGP digital signature\r\nContent-Disposition: attachment; filename=\"OpenPGP_signature\"\r\n\r\n-----BEGIN PGP SIGNATURE-----\r\n\r\nwsB5BAABCAAjFiEE\r\n=abcd\r\n-----END PGP SIGNATURE-----\r\n\r\n--pgp{n}--\r\n",
        head(n)
    )
}

fn pgp_sealed(n: usize) -> String {
    format!(
        "{}Content-Type: multipart/encrypted; protocol=\"application/pgp-encrypted\"; boundary=\"enc{n}\"\r\n\r\n--enc{n}\r\nContent-Type: application/pgp-encrypted\r\nContent-Description: PGP/MIME version identification\r\n\r\nVersion: 1\r\n\r\n\
         --enc{n}\r\nContent-Type: application/octet-stream; name=\"encrypted.asc\"\r\nContent-Disposition: inline; filename=\"encrypted.asc\"\r\n\r\n-----BEGIN PGP MESSAGE-----\r\n\r\nhQEMA1234567890\r\n=abcd\r\n-----END PGP MESSAGE-----\r\n\r\n--enc{n}--\r\n",
        head(n)
    )
}

fn zipped_documents(n: usize) -> String {
    let (name, data) = match n % 4 {
        0 => ("documents.zip", zipped("Report.docx", &usual_document(n))),
        1 => ("table.zip", zipped("table.csv", b"a;b;c\r\n1;2;=SUM(A1:A2)\r\n")),
        2 => ("logs.tar.gz", gzipped(&test_files::tar("server.log", b"10:00 start\n10:01 stop\n"))),
        _ => ("photos.zip", zipped("IMG_1.png", PNG)),
    };
    mixed(
        n,
        &format!("z{n}"),
        &format!("Content-Type: text/plain\r\n\r\n{}", text(n)),
        &[file("application/zip", leaked(name), &data)],
    )
}

fn invoice(n: usize) -> String {
    let xml = format!("<?xml version=\"1.0\"?><rsm:CrossIndustryInvoice><ID>{n}</ID></rsm:CrossIndustryInvoice>");
    mixed(
        n,
        &format!("inv{n}"),
        &alternative(n, "invalt"),
        &[file("application/pdf", "invoice.pdf", &pdf("factur-x.xml", xml.as_bytes(), true))],
    )
}

fn newsletter(n: usize) -> String {
    let html = format!(
        "<!DOCTYPE html><html><head><style>a{{color:#c00}}</style></head><body><table width=\"600\"><tr><td><img src=\"https://news.example/open?u=0123456789abcdef0123456789abcdef0123456789abcdef\"></td></tr>\
         <tr><td>News number {n}: 20% off, \"only\" today &ndash; it's here.</td></tr></table><img src=\"data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7\"></body></html>"
    );
    format!(
        "{}List-Unsubscribe: <https://news.example/u>\r\nContent-Type: text/html; charset=\"utf-8\"\r\nContent-Transfer-Encoding: base64\r\n\r\n{}",
        head(n),
        encoded(html.as_bytes())
    )
}

fn charsets(n: usize) -> String {
    let (charset, octets): (&str, &[u8]) = [
        ("iso-2022-jp", b"\x1b$B@A5a=q\x1b(B.pdf".as_slice()),
        ("ISO-2022-JP", b"\x1b$B@A5a=q\x1b(B 1~2+3.pdf"),
        ("shift_jis", b"\x90\xbf\x8b\x81\x8f\x91.pdf"),
        ("gb2312", b"\xd6\xd0\xce\xc4.pdf"),
        ("big5", b"\xa4\xa4\xa4\xe5.pdf"),
        ("euc-kr", b"\xc7\xd1\xb1\xdb.pdf"),
        ("koi8-r", b"\xd3\xde\xc5\xd4.pdf"),
        ("unknown-8bit", b"M\xe4rz.pdf"),
        ("x-mac-something", b"M\x8arz +1~2.pdf"),
    ][n % 9];
    let name: String = encoded(octets).split_whitespace().collect();
    mixed(
        n,
        &format!("cs{n}"),
        &format!("Content-Type: text/plain\r\n\r\n{}", text(n)),
        &[file("application/pdf", &format!("=?{charset}?B?{name}?="), &usual_pdf(n))],
    )
}

fn open_pgp(n: usize) -> String {
    let sealed = [b"\x85\x01\x0c\x03".as_slice(), &[7; 267], b"\xd2\x40", &[9; 64]].concat();
    let armour = armoured(&sealed);
    let first = format!("Content-Type: text/plain\r\n\r\n{}", text(n));
    match n % 5 {
        0 => format!("{}Content-Type: text/plain\r\n\r\n{armour}", head(n)),
        1 => mixed(n, "pgp", &first, &[file("application/octet-stream", "report.pdf.gpg", &sealed)]),
        2 => mixed(n, "pgp", &first, &[file("application/octet-stream", "report.pdf.pgp", &literal("report.pdf", &usual_pdf(n)))]),
        3 => format!(
            "{}Content-Type: text/plain\r\n\r\n-----BEGIN PGP SIGNED MESSAGE-----\r\nHash: SHA256\r\n\r\n{}-----BEGIN PGP SIGNATURE-----\r\n\r\nwsB5BAABCAAjFiEE\r\n=abcd\r\n-----END PGP SIGNATURE-----\r\n",
            head(n),
            text(n)
        ),
        _ => mixed(
            n,
            "pgp",
            &first,
            &[file("application/pgp-keys", "key.asc", b"-----BEGIN PGP PUBLIC KEY BLOCK-----\r\n\r\nmQINBF3abcdef\r\n=abcd\r\n-----END PGP PUBLIC KEY BLOCK-----\r\n")],
        ),
    }
}

fn signed_files(n: usize) -> String {
    let first = format!("Content-Type: text/plain\r\n\r\n{}", text(n));
    let xml = b"<?xml version=\"1.0\"?><FatturaElettronica/>";
    let (name, data) = match n % 3 {
        0 => ("IT01234567890_00001.xml.p7m", opaque_signed(xml)),
        1 => ("contratto.pdf.p7m", opaque_signed(&usual_pdf(n))),
        _ => ("IT01234567890_00002.xml.p7m", encoded(&opaque_signed(xml)).into_bytes()),
    };
    mixed(n, "p7m", &first, &[file("application/pkcs7-mime", name, &data)])
}

fn reports(n: usize) -> String {
    let fields = "Final-Recipient: rfc822;x@example.org\r\nDisposition: manual-action/MDN-sent-manually; displayed";
    let (kind, part) = match n % 3 {
        0 => ("disposition-notification", format!("message/disposition-notification\r\n\r\n{fields}")),
        1 => (
            "feedback-report",
            "message/feedback-report\r\n\r\nFeedback-Type: abuse\r\nUser-Agent: x/1\r\nVersion: 1".into(),
        ),
        _ => (
            "disposition-notification",
            format!(
                "message/disposition-notification\r\nContent-Transfer-Encoding: base64\r\n\r\n{}",
                encoded(fields.as_bytes()).trim_end()
            ),
        ),
    };
    format!(
        "{}Content-Type: multipart/report; report-type={kind}; boundary=\"r{n}\"\r\n\r\n--r{n}\r\nContent-Type: text/plain\r\n\r\nIt was shown.\r\n--r{n}\r\nContent-Type: {part}\r\n\
         --r{n}\r\nContent-Type: message/rfc822\r\n\r\n{}hi\r\n--r{n}--\r\n",
        head(n),
        head(n) + "\r\n"
    )
}

fn odd(n: usize) -> String {
    match n % 4 {
        0 => format!(
            "{}Content-Type: text/plain\r\n\r\nbegin 2026 with a plan\r\n\r\nbegin 644 is how it starts, e.g.\r\nbegin 644 test.exe\r\nbut this is only a text.\r\n",
            head(n)
        ),
        1 => format!(
            "{}Content-Type: text/html; charset=utf-8\r\nContent-Transfer-Encoding: UTF-8\r\n\r\n<p>x</p>\r\n",
            head(n)
        ),
        2 => format!("{}Content-Transfer-Encoding: iso-8859-1\r\nContent-Type: text/plain\r\n\r\nhello\r\n", head(n)),
        _ => format!(
            "{}Content-Type: multipart/related; boundary=s\r\n\r\n--s\r\nContent-Type: text/html\r\nContent-Location: https://www.example.com\r\n\r\n<html></html>\r\n--s\r\n\
             Content-Type: text/javascript\r\nContent-Location: https://www.example.com/a.js\r\n\r\nvar a = 1;\r\n--s--\r\n",
            head(n)
        ),
    }
}
