//! Tests that what `make release` builds does not depend on when, where and by whom it is built: the same program gives the same octets
//! twice.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).expect("the source")
}

/// Runs a tool; with `elsewhere`, in another folder, with another umask, time zone and language.
fn tool(name: &str, elsewhere: bool, arguments: &[&Path]) -> Vec<u8> {
    let script = if elsewhere { "umask 077; cd /; exec \"$@\"" } else { "umask 022; exec \"$@\"" };
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash"]).arg(root().join("tools").join(name)).args(arguments).current_dir(root());
    command.env("SOURCE_DATE_EPOCH", "1790000000").env("WEIR_DEB_COMPRESSION", "none");
    let (zone, language) = if elsewhere { ("Asia/Tokyo", "C") } else { ("UTC", "C.UTF-8") };
    command.env("TZ", zone).env("LC_ALL", language);
    let output = command.output().expect("the tool starts");
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// All files below a folder except signatures, which contain the time.
fn files(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>, top: &Path) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, found, top);
        } else if !["InRelease", "Release.gpg"].iter().any(|signed| path.ends_with(signed)) {
            found.push((path.strip_prefix(top).unwrap().to_owned(), fs::read(&path).unwrap()));
        }
    }
}

#[test]
fn packages_repository_image_and_bill_of_materials_are_the_same_twice() {
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("weir");
    fs::copy(env!("CARGO_BIN_EXE_weir"), &program).unwrap();
    // Half of a test program is debug information.
    assert!(Command::new("strip").arg("--strip-all").arg(&program).status().unwrap().success());
    let guest = home.path().join("guest");
    fs::create_dir(&guest).unwrap();
    for name in ["vmlinuz", "initrd", "root.squashfs"] {
        fs::write(guest.join(name), name.repeat(1000)).unwrap();
    }
    let key_home = home.path().join("gnupg");
    fs::create_dir(&key_home).unwrap();
    let packed: Vec<_> = [false, true]
        .map(|elsewhere| {
            let out = home.path().join(if elsewhere { "a/longer/way" } else { "short" });
            fs::create_dir_all(&out).unwrap();
            tool("deb", elsewhere, &[&program, &out]);
            guest_package(&guest, &out, elsewhere);
            let image = out.join("weir.oci.tar");
            tool("oci-image", elsewhere, &[Path::new("/bin/true"), Path::new("1.2.3"), Path::new("abc"), &image]);
            fs::write(out.join("sbom.json"), tool("sbom", elsewhere, &[])).unwrap();
            repository(&key_home, &out);
            let mut found = Vec::new();
            files(&out, &mut found, &out);
            found
        })
        .into();
    let [first, second] = packed.as_slice() else { panic!() };
    let names = |all: &[(PathBuf, Vec<u8>)]| all.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(first), names(second));
    assert!(first.len() >= 8, "{:?}", names(first));
    let pairs = first.iter().zip(second);
    let differing: Vec<&PathBuf> = pairs.filter(|(one, other)| one.1 != other.1).map(|(one, _)| &one.0).collect();
    assert!(differing.is_empty(), "these differ: {differing:?}");
    let package = home.path().join("weir.deb");
    let of_weir = first.iter().find(|(name, _)| name.to_string_lossy().starts_with("weir_")).expect("the package");
    fs::write(&package, &of_weir.1).unwrap();
    let unpacked = home.path().join("unpacked");
    assert!(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&unpacked).status().unwrap().success());
    // Files that are copied from the examples must name the program where the package puts it.
    let examples = unpacked.join("usr/share/doc/weir/examples");
    for unit in [unpacked.join("usr/lib/systemd/system/weir.service"), examples.join("weir-worker.service")] {
        let text = fs::read_to_string(&unit).unwrap();
        assert!(text.contains("ExecStart=/usr/bin/weir ") && !text.contains("/usr/local/"), "{}", unit.display());
    }
    assert!(examples.join("plugins/cape/plugin.toml").exists() && examples.join("plugins/cape/run.py").exists());
    let of_lab =
        first.iter().find(|(name, _)| name.to_string_lossy().starts_with("weir-guest_")).expect("the guest's package");
    let held = home.path().join("guest.deb");
    fs::write(&held, &of_lab.1).unwrap();
    let list = Command::new("dpkg-deb").arg("-c").arg(&held).output().unwrap();
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(list.contains("./usr/share/weir/guest/root.squashfs"), "{list}");
}

fn guest_package(guest: &Path, out: &Path, elsewhere: bool) {
    let script = format!("umask {}; exec tools/guest-deb guest \"$0\"", if elsewhere { "077" } else { "022" });
    let mut command = Command::new("bash");
    command.arg("-c").arg(script).arg(out).current_dir(root());
    let status = command.env("SOURCE_DATE_EPOCH", "1790000000").env("WEIR_GUEST_FOLDER", guest).output().unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
}

/// A signed repository for apt, with a key of this test.
fn repository(key_home: &Path, out: &Path) {
    let script = "set -e; chmod 700 \"$GNUPGHOME\"; \
                  gpg --batch --list-secret-keys weir-test >/dev/null 2>&1 || \
                  gpg --batch --quiet --passphrase '' --quick-generate-key weir-test ed25519 sign never; \
                  tools/apt-repository \"$0\" weir-test; gpgconf --kill gpg-agent";
    let mut command = Command::new("bash");
    command.args(["-c", script]).arg(out).current_dir(root()).env("GNUPGHOME", key_home);
    let output = command.env("SOURCE_DATE_EPOCH", "1790000000").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
