//! Words in the text of a message that may be the password of an archive in it: "the password is 1234".

/// A longer text is not looked through.
pub(super) const TEXT_MAX: usize = 256 << 10;
/// How many words are tried.
const TRIED_MAX: usize = 24;
const WORD_MAX: usize = 64;
/// How many words behind "password" count.
const BEHIND: usize = 5;

/// "Password" in the languages of those who send such mail, in small letters.
const PASSWORD: [&str; 16] = [
    "password",
    "passwort",
    "kennwort",
    "passcode",
    "passwd",
    "pass",
    "pwd",
    "pw",
    "pin",
    "code",
    "clave",
    "contraseña",
    "mot",
    "parola",
    "senha",
    "пароль",
];

/// Adds the words of a text, or of a page, that stand behind one for "password".
pub(super) fn gather(text: &[u8], into: &mut Vec<String>) {
    let text = without_tags(&String::from_utf8_lossy(text));
    let words: Vec<&str> = text.split_whitespace().collect();
    for (at, word) in words.iter().enumerate() {
        let lower = word.to_lowercase();
        let bare = lower.trim_matches(|c: char| !c.is_alphanumeric());
        let glued = |known: &str| lower.strip_prefix(known).is_some_and(|rest| rest.starts_with([':', '=']));
        if !PASSWORD.iter().any(|known| bare == *known || glued(known)) {
            continue;
        }
        if let Some((_, glued)) = word.split_once([':', '=']) {
            add(glued, into);
        }
        words.iter().skip(at + 1).take(BEHIND).for_each(|word| add(word, into));
    }
}

/// A word as it stands, and without what a sentence puts around it.
fn add(word: &str, into: &mut Vec<String>) {
    let bare = word.trim_matches(|c: char| "\"'`<>()[]{}.,;:!?„“”«»".contains(c));
    for word in [bare, word] {
        let known = into.iter().any(|known| known == word);
        if !known && !word.is_empty() && word.len() <= WORD_MAX && into.len() < TRIED_MAX {
            into.push(word.to_owned());
        }
    }
}

fn without_tags(text: &str) -> String {
    let (mut out, mut inside) = (String::with_capacity(text.len()), false);
    for c in text.chars() {
        match c {
            '<' => {
                inside = true;
                out.push(' ');
            }
            '>' if inside => inside = false,
            c if !inside => out.push(c),
            _ => {}
        }
    }
    out.replace("&nbsp;", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut words = Vec::new();
        gather(text.as_bytes(), &mut words);
        words
    }

    #[test]
    fn words_behind_password() {
        assert!(words("The archive is protected. Password: Inv-2026!").contains(&"Inv-2026!".to_owned()));
        assert!(words("pw=4711").contains(&"4711".to_owned()));
        assert!(words("<p>Das <b>Kennwort</b> lautet <i>geheim</i>.</p>").contains(&"geheim".to_owned()));
        assert!(words("use the password \"a b\", or so").contains(&"a".to_owned()));
        assert!(words("Hello, how are you?").is_empty());
        assert!(words(&"password x ".repeat(1000)).len() <= TRIED_MAX);
    }
}
