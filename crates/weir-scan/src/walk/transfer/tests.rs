//! Bodies and files in texts, as different readers decode them.

use super::*;

fn base64(text: &[u8]) -> Vec<u8> {
    super::base64(text, Padding::EndsGroup)
}

#[test]
fn letters_of_base64_are_counted_as_the_table_has_them() {
    // Longer than a piece, so that its counts of one octet are added up.
    let all: Vec<u8> = (0..=u8::MAX).cycle().take(3 * 256).collect();
    assert_eq!(base64_letters(&all), (3 * 64, 3 * (256 - 64 - 5)));
    for byte in 0..=u8::MAX {
        let is_letter = SEXTETS[usize::from(byte)] != NO;
        assert_eq!(base64_letters(&[byte]).0, usize::from(is_letter), "{byte}");
    }
    assert_eq!(base64_letters(&[b'A'; 1000]), (1000, 0));
}

#[test]
fn padding_that_more_follows_is_read_in_every_way() {
    let all = |text: &[u8]| Padding::ALL.map(|padding| super::base64(text, padding));
    let others = |text: &[u8]| Encoding::Base64.other_readings(text).len();
    assert_eq!(all(b"a====GVsbG8="), [b"\x19\x5b\x1b\x1b".to_vec(), b"hello".to_vec(), b"hello".to_vec()]);
    assert_eq!(all(b"aGVsbG8=aGk="), [b"hellohi".to_vec(), b"hello\x1a\x1a".to_vec(), b"hello".to_vec()]);
    assert_eq!(all(b"aG=VsbG8="), [b"hV\xc6\xc6".to_vec(), b"hello".to_vec(), b"hello".to_vec()]);
    for text in ["aGVsbG8=aGk=", "a=GVsbG8", "====aGk", "aGk=\r\n-- \r\nfooter"] {
        assert_eq!(others(text.as_bytes()), 2, "{text}");
    }
    for text in ["", "aGk=", "aGk=\r\n\r\n", "aA==\r\n--", "aGVs!bG8=!", "===="] {
        assert_eq!(others(text.as_bytes()), 0, "{text}");
        assert!(all(text.as_bytes()).windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }
}

#[test]
fn what_breaks_the_rules_of_its_encoding_is_told() {
    for text in ["aGk=", "aGk=\r\n", "aGVs\n bG8g", ""] {
        assert!(Encoding::Base64.is_kept(text.as_bytes()), "{text}");
    }
    for text in ["aGk=\n-- \nfooter", "aGVsb", "a!"] {
        assert!(!Encoding::Base64.is_kept(text.as_bytes()), "{text}");
    }
    assert!(Encoding::QuotedPrintable.is_kept(b"a=3Db=\r\nc=\nd"));
    for text in ["a=zz", "a==", "a=", "a= \n", "a=\rb"] {
        assert!(!Encoding::QuotedPrintable.is_kept(text.as_bytes()), "{text}");
    }
}

#[test]
fn base64_is_read_as_mail_programs_do() {
    assert_eq!(base64(b"aGVsbG8gd29ybGQ="), b"hello world");
    assert_eq!(base64(b"aGVs\r\nbG8g\r\nd29y\r\nbGQ"), b"hello world");
    assert_eq!(base64(b"aG!Vs bG8=aGVsbG8="), b"hellohello");
    assert_eq!(base64(b""), b"");
    assert_eq!(base64(b"===="), b"");
    assert_eq!(base64(b"aGVsbG8=").len(), 5);
    // Every way to break off, and a foreign character at every place.
    let whole = b"VGhlIHF1aWNrIGJyb3duIGZveA==";
    for at in 0..=whole.len() {
        let (head, tail) = whole.split_at(at);
        assert_eq!(base64(&[head, b"\r\n", tail].concat()), b"The quick brown fox", "at {at}");
        assert!(b"The quick brown fox".starts_with(&base64(head)), "up to {at}");
    }
}

#[test]
fn quoted_printable_keeps_what_is_no_escape() {
    assert_eq!(quoted_printable(b"a=3Db=\r\nc= \t\r\nd=\r\r\ne=zz="), b"a=bcde=zz=");
}

#[test]
fn uuencoded_files_have_names() {
    let files = |text: &[u8]| uuencoded(text).collect::<Vec<_>>();
    let cat = ("cat.txt".to_owned(), b"Cat".to_vec());
    let text = b"hello\r\nbegin 644 cat.txt\r\n#0V%T\r\n`\r\nend\r\n";
    assert_eq!(files(text), std::slice::from_ref(&cat));
    let second = ("b.exe".to_owned(), b"Cat".to_vec());
    assert_eq!(files(&[text.as_slice(), b"begin 755 b.exe\n#0V%T\n`\n"].concat()), [cat.clone(), second.clone()]);
    // A file inside the lines of another: a second reader may begin there.
    assert_eq!(files(b"begin 644 cat.txt\n#0V%T\nbegin 644 b.exe\n#0V%T\n"), [cat, second]);
    assert_eq!(files(b"we begin 644 things"), []);
    assert_eq!(files(b"begin 64"), []);
    for begin in ["begin 100644 a.js", "begin 7 a.js", "begin\t644\ta.js", "begin  a.js", "begin-encoded 644 YS5qcw=="]
    {
        let text = format!("hello\n{begin}\n#0V%T\n`\nend\n");
        assert_eq!(files(text.as_bytes()), [("a.js".to_owned(), b"Cat".to_vec())], "{begin}");
    }
    for text in
        ["begin at nine\n#0V%T\n", "begin 9 x\n#0V%T\n", "begins 644 a\n#0V%T\n", "begin  with a sentence\nand go on\n"]
    {
        assert_eq!(files(text.as_bytes()), [], "{text}");
    }
}

#[test]
fn a_line_of_no_length_ends_a_file_for_some_readers_only() {
    let files = |text: &str| uuencoded(text.as_bytes()).map(|(_, data)| data).collect::<Vec<_>>();
    let (cat, both) = (b"Cat".to_vec(), b"CatCat".to_vec());
    for pause in ["`", " ", "", "`\n`", " \n\n`"] {
        // Nothing else follows, or another file does.
        for end in ["`\nend\n", "end\n", "`\n", "", "begin 644 b\n"] {
            assert_eq!(files(&format!("begin 644 a\n#0V%T\n{pause}\n{end}")), [cat.as_slice()], "{pause:?} {end:?}");
            let text = format!("begin 644 a\n#0V%T\n{pause}\n#0V%T\n{end}");
            assert_eq!(files(&text), [cat.clone(), both.clone()], "{pause:?} {end:?}");
        }
        // Data follow, and none came before.
        let begun = files(&format!("begin 644 a\n{pause}\n#0V%T\n`\nend\n"));
        assert_eq!(begun.last(), Some(&cat), "{pause:?}");
    }
    for text in ["\nRegards,\nEve\n", "\n-- \nEVE AND COMPANY\n"] {
        assert_eq!(files(&format!("begin 644 a\n#0V%T\n`\n{text}")), [cat.as_slice()], "{text}");
        assert!(files(&format!("begin 644 a\n{text}")).is_empty(), "{text}");
    }
    assert_eq!(files("begin-base64 644 a\n\nQ2F0\n====\n"), [cat.as_slice()]);
    assert_eq!(files("begin-base64 644 a\nQ2F0\n\nQ2F0\n====\n"), [cat.clone(), both]);
    assert_eq!(files("begin-base64 644 a\nQ2F0\n\n====\n"), [cat.as_slice()]);
    // Each file has its own, and all of it is read once.
    let begun = std::time::Instant::now();
    assert_eq!(uuencoded(&b"begin 644 a\n`\n#0V%T\n".repeat(1 << 17)).count(), 1 << 18);
    assert_eq!(uuencoded(&[&b"begin 644 a\n"[..], &b"`\n#0V%T\n".repeat(1 << 18)].concat()).count(), 2);
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn lines_whose_last_blanks_were_lost_keep_their_place() {
    let decoded = |line: &str| uuencoded(format!("begin 644 a\n{line}\nend\n").as_bytes()).next().unwrap().1;
    assert_eq!(decoded("#0V  "), b"C`\0");
    assert_eq!(decoded("#0V"), b"C`\0");
}

#[test]
fn other_ways_to_put_files_into_text() {
    let files: Vec<_> = uuencoded(b"hello\nbegin-base64 644 a.exe\nQ2F0\nQ2F0\n====\nrest").collect();
    assert_eq!(files, [("a.exe".to_owned(), b"CatCat".to_vec())]);
    let text = b"hi\r\n=ybegin line=128 size=4 name=b c.exe\r\n=ypart begin=1 end=4\r\nm\x8b\x9e=}\r\n=yend size=4\r\n";
    assert_eq!(yencoded(text).collect::<Vec<_>>(), [("b c.exe".to_owned(), b"Cat\x13".to_vec())]);
    assert_eq!(yencoded(b"say =ybegin name=x").count(), 0);
    assert_eq!(yencoded(&b"=ybegin \n".repeat(1 << 16)).count(), 1);
}

#[test]
fn a_text_of_beginnings_is_read_once() {
    let begun = std::time::Instant::now();
    assert_eq!(uuencoded(&b"begin ".repeat(1 << 20)).count(), 0);
    assert_eq!(uuencoded(&b"begin 644 a\n".repeat(1 << 18)).count(), 0, "nothing follows");
    assert_eq!(uuencoded(&b"begin 644 a\nend\n".repeat(1 << 18)).count(), 1 << 18);
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}
