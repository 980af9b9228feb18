//! Archives as other programs write them: what is in them is shown, and what cannot be opened says so.

use crate::corpus::carriers::program;
use crate::mail::{attached, examined, found};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use weir_scan::budget::{Budget, Exceeded, Limits};
use weir_scan::walk::{File, NestedPath, Oddity, Visit, walk_sample};

/// Every file that the walk finds, with its name, and what is odd.
#[derive(Default)]
struct Shown {
    files: Vec<(String, Vec<u8>)>,
    odd: Vec<Oddity>,
}

impl Visit for Shown {
    fn file(&mut self, _: &NestedPath, file: &File<'_>, _: &Budget) -> Result<(), Exceeded> {
        self.files.push((file.names.last().cloned().unwrap_or_default(), file.data.to_vec()));
        Ok(())
    }

    fn odd(&mut self, _: &NestedPath, oddity: Oddity) {
        self.odd.push(oddity);
    }
}

fn walked(path: &Path) -> Shown {
    walked_with(path, &[])
}

/// The same where these words stand in the mail as its password.
fn walked_with(path: &Path, passwords: &[&str]) -> Shown {
    let mut shown = Shown::default();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let data = std::fs::read(path).unwrap();
    walk_sample(&[name], &data, passwords, &mut Budget::new(&Limits::default()), &mut shown).unwrap();
    shown
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}: `make setup` installs it"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A folder with a program and a text in it.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("in/below")).unwrap();
    std::fs::write(folder.path().join("in/below/evil.exe"), program()).unwrap();
    std::fs::write(folder.path().join("in/readme.txt"), "some text\n".repeat(5000)).unwrap();
    folder
}

/// The test archives of PyPI's rarfile, which `make setup` fetches; none where it could not.
fn rar_files() -> Vec<PathBuf> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/rar-files");
    let Ok(found) = std::fs::read_dir(place) else { return Vec::new() };
    let mut files: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "rar"));
    files.sort();
    files
}

fn files_below(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files_below(&entry.path(), found);
        } else if kind.is_file() {
            found.insert(entry.path(), std::fs::read(entry.path()).unwrap());
        }
    }
}

#[test]
fn what_unar_takes_out_of_rar_archives_is_shown() {
    let files = rar_files();
    if files.is_empty() {
        eprintln!("skipped: there are no RAR archives; `make setup` fetches them");
        return;
    }
    let closed = ["psw", "part", "old", "rar5-hlink", "comment-lock"];
    let (mut archives, mut compared) = (0, 0);
    for path in &files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let shown = walked(path);
        if closed.iter().any(|word| name.contains(word)) {
            continue;
        }
        let out = tempfile::tempdir().unwrap();
        let mut unar = Command::new("unar");
        unar.args(["-quiet", "-force-overwrite", "-no-directory", "-o"]).arg(out.path()).arg(path);
        let output = unar.output().expect("unar runs: `make setup` installs it");
        if !output.status.success() {
            // It does not know everything either.
            continue;
        }
        archives += 1;
        let mut taken = BTreeMap::new();
        files_below(out.path(), &mut taken);
        for (place, content) in taken {
            compared += 1;
            let is_shown = shown.files.iter().skip(1).any(|(_, data)| *data == content);
            assert!(is_shown, "{name}: {place:?} is not shown; odd: {:?}", shown.odd);
        }
    }
    println!("{archives} RAR archives, {compared} files in them");
    assert!(archives >= 25 && compared >= 40, "{archives} archives, {compared} files");
}

#[test]
fn rar_archives_with_a_password_or_in_pieces_are_not_opened() {
    for path in rar_files() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let shown = walked(&path);
        let hidden = shown.odd.iter().any(|odd| matches!(odd, Oddity::Encrypted | Oddity::Unreadable(_)));
        let expected = ["-psw", "hpsw", "part", "rar3-old"].iter().any(|word| name.contains(word));
        assert!(hidden || !expected, "{name}: {:?}", shown.odd);
    }
}

