//! The samples of the corpus by name. Most are plain files. Programs are compiled from their sources when they are needed. Archives and
//! documents are made of other samples, whose analysis is then already known.

use base64::Engine;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_analysis::fixtures;
use weir_scan::test_files;

/// The container that a sample is put into.
#[derive(Clone, Copy)]
enum Form {
    Zip,
    /// `zip` or `7z` with the password that laboratories use, made by 7-Zip.
    Locked(&'static str),
    TarGz,
    Zstandard,
    /// A shell script that unpacks the data after it and runs that.
    ShellArchive,
    /// A web page that assembles a zip archive and saves it.
    Page,
    /// A Word document with a file that runs when it is clicked.
    Docx,
    /// A PDF with a file that its script saves and opens.
    Pdf,
}

/// The kind (`bad` or `good`), the name, the container, and the sample of that kind that is in it.
const WRAPPED: [(&str, &str, Form, &str); 13] = [
    ("bad", "invoice.zip", Form::Zip, "dropper-curl.sh"),
    ("bad", "locked.zip", Form::Locked("zip"), "miner-stratum-python"),
    ("bad", "locked.7z", Form::Locked("7z"), "shell-bash.sh"),
    ("bad", "photos.tar.gz", Form::TarGz, "dropper-bash.sh"),
    ("bad", "install.sh.zst", Form::Zstandard, "dropper-curl.sh"),
    ("bad", "self-extracting.sh", Form::ShellArchive, "dropper-python"),
    ("bad", "parcel.html", Form::Page, "dropper-python"),
    ("bad", "offer.docx", Form::Docx, "persist-cron.sh"),
    ("bad", "order.docx", Form::Docx, "program-shell"),
    ("bad", "bill.pdf", Form::Pdf, "memfd-python"),
    ("good", "scripts.zip", Form::Zip, "hello.bash"),
    ("good", "tools.tar.gz", Form::TarGz, "backup.sh"),
    ("good", "setup-self-extracting.sh", Form::ShellArchive, "hello.bash"),
];

fn folder(side: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/corpus").join(side)
}

/// The names of all samples of one kind, `bad` or `good`, in order.
pub(super) fn names(side: &str) -> Vec<String> {
    let files = fs::read_dir(folder(side)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files = files.map(|name| name.strip_suffix(".c").map_or_else(|| name.clone(), str::to_owned));
    let wrapped = WRAPPED.iter().filter(|(own, ..)| *own == side).map(|(_, name, ..)| (*name).to_owned());
    let mut names: Vec<String> = files.chain(wrapped).collect();
    names.sort();
    names
}

/// The content of the sample with this name.
pub(super) fn content(side: &str, name: &str) -> Vec<u8> {
    if let Some((_, _, form, inner)) = WRAPPED.iter().find(|(own, known, ..)| *own == side && *known == name) {
        return wrapped(*form, inner, &content(side, inner));
    }
    let source = folder(side).join(format!("{name}.c"));
    if source.exists() { compiled(&source) } else { fs::read(folder(side).join(name)).unwrap() }
}

/// Compiled statically, so that it needs nothing from the guest.
fn compiled(source: &Path) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let made = Command::new("cc").args(["-O1", "-s", "-static", "-o"]).arg(&program).arg(source).output();
    let made = made.expect("a C compiler is needed: run `make setup`");
    assert!(made.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&made.stderr));
    fs::read(program).unwrap()
}

fn wrapped(form: Form, name: &str, data: &[u8]) -> Vec<u8> {
    match form {
        Form::Zip => fixtures::zip(&[(name, data)]),
        Form::Locked(kind) => locked(kind, name, data),
        Form::TarGz => test_files::gzipped(&test_files::tar(name, data)).unwrap(),
        Form::Zstandard => {
            assert!(data.len() <= 255, "{name} has {} octets, and what packs it takes 255", data.len());
            test_files::zstd(data)
        }
        Form::ShellArchive => {
            let begin =
                "#!/bin/sh\nd=$(mktemp -d)\ntail -n +6 \"$0\" | tar xz -C \"$d\"\nchmod 755 \"$d\"/*\nexec \"$d\"/*\n";
            [begin.as_bytes(), &wrapped(Form::TarGz, name, data)].concat()
        }
        Form::Page => page(&fixtures::zip(&[(name, data)])),
        Form::Docx => docx(name, data),
        Form::Pdf => pdf(name, data),
    }
}

fn locked(kind: &str, name: &str, data: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let to = format!("packed.{kind}");
    fs::write(folder.path().join(name), data).unwrap();
    let mut pack = Command::new("7zz");
    pack.current_dir(folder.path()).args(["a", "-bd", &format!("-t{kind}"), "-pinfected", &to, name]);
    let done = pack.output().expect("7zz is needed: run `make setup`");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    fs::read(folder.path().join(to)).unwrap()
}

fn page(archive: &[u8]) -> Vec<u8> {
    let text = base64::engine::general_purpose::STANDARD.encode(archive);
    let script = format!(
        "var octets = Uint8Array.from(atob(\"{text}\"), function (c) {{ return c.charCodeAt(0); }});\n\
         var link = document.createElement(\"a\");\n\
         link.href = URL.createObjectURL(new Blob([octets]));\nlink.download = \"parcel.zip\";\nlink.click();\n"
    );
    format!("<!DOCTYPE html>\n<html><head><title>Your parcel</title></head><body><script>\n{script}</script></body></html>\n")
        .into_bytes()
}

fn docx(name: &str, data: &[u8]) -> Vec<u8> {
    let document = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><w:document><w:body><w:p><w:r><w:t>The offer is in the icon below.\
                    </w:t></w:r></w:p></w:body></w:document>";
    fixtures::zip(&[
        (
            "[Content_Types].xml",
            b"<Types><Default Extension=\"bin\" ContentType=\"application/octet-stream\"/></Types>",
        ),
        ("_rels/.rels", b"<Relationships/>"),
        ("word/document.xml", document.as_bytes()),
        ("word/embeddings/oleObject1.bin", &fixtures::packaged_object(name, data)),
    ])
}

fn pdf(name: &str, data: &[u8]) -> Vec<u8> {
    let script = format!("this.exportDataObject\\({{ cName: \"{name}\", nLaunch: 2 }}\\);");
    let objects = [
        format!(
            "<< /Type /Catalog /Pages 2 0 R /OpenAction << /S /JavaScript /JS ({script}) >> \
             /Names << /EmbeddedFiles << /Names [({name}) 4 0 R] >> >> >>"
        ),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] >>".to_owned(),
        format!("<< /Type /Filespec /F ({name}) /EF << /F 5 0 R >> >>"),
    ];
    let mut out = b"%PDF-1.5\n".to_vec();
    for (number, object) in objects.iter().enumerate() {
        out.extend(format!("{} 0 obj\n{object}\nendobj\n", number + 1).into_bytes());
    }
    out.extend(format!("5 0 obj\n<< /Type /EmbeddedFile /Length {} >>\nstream\n", data.len()).into_bytes());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\nendstream\nendobj\ntrailer << /Root 1 0 R >>\n%%EOF\n");
    out
}
