//! What the servers of the guest's internet say: pages and second stages, mail servers, IRC, mining pools, and commands for samples that
//! wait for some.
//!
//! A conversation is lines in and lines out. What a client says is reported line by line, within a bound. Nothing here does I/O.

/// Lines of one conversation that are told.
const TOLD_MAX: usize = 24;
/// How much of a line is told.
pub(crate) const WORDS_MAX: usize = 200;

/// A line that may hold megabytes without an end.
pub(crate) const LINE_MAX: usize = 64 * 1024;

/// How one connection goes.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    port: u16,
    told: usize,
    nick: String,
    in_mail: bool,
}

/// What comes of a line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    /// What is told of it.
    pub(crate) told: Option<String>,
    /// What the server says.
    pub(crate) answer: String,
    /// The server ends the conversation.
    pub(crate) over: bool,
}

impl Conversation {
    pub(crate) fn new(port: u16) -> Conversation {
        Conversation { port, ..Conversation::default() }
    }

    /// What the server says first, on ports where servers do.
    pub(crate) fn greeting(&self) -> Option<&'static str> {
        Some(match self.port {
            25 | 465 | 587 | 2525 => "220 mail.example ESMTP\r\n",
            21 => "220 FTP server ready\r\n",
            22 => "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n",
            110 => "+OK ready\r\n",
            143 => "* OK IMAP4rev1 ready\r\n",
            23 | 2323 => "login: ",
            _ => return None,
        })
    }

    /// What is said to somebody who says nothing: a shell that waits for orders carries these out.
    pub(crate) fn orders(&self) -> &'static str {
        "id\nuname -a\nexit\n"
    }

    /// A line has come.
    pub(crate) fn hear(&mut self, line: &str) -> Reply {
        let line = line.trim_end_matches(['\r', '\n']);
        let words: String = line.chars().take(WORDS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let words = words.trim();
        let told = (self.told < TOLD_MAX && !words.is_empty()).then(|| words.to_owned());
        self.told += usize::from(told.is_some());
        let (answer, over) = self.answer(line);
        Reply { told, answer, over }
    }

    fn answer(&mut self, line: &str) -> (String, bool) {
        match self.port {
            25 | 465 | 587 | 2525 => self.mail(line),
            _ if line.trim_start().starts_with('{') => (pool(line), false),
            _ => (self.chat(line), false),
        }
    }

    fn mail(&mut self, line: &str) -> (String, bool) {
        if self.in_mail {
            self.in_mail = line != ".";
            return (if self.in_mail { String::new() } else { "250 2.0.0 queued\r\n".into() }, false);
        }
        let verb: String = line.chars().take(4).collect::<String>().to_ascii_uppercase();
        let answer = match verb.as_str() {
            "EHLO" => "250-mail.example\r\n250-AUTH LOGIN PLAIN\r\n250 SIZE 10240000\r\n",
            "DATA" => {
                self.in_mail = true;
                "354 go ahead\r\n"
            }
            "AUTH" => "235 2.7.0 welcome\r\n",
            "QUIT" => return ("221 2.0.0 bye\r\n".into(), true),
            _ => "250 2.0.0 ok\r\n",
        };
        (answer.into(), false)
    }

    /// IRC, by its words on whatever port.
    fn chat(&mut self, line: &str) -> String {
        let mut words = line.split_ascii_whitespace();
        let (verb, first) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match verb {
            "NICK" => {
                self.nick = first.chars().take(32).collect();
                String::new()
            }
            "USER" => {
                let nick = if self.nick.is_empty() { "you" } else { &self.nick };
                format!(":irc.example 001 {nick} :Welcome\r\n:irc.example 376 {nick} :End of MOTD\r\n")
            }
            "JOIN" => {
                let room: String = first.chars().take(64).collect();
                let nick = &self.nick;
                format!(
                    ":{nick}!u@h JOIN {room}\r\n:irc.example 366 {nick} {room} :End\r\n:boss!u@h PRIVMSG {room} :!id\r\n"
                )
            }
            "PING" => format!(":irc.example PONG {first}\r\n"),
            _ => String::new(),
        }
    }
}

/// Whether a line is what the first of our orders makes a shell say: a sample that answers so carries out what it is told.
pub(crate) fn is_obedient(line: &str) -> bool {
    line.find("uid=").is_some_and(|at| line[at..].contains(" gid="))
}

/// A mining pool: a sample that logs in gets work.
fn pool(line: &str) -> String {
    let Ok(said) = serde_json::from_str::<serde_json::Value>(line) else { return String::new() };
    let id = said.get("id").cloned().unwrap_or_default();
    let result = match said.get("method").and_then(serde_json::Value::as_str) {
        Some("mining.subscribe") => serde_json::json!([[["mining.notify", "1"]], "08000002", 4]),
        Some("login") => serde_json::json!({ "id": "1", "status": "OK", "job": {
            "blob": "0707", "job_id": "1", "target": "b88d0600", "height": 1, "seed_hash": "00" } }),
        Some(_) => serde_json::json!(true),
        None => return String::new(),
    };
    format!("{}\n", serde_json::json!({ "id": id, "jsonrpc": "2.0", "error": null, "result": result }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_protocol_is_answered_in_its_words() {
        for (port, line, expected) in [
            (25, "EHLO me\r\n", "250-mail.example"),
            (25, "MAIL FROM:<a@b>\r\n", "250"),
            (25, "DATA\r\n", "354"),
            (6667, "JOIN #bots\r\n", ":!j JOIN #bots"),
            (6667, "PING x\r\n", ":irc.example PONG x"),
            (3333, "{\"id\":7,\"method\":\"mining.subscribe\"}\n", "mining.notify"),
            (4444, "{\"id\":1,\"method\":\"login\",\"params\":{}}\n", "\"status\":\"OK\""),
        ] {
            let mut conversation = Conversation::new(port);
            conversation.nick = "!j".into();
            let reply = conversation.hear(line);
            let expected = expected.replace(":!j JOIN", ":!j!u@h JOIN");
            assert!(reply.answer.contains(&expected), "{line}: {reply:?}");
            assert_eq!(reply.told.as_deref(), Some(line.trim_end()));
        }
        assert!(Conversation::new(25).hear("QUIT\r\n").over);
    }

    #[test]
    fn who_obeys_is_told_by_the_answer() {
        assert!(is_obedient("$ uid=1000(user) gid=1000(user) groups=1000(user)"));
        assert!(!is_obedient("gid= uid=") && !is_obedient("id"));
    }

    #[test]
    fn what_is_said_is_told_and_bounded() {
        let mut conversation = Conversation::new(9999);
        assert_eq!(conversation.hear("a\0b\x1b\n").told.as_deref(), Some("a b"));
        assert_eq!(conversation.hear(&"x".repeat(1 << 20)).told.map(|told| told.len()), Some(WORDS_MAX));
        let told = (0..100).filter(|_| conversation.hear("more\n").told.is_some()).count();
        assert_eq!(told, TOLD_MAX - 2);
        assert_eq!(conversation.hear("{ not json\n").answer, "");
    }
}
