//! Pages, pictures and scripts that make a file by themselves, in the ways in which that is seen.

use super::carriers::{program, zipped};
use crate::mail::base64;

/// Name, content.
pub(crate) fn smuggling() -> Vec<(String, Vec<u8>)> {
    let mut out = Vec::new();
    for (what, data) in [("program", program()), ("zip", zipped("evil.exe", &program()))] {
        let text: String =
            base64(&data).into_iter().filter(|byte| !byte.is_ascii_whitespace()).map(char::from).collect();
        let hex: String = data.iter().map(|octet| format!("{octet:02x}")).collect();
        let numbers = |key: u8| data.iter().map(|octet| (octet ^ key).to_string()).collect::<Vec<_>>().join(",");
        let pieces: Vec<String> =
            text.as_bytes().chunks(40).map(|piece| format!("\"{}\"", String::from_utf8_lossy(piece))).collect();
        let named: String = pieces.iter().enumerate().map(|(at, piece)| format!("var p{at}={piece};\n")).collect();
        let sum: Vec<String> = (0..pieces.len()).map(|at| format!("p{at}")).collect();
        let salted = text
            .as_bytes()
            .chunks(20)
            .map(|piece| String::from_utf8_lossy(piece).into_owned())
            .collect::<Vec<_>>()
            .join("~!");
        let scripts = [
            ("whole", format!("var d=atob(\"{text}\");")),
            ("in pieces", format!("var d=atob({});", pieces.join("+"))),
            ("in names", format!("{named}var d=atob({});", sum.join("+"))),
            ("in a list", format!("var d=atob([{}].join(\"\"));", pieces.join(","))),
            ("added up", pieces.iter().map(|piece| format!("s+={piece};")).collect::<String>()),
            ("hex", format!("var d=fromHex('{hex}');")),
            ("numbers", format!("var d=new Uint8Array([{}]);", numbers(0))),
            ("xor", format!("var d=[{}].map(function(c){{return c^77}});", numbers(77))),
            ("char codes", format!("var d=String.fromCharCode({});", numbers(0))),
            ("replaced", format!("var d=atob('{salted}'.split('~!').join(''));")),
            (
                "backwards",
                format!("var d=atob('{}'.split('').reverse().join(''));", text.chars().rev().collect::<String>()),
            ),
        ];
        for (how, script) in scripts {
            let page = format!("<!DOCTYPE html><html><body><script>{script}\ngo(d);</script></body></html>");
            out.push((format!("{what}, {how}.html"), page.into_bytes()));
        }
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\"><script><![CDATA[var d=atob(\"{text}\");]]></script></svg>"
        );
        out.push((format!("{what}.svg"), svg.into_bytes()));
        let link =
            format!("<html><a download=\"x\" href=\"data:application/octet-stream;base64,{text}\">here</a></html>");
        out.push((format!("{what}, data link.html"), link.into_bytes()));
        let hidden = format!("<html><div id=d style=\"display:none\">{text}</div></html>");
        out.push((format!("{what}, hidden text.html"), hidden.into_bytes()));
    }
    out
}
