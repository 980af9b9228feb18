//! Messages that are larger inside than outside. Each must end with the right outcome, in bounded memory and time.

use crate::corpus::unopened::intel_hex;
use crate::mail::{attached, examined, found, gzipped, member, zip};
use std::time::{Duration, Instant};

/// The bound is generous: it is for what would take minutes or for ever.
#[track_caller]
fn refused(message: &[u8], words: &str) {
    let begun = Instant::now();
    let findings = found(&examined(message));
    assert!(findings.iter().any(|finding| finding.contains(words)), "{findings:?}");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

/// Zeros, packed: a gigabyte takes a megabyte.
fn packed_zeros(mebibytes: usize) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let piece = vec![0; 1 << 20];
    for _ in 0..mebibytes {
        encoder.write_all(&piece).unwrap();
    }
    encoder.finish().unwrap()
}

#[test]
fn a_gigabyte_of_zeros_in_a_gz() {
    refused(&attached("zeros.gz", &packed_zeros(1024)), "not scanned ");
}

#[test]
fn zip_in_zip_in_zip() {
    // As 42.zip: sixteen archives of sixteen archives, five times, around a large file of zeros.
    let mut archive = zip(&[member("0.dll", &vec![0; 4 << 20])]);
    for _ in 0..5 {
        let names = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f"];
        let members: Vec<_> = names.iter().map(|name| member(name, &archive)).collect();
        archive = zip(&members);
    }
    assert!(archive.len() < 200_000, "{} bytes", archive.len());
    refused(&attached("42.zip", &archive), "not scanned ");
}

#[test]
fn archives_inside_each_other() {
    let mut data = b"hello".to_vec();
    for _ in 0..20 {
        data = gzipped(&data);
    }
    refused(&attached("a.gz", &data), "not scanned more than 8 archives inside each other @ ");
}

#[test]
fn hexadecimal_lines_inside_each_other() {
    let mut data = "hello".to_owned();
    for _ in 0..10 {
        data = intel_hex(data.as_bytes());
    }
    refused(&attached("a.hex", data.as_bytes()), "not scanned more than 8 archives inside each other @ ");
}

#[test]
fn an_archive_that_holds_itself_thirteen_times_over() {
    // Stands in for a true quine, which has no end: the walk must stop at the same depth.
    let mut data = zip(&[member("r.zip", b"")]);
    for _ in 0..12 {
        data = zip(&[member("r.zip", &data)]);
    }
    refused(&attached("r.zip", &data), "not scanned more than 8 archives inside each other @ ");
}

#[test]
fn forty_thousand_messages_inside_each_other() {
    let nested = "Content-Type: message/rfc822\r\n\r\n".repeat(40_000);
    refused(nested.as_bytes(), "not scanned more than 64 messages inside each other @ ");
    let mut message = String::new();
    for level in 0..40_000 {
        message += &format!("Content-Type: multipart/mixed; boundary=b{level}\r\n\r\n--b{level}\r\n");
    }
    refused(message.as_bytes(), "not scanned more than 64 messages inside each other @ ");
}

#[test]
fn messages_inside_each_other_one_by_one_encoded() {
    let mut message = b"Subject: x\r\n\r\nhello\r\n".to_vec();
    for _ in 0..70 {
        message = [
            b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n".as_slice(),
            &message,
        ]
        .concat();
    }
    refused(&message, "not scanned more than 64 messages inside each other @ ");
}

#[test]
fn a_hundred_thousand_parts() {
    let message = format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n{}", "--b\r\n\r\nx\r\n".repeat(100_000));
    refused(message.as_bytes(), "not scanned more than 10000 parts @ ");
}

#[test]
fn a_hundred_thousand_files_in_an_archive() {
    let names: Vec<&'static str> = (0..100_000).map(|n| &*Box::leak(n.to_string().into_boxed_str())).collect();
    let mut archive = Vec::new();
    for name in &names {
        let mut header = vec![0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[156] = b'0';
        header[257..263].copy_from_slice(b"ustar\0");
        archive.extend(header);
    }
    refused(&attached("many.tgz", &gzipped(&archive)), "not scanned ");
}

#[test]
fn headers_without_end() {
    refused("X-Long: yes\r\n".repeat(1_000_000).as_bytes(), "not scanned a header of more than 1024 KiB @ ");
    refused("a".repeat(20 << 20).as_bytes(), "not scanned a header of more than 1024 KiB @ ");
    let folded = format!("X: y\r\n{}\r\n", " folded\r\n".repeat(1_000_000));
    refused(folded.as_bytes(), "not scanned a header of more than 1024 KiB @ ");
}

#[test]
fn what_was_looked_at_again_and_again() {
    // Each of these took a time that grew with the square of its length: hours for a large message.
    let clean = |message: &[u8]| {
        let begun = Instant::now();
        let said = found(&examined(message));
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        said
    };
    assert_eq!(clean(&[b"Subject: x\r\n\r\n".as_slice(), &b"begin ".repeat(1 << 20)].concat()), Vec::<String>::new());
    let words = "=?a?b?x".repeat(140_000);
    let part = format!("--b\r\nContent-Type: x/y; name=\"{words}\"\r\n\r\n\r\n");
    let message = format!("Content-Type: multipart/mixed; boundary=b\r\n\r\n{}", part.repeat(10));
    let said = clean(message.as_bytes());
    assert!(said.iter().any(|finding| finding.contains("a field of more than 16 KiB")), "{said:?}");
}

#[test]
fn a_zip_whose_sizes_lie() {
    let mut small = member("zeros", &vec![0; 64 << 20]);
    small.size = Some(10);
    refused(&attached("lie.zip", &zip(&[small])), "not scanned unpacks to more than 250 times its size @ ");
}

#[test]
fn many_members_on_the_same_bytes() {
    // One packed body, and a directory that names it a thousand times.
    let base = zip(&[member("a", &vec![0; 7 << 20])]);
    let directory_at = u32::from_le_bytes(base[base.len() - 6..base.len() - 2].try_into().unwrap()) as usize;
    let entry = &base[directory_at..base.len() - 22];
    let mut bomb = base[..directory_at].to_vec();
    for _ in 0..1000 {
        bomb.extend_from_slice(entry);
    }
    let length = (entry.len() * 1000) as u32;
    bomb.extend_from_slice(b"PK\x05\x06\0\0\0\0\xe8\x03\xe8\x03");
    bomb.extend_from_slice(&length.to_le_bytes());
    bomb.extend_from_slice(&(directory_at as u32).to_le_bytes());
    bomb.extend_from_slice(&[0, 0]);
    refused(&attached("overlap.zip", &bomb), "not scanned unpacks to more than 512 MiB @ ");
}
