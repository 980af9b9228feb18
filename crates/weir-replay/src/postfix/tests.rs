use super::*;
use crate::collected::{ReplayableMail, Wanted};
use crate::wall::parse_rfc3339;

fn read_all(log: &str) -> Collected {
    read_wanted(log, Wanted::default())
}

fn read_wanted(log: &str, wanted: Wanted) -> Collected {
    let mut collected = Collected::new(wanted);
    let anchor = Anchor::Written(parse_rfc3339("2024-03-02T00:00:00Z").unwrap());
    read(log.as_bytes(), anchor, &mut collected).unwrap();
    collected
}

fn brief(mail: &ReplayableMail) -> String {
    format!("{} {} {}", &mail.at.to_string()[11..], mail.user, mail.to.join(" "))
}

fn briefs(collected: &Collected) -> Vec<String> {
    collected.mails.iter().map(brief).collect()
}

/// Lines of one log, each after the stamp and the host.
fn log(lines: &[&str]) -> String {
    let stamped = lines.iter().enumerate().map(|(i, line)| format!("Mar  1 12:00:{i:02} mail {line}\n"));
    stamped.collect()
}

#[test]
fn deferred_and_retried_is_once() {
    let collected = read_all(&log(&[
        "postfix/smtpd[1]: 4F2A1B3C4D: client=pc[10.0.0.1]",
        "postfix/cleanup[2]: 4F2A1B3C4D: message-id=<1@x>",
        "postfix/qmgr[3]: 4F2A1B3C4D: from=<Ann@X.org>, size=300, nrcpt=2 (queue active)",
        "postfix/smtp[4]: 4F2A1B3C4D: to=<bob@y.org>, relay=none, delay=1, dsn=4.4.1, status=deferred (timeout)",
        "postfix/smtp[4]: 4F2A1B3C4D: to=<c@y.org>, relay=mx, delay=1, dsn=2.0.0, status=sent (250 ok)",
        "postfix/qmgr[3]: 4F2A1B3C4D: from=<Ann@X.org>, size=300, nrcpt=2 (queue active)",
        "postfix/smtp[4]: 4F2A1B3C4D: to=<bob@Y.org>, relay=mx, delay=9, dsn=2.0.0, status=sent (250 ok)",
        "postfix/qmgr[3]: 4F2A1B3C4D: removed",
    ]));
    assert_eq!(briefs(&collected), ["12:00:00 Ann@x.org bob@y.org c@y.org"]);
    assert_eq!(&*collected.mails[0].name, "4F2A1B3C4D");
}

#[test]
fn a_short_id_is_used_again() {
    let once = |user: &str| {
        [
            format!("postfix/smtpd[1]: ABCDE1: client=pc[10.0.0.1], sasl_method=PLAIN, sasl_username={user}"),
            "postfix/cleanup[2]: ABCDE1: message-id=<1@x>".into(),
            "postfix/qmgr[3]: ABCDE1: from=<s@x.org>, size=300, nrcpt=1 (queue active)".into(),
            format!("postfix/smtp[4]: ABCDE1: to=<{user}@y.org>, relay=mx, delay=1, dsn=2.0.0, status=sent (250 ok)"),
            "postfix/qmgr[3]: ABCDE1: removed".into(),
        ]
    };
    let lines: Vec<String> = once("ann").into_iter().chain(once("ben")).collect();
    let collected = read_all(&log(&lines.iter().map(String::as_str).collect::<Vec<_>>()));
    assert_eq!(briefs(&collected), ["12:00:00 ann ann@y.org", "12:00:05 ben ben@y.org"]);
}

#[test]
fn a_content_filter_gives_the_same_mail_back() {
    let lines = [
        "postfix/submission/smtpd[1]: AAAAA1: client=pc[10.0.0.1], sasl_method=PLAIN, sasl_username=ann",
        "postfix/cleanup[2]: AAAAA1: message-id=<1@x>",
        "postfix/qmgr[3]: AAAAA1: from=<ann@x.org>, size=300, nrcpt=1 (queue active)",
        "postfix/smtpd[5]: BBBBB2: client=localhost[127.0.0.1]",
        "postfix/cleanup[2]: BBBBB2: message-id=<1@x>",
        "postfix/qmgr[3]: BBBBB2: from=<ann@x.org>, size=300, nrcpt=1 (queue active)",
        "postfix/smtp[6]: BBBBB2: to=<bob@y.org>, relay=mx, delay=1, dsn=2.0.0, status=sent (250 ok)",
        "postfix/qmgr[3]: BBBBB2: removed",
        "postfix/smtp[4]: AAAAA1: to=<bob@y.org>, relay=127.0.0.1[127.0.0.1]:10024, delay=1, dsn=2.0.0, status=sent (250 2.0.0 from MTA(smtp:[127.0.0.1]:10025): 250 2.0.0 Ok: queued as BBBBB2)",
        "postfix/qmgr[3]: AAAAA1: removed",
    ];
    let collected = read_all(&log(&lines));
    assert_eq!(briefs(&collected), ["12:00:00 ann bob@y.org"]);
    assert_eq!(collected.skipped.count_of(Reason::QueuedAgain), 1);
    let by_name = lines
        .map(|line| line.replace("client=localhost[127.0.0.1]", "client=localhost[127.0.0.1], orig_queue_id=AAAAA1"));
    let by_name = by_name.each_ref().map(|line| line.trim_end_matches("queued as BBBBB2)"));
    assert_eq!(briefs(&read_all(&log(&by_name))), ["12:00:00 ann bob@y.org"]);
}

