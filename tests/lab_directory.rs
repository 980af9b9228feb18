//! Tests of the numbered directories when somebody hostile writes to them, and on a full disk.

use crate::control::gate::{Site, wait_for};
use crate::kills::disk::SmallDisk;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LAB: &str = "[lab]\nenabled = true\nslots = 2\n";

fn directory(site: &Site, number: u8) -> PathBuf {
    let directory = site.data().join("lab/analysis").join(number.to_string());
    wait_for("the directory", || directory.parent().is_some_and(Path::is_dir).then_some(()));
    fs::create_dir_all(&directory).expect("a directory");
    directory
}

fn samples(site: &Site) -> Vec<Value> {
    site.json(&["lab", "list"]).as_array().expect("a list").clone()
}

fn named<'s>(samples: &'s [Value], name: &str) -> Option<&'s Value> {
    samples.iter().find(|sample| sample["name"] == name)
}

fn hash_of(content: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let samples = weir_store::samples::Samples::open(folder.path()).expect("a store");
    samples.put(&mut content.as_bytes(), 1_000).expect("it is stored").hash.to_string()
}

#[test]
fn what_is_no_sample_is_put_aside_unopened_and_odd_names_are_samples() {
    let site = Site::new(LAB);
    let _up = site.up();
    let normal = directory(&site, 32);
    let secret = site.home().join("secret");
    fs::write(&secret, "not to be read").expect("a file");
    for (target, name) in
        [(secret.to_str().expect("text"), "link"), ("/dev/zero", "endless"), ("..", "up"), ("gone", "dangling")]
    {
        symlink(target, normal.join(name)).expect("a link");
    }
    let made = Command::new("mkfifo").arg(normal.join("pipe")).status();
    assert!(made.expect("mkfifo runs").success());
    let made = Command::new("mknod").arg(normal.join("device")).args(["c", "1", "5"]).status();
    let device = made.expect("mknod runs").success();
    fs::create_dir(normal.join("folder")).expect("a folder");
    fs::write(normal.join("folder/inside"), "x").expect("a file");
    let _socket = UnixListener::bind(normal.join("socket")).expect("a socket");
    // Directories with numbers out of range, or not written as Weir writes them.
    for odd in ["128", "032", "+1"] {
        fs::create_dir(site.data().join("lab/analysis").join(odd)).expect("a directory");
        fs::write(site.data().join("lab/analysis").join(odd).join("never"), "x").expect("a file");
    }
    let names: [&[u8]; 5] = [b"\xff\xfe.sh", b"-rf", b"a\nb", b"%2e%2e%2fetc%2fpasswd", b"$(reboot)"];
    for name in names {
        fs::write(normal.join(OsStr::from_bytes(name)), [b"#!/bin/sh\n", name].concat()).expect("a file");
    }
    fs::write(normal.join("half.part"), "half").expect("a file");

    let done = wait_for("five samples", || {
        let samples = samples(&site);
        (samples.iter().filter(|sample| sample["state"] == "done").count() == 5).then_some(samples)
    });
    assert_eq!(done.len(), 5, "and nothing else: {done:?}");
    for name in ["\u{fffd}\u{fffd}.sh", "-rf", "a\u{fffd}b", "%2e%2e%2fetc%2fpasswd", "$(reboot)"] {
        assert!(named(&done, name).is_some(), "{name:?} in {done:?}");
    }
    let refused = site.data().join("lab/analysis/refused");
    let aside = ["link", "endless", "up", "dangling", "pipe", "folder", "socket"];
    for name in aside.into_iter().chain(device.then_some("device")) {
        wait_for(name, || fs::symlink_metadata(refused.join(format!("32-{name}"))).ok());
    }
    assert_eq!(fs::read_to_string(&secret).expect("it is there"), "not to be read");
    assert!(refused.join("32-folder/inside").exists());
    let left: Vec<_> = fs::read_dir(&normal).expect("a directory").filter_map(Result::ok).collect();
    assert_eq!(left.len(), 1, "only the half file is left: {left:?}");
}

