//! Files that a sample wants beside itself: a library, a configuration, a second script. Whoever sends only one of them shows nothing of what
//! it does with the others.

use std::path::Path;

/// What programs look for wherever they are, and do without.
const OPTIONAL: [&str; 6] = ["package.json", "pyvenv.cfg", "GNUmakefile", "makefile", "Makefile", "core"];
/// Where libraries are that are looked for beside a program first.
const LIBRARIES: [&str; 5] =
    ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib", "/usr/lib", "/usr/local/lib"];

/// Whether a file that is not there was to come along with the sample: it would be in the sample's folder, or in a folder below that is not
/// there either. What is in folders that are there is the machine's or the sample's own, and names with a dot in front are settings of
/// programs.
pub(crate) fn is_companion(path: &str, sample: &str) -> bool {
    let Some(folder) = Path::new(sample).parent() else { return false };
    let Ok(below) = Path::new(path).strip_prefix(folder) else { return false };
    let (Some(name), Some(around)) = (below.file_name().and_then(|name| name.to_str()), Path::new(path).parent())
    else {
        return false;
    };
    let is_hidden = below.iter().any(|part| part.as_encoded_bytes().starts_with(b".") || part == "__pycache__");
    let is_elsewhere = || name.contains(".so") && LIBRARIES.iter().any(|folder| Path::new(folder).join(name).exists());
    let is_of_the_machine = around != folder && around.exists();
    !is_hidden && !is_of_the_machine && !OPTIONAL.contains(&name) && !name.ends_with(".pyc") && !is_elsewhere()
}

#[cfg(test)]
mod tests {
    use super::is_companion;

    #[test]
    fn what_should_have_come_along_is_told_from_what_may_be_missing() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("Documents")).unwrap();
        let sample = home.path().join("s.sh");
        let is = |name: &str| is_companion(&home.path().join(name).to_string_lossy(), &sample.to_string_lossy());
        for name in ["config.json", "lib.sh", "lib/common.sh", "libhelper.so", "payload.bin"] {
            assert!(is(name), "{name}");
        }
        for name in [
            ".curlrc",
            ".config/x",
            "lib/.x",
            "Documents/x",
            "__pycache__/a.pyc",
            "a.pyc",
            "package.json",
            "libc.so.6",
            "",
        ] {
            assert!(!is(name), "{name}");
        }
        assert!(!is_companion("/etc/x.conf", &sample.to_string_lossy()) && !is_companion("/x", ""));
    }
}
