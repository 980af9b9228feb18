//! What a message is found by: words, each with the field that it stands in.
//!
//! A word is a letter for its field, a colon, and the text in small letters. An address `ann@example.org` of a sender is three words: `f:ann@example.org`,
//! `f:ann@` and `f:@example.org`, so that it is found by the whole, by the name and by the domain. A subject is cut into words, and a script without spaces into
//! single characters. All of it happens here and not in the database, so both databases find the same.

use super::message::{TO_MAX, TrackedMessage, name_hash};
use super::search::MessageFilter;
use std::collections::BTreeSet;
use unicode_normalization::UnicodeNormalization;

/// The longest word, and the most of one text, of one message and of one question.
const WORD_MAX: usize = 80;
const TEXT_WORDS_MAX: usize = 40;
const MESSAGE_WORDS_MAX: usize = 200;
/// The most words of recipients: each has three.
const RECIPIENT_WORDS_MAX: usize = 3 * TO_MAX;
const ASKED_MAX: usize = 16;

/// The fields and their letters.
const SENDER: char = 'f';
const RECIPIENT: char = 't';
const SUBJECT: char = 's';
const CLIENT: char = 'c';
const LOGIN: char = 'l';
const VERDICT: char = 'v';
const STATE: char = 'x';
const NAME: char = 'm';

/// The words of a message.
pub(super) fn of_message(message: &TrackedMessage) -> String {
    let mut words = BTreeSet::new();
    words.extend(address(SENDER, &message.from));
    words.extend(address(LOGIN, &message.login));
    words.extend(text(SUBJECT, &message.subject));
    words.extend(text(VERDICT, &message.verdict));
    words.extend(text(STATE, &message.state));
    words.extend(word(CLIENT, &message.client));
    if !message.name.is_empty() {
        words.insert(name_word(&message.name));
    }
    let to: BTreeSet<String> = message.to.iter().flat_map(|to| address(RECIPIENT, to)).collect();
    let words = words.into_iter().take(MESSAGE_WORDS_MAX).chain(to.into_iter().take(RECIPIENT_WORDS_MAX));
    words.collect::<Vec<_>>().join(" ")
}

fn name_word(hash: &str) -> String {
    format!("{NAME}:{hash}")
}

fn address(field: char, address: &str) -> Vec<String> {
    let whole = plain(address);
    let Some((local, domain)) = whole.rsplit_once('@') else {
        return if whole.is_empty() { Vec::new() } else { vec![format!("{field}:{}@", cut(&whole))] };
    };
    vec![format!("{field}:{}", cut(&whole)), format!("{field}:{}@", cut(local)), format!("{field}:@{}", cut(domain))]
}

fn word(field: char, text: &str) -> Option<String> {
    let text = plain(text);
    (!text.is_empty()).then(|| format!("{field}:{}", cut(&text)))
}

fn text(field: char, text: &str) -> Vec<String> {
    words_of(text).into_iter().take(TEXT_WORDS_MAX).map(|word| format!("{field}:{}", cut(&word))).collect()
}

fn words_of(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in text.nfkc().filter(|c| !is_unseen(*c)).flat_map(char::to_lowercase) {
        match c {
            c if has_no_spaces(c) || is_symbol(c) => words.extend([c.to_string(), String::new()]),
            c if c.is_alphanumeric() => words.last_mut().into_iter().for_each(|word| word.push(c)),
            _ => words.push(String::new()),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Characters that nobody sees, and that would part a word which people read as one.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
}

/// Scripts that are written without spaces: Thai to Khmer, Japanese, Chinese.
fn has_no_spaces(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{20000}'..='\u{3ffff}')
}

/// Pictures and signs, each of which is a word of its own: people look for the one in a subject.
fn is_symbol(c: char) -> bool {
    c >= '\u{2190}' && !c.is_alphanumeric() && !c.is_whitespace() && !c.is_control()
}

/// Whether there is something in a text that words are made of.
fn has_words(text: &str) -> bool {
    text.chars().any(|c| c.is_alphanumeric() || is_symbol(c))
}

/// In small letters, with `_` for what would part a word in one of the databases.
fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_alphanumeric() || "@.:-+".contains(c) { c } else { '_' };
    text.chars().flat_map(char::to_lowercase).map(plain).collect()
}

fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(WORD_MAX).map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or(text)
}

/// A word that is asked for, or the beginning of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedWord {
    word: String,
    is_beginning: bool,
}

impl WantedWord {
    fn whole(word: String) -> WantedWord {
        WantedWord { word, is_beginning: false }
    }
}

/// What is asked for: of each set one word must be there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WantedWords(Vec<Vec<WantedWord>>);

