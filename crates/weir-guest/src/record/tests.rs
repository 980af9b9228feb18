use super::*;

#[test]
fn the_same_twice_is_once_and_the_rest_is_counted() {
    let record = Record::default();
    let to = "10.1.2.3:80".parse().unwrap();
    record.connects(7, to);
    record.connects(7, to);
    record.requests(to, "GET /x".into(), String::new());
    for number in 0..LISTED_MAX + 10 {
        record.writes(7, &format!("/tmp/{number}"), false, true);
    }
    record.writes(7, "/dev/null", true, true);
    record.writes(7, "/etc/cron.d/x", false, false);
    let behaviour = record.take();
    let whats: Vec<_> = behaviour.network.iter().map(|network| (network.pid, network.what.as_str())).collect();
    assert_eq!(whats, [(7, "connect"), (7, "http")]);
    assert_eq!((behaviour.files.len(), behaviour.left_out), (LISTED_MAX, 10));
    assert_eq!(behaviour.persistence[0].what, "cron");
    assert_eq!(record.take(), Behaviour::default());
}

#[test]
fn what_was_there_before_is_told_from_what_was_made() {
    let record = Record::default();
    record.writes(7, "/home/user/a.txt", true, true);
    record.deletes(7, "/home/user/b.txt", true);
    record.writes(7, "/tmp/new", false, true);
    record.deletes(7, "/tmp/new", true);
    record.writes(7, "/tmp/x", false, true);
    record.renames((7, "/tmp/x"), "/tmp/y", true, true);
    record.deletes(7, "/tmp/y", true);
    let existed: Vec<bool> = record.take().files.iter().map(|file| file.existed).collect();
    assert_eq!(existed, [true, true, false, false, false, false, false]);
}

#[test]
fn what_has_a_second_name_is_known_by_its_first() {
    let record = Record::default();
    record.links(7, Some("/home/user/.bashrc"), "/tmp/a", true);
    record.links(7, Some("/home/user/.profile"), "/tmp/b", false);
    record.links(7, Some("/home/user/notes"), "/tmp/b", true);
    record.links(7, Some("/etc/shadow"), "/tmp/c", false);
    record.renames((7, "/home/user/.ssh"), "/tmp/d", false, true);
    record.renames((7, "/home/user/.ssh/id_rsa"), "/home/user/.ssh/id_rsa.old", true, true);
    record.renames((7, "/tmp/units"), "/home/user/.config/autostart", false, true);
    let behaviour = record.take();
    let acts: Vec<(&str, &str)> = behaviour.acts.iter().map(|act| (&*act.what, &*act.detail)).collect();
    assert_eq!(acts, [("reads", "/etc/shadow"), ("reads", "/home/user/.ssh")]);
    let ways: Vec<(&str, &str)> = behaviour.persistence.iter().map(|way| (&*way.what, &*way.path)).collect();
    let key = ("ssh", "/home/user/.ssh/id_rsa.old");
    assert_eq!(ways, [("shell", "/home/user/.bashrc"), key, ("autostart", "/home/user/.config/autostart")]);
}

#[test]
fn short_sleeps_add_up_and_what_may_not_be_written_is_told() {
    let record = Record::default();
    for _ in 0..20 {
        record.sleeps(7, 15);
    }
    record.writes(7, "/etc/hosts", true, false);
    record.writes(7, "/home/user/x", true, false);
    record.may_not_write(7, "/var/log/wtmp");
    record.may_not_write(7, "/var/log/own.log");
    let acts: Vec<String> = record.take().acts.into_iter().map(|act| format!("{} {}", act.what, act.detail)).collect();
    assert_eq!(acts, ["sleeps 15 s", "fails-to-write /etc/hosts", "fails-to-write /var/log/wtmp", "sleeps 285 s"]);
}

#[test]
fn a_command_is_missing_only_if_it_is_nowhere() {
    let record = Record::default();
    record.misses("curl");
    record.misses("wget");
    record.finds("wget");
    record.misses("python3");
    record.process(Process { pid: 7, ..Process::default() });
    record.executes(7, "/usr/bin/python3", vec!["python3".into()]);
    record.executes(7, "/memfd:x (deleted)", vec!["x".into()]);
    let acts: Vec<(String, String)> = record.take().acts.into_iter().map(|act| (act.what, act.detail)).collect();
    assert_eq!(acts, [("becomes".into(), "/memfd:x (deleted)".into()), ("missing".into(), "curl".into())]);
}

#[test]
fn endless_files_and_acts_need_bounded_memory() {
    let record = Record::default();
    for number in 0..WRITTEN_MAX + 100 {
        record.writes(7, &format!("/tmp/{number}"), false, true);
        record.acts(7, "kills", &number.to_string());
        record.acts(7, "kills", "9 1");
    }
    record.writes(7, "/proc/sysrq-trigger", true, false);
    assert_eq!(record.notes().written.len(), WRITTEN_MAX);
    assert_eq!(record.notes().acts.len(), SEEN_MAX);
    let behaviour = record.take();
    assert_eq!((behaviour.acts[1].detail.as_str(), behaviour.acts.len()), ("9 1", LISTED_MAX));
    assert!(behaviour.acts.iter().any(|act| act.what == "device"));
}

