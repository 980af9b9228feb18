//! The virtio-serial port: found by its name, and read as if the lab were always there.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;
use weir_guest::words::PORT;

/// How long to wait where nobody speaks.
const PAUSE: Duration = Duration::from_millis(5);

/// The port, once the kernel has found it.
pub(crate) fn open() -> File {
    loop {
        if let Some(file) = find().and_then(|path| File::options().read(true).write(true).open(path).ok()) {
            return file;
        }
        std::thread::sleep(PAUSE);
    }
}

fn find() -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?.flatten();
    let is_ours = |entry: &fs::DirEntry| fs::read_to_string(entry.path().join("name")).is_ok_and(|n| n.trim() == PORT);
    ports.into_iter().find(is_ours).map(|entry| PathBuf::from("/dev").join(entry.file_name()))
}

/// A port whose other side comes and goes: between frames that is waited for, within one it ends the frame.
#[derive(Debug)]
pub(crate) struct PortLine<'a> {
    port: &'a File,
    within: bool,
}

impl<'a> PortLine<'a> {
    pub(crate) fn new(port: &'a File) -> PortLine<'a> {
        PortLine { port, within: false }
    }
}

impl Read for PortLine<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.port.read(into) {
                Ok(0) if self.within => return Ok(0),
                Ok(0) => std::thread::sleep(PAUSE),
                Ok(length) => {
                    self.within = true;
                    return Ok(length);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
