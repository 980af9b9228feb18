//! Messages as real programs write them, and bent: a seed is a message, for ever.

/// SplitMix64: the same numbers for ever.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Numbers {
        Numbers(seed)
    }

    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) % most.max(1) as u64) as usize
    }

    fn one_of<'t>(&mut self, texts: &[&'t str]) -> &'t str {
        texts[self.below(texts.len())]
    }

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// A message, bent in up to four places.
pub(crate) fn message(numbers: &mut Numbers) -> Vec<u8> {
    let mut writer = Writer { numbers, count: 0 };
    let body = writer.part(0);
    let mut message =
        format!("From: Ann <ann@a.example>\r\nTo: bob@b.example\r\nSubject: seeded\r\nMIME-Version: 1.0\r\n{body}");
    for _ in 0..writer.numbers.below(5) {
        message = bent(&message, writer.numbers);
    }
    message.into_bytes()
}

struct Writer<'n> {
    numbers: &'n mut Numbers,
    count: usize,
}

const NAMES: [&str; 6] = ["report.pdf", "a b.exe", "evil.js", "photo.jpg", "x.zip", "run me.bat"];

impl Writer<'_> {
    /// A part with its header.
    fn part(&mut self, depth: usize) -> String {
        match self.numbers.below(if depth < 3 { 6 } else { 3 }) {
            0..3 => self.leaf(),
            3 => {
                let inner = self.part(depth + 1);
                let kind =
                    self.numbers.one_of(&["message/rfc822", "message/rfc822", "message/global", "message/x-odd"]);
                format!("Content-Type: {kind}\r\n\r\nSubject: inner\r\n{inner}")
            }
            _ => self.multipart(depth),
        }
    }

    fn multipart(&mut self, depth: usize) -> String {
        self.count += 1;
        let boundary = match self.numbers.below(5) {
            0 => "same".to_owned(),
            1 => format!("b{}", self.count),
            2 => format!("----=_Part_{}.17", self.count),
            3 => format!("with blank {}", self.count),
            _ => format!("_000_{}_", self.count),
        };
        let kind = self.numbers.one_of(&["mixed", "alternative", "related", "digest", "x-other", "signed"]);
        let quoted = if self.numbers.chance(3) { boundary.clone() } else { format!("\"{boundary}\"") };
        let mut out = format!("Content-Type: multipart/{kind}; boundary={quoted}\r\n\r\nThis is MIME.\r\n");
        for _ in 0..=self.numbers.below(3) {
            let part = if kind == "digest" && self.numbers.chance(2) {
                format!("\r\nSubject: in a digest\r\n{}", self.part(depth + 1))
            } else {
                self.part(depth + 1)
            };
            out += &format!("\r\n--{boundary}\r\n{part}");
        }
        if !self.numbers.chance(6) {
            out += &format!("\r\n--{boundary}--\r\n");
        }
        out
    }

    fn leaf(&mut self) -> String {
        self.count += 1;
        let content = format!("leaf number {} of this message, with some text in it", self.count);
        let (encoding, body) = match self.numbers.below(4) {
            0 => ("base64", base64(content.as_bytes())),
            1 => ("quoted-printable", content.replace("number", "n=75mber").replace("text", "te=\r\nxt")),
            2 => ("7bit", content),
            _ => ("", content),
        };
        let name = self.numbers.one_of(&NAMES);
        let kind = self.numbers.one_of(&[
            "text/plain",
            "text/html; charset=us-ascii",
            "application/octet-stream",
            "image/png",
        ]);
        let mut header = match self.numbers.below(5) {
            0 => String::new(),
            1 => format!("Content-Type: {kind}; name=\"{name}\"\r\n"),
            2 => format!("Content-Type: {kind}\r\nContent-Disposition: attachment;\r\n filename=\"{name}\"\r\n"),
            3 => format!(
                "Content-Type: {kind}\r\nContent-Disposition: attachment; filename*0=\"{}\"; filename*1=\"{}\"\r\n",
                &name[..3],
                &name[3..]
            ),
            _ => format!("Content-Type: {kind}\r\n"),
        };
        if !encoding.is_empty() {
            header += &format!("Content-Transfer-Encoding: {encoding}\r\n");
        }
        format!("{header}\r\n{body}")
    }
}

