//! Scripts that are written so that nobody can read them: finds what obfuscation tools leave behind, and people and ordinary programs never
//! write.
//!
//! What such a script does is not looked at ([`crate::walk::unfold`] tries that). Each sign here is a count that ordinary scripts, even
//! minified ones, stay far below. Cost: a few passes over at most [`LOOKED_THROUGH`] octets.

use crate::markup::LOOKED_THROUGH;

/// Whether a script, or a page with scripts, hides what it does.
pub(crate) fn is_obfuscated(text: &[u8]) -> bool {
    let text = &text[..text.len().min(LOOKED_THROUGH)];
    let lower = text.to_ascii_lowercase();
    let dense: Vec<u8> = lower.iter().filter(|byte| !byte.is_ascii_whitespace()).copied().collect();
    runs_what_it_decodes(&dense)
        || runs_what_it_unpacks(&dense)
        || named_by_numbers(&lower)
        || written_in_signs(&dense)
        || escaped(&lower)
        || basic_in_letters(&dense)
        || batch_in_pieces(&lower)
        || shell_in_pieces(&dense)
}

/// Whether a script was made short by Dean Edwards' packer, as libraries of old are and much else.
pub(crate) fn is_packed(text: &[u8]) -> bool {
    let text = &text[..text.len().min(LOOKED_THROUGH)];
    let dense: Vec<u8> = text.iter().filter(|byte| !byte.is_ascii_whitespace()).map(u8::to_ascii_lowercase).collect();
    count(&dense, "eval(function(p,a,c,k,e,") > 0
}

fn count(text: &[u8], word: &str) -> usize {
    memchr::memmem::find_iter(text, word.as_bytes()).count()
}

/// `eval(unescape(…))` and its relatives: code or a page that comes out of a text.
fn runs_what_it_decodes(dense: &[u8]) -> bool {
    const RUNS: [&str; 8] = [
        "eval(",
        "function(",
        "document.write(",
        "document.writeln(",
        "execscript(",
        "settimeout(",
        "setinterval(",
        ".innerhtml=",
    ];
    const DECODES: [&str; 7] = [
        "unescape(",
        "atob(",
        "string.fromcharcode(",
        "decodeuri(",
        "decodeuricomponent(",
        "decodeuricomponent(escape(",
        "string['fromcharcode'](",
    ];
    const OWNERS: [&str; 5] = ["window.", "self.", "this.", "top.", "globalthis."];
    RUNS.iter().any(|run| {
        memchr::memmem::find_iter(dense, run.as_bytes()).any(|at| {
            let mut rest = &dense[at + run.len()..];
            if let Some(inner) = OWNERS.iter().find_map(|owner| rest.strip_prefix(owner.as_bytes())) {
                rest = inner;
            }
            // `new Function(` takes text; the declaration of a function does not.
            let declared = *run == "function(" && !dense[..at].ends_with(b"new");
            !declared && DECODES.iter().any(|decode| rest.starts_with(decode.as_bytes()))
        })
    })
}

/// A page or script that comes packed, and is unpacked by the browser.
fn runs_what_it_unpacks(dense: &[u8]) -> bool {
    const RUNS: [&str; 8] = [
        "document.write",
        "innerhtml",
        "outerhtml",
        "eval(",
        "newfunction(",
        "srcdoc",
        "import(",
        "insertadjacenthtml",
    ];
    let has = |word: &str| memchr::memmem::find(dense, word.as_bytes()).is_some();
    has("decompressionstream(")
        && (has("atob(") || has("base64,") || has("uint8array"))
        && RUNS.iter().any(|word| has(word))
}

/// Names such as `_0x3fa2`, which one of the widespread tools gives to everything.
fn named_by_numbers(lower: &[u8]) -> bool {
    let named = memchr::memmem::find_iter(lower, b"_0x")
        .filter(|at| lower[at + 3..].iter().take(4).filter(|byte| byte.is_ascii_hexdigit()).count() == 4);
    named.count() >= 30
}

/// Programs in six signs (`[][(![]+[])…`), or behind `$=~[];`.
fn written_in_signs(dense: &[u8]) -> bool {
    const LONGEST: usize = 300;
    let mut run = 0;
    let signs = dense.iter().any(|byte| {
        run = if b"[]()!+".contains(byte) { run + 1 } else { 0 };
        run >= LONGEST
    });
    signs || memchr::memmem::find(dense, b"$=~[];").is_some()
}

/// A text that is escapes and nothing else, where letters would do.
fn escaped(lower: &[u8]) -> bool {
    const FORMS: [(&[u8], usize); 3] = [(b"\\x", 2), (b"\\u00", 2), (b"%u00", 2)];
    const RUN: usize = 64;
    FORMS.iter().any(|(mark, digits)| {
        let (mut end, mut run) = (0, 0);
        memchr::memmem::find_iter(lower, mark).any(|at| {
            let letter = lower.get(at + mark.len()..at + mark.len() + digits);
            let value = letter
                .and_then(|text| std::str::from_utf8(text).ok())
                .and_then(|text| u8::from_str_radix(text, 16).ok());
            let is_letter = value.is_some_and(|value| value.is_ascii_graphic() || value == b' ');
            run = if !is_letter {
                0
            } else if at == end {
                run + 1
            } else {
                1
            };
            end = at + mark.len() + digits;
            run >= RUN
        })
    })
}

