//! Puts the guide into the program: the README, and every page and picture under docs/.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = folder("CARGO_MANIFEST_DIR").join("../..");
    let mut files = vec![("README.md".to_owned(), root.join("README.md"))];
    gather(&root.join("docs"), "", &mut files)?;
    files.sort();
    let mut table = String::from("[\n");
    for (name, file) in files {
        println!("cargo::rerun-if-changed={}", file.display());
        let _ = writeln!(table, "    ({name:?}, include_str!({:?})),", file.canonicalize()?);
    }
    table.push_str("]\n");
    println!("cargo::rerun-if-changed={}", root.join("docs").display());
    fs::write(folder("OUT_DIR").join("guide.rs"), table)
}

fn folder(variable: &str) -> PathBuf {
    PathBuf::from(env::var_os(variable).unwrap_or_default())
}

fn gather(folder: &Path, under: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            gather(&path, &format!("{under}{name}/"), files)?;
        } else if name.ends_with(".md") || name.ends_with(".svg") {
            files.push((format!("{under}{name}"), path));
        }
    }
    Ok(())
}
