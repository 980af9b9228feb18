//! `weir replay` on mail that a real Postfix wrote.

mod postfix;

use postfix::Postfix;

/// What the Postfix of these tests sends: ann's day, eve's worm, and one mail of dora's that meets every obstacle.
fn send_everything(postfix: &Postfix) {
    let mut ann = postfix.session("submit", "ann@example.org");
    ann.send("ann@example.org", &["bob@example.org"], "Fri, 1 Mar 2024 09:00:00 +0000");
    ann.send("ann@example.org", &["bob@Example.ORG"], "Fri, 1 Mar 2024 10:00:30 +0100");
    ann.send("ann@example.org", &["carl@example.org"], "Fri, 1 Mar 2024 09:00:40 +0000");
    let many = ["bob@example.org", "carl@example.org", "team@example.org", "club@lists.example.org"];
    ann.send("ann@example.org", &many, "Fri, 1 Mar 2024 10:00:00 +0000");
    let mut eve = postfix.session("smtp-in", "eve@example.org");
    for second in 0..30 {
        let to = format!("w{second}@example.org");
        eve.send("eve@example.org", &[&to], &format!("Fri, 1 Mar 2024 12:00:{second:02} +0000"));
    }
    let to = ["bob@example.org", "later@slow.example.org", "gone@lists.example.org"];
    let mail = format!("From: dora@example.org\nTo: {}\nDate: Fri, 1 Mar 2024 11:00:00 +0000\n\nhello\n", to.join(", "));
    postfix.sendmail("dora@example.org", &to, &mail);
    postfix.wait_for("status=deferred", 1);
    postfix.wait_for("status=bounced", 1);
    postfix.wait_for(": removed", 4 + 1 + 30 + 1);
    postfix.run("postqueue", &["-f"]);
    postfix.wait_for("status=deferred", 2);
    postfix.run("postsuper", &["-r", "ALL"]);
    postfix.wait_for("orig_id=", 1);
    postfix.wait_for("status=deferred", 3);
}

#[test]
fn trial() {
    let postfix = Postfix::start();
    send_everything(&postfix);
    eprintln!("{}", postfix.log());
    eprintln!("{}", std::fs::read_to_string(postfix.path("boxes/archive")).unwrap());
    std::fs::copy(postfix.path("mail.log"), "/tmp/fix.log").unwrap();
    std::fs::copy(postfix.path("boxes/archive"), "/tmp/fix.mbox").unwrap();
}
