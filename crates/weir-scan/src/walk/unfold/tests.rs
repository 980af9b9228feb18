//! What comes out of scripts and pages that put a file together.

use super::*;

/// A zip archive, as far as its mark goes, in base64.
const ZIP: &str = "UEsDBBQAAAAIAAAAIQA2MqzdZmlsZS5leGUAAAAAAAAA";

fn finds(script: &str) -> bool {
    unfold(script.as_bytes()).iter().any(|found| found.starts_with(b"PK\x03\x04") || found.starts_with(b"MZ"))
}

#[test]
fn files_in_pieces_are_put_together() {
    let (a, b) = ZIP.split_at(20);
    let hex: String = base64(ZIP.as_bytes(), Padding::EndsGroup).iter().map(|octet| format!("{octet:02x}")).collect();
    let numbers: Vec<String> = base64(ZIP.as_bytes(), Padding::EndsGroup).iter().map(u8::to_string).collect();
    let locked: Vec<String> =
        base64(ZIP.as_bytes(), Padding::EndsGroup).iter().map(|octet| (octet ^ 0x5a).to_string()).collect();
    let backwards: String = ZIP.chars().rev().collect();
    for script in [
        format!("var x = atob(\"{ZIP}\");"),
        format!("var x = \"{a}\" + '{b}'; f(atob(x))"),
        format!("let p='{a}';\nlet q = '{b}';\nlet r = p + q; new Blob([r])"),
        format!("var s = '{a}'; s += '{b}';"),
        format!("var s = ['{a}','{b}'].join('');"),
        format!("s = \"{a}\" & _\n \"{b}\""),
        format!("go(hex(\"{hex}\"))"),
        format!("var u = new Uint8Array([{}]);", numbers.join(",")),
        format!("String.fromCharCode({})", numbers.join(", ")),
        format!("var u = [{}].map(c => c ^ 90)", locked.join(",")),
        format!("x = '{a}~{b}'.replace(/~/g, '')"),
        format!("x = '{a}@@{b}'.split('@@').join('')"),
        format!("x = '{backwards}'.split('').reverse().join('')"),
        format!("<svg><script><![CDATA[ const d = `{ZIP}`; ]]></script></svg>"),
        format!("<div id=p hidden>{ZIP}{ZIP}</div>"),
        format!("<a href=\"data:application/zip;base64,{ZIP}\">"),
    ] {
        assert!(finds(&script), "{script}");
    }
}

#[test]
fn usual_pages_bring_nothing() {
    for page in [
        "<html><body><p>Hello \"world\", it's fine.</p></body></html>",
        "<script>var a = 'hello' + ' world'; document.title = a; var l = [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18];</script>",
        "<img src=\"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4\">",
    ] {
        assert!(unfold(page.as_bytes()).is_empty(), "{page}");
    }
}

#[test]
fn hostile_text_ends() {
    for text in ["\"", "'a'+", "[1,", "a=a+a;a+=a;", "\\x", "`"] {
        unfold(text.repeat((1 << 18) / text.len()).as_bytes());
    }
}

/// Quotes without an end cost no more than others: time by the square would keep a worker for minutes.
#[test]
fn quotes_without_an_end_are_found_in_one_pass() {
    let text = [b"\"\\".repeat(300_000), b"z\nvar a = \"TVqQ\" + 'AA'".to_vec()].concat();
    let seen = tokens(&text);
    let texts: Vec<&Token<'_>> =
        seen.iter().filter(|token| matches!(token, Token::Text(text) if !text.is_empty())).collect();
    assert_eq!(texts, [&Token::Text(b"TVqQ".to_vec()), &Token::Text(b"AA".to_vec())]);
    for text in ["\"a\\\"b\" 'c", "`a\nb` \"c\nd\"", "'\\x4'1' \"", "\\", "\"\\", "'a\\'\n'b'", ""] {
        let text = text.as_bytes();
        let endless = Endless::of(text);
        for at in 0..=text.len() {
            for quote in QUOTES {
                assert_eq!(endless.from(at, quote), string(&text[at..], quote).is_none(), "{text:?} {at} {quote}");
            }
        }
    }
}

