use super::*;
use std::fs;
use std::io::Read;

const START: Instant = Instant(1_000_000_000_000);

struct Lab {
    home: tempfile::TempDir,
    intake: Intake,
}

impl Lab {
    fn new(settings: IntakeSettings) -> Lab {
        let home = tempfile::tempdir().unwrap();
        let intake = Intake::open(home.path(), settings).unwrap();
        Lab { home, intake }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.home.path().join(relative)
    }

    /// The names that are ready so many milliseconds after the start.
    fn look(&mut self, millis: u64) -> Look {
        self.intake.look(START + Duration::from_millis(millis), SystemTime::now())
    }
}

fn names(look: &Look) -> Vec<String> {
    let mut names: Vec<String> = look.ready.iter().map(Ready::name).collect();
    names.sort();
    names
}

#[test]
fn a_file_is_taken_when_it_has_stopped_growing() {
    let mut lab = Lab::new(IntakeSettings::default());
    fs::write(lab.path("32/a"), "half").unwrap();
    assert_eq!(lab.look(0).growing, 1);
    fs::write(lab.path("32/a"), "half and half").unwrap();
    assert!(names(&lab.look(2_500)).is_empty(), "it has changed since");
    let mut look = lab.look(4_600);
    assert_eq!(names(&look), ["a"]);
    let ready = look.ready.pop().unwrap();
    let mut text = String::new();
    (&ready.file).read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), ready.is_unchanged()), ("half and half", true));
    ready.taken().unwrap();
    assert!(!lab.path("32/a").exists());
}

#[test]
fn a_file_that_was_closed_is_taken_sooner_unless_it_changes_again() {
    let mut lab = Lab::new(IntakeSettings::default());
    let place = |name: &str| DirectoryFile { directory: 32, name: name.into() };
    for name in ["a", "b", "c", "empty"] {
        fs::write(lab.path("32").join(name), if name == "empty" { "" } else { "x" }).unwrap();
    }
    let closed = |places: Vec<DirectoryFile>| FileNotices { closed: places, ..FileNotices::default() };
    lab.intake.hear(closed(["a", "b", "empty", "../b", "gone"].map(place).into()), START);
    let look = lab.look(0);
    assert_eq!((look.ready.len(), look.growing, look.soon), (0, 4, true));
    fs::write(lab.path("32/b"), "more").unwrap();
    let look = lab.look(250);
    assert_eq!((names(&look), look.soon), (vec!["a".to_owned()], false), "not what has grown, nor what is empty");
    lab.intake.hear(closed(vec![place("b")]), START + Duration::from_millis(300));
    assert_eq!(names(&lab.look(600)), ["a", "b"]);
}

#[test]
fn a_file_that_somebody_has_open_is_not_taken_however_quiet_it_is() {
    let mut lab = Lab::new(IntakeSettings::default());
    let place = DirectoryFile { directory: 32, name: "a".into() };
    let being_written = || FileNotices { written: [place.clone()].into(), ..FileNotices::default() };
    fs::write(lab.path("32/a"), "half").unwrap();
    for millis in [0, 3_000, 60_000, 3_599_000] {
        lab.intake.hear(being_written(), START + Duration::from_millis(millis));
        let look = lab.look(millis);
        assert_eq!((look.ready.len(), look.growing), (0, 1), "after {millis} ms");
    }
    lab.intake.hear(FileNotices::default(), START + Duration::from_millis(3_599_500));
    assert_eq!(names(&lab.look(3_599_500)), ["a"], "it was closed, or nobody knows");
    // A close that nobody heard of does not keep it for ever.
    lab.intake.hear(being_written(), START + Duration::from_millis(7_300_000));
    lab.look(7_300_000);
    assert_eq!(names(&lab.look(7_300_000 + 3_600_000)), ["a"]);
}

#[test]
fn an_empty_file_is_left_to_its_writer_for_a_while() {
    let mut lab = Lab::new(IntakeSettings::default());
    fs::write(lab.path("32/slow"), "").unwrap();
    fs::write(lab.path("32/never"), "").unwrap();
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    File::options().write(true).open(lab.path("32/slow")).unwrap().set_modified(hour_ago).unwrap();
    for millis in [0, 2_500, 299_000] {
        let look = lab.look(millis);
        assert_eq!((look.growing, look.refused.len()), (2, 0), "after {millis} ms");
    }
    fs::write(lab.path("32/slow"), "at last").unwrap();
    assert_eq!(lab.look(300_000).refused.len(), 1);
    assert_eq!(names(&lab.look(302_500)), ["slow"]);
}