impl WantedWords {
    pub(super) fn of(filter: &MessageFilter) -> WantedWords {
        let mut question = WantedWords::default();
        let texts = [&filter.text, &filter.from, &filter.to, &filter.login, &filter.client];
        let texts = texts.into_iter().chain([&filter.subject, &filter.verdict, &filter.state]);
        // What has no word in it, such as `%`, fits nothing: to leave it out would show everything.
        if texts.into_iter().any(|text| !text.trim().is_empty() && !has_words(text)) {
            question.nothing();
            return question;
        }
        for (field, text) in [(SENDER, &filter.from), (RECIPIENT, &filter.to), (LOGIN, &filter.login)] {
            question.one(address_asked(field, text));
        }
        question.one(single(CLIENT, &filter.client));
        for (field, text) in [(SUBJECT, &filter.subject), (VERDICT, &filter.verdict), (STATE, &filter.state)] {
            text.split_whitespace().for_each(|part| question.all(parts(field, part)));
        }
        if !filter.name.is_empty() {
            question.one(vec![named(&filter.name)]);
        }
        for part in filter.text.split_whitespace().filter(|part| has_words(part)) {
            question.anywhere(part);
        }
        question.0.truncate(ASKED_MAX);
        question
    }

    /// A word that no message has: what stands behind its letter is always a hash.
    fn nothing(&mut self) {
        self.0.push(vec![WantedWord::whole(format!("{NAME}:-"))]);
    }

    /// One of these.
    fn one(&mut self, words: Vec<WantedWord>) {
        if !words.is_empty() {
            self.0.push(words);
        }
    }

    /// All of these.
    fn all(&mut self, words: Vec<WantedWord>) {
        words.into_iter().for_each(|word| self.one(vec![word]));
    }