#[test]
fn a_file_that_is_being_written_is_taken_whole() {
    let site = Site::new(LAB);
    let _up = site.up();
    let normal = directory(&site, 32);
    // After a first file was taken, the directory is being watched. On a slow machine it may exist long before that.
    fs::write(normal.join("first"), "#!/bin/sh\n").expect("a file");
    wait_for("the first", || named(&samples(&site), "first").map(drop));
    let mut file = File::create(normal.join("growing")).expect("a file");
    // The last pause is longer than a quiet file is waited for, but the file is still open.
    for (piece, pause) in [400, 400, 400, 400, 4_000].into_iter().enumerate() {
        writeln!(file, "#!/bin/sh piece {piece}").expect("it takes it");
        std::thread::sleep(Duration::from_millis(pause));
        assert!(named(&samples(&site), "growing").is_none(), "after piece {piece}");
    }
    writeln!(file, "the rest").expect("it takes it");
    let size = file.metadata().expect("a file").len();
    drop(file);
    let sample = wait_for("the sample", || named(&samples(&site), "growing").cloned());
    assert_eq!(sample["size"], size);
}

/// `WEIR_FILES` says how many; `make soak` uses a million.
#[test]
fn very_many_files_are_all_taken() {
    let files: usize = std::env::var("WEIR_FILES").ok().and_then(|files| files.parse().ok()).unwrap_or(1_500);
    let site = Site::new(LAB);
    let up = site.up();
    let normal = directory(&site, 96);
    // Their content is known, so each is a sample, but none is analysed again.
    fs::write(normal.join("first"), "#!/bin/sh\n").expect("a file");
    wait_for("the first", || named(&samples(&site), "first").filter(|first| first["state"] == "done").map(drop));
    for number in 0..files {
        fs::write(normal.join(format!("{number}")), "#!/bin/sh\n").expect("a file");
    }
    // An urgent one does not wait for them.
    fs::write(directory(&site, 0).join("urgent"), "#!/bin/sh\nurgent\n").expect("a file");
    let begun = std::time::Instant::now();
    wait_for("the urgent sample", || {
        let urgent = site.json(&["lab", "list", "--hash", &hash_of("#!/bin/sh\nurgent\n")]);
        (urgent[0]["state"] == "done").then_some(())
    });
    let open = || site.json(&["lab", "status"])["states"].clone();
    let done = |states: &Value| {
        let of = |state: &str| states.as_array()?.iter().find(|one| one["state"] == state)?["samples"].as_u64();
        of("done").unwrap_or(0)
    };
    while done(&open()) < files as u64 + 2 {
        assert!(begun.elapsed() < Duration::from_secs(60 + files as u64 / 50), "{}", open());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(fs::read_dir(&normal).expect("a directory").count(), 0);
    let rss = fs::read_to_string(format!("/proc/{}/status", up.pid())).expect("it runs");
    let rss = rss.lines().find(|line| line.starts_with("VmRSS")).expect("a line").to_owned();
    eprintln!("{files} files in {:.1} s, {rss}", begun.elapsed().as_secs_f64());
}

#[test]
fn a_full_disk_loses_no_sample() {
    let Some(disk) = SmallDisk::mount(16) else { return };
    let site = Site::new(&format!("{LAB}samples = {:?}\n", disk.path().join("samples")));
    let _up = site.up();
    let normal = directory(&site, 32);
    let filler = disk.fill();
    std::thread::sleep(Duration::from_secs(1));
    for number in 0..5 {
        let content = format!("#!/bin/sh\n# {number}\n").repeat(10_000);
        fs::write(normal.join(format!("file{number}")), content).expect("a file");
    }
    let handed = site.home().join("handed");
    fs::write(&handed, "#!/bin/sh\n".repeat(10_000)).expect("a file");
    site.weir(&["lab", "submit", handed.to_str().expect("text")]).refused(&["cannot be stored"]);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(fs::read_dir(&normal).expect("a directory").count(), 5, "what cannot be stored stays");
    assert!(samples(&site).is_empty());
    filler.remove();
    let done = wait_for("the samples", || {
        let samples = samples(&site);
        (samples.iter().filter(|sample| sample["state"] == "done").count() == 5).then_some(samples)
    });
    assert_eq!(done.len(), 5);
    assert_eq!(fs::read_dir(&normal).expect("a directory").count(), 0);
}