#[test]
fn a_file_that_is_old_is_taken_at_once() {
    let mut lab = Lab::new(IntakeSettings::default());
    fs::write(lab.path("32/old"), "x").unwrap();
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    File::options().write(true).open(lab.path("32/old")).unwrap().set_modified(hour_ago).unwrap();
    assert_eq!(names(&lab.look(0)), ["old"]);
}

#[test]
fn what_was_found_but_not_taken_is_found_again() {
    let mut lab = Lab::new(IntakeSettings { settle: Duration::ZERO, ..IntakeSettings::default() });
    fs::write(lab.path("32/a"), "x").unwrap();
    assert_eq!(names(&lab.look(0)), ["a"]);
    assert_eq!(names(&lab.look(1)), ["a"]);
}

#[test]
fn a_file_that_cannot_be_removed_keeps_its_ticket_and_is_left_alone() {
    let mut lab = Lab::new(IntakeSettings { settle: Duration::ZERO, ..IntakeSettings::default() });
    fs::write(lab.path("32/a"), "x").unwrap();
    let ready = lab.look(0).ready.pop().unwrap();
    assert_eq!(lab.look(1).ready.pop().unwrap().ticket(), ready.ticket());
    lab.intake.leave_alone(ready.place.clone(), START, &io::Error::other("no"));
    assert!(names(&lab.look(59_000)).is_empty());
    assert_eq!(names(&lab.look(60_000)), ["a"]);
    // The same name, size and time of change, but another file.
    let modified = ready.file.metadata().unwrap().modified().unwrap();
    fs::remove_file(lab.path("32/a")).unwrap();
    fs::write(lab.path("32/a"), "x").unwrap();
    File::options().write(true).open(lab.path("32/a")).unwrap().set_modified(modified).unwrap();
    assert_ne!(lab.look(60_000).ready.pop().unwrap().ticket(), ready.ticket());
}

#[test]
fn a_file_that_took_the_name_of_a_sample_is_not_removed() {
    let mut lab = Lab::new(IntakeSettings { settle: Duration::ZERO, ..IntakeSettings::default() });
    fs::write(lab.path("32/a"), "first").unwrap();
    let ready = lab.look(0).ready.pop().unwrap();
    fs::write(lab.path("32/b"), "second").unwrap();
    fs::rename(lab.path("32/b"), lab.path("32/a")).unwrap();
    ready.taken().unwrap();
    assert_eq!(fs::read(lab.path("32/a")).unwrap(), b"second");
}

#[test]
fn directories_are_priorities_and_the_urgent_come_first() {
    let mut lab = Lab::new(IntakeSettings { settle: Duration::ZERO, ..IntakeSettings::default() });
    for directory in ["127", "0", "128", "x"] {
        fs::create_dir(lab.path(directory)).unwrap();
        fs::write(lab.path(directory).join("s"), "x").unwrap();
    }
    let found: Vec<_> = lab.look(0).ready.iter().map(|ready| ready.priority().unwrap().number()).collect();
    assert_eq!(found, [0, 127]);
}