/// Whether nothing stayed closed: the password was found, and everything behind it was shown.
fn assert_opened(name: &str, shown: &Shown) {
    assert!(shown.odd.contains(&Oddity::PasswordInMail), "{name}: {:?}", shown.odd);
    let closed = |odd: &&Oddity| matches!(odd, Oddity::Encrypted | Oddity::Unreadable(_));
    assert!(!shown.odd.iter().any(|odd| closed(&odd)), "{name}: {:?}", shown.odd);
    assert!(shown.files.len() > 1, "{name} shows nothing");
}

#[test]
fn a_password_in_the_mail_opens_rar_archives_of_every_version() {
    let mut opened = 0;
    // Those of version 3 and 5 with a password on their files, and on their names as well.
    for path in rar_files() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.contains("nopsw") || !name.contains("psw") {
            continue;
        }
        let shown = walked_with(&path, &["please", "is", "password"]);
        assert_opened(&name, &shown);
        let wrong = walked_with(&path, &["please", "is", "Password"]);
        assert!(wrong.odd.contains(&Oddity::Encrypted), "{name}: {:?}", wrong.odd);
        opened += 1;
    }
    println!("{opened} RAR archives opened with a password from the mail");
    assert!(opened >= 5 || rar_files().is_empty(), "{opened}");
}

#[test]
fn a_password_in_the_mail_opens_7z_archives_with_and_without_locked_names() {
    let folder = folder();
    for names in ["-mhe=off", "-mhe=on"] {
        let packed = folder.path().join(format!("invoice{names}.7z"));
        let mut pack = Command::new("7zz");
        run(pack.args(["a", "-bd", "-pInv-2026!", names]).arg(&packed).arg(folder.path().join("in")));
        let shown = walked_with(&packed, &["is", "Inv-2026!"]);
        assert_opened(names, &shown);
        assert!(shown.files.iter().any(|(_, data)| *data == program()), "{names}: the program is not shown");
        let wrong = walked_with(&packed, &["Inv-2025!"]);
        assert!(wrong.odd.contains(&Oddity::Encrypted), "{names}: {:?}", wrong.odd);
    }
}

/// What the whole examination says of a file.
fn said(path: &Path) -> String {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    found(&examined(&attached(&name, &std::fs::read(path).unwrap()))).join("; ")
}

#[test]
fn a_program_that_lzop_packed_is_found() {
    let folder = folder();
    let packed = folder.path().join("notes.lzo");
    run(Command::new("lzop").arg("-o").arg(&packed).arg(folder.path().join("in/below/evil.exe")));
    let told = said(&packed);
    assert!(told.contains("evil.exe"), "{told}");
    // Two files in one, several blocks, and the best that it can do.
    let text = folder.path().join("in/readme.txt");
    let long = folder.path().join("long.txt");
    std::fs::write(&long, (0..100_000u32).flat_map(|n| format!("{n} lines; ").into_bytes()).collect::<Vec<u8>>())
        .unwrap();
    let both = folder.path().join("both.lzo");
    run(Command::new("lzop").args(["-9", "--crc32", "-o"]).arg(&both).arg(&long).arg(&text));
    let shown = walked(&both);
    let whole = [std::fs::read(&long).unwrap(), std::fs::read(&text).unwrap()].concat();
    assert!(shown.odd.is_empty(), "{:?}", shown.odd);
    assert!(shown.files[1].1 == whole, "{} of {} octets", shown.files[1].1.len(), whole.len());
}

#[test]
fn a_file_with_holes_in_a_tar_archive_is_shown_as_it_is_unpacked() {
    let folder = tempfile::tempdir().unwrap();
    let (content, file) =
        ([program(), vec![0; 1 << 20], b"the end".to_vec()].concat(), folder.path().join("report.dat"));
    {
        use std::io::{Seek, SeekFrom, Write};
        let mut out = std::fs::File::create(&file).unwrap();
        out.seek(SeekFrom::Start(4096)).unwrap();
        out.write_all(&content).unwrap();
        out.set_len(4 << 20).unwrap();
    }
    let whole = std::fs::read(&file).unwrap();
    for arguments in [
        vec!["--format=gnu"],
        vec!["--format=posix", "--sparse-version=0.0"],
        vec!["--format=posix", "--sparse-version=0.1"],
        vec!["--format=posix", "--sparse-version=1.0"],
    ] {
        let packed = folder.path().join("report.tar");
        let mut pack = Command::new("tar");
        run(pack.arg("-S").args(&arguments).arg("-cf").arg(&packed).arg("-C").arg(folder.path()).arg("report.dat"));
        let shown = walked(&packed);
        assert!(shown.odd.is_empty(), "{arguments:?}: {:?}", shown.odd);
        assert!(shown.files.iter().any(|(_, data)| *data == whole), "{arguments:?}");
    }
}

