//! Rules about covert behaviour: secrets sent in DNS names, requests to a cloud's metadata address, listening to network traffic, pages
//! planted for a web server, files made to look old, and commands run through services on other machines.

use super::{Happenings, name_of, names};
use std::collections::BTreeSet;
use weir_guest::behaviour::{Network, Process};

/// Addresses at which clouds give a machine its own credentials.
const CLOUDS: [&str; 4] = ["169.254.169.254", "100.100.100.200", "fd00:ec2::254", "metadata.google.internal"];
/// Pages that a web server executes, and the folders where it looks for them.
const PAGES: [&str; 6] = [".php", ".phtml", ".jsp", ".jspx", ".aspx", ".cgi"];
const SITES: [&str; 4] = ["/var/www/", "/srv/www/", "/public_html/", "/htdocs/"];
/// Parts of a page's address that only attacks on a server use.
const ORDERS_BY_ADDRESS: [&str; 8] =
    ["${jndi:", "/bin/sh", "${ifs}", "wget+http", "wget%20http", "curl+http", "curl%20http", "/bin/busybox"];
/// Requests that make a server run something: Docker, Hadoop, Jenkins.
const ORDERS_BY_POST: [&str; 3] = ["/containers/create", "/ws/v1/cluster/apps", "/scripttext"];
/// Commands to a database or a device that make it store a file, or run one.
const ORDERS_BY_WORD: [&str; 5] = ["/var/spool/cron", "/etc/cron", "/.ssh", "config set dbfilename", "/bin/busybox "];
/// A part of a name that decodes to a text of this length is not a name.
const TEXT_MIN: usize = 10;

/// It asks the cloud for the machine's own credentials. On a machine that is not in a cloud, honest programs do not.
pub(super) fn asks_cloud(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let of = |address: &str| CLOUDS.iter().any(|cloud| address.trim_start_matches('[').starts_with(cloud));
    let asks = |call: &&Network| call.what != "listen" && (of(&call.to) || of(&call.host));
    seen.behaviour.network.iter().find(asks).map(|call| (4, call.to.clone()))
}

/// It listens to all network traffic, or tries to.
pub(super) fn sniffs(seen: &Happenings<'_>) -> Option<(u32, String)> {
    seen.act("sniffs", |_| true).map(|how| (5, how))
}

/// It writes a page that a web server would execute.
pub(super) fn plants_page(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let is_page = |path: &&String| {
        SITES.iter().any(|site| path.contains(site)) && PAGES.iter().any(|end| path.to_ascii_lowercase().ends_with(end))
    };
    seen.written.keys().find(is_page).map(|path| (3, path.clone()))
}

/// It makes a service on another machine run something: a container, a cron line through a database, a page with a command in its address.
pub(super) fn abuses_services(seen: &Happenings<'_>) -> Option<(u32, String)> {
    // The text of a mail is not a command.
    let is_mail = |to: &str| to.rsplit(':').next().is_some_and(|port| ["25", "465", "587", "2525"].contains(&port));
    let is_order = |call: &&Network| {
        let said = call.detail.to_ascii_lowercase();
        // Only what a request asks for, not its content: uploading a file is not a command.
        let asked = said.split(' ').nth(1).unwrap_or_default();
        let has = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word));
        match call.what.as_str() {
            "http" => has(asked, &ORDERS_BY_ADDRESS) || said.starts_with("post ") && has(asked, &ORDERS_BY_POST),
            "talk" if is_mail(&call.to) => false,
            "talk" => {
                has(&said, &ORDERS_BY_WORD) || said.contains("* * * *") && has(&said, &["curl ", "wget ", "/tmp/"])
            }
            _ => false,
        }
    };
    seen.behaviour.network.iter().find(is_order).map(|call| (6, format!("{} to {}", call.detail, call.to)))
}

/// It makes a file that it wrote look as old as another.
pub(super) fn backdates(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let written: BTreeSet<&str> = seen.written.keys().map(|path| name_of(path)).collect();
    let is_old = |process: &&Process| {
        let words = || process.arguments.iter().skip(1);
        let asks = words().any(|word| ["-r", "-t", "-d", "--reference", "--date"].iter().any(|o| word.starts_with(o)));
        let own = words().any(|word| written.contains(name_of(word)));
        names(process).contains(&"touch") && asks && own
    };
    seen.behaviour.processes.iter().find(is_old).map(|process| (2, process.arguments.join(" ")))
}

/// One name is enough if it is an encoded text, because no machine has such a name.
pub(super) fn says_in_names(seen: &Happenings<'_>) -> Option<(u32, String)> {
    let asked: BTreeSet<&str> =
        seen.behaviour.network.iter().filter(|call| call.what == "dns").map(|call| call.to.as_str()).collect();
    let told = |name: &&&str| name.split('.').any(|label| text_in(label).is_some());
    let name = asked.iter().find(told)?;
    let text = name.split('.').find_map(text_in).unwrap_or_default();
    Some((4, format!("{text:?} in the name {name}")))
}

/// The text in a part of a name, in hexadecimal digits or base 32; None if it is not a text.
fn text_in(label: &str) -> Option<String> {
    let bytes = hexadecimal(label).or_else(|| base32(label))?;
    let is_text = bytes.len() >= TEXT_MIN && bytes.iter().all(|byte| (b' '..=b'~').contains(byte) || *byte == b'\n');
    is_text.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

fn hexadecimal(label: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = label.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(byte).collect::<Option<Vec<u8>>>().filter(|_| rest.is_empty())
}

fn base32(label: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for letter in label.trim_end_matches('=').bytes() {
        let value = match letter.to_ascii_lowercase() {
            letter @ b'a'..=b'z' => letter - b'a',
            digit @ b'2'..=b'7' => digit - b'2' + 26,
            _ => return None,
        };
        (bits, count) = ((bits << 5 | u32::from(value)) & 0xfff, count + 5);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::text_in;

    #[test]
    fn texts_in_names_are_told_from_names() {
        // "user|desk|/home/user" and "anna:geheim99"
        assert_eq!(text_in("757365727c6465736b7c2f686f6d652f75736572").as_deref(), Some("user|desk|/home/user"));
        assert_eq!(text_in("mfxg4yj2m5swqzljnu4ts").as_deref(), Some("anna:geheim99"));
        for name in
            ["www", "facebook", "d1a2b3c4e5f60718293a4b5c6d7e8f90", "ec2-203-0-113-25", "xn--bcher-kva", "a1b2c3", ""]
        {
            assert_eq!(text_in(name), None, "{name}");
        }
    }
}