fn base64(octets: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for group in octets.chunks(3) {
        let value = group.iter().fold(0u32, |value, octet| value << 8 | u32::from(*octet)) << (8 * (3 - group.len()));
        for at in 0..4 {
            let sextet = ALPHABET[(value >> (18 - 6 * at) & 63) as usize];
            out.push(if at <= group.len() { char::from(sextet) } else { '=' });
        }
    }
    out
}

/// Pairs of what a usual program writes and what somebody makes of it.
const SWAPS: [(&str, &str); 36] = [
    ("multipart/", "multipart /"),
    ("multipart/", "multipart/ "),
    ("multipart/", "multipart\r\n /"),
    ("multipart/", "multipart(so)/"),
    ("multipart/", "multipart/(so)"),
    ("multipart/", "MULTIPART/"),
    ("multipart/", "(so) multipart/"),
    ("multipart/", "\"multipart\"/"),
    ("message/rfc822", "message /rfc822"),
    ("message/rfc822", "message/(c)rfc822"),
    ("Content-Type:", "Content-Type :"),
    ("Content-Type:", "Content-type:"),
    ("Content-Type:", "Content-Type: text/plain\r\nContent-Type:"),
    ("Content-Type:", "Content-Type: multipart/mixed; boundary=same\r\nContent-Type:"),
    ("Content-Type:", "X-Odd: y\rContent-Type:"),
    ("Content-Type:", "no field at all\r\nContent-Type:"),
    ("Content-Type:", "Content-\0Type:"),
    ("; boundary=", "; BOUNDARY ="),
    ("; boundary=", "; boundary= "),
    ("; boundary=", "; charset=\"x; boundary="),
    ("; boundary=", "; boundary=other; boundary="),
    ("; boundary=", "; boundary*="),
    ("; boundary=", "; boundary*0="),
    ("; boundary=", " boundary="),
    ("; boundary=", ";(c) boundary="),
    ("Content-Transfer-Encoding: base64", "Content-Transfer-Encoding: BASE64 (so)"),
    ("Content-Transfer-Encoding: base64", "Content-Transfer-Encoding: (so) base64"),
    ("Content-Transfer-Encoding: base64", "Content-Transfer-Encoding: 7bit\r\nContent-Transfer-Encoding: base64"),
    ("Content-Transfer-Encoding: base64", "Content-Transfer-Encoding: base64;"),
    ("Content-Transfer-Encoding:", "Content-Transfer-Encoding :"),
    ("filename=\"", "filename*=utf-8''"),
    ("filename=\"", "filename=\"=?utf-8?q?in?= "),
    ("filename=\"", "filename="),
    ("attachment; filename", "filename"),
    ("name=\"", "name=\"x\\"),
    ("\r\n\r\n", "\r\r\n\r\n"),
];

/// One thing bent: something usual replaced, a boundary line changed, a line end changed, a line taken away or doubled.
fn bent(message: &str, numbers: &mut Numbers) -> String {
    match numbers.below(10) {
        0..6 => {
            let (usual, odd) = SWAPS[numbers.below(SWAPS.len())];
            let places: Vec<usize> = message.match_indices(usual).map(|(at, _)| at).collect();
            match places.is_empty() {
                true => message.to_owned(),
                false => {
                    let at = places[numbers.below(places.len())];
                    format!("{}{odd}{}", &message[..at], &message[at + usual.len()..])
                }
            }
        }
        6 => with_line(message, numbers, |line, numbers| {
            let more = numbers.one_of(&[" ", "\t ", "x", "--", "-- x", "\0", ""]);
            line.replace("\r\n", &format!("{more}\r\n"))
        }),
        7 => with_line(message, numbers, |line, numbers| {
            line.replace("\r\n", numbers.one_of(&["\n", "\r", "\r\r\n", "\n\r", ""]))
        }),
        8 => with_line(message, numbers, |_, _| String::new()),
        _ => with_line(message, numbers, |line, _| format!("{line}{line}")),
    }
}

/// Changes one line; mostly a boundary or one of a header.
fn with_line(message: &str, numbers: &mut Numbers, change: impl Fn(&str, &mut Numbers) -> String) -> String {
    let mut lines: Vec<String> = message.split_inclusive("\r\n").map(str::to_owned).collect();
    let boundaries: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].starts_with("--")).collect();
    let at = match boundaries.is_empty() || numbers.chance(2) {
        true => numbers.below(lines.len()),
        false => boundaries[numbers.below(boundaries.len())],
    };
    lines[at] = change(&lines[at], numbers);
    lines.concat()
}