#[test]
fn a_disc_with_udf_is_opened_with_or_without_its_other_file_system() {
    let folder = folder();
    let image = folder.path().join("disc.dat");
    run(Command::new("genisoimage").args(["-quiet", "-udf", "-o"]).arg(&image).arg(folder.path().join("in")));
    let names = |shown: &Shown| {
        let mut names: Vec<String> = shown.files.iter().skip(1).map(|(name, _)| name.to_ascii_lowercase()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&walked(&image)), ["evil.exe", "evil.exe", "readme.txt", "readme.txt"]);
    // Only UDF is left, as on discs that are written today.
    let mut data = std::fs::read(&image).unwrap();
    for sector in (16..32).map(|sector| sector * 2048) {
        if &data[sector + 1..sector + 6] == b"CD001" {
            data[sector..sector + 2048].fill(0);
        }
    }
    let begin = (16..32).map(|sector| sector * 2048).find(|at| &data[at + 1..at + 6] == b"BEA01").unwrap();
    data.copy_within(begin..begin + 3 * 2048, 16 * 2048);
    std::fs::write(&image, data).unwrap();
    let shown = walked(&image);
    assert_eq!((names(&shown), shown.odd.len()), (vec!["evil.exe".to_owned(), "readme.txt".to_owned()], 0));
    assert!(said(&image).contains("evil.exe"));
}

#[test]
fn a_program_on_a_disc_is_found_whatever_the_name_of_its_folder() {
    for name in ["a", "0", "ab"] {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("in").join(name);
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("evil.exe"), program()).unwrap();
        for options in [&["-quiet"][..], &["-quiet", "-J", "-R"], &["-quiet", "-udf"]] {
            let image = folder.path().join("disc.dat");
            run(Command::new("genisoimage").args(options).arg("-o").arg(&image).arg(folder.path().join("in")));
            let shown = walked(&image);
            assert!(shown.files.iter().skip(1).any(|(_, data)| *data == program()), "{name}, {options:?}");
            assert!(shown.odd.is_empty(), "{name}, {options:?}: {:?}", shown.odd);
            assert!(said(&image).to_ascii_lowercase().contains("evil.exe"), "{name}, {options:?}: {}", said(&image));
        }
    }
}

#[test]
fn an_installer_is_opened_and_does_not_pass() {
    let folder = folder();
    let source = folder.path().join("setup.wxs");
    let text = "<?xml version='1.0'?><Wix xmlns='http://schemas.microsoft.com/wix/2006/wi'>\
        <Product Name='X' Id='ABCDDCBA-86C7-4D14-AEC0-86416A69ABDE' UpgradeCode='ABCDDCBA-7349-453F-94F6-BCB5110BA4FD' \
        Language='1033' Codepage='1252' Version='1.0.0' Manufacturer='Y'>\
        <Package Id='*' Keywords='Installer' InstallerVersion='100' Languages='1033' Compressed='yes' SummaryCodepage='1252'/>\
        <Media Id='1' Cabinet='inside.cab' EmbedCab='yes'/><Directory Id='TARGETDIR' Name='SourceDir'>\
        <Component Id='C' Guid='ABCDDCBA-83F1-4F22-985B-FDB3C8ABD471'><File Id='F' Name='evil.exe' Source='in/below/evil.exe'/></Component>\
        </Directory><Feature Id='A' Level='1'><ComponentRef Id='C'/></Feature></Product></Wix>";
    std::fs::write(&source, text).unwrap();
    let installer = folder.path().join("report.dat");
    run(Command::new("wixl").arg("-o").arg(&installer).arg(&source).current_dir(folder.path()));
    let shown = walked(&installer);
    assert!(shown.odd.contains(&Oddity::Installer), "{:?}", shown.odd);
    assert!(shown.files.iter().skip(1).any(|(_, data)| *data == program()), "the program in its cabinet is not shown");
    assert!(said(&installer).contains("installer"), "{}", said(&installer));
}

