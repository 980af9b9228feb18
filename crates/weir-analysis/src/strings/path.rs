//! Paths in text: of Windows, which may have spaces in them, of its registry, and of Unix.

use super::indicator::Indicator;

/// As long as Windows lets them be.
const PATH_MAX: usize = 260;
/// What paths of Unix begin with that are worth a look.
const ROOTS: &[&str] = &[
    "/bin/", "/boot/", "/dev/", "/etc/", "/home/", "/lib/", "/opt/", "/proc/", "/root/", "/run/", "/sbin/", "/sys/",
    "/tmp/", "/usr/", "/var/",
];
const HIVES: &[&str] =
    &["HKEY_", "HKLM\\", "HKCU\\", "HKCR\\", "HKU\\", "Software\\Microsoft\\Windows\\CurrentVersion\\Run"];

/// Every path in a run of text. Cost: linear, since each begins at a mark of its own and none is longer than [`PATH_MAX`].
pub(super) fn all(run: &[u8], mut each: impl FnMut(Indicator)) {
    let mut from = 0;
    while let Some(at) = memchr::memchr2(b'\\', b'/', run.get(from..).unwrap_or(&[])).map(|at| from + at) {
        let (found, end) = one(run, at);
        found.into_iter().for_each(&mut each);
        from = end.max(at + 1);
    }
}

/// The path that this slash belongs to, and where to look on.
fn one(run: &[u8], at: usize) -> (Option<Indicator>, usize) {
    if run[at] == b'/' {
        return unix(run, at);
    }
    if let Some(start) = hive(run, at) {
        let end = end(run, start);
        return (text(run, start, end).map(Indicator::Registry), end);
    }
    let drive = at >= 2 && run[at - 1] == b':' && run[at - 2].is_ascii_alphabetic();
    let alone = at < 3 || !run[at - 3].is_ascii_alphanumeric();
    let start = match run[..at].last() {
        Some(b':') if drive && alone => at - 2,
        Some(b'%') => match run[..at - 1].iter().rposition(|byte| *byte == b'%') {
            Some(start) if at - start <= 40 && run[start + 1..at - 1].iter().all(is_word) => start,
            _ => return (None, at + 1),
        },
        _ => return (None, at + 1),
    };
    let end = end(run, start);
    (text(run, start, end).filter(|path| path.len() >= 6).map(Indicator::Path), end)
}

fn unix(run: &[u8], at: usize) -> (Option<Indicator>, usize) {
    let rest = &run[at..];
    let begins = at == 0 || !(run[at - 1].is_ascii_alphanumeric() || b"._-/~".contains(&run[at - 1]));
    if !begins || !ROOTS.iter().any(|root| rest.starts_with(root.as_bytes())) {
        return (None, at + 1);
    }
    let ends = |byte: &u8| !(byte.is_ascii_alphanumeric() || b"/._-+@%~".contains(byte));
    let length = rest.iter().position(ends).unwrap_or(rest.len()).min(PATH_MAX);
    let path = text(run, at, at + length).map(|path| path.trim_end_matches(['.', '/']).to_owned());
    let deep = |path: &String| path.matches('/').count() >= 2 && !path.ends_with(['-', '%']);
    (path.filter(deep).map(Indicator::Path), at + length)
}

/// Where a key of the registry begins whose first separator is here.
fn hive(run: &[u8], at: usize) -> Option<usize> {
    let back = run[..at].iter().rev().take(24).position(|byte| !is_word(byte)).unwrap_or(at.min(24));
    let start = at - back;
    HIVES.iter().any(|hive| starts_with(&run[start..], hive)).then_some(start)
}

fn starts_with(text: &[u8], beginning: &str) -> bool {
    text.get(..beginning.len()).is_some_and(|start| start.eq_ignore_ascii_case(beginning.as_bytes()))
}

fn is_word(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_'
}

/// Where a path of Windows ends. A space belongs to it only where a further separator follows before the next space.
fn end(run: &[u8], start: usize) -> usize {
    let most = run.len().min(start + PATH_MAX);
    let (mut at, mut last) = (start, most);
    while at < most {
        match run[at] {
            b'"' | b'\'' | b'<' | b'>' | b'|' | b'*' | b'?' | b',' | b';' | b'\t' => {
                last = at;
                break;
            }
            b' ' => {
                let word = run[at + 1..most].iter().position(|byte| *byte == b' ').map_or(most, |n| at + 1 + n);
                let named =
                    run[start..at].rsplit(|byte| *byte == b'\\').next().is_some_and(|part| part.contains(&b'.'));
                if named || !run[at + 1..word].contains(&b'\\') || run[at + 1..word].contains(&b':') {
                    last = at;
                    break;
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
    last
}

fn text(run: &[u8], start: usize, end: usize) -> Option<String> {
    let text = std::str::from_utf8(run.get(start..end)?).ok()?;
    let text = text.trim_end_matches(['.', ')', ']', '}', '\\', ' ']);
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(run: &str) -> Vec<String> {
        let mut found = Vec::new();
        all(run.as_bytes(), |indicator| found.push(indicator.text().to_owned()));
        found
    }

    #[test]
    fn paths_of_windows() {
        assert_eq!(texts(r"run C:\Windows\System32\cmd.exe /c x"), [r"C:\Windows\System32\cmd.exe"]);
        assert_eq!(texts(r#""C:\Program Files\Evil\a.exe","#), [r"C:\Program Files\Evil\a.exe"]);
        assert_eq!(texts(r"%APPDATA%\evil.vbs"), [r"%APPDATA%\evil.vbs"]);
        let run = r"HKCU\Software\Microsoft\Windows\CurrentVersion\Run";
        assert_eq!(texts(run), [run]);
        assert_eq!(texts(r"Software\Microsoft\Windows\CurrentVersion\Run\x").len(), 1);
        assert_eq!(texts(r"a\b \\ C:\ %a b%\x ABC:\x"), Vec::<String>::new());
    }

    #[test]
    fn paths_of_unix() {
        assert_eq!(texts("echo x >/etc/cron.d/evil; /tmp/a"), ["/etc/cron.d/evil", "/tmp/a"]);
        assert_eq!(texts("http://x.example/etc/passwd /tmp/ //// /x/y"), Vec::<String>::new());
    }

    #[test]
    fn endless_separators_end() {
        for run in [r"\".repeat(100_000), "/".repeat(100_000), r"C:\ ".repeat(30_000), "/tmp/".repeat(20_000)] {
            let _ = texts(&run);
        }
    }
}