#[test]
fn a_remote_answer_cannot_hide_what_somebody_sent() {
    let collected = read_all(&log(&[
        "postfix/smtpd[1]: AAAAA1: client=pc[10.0.0.1], sasl_method=PLAIN, sasl_username=ann",
        "postfix/smtpd[1]: BBBBB2: client=pc[10.0.0.1], sasl_method=PLAIN, sasl_username=ann",
        "postfix/smtp[4]: AAAAA1: to=<bob@y.org>, relay=evil, delay=1, dsn=2.0.0, status=sent (250 queued as BBBBB2)",
        "postfix/smtp[4]: BBBBB2: to=<c@y.org>, relay=evil, delay=1, dsn=2.0.0, status=sent (250 queued as AAAAA1)",
    ]));
    assert_eq!(briefs(&collected), ["12:00:00 ann bob@y.org", "12:00:01 ann c@y.org"]);
}

#[test]
fn queued_anew_goes_on_as_the_same_mail() {
    let collected = read_all(&log(&[
        "postfix/smtpd[1]: AAAAA1: client=pc[10.0.0.1], sasl_method=PLAIN, sasl_username=ann",
        "postfix/smtp[4]: AAAAA1: to=<bob@y.org>, relay=mx, delay=1, dsn=4.0.0, status=deferred (timeout)",
        "postfix/postsuper[9]: AAAAA1: requeued",
        "postfix/pickup[8]: BBBBB2: uid=102 from=<ann@x.org> orig_id=AAAAA1",
        "postfix/cleanup[2]: BBBBB2: message-id=<1@x>",
        "postfix/qmgr[3]: BBBBB2: from=<ann@x.org>, size=300, nrcpt=1 (queue active)",
        "postfix/smtp[4]: BBBBB2: to=<bob@y.org>, relay=mx, delay=1, dsn=2.0.0, status=sent (250 ok)",
        "postfix/qmgr[3]: BBBBB2: removed",
    ]));
    assert_eq!(briefs(&collected), ["12:00:00 ann bob@y.org"]);
}

#[test]
fn what_is_nobodys_mail_is_counted() {
    let lines = [
        "postfix/cleanup[2]: AAAAA1: message-id=<1@x>",
        "postfix/qmgr[3]: AAAAA1: from=<>, size=300, nrcpt=1 (queue active)",
        "postfix/local[4]: AAAAA1: to=<ann@x.org>, relay=local, delay=1, dsn=2.0.0, status=sent (mailbox)",
        "postfix/qmgr[3]: BBBBB2: from=<old@x.org>, size=300, nrcpt=1 (queue active)",
        "postfix/smtp[4]: BBBBB2: to=<bob@y.org>, relay=mx, delay=1, dsn=2.0.0, status=sent (250 ok)",
        "postfix/smtpd[1]: CCCCC3: client=pc[10.0.0.1]",
        "postfix/qmgr[3]: CCCCC3: from=<out@z.org>, size=300, nrcpt=1 (queue active)",
        "postfix/virtual[4]: CCCCC3: to=<ann@x.org>, relay=virtual, delay=1, dsn=2.0.0, status=sent (maildir)",
        "postfix/smtpd[1]: DDDDD4: client=pc[10.0.0.1], sasl_username=ann",
        "dovecot: imap-login: Login: user=<ann>",
    ];
    let collected = read_all(&(log(&lines) + "no time here\n\n"));
    assert_eq!(briefs(&collected), ["12:00:05 out@z.org ann@x.org"]);
    let reasons: Vec<(Reason, u64)> = collected.skipped.cases().map(|(reason, case)| (reason, case.count)).collect();
    let expected = [(Reason::NoRecipients, 1), (Reason::Bounce, 1), (Reason::BeforeTheLog, 1), (Reason::BadTime, 1)];
    assert_eq!(reasons, expected);
    let strict = read_wanted(&log(&lines), Wanted { authenticated_only: true, ..Wanted::default() });
    assert_eq!((strict.mails.len(), strict.skipped.count_of(Reason::NotAuthenticated)), (0, 1));
}

#[test]
fn a_mail_with_a_hundred_thousand_recipients_keeps_ten_thousand() {
    let mut text =
        String::from("2024-03-01T12:00:00Z mail postfix/smtpd[1]: AAAAA1: client=pc[1.1.1.1], sasl_username=ann\n");
    for i in 0..100_000 {
        text += &format!(
            "2024-03-01T12:00:01Z mail postfix/smtp[1]: AAAAA1: to=<u{i}@y.org>, relay=mx, status=sent (ok)\n"
        );
    }
    let collected = read_all(&text);
    assert_eq!(collected.mails[0].to.len(), 10_000);
    assert_eq!(collected.skipped.count_of(Reason::TooManyRecipients), 90_000);
}