#[test]
fn what_7_zip_finds_behind_something_else_does_not_pass() {
    let folder = folder();
    let program = folder.path().join("in/below/evil.exe");
    let image = folder.path().join("disc.iso");
    run(Command::new("genisoimage").args(["-quiet", "-o"]).arg(&image).arg(folder.path().join("in")));
    let disk = folder.path().join("disk.ext2");
    run(Command::new("mke2fs")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .args(["-q", "-t", "ext2", "-d"])
        .arg(folder.path().join("in"))
        .arg(&disk)
        .arg("256k"));
    let mut archives = vec![("iso", std::fs::read(&image).unwrap()), ("ext2", std::fs::read(&disk).unwrap())];
    for kind in ["7z", "zip", "tar", "gzip", "bzip2", "xz", "wim"] {
        let packed = folder.path().join(format!("packed.{kind}"));
        run(Command::new("7zz").args(["a", "-bd", &format!("-t{kind}")]).arg(&packed).arg(&program));
        archives.push((kind, std::fs::read(&packed).unwrap()));
    }
    let fronts: [(&str, Vec<u8>); 10] = [
        ("over its beginning", b"\xff\xd8\xff\xe0\0\x10JFIF\0".to_vec()),
        ("a picture", [b"\xff\xd8\xff\xe0\0\x10JFIF\0".as_slice(), &[1; 3000]].concat()),
        ("TNEF", b"\x78\x9f\x3e\x22\x01\0\x01\x78\x56\x34\x12\0\0\0\0".to_vec()),
        ("Zstandard", b"\x50\x2a\x4d\x18\xff\xff\xff\0".to_vec()),
        ("LHA", [b"\0\0-lh0-".as_slice(), &[0; 20]].concat()),
        ("ARJ", b"\x60\xea\0\0".to_vec()),
        ("a disc", [vec![b'x'; 0x8000], b"\xffCD001\x01".to_vec(), vec![0; 2100]].concat()),
        (
            "OneNote",
            [b"\xe4\x52\x5c\x7b\x8c\xd8\xa7\x4d\xae\xb1\x53\x78\xd0\x29\x96\xd3".as_slice(), &[0; 99]].concat(),
        ),
        ("a calendar", b"BEGIN:VCALENDAR\r\nEND:VCALENDAR\r\n".to_vec()),
        ("PKCS #7", b"\x30\x0b\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x02".to_vec()),
    ];
    let (mut opened, mut missed) = (0, Vec::new());
    for (front, octets) in &fronts {
        for (kind, archive) in &archives {
            let both = folder.path().join("photos.dat");
            std::fs::write(&both, [octets.as_slice(), archive].concat()).unwrap();
            if *front == "over its beginning" {
                std::fs::write(&both, [octets.as_slice(), archive.get(octets.len()..).unwrap_or_default()].concat())
                    .unwrap();
            }
            let out = folder.path().join("out");
            let listed =
                Command::new("7zz").args(["x", "-bd", "-y"]).arg(format!("-o{}", out.display())).arg(&both).output();
            let mut found = BTreeMap::new();
            if listed.is_ok() && out.exists() {
                files_below(&out, &mut found);
                std::fs::remove_dir_all(&out).unwrap();
            }
            if found.values().any(|data| *data == self::program()) {
                opened += 1;
                let told = said(&both).to_ascii_lowercase();
                if !["a windows program", "evil.exe", "not opened"].iter().any(|word| told.contains(word)) {
                    missed.push(format!("{kind} behind {front}: {told}"));
                }
            }
        }
    }
    println!("7-Zip opens {opened} of {}", fronts.len() * archives.len());
    assert!(opened >= 30 && missed.is_empty(), "{opened} opened, missed:\n{}", missed.join("\n"));
}

#[test]
fn an_image_of_windows_stays_closed() {
    let folder = folder();
    let image = folder.path().join("backup.dat");
    run(Command::new("wimcapture").arg(folder.path().join("in")).arg(&image));
    assert!(said(&image).contains("a WIM image is not opened"), "{}", said(&image));
}