    /// A part of what somebody typed, in any field.
    fn anywhere(&mut self, part: &str) {
        let mut words = single(CLIENT, part);
        words.push(named(part));
        [SENDER, RECIPIENT, LOGIN].into_iter().for_each(|field| words.extend(address_asked(field, part)));
        let texts = [SUBJECT, VERDICT, STATE].map(|field| parts(field, part));
        if texts[0].is_empty() {
            self.one(words);
            return;
        }
        // `demo-worm` is one word of an address and two of a subject: either the one, or both of the other.
        for number in 0..texts[0].len() {
            let pieces = texts.iter().filter_map(|text| text.get(number).cloned());
            self.one(words.iter().cloned().chain(pieces).collect());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the words of SQLite's full text search. A word has no character that means something there but those between its quotes.
    pub(super) fn for_sqlite(&self) -> String {
        let asked = |asked: &WantedWord| format!("\"{}\"{}", asked.word, if asked.is_beginning { " *" } else { "" });
        self.joined(asked, " OR ", " AND ")
    }

    /// In the words of PostgreSQL's.
    pub(super) fn for_postgres(&self) -> String {
        let asked = |asked: &WantedWord| format!("'{}'{}", asked.word, if asked.is_beginning { ":*" } else { "" });
        self.joined(asked, " | ", " & ")
    }

    fn joined(&self, asked: impl Fn(&WantedWord) -> String, or: &str, and: &str) -> String {
        let set = |set: &Vec<WantedWord>| format!("({})", set.iter().map(&asked).collect::<Vec<_>>().join(or));
        self.0.iter().map(set).collect::<Vec<_>>().join(and)
    }
}

fn named(message_id: &str) -> WantedWord {
    WantedWord::whole(name_word(&name_hash(message_id)))
}

/// `*` at the end asks for a beginning.
fn beginning(text: &str) -> (&str, bool) {
    match text.strip_suffix('*') {
        Some(text) => (text, true),
        None => (text, false),
    }
}

/// An address, a name before the `@`, or a domain.
fn address_asked(field: char, text: &str) -> Vec<WantedWord> {
    let (text, is_beginning) = beginning(text.trim().trim_start_matches('<').trim_end_matches('>'));
    let text = plain(text);
    let word = |text: String| WantedWord { word: format!("{field}:{text}"), is_beginning };
    if text.trim_matches('@').is_empty() {
        Vec::new()
    } else if text.contains('@') || is_beginning {
        vec![word(cut(&text).to_owned())]
    } else {
        vec![word(format!("{}@", cut(&text))), word(format!("@{}", cut(&text)))]
    }
}

fn single(field: char, text: &str) -> Vec<WantedWord> {
    let (text, is_beginning) = beginning(text.trim());
    word(field, text).map(|word| WantedWord { word, is_beginning }).into_iter().collect()
}

fn parts(field: char, text: &str) -> Vec<WantedWord> {
    let (whole, is_beginning) = beginning(text);
    let mut words: Vec<WantedWord> = self::text(field, whole).into_iter().map(WantedWord::whole).collect();
    if let Some(last) = words.last_mut() {
        last.is_beginning = is_beginning;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> TrackedMessage {
        TrackedMessage {
            from: "Ann@Example.org".into(),
            to: vec!["bob@x.net".into()],
            subject: "Ihre Rechnung №42: größer 請求書".into(),
            login: "ann".into(),
            client: "2001:db8::7".into(),
            verdict: "infected: Eicar-Test".into(),
            ..TrackedMessage::default()
        }
    }

    fn sqlite(filter: &MessageFilter) -> String {
        WantedWords::of(filter).for_sqlite()
    }

    #[test]
    fn what_holds_no_word_finds_nothing_and_a_picture_is_one() {
        let nothing = format!("(\"{NAME}:-\")");
        for given in ["%", "\"", "''", "*", "@"] {
            let of = |filter: MessageFilter| assert_eq!(sqlite(&filter), nothing, "{given}");
            of(MessageFilter { text: given.into(), ..MessageFilter::default() });
            of(MessageFilter { subject: given.into(), ..MessageFilter::default() });
            of(MessageFilter { from: given.into(), ..MessageFilter::default() });
        }
        let smile = TrackedMessage { subject: "Party 🎉 today".into(), ..TrackedMessage::default() };
        assert!(of_message(&smile).split(' ').any(|word| word == "s:🎉"), "{}", of_message(&smile));
        let asked = MessageFilter { subject: "🎉".into(), ..MessageFilter::default() };
        assert_eq!(sqlite(&asked), "(\"s:🎉\")");
    }

    #[test]
    fn a_message_has_words_for_every_way_to_name_it() {
        let words = of_message(&TrackedMessage { name: name_hash("<x@y>"), ..message() });
        for word in [
            "f:ann@example.org",
            "f:ann@",
            "f:@example.org",
            "t:@x.net",
            "l:ann@",
            "s:rechnung",
            "s:größer",
            "s:請",
            "c:2001:db8::7",
            "v:eicar",
        ] {
            assert!(words.split(' ').any(|has| has == word), "{word} in {words}");
        }
        assert!(words.contains(&named("x@y").word));
    }

    #[test]
    fn a_question_names_words_as_messages_have_them() {
        let from = |text: &str| sqlite(&MessageFilter { from: text.into(), ..MessageFilter::default() });
        assert_eq!(from("<ANN@example.org>"), r#"("f:ann@example.org")"#);
        assert_eq!(from("ann"), r#"("f:ann@" OR "f:@ann")"#);
        assert_eq!(from("@example.org"), r#"("f:@example.org")"#);
        assert_eq!(from("ann*"), r#"("f:ann" *)"#);
        let subject = MessageFilter { subject: "größer Rech*".into(), ..MessageFilter::default() };
        assert_eq!(sqlite(&subject), r#"("s:größer") AND ("s:rech" *)"#);
        assert_eq!(WantedWords::of(&subject).for_postgres(), "('s:größer') & ('s:rech':*)");
        assert_eq!(sqlite(&MessageFilter::default()), "");
    }

    #[test]
    fn a_name_with_a_hyphen_is_one_word_of_an_address_and_two_of_a_subject() {
        let asked = WantedWords::of(&MessageFilter { text: "demo-worm".into(), ..MessageFilter::default() });
        let fits = |message: TrackedMessage| {
            let words = of_message(&message);
            let has = |asked: &WantedWord| words.split(' ').any(|word| word == asked.word);
            asked.0.iter().all(|set| set.iter().any(has))
        };
        let empty = TrackedMessage::default;
        assert!(fits(TrackedMessage { login: "demo-worm".into(), ..empty() }));
        assert!(fits(TrackedMessage { subject: "the demo-worm is out".into(), ..empty() }));
        assert!(!fits(TrackedMessage { subject: "the demo is out".into(), ..empty() }));
    }

    #[test]
    fn what_looks_like_a_word_is_one() {
        for subject in ["fi\u{200b}nance", "\u{fb01}nance", "ｆｉｎａｎｃｅ", "fi\u{ad}nance"] {
            assert_eq!(words_of(subject), ["finance"], "{subject:?}");
        }
    }

    #[test]
    fn nothing_that_is_typed_leaves_its_quotes() {
        let nasty = "x\" OR \"y ') | 'z:* \\ NEAR( -a ^b \u{0} ~ _~ ''' \"\"\"* @ * ** @@ <>";
        let filter =
            MessageFilter { text: nasty.into(), from: nasty.into(), to: "*".into(), ..MessageFilter::default() };
        let question = WantedWords::of(&filter);
        assert!(question.0.len() <= ASKED_MAX);
        for asked in question.0.iter().flatten() {
            let harmless = |c: char| c.is_alphanumeric() || "@.:-+_".contains(c);
            assert!(asked.word.chars().all(harmless), "{asked:?}");
        }
    }

    #[test]
    fn the_last_of_a_thousand_recipients_is_a_word_and_so_is_the_state() {
        let to = (0..1_000).map(|number| format!("r{number}@d{number}.example")).collect();
        let many = TrackedMessage { to, state: "held, delivered".into(), ..message() };
        let words = of_message(&many);
        for word in ["t:r0@d0.example", "t:r999@d999.example", "t:@d999.example", "x:held", "x:delivered", "v:eicar"] {
            assert!(words.split(' ').any(|has| has == word), "{word}");
        }
    }

    #[test]
    fn a_message_of_a_thousand_words_has_an_end() {
        let subject: String = (0..5_000).map(|number| format!("w{number} ")).collect();
        let to = (0..5_000).map(|number| format!("{number}{}", "y".repeat(900))).collect();
        let words = of_message(&TrackedMessage { subject, to, ..TrackedMessage::default() });
        assert!(words.split(' ').count() <= MESSAGE_WORDS_MAX + RECIPIENT_WORDS_MAX && words.len() < 512 << 10);
    }
}