/// Visual Basic whose words are letters by number, or come out of a decoder, and that runs what comes of them.
fn basic_in_letters(dense: &[u8]) -> bool {
    let letters = count(dense, "&chr(") + count(dense, "&chrw(") + count(dense, "+chr(") + count(dense, "&chr$(");
    letters >= 20 && ["execute", "eval(", "createobject(", "shell(", ".run("].iter().any(|word| count(dense, word) > 0)
}

/// Batch files whose words are cut out of variables: `%x:~7,1%`.
fn batch_in_pieces(lower: &[u8]) -> bool {
    let cut = memchr::memmem::find_iter(lower, b":~").filter(|at| {
        let rest = &lower[at + 2..lower.len().min(at + 12)];
        rest.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'-') && rest.contains(&b'%')
    });
    cut.count() >= 20
}

/// PowerShell whose commands are put together from pieces, or come out of a decoder.
fn shell_in_pieces(dense: &[u8]) -> bool {
    let runs = ["iex(", "|iex", "invoke-expression", ".invoke(", "&($", ".('i'", "i`ex", "scriptblock]::create("];
    let makes = count(dense, "frombase64string(")
        + count(dense, "[char]") / 10
        + count(dense, "-bxor")
        + count(dense, "'+'") / 20
        + count(dense, "\"-f'") / 3
        + count(dense, "io.compression.deflatestream")
        + count(dense, "io.compression.gzipstream");
    makes > 0 && runs.iter().any(|run| count(dense, run) > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tools_for_hiding_write_is_seen() {
        let numbers: String = (0..40).map(|n| format!("var _0x{n:04x}=_0x1f2e({n});")).collect();
        let signs = format!("<script>{}</script>", "[][(![]+[])[+[]]+(!![]+[])]".repeat(20));
        let escapes = format!("var a='{}'", (0..80).map(|n| format!("\\x{:02x}", 0x61 + n % 26)).collect::<String>());
        let units =
            format!("unescape('{}')", (0..80).map(|n| format!("%u00{:02x}", 0x61 + n % 26)).collect::<String>());
        let letters: String = (0..30).map(|n| format!("& Chr({})", 65 + n)).collect();
        let pieces: String = (0..30).map(|n| format!("%alphabet:~{n},1%")).collect();
        let joined = "'a'+'b'+".repeat(30);
        for script in [
            "<script>eval( unescape('%61%6c') )</script>".to_owned(),
            "<script>document.write(atob('PGh0bWw+'))</script>".into(),
            "<script>document.write( decodeURIComponent('%3Ch'))</script>".into(),
            "<script>window.eval(window.atob(x))</script>".into(),
            "<script>new Function(atob('YWxlcnQ='))()</script>".into(),
            "<script>document.body.innerHTML = atob(page)</script>".into(),
            "new Response(atob(x)).body.pipeThrough(new DecompressionStream('gzip')); document.write(t)".into(),
            numbers,
            signs,
            escapes,
            units,
            "$=~[];$={___:++$}".into(),
            format!("x = \"\" {letters}\nExecute x"),
            format!("@echo off\r\n{pieces}"),
            "$x=[Convert]::FromBase64String('aGk='); IEX ([Text.Encoding]::UTF8.GetString($x))".into(),
            format!("$c={joined}'z'; & ($c) ; iex($c)"),
            "$s=New-Object IO.Compression.GZipStream($m,0); iex (New-Object IO.StreamReader($s)).ReadToEnd()".into(),
        ] {
            assert!(is_obfuscated(script.as_bytes()), "{script}");
        }
    }

    #[test]
    fn what_is_only_packed_is_another_matter() {
        let packed = b"eval(function(p,a,c,k,e,d){return p}('0',1,1,'x'.split('|')))";
        assert!(is_packed(packed) && !is_obfuscated(packed));
        assert!(!is_packed(b"eval(function(a){return a}(1))"));
    }

    #[test]
    fn usual_scripts_are_readable_enough() {
        for script in [
            "<script>window.dataLayer=window.dataLayer||[];function gtag(){dataLayer.push(arguments);}gtag('js',new Date());</script>",
            "!function(e,t){\"use strict\";\"object\"==typeof module?module.exports=t(e,!0):t(e)}(window,function(e,t){var n=[],r=Object.getPrototypeOf;})",
            "<script>function toggle(id){var e=document.getElementById(id);e.style.display=e.style.display=='none'?'':'none';}</script>",
            "<script>document.write(new Date().getFullYear())</script>",
            "<script>setTimeout(function(){location.reload()},5000)</script>",
            "var s = '\\u00e4\\u00f6\\u00fc\\u00df'; var c = String.fromCharCode(65);",
            "var png = atob(data); var blob = decodeURIComponent(location.search);",
            "@echo off\r\nset d=%date:~6,4%%date:~3,2%%date:~0,2%\r\ncopy a.txt b-%d%.txt\r\n",
            "Get-ChildItem | Where-Object { $_.Length -gt 1MB } | Sort-Object Length",
            "MsgBox \"a\" & Chr(13) & Chr(10) & \"b\"",
            "a long text about JavaScript: eval(x) is bad, and so is unescape(y).",
        ] {
            assert!(!is_obfuscated(script.as_bytes()), "{script}");
        }
    }
}