#[test]
fn what_is_no_sample_is_moved_aside_and_never_opened() {
    let (settle, empty) = (Duration::ZERO, Duration::ZERO);
    let mut lab = Lab::new(IntakeSettings { settle, empty, size_max: 4, ..IntakeSettings::default() });
    std::os::unix::fs::symlink("/etc/passwd", lab.path("32/link")).unwrap();
    std::os::unix::fs::symlink("..", lab.path("33")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, lab.path("32/pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(lab.path("32/socket")).unwrap();
    fs::create_dir(lab.path("32/folder")).unwrap();
    fs::write(lab.path("32/empty"), "").unwrap();
    fs::write(lab.path("32/large"), "12345").unwrap();
    let look = lab.look(0);
    assert!(look.ready.is_empty());
    let mut refused: Vec<String> =
        look.refused.iter().map(|(place, why)| format!("{}: {why}", place.name.display())).collect();
    refused.sort();
    let expected = [
        "empty: the file is empty",
        "folder: only regular files are samples; this is a folder",
        "large: the file has 5 bytes; at most 4 are taken",
        "link: only regular files are samples; this is a link",
        "pipe: only regular files are samples; this is a pipe",
        "socket: only regular files are samples; this is a socket",
    ];
    assert_eq!(refused, expected);
    assert_eq!(look.troubles.len(), 1, "the linked directory");
    assert_eq!(fs::read_dir(lab.path("32")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(lab.path("refused")).unwrap().count(), 6);
    fs::write(lab.path("32/empty"), "").unwrap();
    lab.look(1);
    assert!(lab.path("refused/32-empty.1").exists());
}

#[test]
fn strange_names_are_taken_and_half_files_left_alone() {
    let mut lab = Lab::new(IntakeSettings { settle: Duration::ZERO, ..IntakeSettings::default() });
    for name in [&b"bad\xffname"[..], b"new\nline", b".hidden", b"a.part", b"b.tmp"] {
        fs::write(lab.path("32").join(OsStr::from_bytes(name)), "x").unwrap();
    }
    assert_eq!(names(&lab.look(0)), ["bad\u{fffd}name", "new\nline"]);
}

#[test]
fn many_files_are_found_in_several_looks() {
    let mut lab = Lab::new(IntakeSettings { settle: Duration::ZERO, ready_max: 10, ..IntakeSettings::default() });
    (0..25).for_each(|i| fs::write(lab.path(&format!("32/{i}")), "x").unwrap());
    let mut found = Vec::new();
    for millis in 0..3 {
        let look = lab.look(millis);
        found.push((look.ready.len(), look.more));
        look.ready.into_iter().for_each(|ready| ready.taken().unwrap());
    }
    assert_eq!(found, [(10, true), (10, true), (5, false)]);
}

#[test]
fn names_that_are_left_alone_do_not_hide_what_comes_after() {
    let mut lab = Lab::new(IntakeSettings { settle: Duration::ZERO, ..IntakeSettings::default() });
    (0..ENTRIES_MAX).for_each(|i| drop(File::create(lab.path(&format!("32/{i}.part"))).unwrap()));
    fs::write(lab.path("32/a"), "x").unwrap();
    let look = lab.look(0);
    assert_eq!((names(&look), look.more), (vec!["a".to_owned()], false));
}

#[test]
fn the_longest_name_is_moved_aside_too_and_what_cannot_be_moved_waits() {
    let mut lab = Lab::new(IntakeSettings { settle: Duration::ZERO, ..IntakeSettings::default() });
    let long = "x".repeat(NAME_MAX);
    for _ in 0..2 {
        fs::create_dir(lab.path("32").join(&long)).unwrap();
        assert_eq!(lab.look(0).refused.len(), 1);
    }
    assert_eq!(fs::read_dir(lab.path("refused")).unwrap().count(), 2);
    fs::remove_dir_all(lab.path("refused")).unwrap();
    fs::create_dir(lab.path("32/folder")).unwrap();
    assert!(lab.look(0).refused.is_empty(), "there is no place to move it to");
    fs::create_dir(lab.path("refused")).unwrap();
    assert!(lab.look(59_000).refused.is_empty(), "it is left alone for a while");
    assert_eq!(lab.look(61_000).refused.len(), 1);
}

#[test]
fn nothing_is_moved_through_a_link() {
    let mut lab = Lab::new(IntakeSettings { settle: Duration::ZERO, size_max: 4, ..IntakeSettings::default() });
    fs::create_dir(lab.path("elsewhere")).unwrap();
    fs::remove_dir(lab.path("refused")).unwrap();
    std::os::unix::fs::symlink("elsewhere", lab.path("refused")).unwrap();
    fs::write(lab.path("32/large.sh"), "12345").unwrap();
    assert!(lab.look(0).refused.is_empty());
    assert!(lab.path("32/large.sh").exists());
    assert_eq!(fs::read_dir(lab.path("elsewhere")).unwrap().count(), 0);
}

#[test]
fn what_is_ignored_is_told_once_and_again_if_it_comes_back() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("analysis");
    let mut intake = Intake::open(&root, IntakeSettings::default()).unwrap();
    for folder in ["0", "127", "128", "032", "notes"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    for file in ["loose.exe", "0/half.part", "0/.hidden", "0/.refused-before", "128/never", "0/whole"] {
        fs::write(root.join(file), "x").unwrap();
    }
    let told = |intake: &mut Intake| -> Vec<String> {
        let look = intake.look(START, SystemTime::now());
        look.ignored.iter().map(|ignored| ignored.path.to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(told(&mut intake), ["0/.hidden", "0/half.part", "032", "128", "loose.exe", "notes"]);
    assert!(told(&mut intake).is_empty(), "once");
    fs::remove_file(root.join("loose.exe")).unwrap();
    assert!(told(&mut intake).is_empty());
    fs::write(root.join("loose.exe"), "x").unwrap();
    assert_eq!(told(&mut intake), ["loose.exe"]);
}
