//! The gate in a virtual machine whose power can be cut.
//!
//! A kill of the gate leaves the page cache alone; a power cut does not. The machine's disk is an image behind nbdkit, with a write-back
//! cache in nbdkit's own memory: a write reaches the image only when the guest flushes. To cut the power means to kill QEMU and nbdkit.
//! Everything that was not flushed is lost then, as with a disk that has a volatile cache. A second disk, which is never flushed, proves in
//! every life that this works. `tools/soak-vm` builds the kernel and the initramfs, and names their folder in `WEIR_VM`.

use super::sink::Door;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const DISK_MIB: u64 = 512;
/// An emulated processor on a busy machine is slow.
pub(super) const START_MAX: Duration = Duration::from_secs(600);

/// The machine while it is switched off.
#[derive(Debug)]
pub(super) struct Machine {
    home: tempfile::TempDir,
    parts: PathBuf,
    /// Whether the disk lies: it does not carry out flushes.
    pub(super) lies: bool,
}

/// The machine while it runs. Its power is cut when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    processes: Vec<Child>,
    lines: Receiver<String>,
    /// The address of the gate.
    pub(super) gate: SocketAddr,
    /// Everything that was printed on the console so far.
    pub(super) said: String,
}

impl Machine {
    pub(super) fn new(parts: &Path) -> Machine {
        let home = tempfile::tempdir().expect("a folder");
        for (disk, size) in [("disk", DISK_MIB << 20), ("canary", 1 << 20)] {
            let image = File::create(home.path().join(disk)).expect("an image");
            image.set_len(size).expect("a size");
        }
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(home.path().join("disk")).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfs.ext4: run `tools/setup soak`");
        Machine { home, parts: parts.to_owned(), lies: false }
    }

    /// Switches it on. `mode` tells the guest what to do besides running the gate.
    pub(super) fn start(&self, mode: &str, door: &Door) -> Running {
        let mut processes: Vec<Child> = ["disk", "canary"].into_iter().map(|disk| self.serve(disk)).collect();
        let gate = SocketAddr::from((Ipv4Addr::LOCALHOST, weir_peers::free_port()));
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args(["-nographic", "-no-reboot", "-m", "384", "-accel"])
            .arg(std::env::var("WEIR_VM_ACCEL").unwrap_or("tcg".to_owned()))
            .arg("-kernel")
            .arg(self.parts.join("vmlinuz"))
            .arg("-initrd")
            .arg(self.parts.join("initramfs"))
            .arg("-append")
            // On a busy host, the kernel would find its timer too slow and stop.
            .arg(format!(
                "console=ttyS0 quiet panic=-1 no_timer_check weir.mode={mode} weir.sink={}",
                door.address.port()
            ))
            .arg("-netdev")
            .arg(format!("user,id=net,hostfwd=tcp:{gate}-:2587"))
            .args(["-device", "virtio-net-pci,netdev=net,romfile="]);
        for disk in ["disk", "canary"] {
            let socket = self.socket(disk);
            qemu.arg("-drive")
                .arg(format!("file=nbd+unix:///?socket={},if=virtio,format=raw,cache=writeback", socket.display()));
        }
        let mut child = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let console = child.as_mut().expect("QEMU: run `tools/setup soak`").stdout.take().expect("a pipe");
        processes.push(child.expect("it runs"));
        Running { processes, lines: reading(BufReader::new(console)), gate, said: String::new() }
    }

    fn socket(&self, disk: &str) -> PathBuf {
        self.home.path().join(format!("{disk}.sock"))
    }

    /// Starts the server of a disk, with a cache that only a flush writes out.
    fn serve(&self, disk: &str) -> Child {
        let socket = self.socket(disk);
        let _ = std::fs::remove_file(&socket);
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["--foreground", "--unix"]).arg(&socket).args(["--filter=cache", "file"]);
        // The lie is told by nbdkit, because with QEMU's own `cache=unsafe` flushes still reach an NBD server (seen with 7.2).
        nbdkit.arg(self.home.path().join(disk)).arg(if self.lies { "cache=unsafe" } else { "cache=writeback" });
        let child = nbdkit.stdin(Stdio::null()).spawn().expect("nbdkit: run `tools/setup soak`");
        let begun = Instant::now();
        while !socket.exists() {
            assert!(begun.elapsed() < Duration::from_secs(10), "nbdkit does not come up");
            std::thread::sleep(Duration::from_millis(10));
        }
        child
    }
}

impl Running {
    /// Reads the console until a line contains these words. Returns that line.
    #[track_caller]
    pub(super) fn until(&mut self, words: &str, at_most: Duration) -> String {
        let end = Instant::now() + at_most;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.said.push_str(&line);
                    self.said.push('\n');
                    if line.contains(words) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("{words:?} did not come:\n{}", self.said),
                Err(RecvTimeoutError::Disconnected) => panic!("the machine ended before {words:?}:\n{}", self.said),
            }
        }
    }

    /// The recipients in a list that the guest prints as JSON.
    #[track_caller]
    pub(super) fn recipients(&mut self, list: &str) -> BTreeSet<String> {
        let line = self.until(&format!("WEIR {list} "), START_MAX);
        let (_, json) = line.split_once(&format!("WEIR {list} ")).expect("it is there");
        super::site::recipients(&serde_json::from_str(json.trim()).unwrap_or_else(|error| panic!("{error}: {json}")))
    }

    /// Waits until the guest has switched itself off, with everything flushed.
    pub(super) fn off(mut self) {
        self.until("WEIR off", START_MAX);
        let qemu = self.processes.last_mut().expect("it runs");
        qemu.wait().expect("it ends");
    }

    /// Cuts the power.
    pub(super) fn cut(mut self) -> String {
        self.kill();
        self.said.extend(self.lines.try_iter().map(|line| format!("{line}\n")));
        std::mem::take(&mut self.said)
    }

    /// QEMU is killed last, so that nothing reaches the image after it.
    fn kill(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
        }
        for process in &mut self.processes {
            let _ = process.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

fn reading(console: impl BufRead + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in console.split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                return;
            }
        }
    });
    lines
}