#[test]
fn what_tells_is_listed_behind_a_flood() {
    let record = Record::default();
    let address = |n: u32| SocketAddr::from((Ipv4Addr::from(0x0a00_0000 + n), 9999));
    for number in 0..2 * LISTED_MAX as u32 {
        record.writes(7, &format!("/tmp/{number}"), false, true);
        record.acts(7, "kills", &format!("9 {number}"));
        record.sends(7, address(number));
        record.sleeps(number, 1);
    }
    let pool = address(1);
    for number in 0..2 * LISTED_MAX {
        record.talks(pool, format!("hello {number}"));
    }
    record.talks(address(2), "mining.subscribe".into());
    record.writes(8, "/tmp/last", false, true);
    record.executes(8, "/tmp/last", vec!["/tmp/last".into()]);
    record.deletes(7, "/home/user/s.sh", true);
    record.acts(7, "reads", "/etc/shadow");
    record.writes(7, "/home/user/.bashrc", true, true);
    record.misses("curl");
    let behaviour = record.take();
    assert!([behaviour.files.len(), behaviour.network.len(), behaviour.acts.len()].iter().all(|n| *n <= LISTED_MAX));
    assert!(behaviour.left_out > 0);
    let has = |what: &str| behaviour.acts.iter().any(|act| act.what == what);
    assert!(has("reads") && has("missing"));
    let slept: u64 = behaviour.acts.iter().filter_map(|act| act.detail.strip_suffix(" s")?.parse::<u64>().ok()).sum();
    assert_eq!(slept, 2 * LISTED_MAX as u64);
    assert!(behaviour.network.iter().any(|call| call.detail == "mining.subscribe"));
    let file =
        |path: &str| behaviour.files.iter().find(|file| file.path == path).map(|file| (file.pid, file.what.as_str()));
    assert_eq!((file("/tmp/last"), file("/home/user/s.sh")), (Some((8, "written")), Some((7, "deleted"))));
    assert_eq!(behaviour.persistence[0].what, "shell");
}

#[test]
fn only_questions_to_the_own_resolver_are_no_calls() {
    let record = Record::default();
    record.connects(7, RESOLVER);
    record.sends(7, RESOLVER);
    record.sends(7, "198.51.100.53:53".parse().unwrap());
    record.connects(7, "198.51.100.54:53".parse().unwrap());
    record.asks("a.example", IpAddr::from([198, 18, 1, 2]));
    let told: Vec<(u32, String, String)> =
        record.take().network.into_iter().map(|call| (call.pid, call.what, call.to)).collect();
    let call = |what: &str, to: &str| (7, what.to_owned(), to.to_owned());
    assert_eq!(told, [call("send", "198.51.100.53:53"), call("connect", "198.51.100.54:53"), call("dns", "a.example")]);
}

#[test]
fn a_file_that_was_wanted_beside_the_sample_is_missing_unless_it_comes() {
    let record = Record::default();
    record.lacks("/home/user/config.json");
    record.lacks("/home/user/cache.txt");
    record.writes(7, "/home/user/cache.txt", false, true);
    let missing: Vec<String> = record.take().acts.into_iter().map(|act| act.detail).collect();
    assert_eq!(missing, ["/home/user/config.json"]);
}

/// A folder of the sample's own takes another name, and what is in it is known by that.
#[test]
fn what_was_written_is_known_by_the_new_name_of_its_folder() {
    let record = Record::default();
    record.writes(7, "/tmp/d/x", false, true);
    record.writes(7, "/tmp/dx", false, true);
    record.renames((7, "/tmp/d"), "/home/user/e", false, true);
    assert!(record.has_written("/home/user/e/x") && !record.has_written("/tmp/d/x") && record.has_written("/tmp/dx"));
    // Another file under the old name is another file.
    record.writes(7, "/tmp/d/x", false, true);
    record.swaps(7, ("/tmp/d", false), ("/home/user/e", false), true);
    assert!(record.has_written("/tmp/d/x") && record.has_written("/home/user/e/x"));
    // What the sample made is no file of the user, wherever its folder is by now; what was there before is one.
    record.deletes(7, "/home/user/e/x", true);
    record.renames((7, "/home/user/Documents"), "/home/user/old", false, true);
    record.deletes(7, "/home/user/old/letter.txt", true);
    let behaviour = record.take();
    let deleted: Vec<bool> =
        behaviour.files.iter().filter(|file| file.what == "deleted").map(|file| file.existed).collect();
    assert_eq!(deleted, [false, true]);
    let places: Vec<Option<String>> = behaviour.places().into_iter().take(4).collect();
    let at = |path: &str| Some(path.to_owned());
    assert_eq!(places, [at("/tmp/d/x"), at("/tmp/dx"), at("/home/user/e"), at("/home/user/e/x")]);
}