#[test]
fn pieces_in_many_attributes_and_packed_files_are_found() {
    let letters = ZIP.repeat(4);
    let pieces: String = letters
        .as_bytes()
        .chunks(30)
        .map(|piece| format!("<i data-x=\"{}\"></i>", String::from_utf8_lossy(piece)))
        .collect();
    assert!(finds(&format!("<body>{pieces}<script>q()</script>")), "{pieces}");
    use std::io::Write;
    let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&base64(ZIP.as_bytes(), Padding::EndsGroup)).unwrap();
    let packed: String = packer.finish().unwrap().iter().map(|octet| format!("{octet:02x}")).collect();
    assert!(finds(&format!("new Blob([octets('{packed}')]).stream().pipeThrough(new DecompressionStream('deflate'))")));
}

#[test]
fn a_long_string_that_is_named_often_is_not_built() {
    let script = [b"a='".to_vec(), vec![b'x'; 1 << 20], b"';b=a".to_vec(), b"+a".repeat(100_000)].concat();
    let tokens = tokens(&script);
    assert!(texts(&tokens, OCTETS_MAX).iter().all(|text| text.len() <= OCTETS_MAX + (2 << 20)));
}

/// A few names that are added up, each eight times as long as the one before.
const DOUBLING: &str = "a='xxxxxxxxxxxxxxxx';b=a+a+a+a+a+a+a+a;c=b+b+b+b+b+b+b+b;d=c+c+c+c+c+c+c+c;e=d+d+d+d+d+d+d+d;\
     f=e+e+e+e+e+e+e+e;g=f+f+f+f+f+f+f+f;h=g+g+g+g+g+g+g+g";

#[test]
fn names_that_are_added_up_come_to_no_more_than_was_asked_for() {
    let tokens = tokens(DOUBLING.as_bytes());
    for most in [1, 1000, WORDS_MAX] {
        // What a name holds counts where it is joined and where it is held.
        let built: usize = texts(&tokens, most).iter().map(Vec::len).sum();
        assert!(built <= 5 * most + 100, "{built} octets instead of {most}");
    }
    let scripts = vec![DOUBLING.as_bytes(); 20_000];
    let seen: usize = words(scripts.into_iter()).iter().map(Vec::len).sum();
    assert!(seen <= 16 * WORDS_MAX, "{seen} octets");
}

#[test]
fn scripts_in_a_script_spend_what_is_left() {
    let octets: Vec<u8> = DOUBLING.bytes().collect();
    let hex: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    let mut unfolding = Unfolding::default();
    for _ in 0..TEXTS_MAX {
        unfolding.octets(octets.clone(), true);
        assert!(unfolding.spent <= 2 * OCTETS_MAX, "{} octets", unfolding.spent);
    }
    assert!(unfolding.is_spent() && unfold(format!("f('{hex}');").repeat(TEXTS_MAX).as_bytes()).is_empty());
}

#[test]
fn a_quote_without_its_end_hides_no_other_script() {
    let scripts: [&[u8]; 3] = [b"a=`", b"b='sear'+'ch-';c='ms:query=x';location=b+c", b"`"];
    let words = words(scripts.into_iter());
    assert!(words.contains(&b"search-ms:query=x".to_vec()), "{words:?}");
}

#[test]
fn a_program_in_escapes_is_a_program() {
    let program = [&b"MZ\x90\0"[..], &[0; 56], &64u32.to_le_bytes(), b"PE\0\0L\x01"].concat();
    let ways: [fn(&u8) -> String; 3] =
        [|octet| format!("\\x{octet:02x}"), |octet| format!("\\{octet:03o}"), |octet| format!("\\u{{{octet:x}}}")];
    for way in ways {
        let escaped: String = program.iter().map(way).collect();
        assert_eq!(
            unfold(format!("var d=\"{escaped}\";new Blob([d])").as_bytes()),
            std::slice::from_ref(&program),
            "{escaped}"
        );
    }
    let double: String = program.chunks(2).map(|two| format!("%u{:02x}{:02x}", two[1], two[0])).collect();
    assert_eq!(unfold(format!("unescape('{double}')").as_bytes()), std::slice::from_ref(&program));
}
