//! `make bench-vm`: samples in VMs. How long a revert takes, how long a sample takes from the job to its report, how many
//! samples a minute one to four VMs bear, what a VM costs in memory, and what it is worth to have VMs restored ahead of need.
//!
//! The VMs are those of the lab, with QEMU's own translation of instructions (TCG) unless `bench-vm kvm` says otherwise. The
//! sample is a script that exits at once. Where the guest for Windows programs is built, a program that says hello is run in it
//! as well; `bench-vm windows` does only that. The last lines are `figure NAME VALUE` and `ratio NAME VALUE`, one a line.

#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use weir_lab::choices::Choices;
use weir_lab::job::{Input, Job};
use weir_lab::plugin::Plugin;
use weir_lab::vm::{self, Accelerator, Boot, Choice, Common, Phase, Revert, Vm, VmSettings};

/// Samples for each figure.
const SAMPLES: usize = 20;
/// Fresh QEMUs are slower and vary less.
const COLD: usize = 8;
/// How long each number of VMs works.
const PACE: Duration = Duration::from_secs(15);

/// A guest, and what runs in it.
struct Kind {
    guest: &'static str,
    manifest: &'static str,
    memory_mib: u32,
    name: &'static str,
    media_type: &'static str,
    sample: Vec<u8>,
}

fn linux() -> Kind {
    Kind {
        guest: "target/guest",
        manifest: include_str!("../../plugins/run-linux/plugin.toml"),
        memory_mib: 256,
        name: "sample.sh",
        media_type: "text/x-shellscript",
        sample: b"#!/bin/sh\nexit 0\n".to_vec(),
    }
}

/// None where that guest is not built.
fn windows() -> Option<Kind> {
    let guest = "target/guest-windows";
    Path::new(guest).join("root.squashfs").exists().then(|| {
        let made = Command::new("tests/fixtures/windows-corpus/build").arg("target/windows-corpus").status();
        assert!(
            made.is_ok_and(|ended| ended.success()),
            "no program to run: `tools/setup guest-windows` installs what makes it"
        );
        Kind {
            guest,
            manifest: include_str!("../../plugins/run-windows/plugin.toml"),
            memory_mib: 768,
            name: "hello.exe",
            media_type: "application/vnd.microsoft.portable-executable",
            sample: std::fs::read("target/windows-corpus/good/hello.exe").expect("it was made"),
        }
    })
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(run());
}

async fn run() {
    let has = |word: &str| std::env::args().skip(1).any(|given| given == word);
    let accelerator = if has("kvm") { Accelerator::Kvm } else { Accelerator::Tcg };
    if has("windows") {
        let kind = windows().expect("the guest for Windows programs: run `make guest-windows`");
        return windows_rows(&Bench::new(accelerator, kind)).await;
    }
    let bench = Bench::new(accelerator, linux());
    println!("Samples in VMs ({}, {} processors)\n", accelerator.name(), processors());
    let begun = Instant::now();
    let vm = bench.vms(1, Revert::InPlace).pop().expect("one");
    free(&vm).await;
    println!("golden snapshot made and the first VM ready after {:.1} s", begun.elapsed().as_secs_f64());
    let (reports, reverts) = bench.samples(&vm, SAMPLES).await;
    let memory = vm.pid().map_or(0.0, resident_mib);
    drop(vm);
    row("warm VM, sample to report", &reports);
    row("in-place revert, verified", &reverts);
    let fresh = bench.vms(1, Revert::Process).pop().expect("one");
    free(&fresh).await;
    let (fresh_reports, fresh_reverts) = bench.samples(&fresh, COLD).await;
    drop(fresh);
    row("revert by a new process", &fresh_reverts);
    // Without a pool the sample waits for its QEMU first.
    let cold: Vec<f64> = fresh_reverts.iter().zip(&fresh_reports).map(|(start, report)| start + report).collect();
    row("no pool, sample to report", &cold);
    println!("memory of an idle VM: {memory:.0} MiB resident\n");
    let mut paces = Vec::new();
    for count in 1..=4 {
        let pace = bench.pace(count).await;
        println!("{count} VMs: {pace:.0} samples a minute, every one in a clean VM");
        paces.push((count, pace));
    }
    println!();
    if let Some(kind) = windows() {
        windows_rows(&Bench::new(accelerator, kind)).await;
    }
    paces.iter().for_each(|(count, pace)| println!("figure vm_samples_per_minute_{count} {pace:.1}"));
    println!("figure vm_memory_mib {memory:.1}");
    println!("figure vm_fresh_process_s {:.3}", median(&fresh_reverts));
    println!("figure vm_revert_s {:.3}", median(&reverts));
    println!("figure vm_sample_to_report_s {:.3}", median(&reports));
    println!("ratio vm_warm_vs_cold {:.2}", median(&cold) / median(&reports));
}

/// The guest for Windows programs: one VM, one program after the other.
async fn windows_rows(bench: &Bench) {
    let begun = Instant::now();
    let vm = bench.vms(1, Revert::InPlace).pop().expect("one");
    free(&vm).await;
    println!("Windows: golden snapshot made and the first VM ready after {:.1} s", begun.elapsed().as_secs_f64());
    let (reports, reverts) = bench.samples(&vm, COLD).await;
    let memory = vm.pid().map_or(0.0, resident_mib);
    drop(vm);
    row("Windows, program to report", &reports);
    row("Windows, in-place revert", &reverts);
    let disk_mib = mib(&bench.guest.join("root.squashfs"));
    let snapshot_mib = bench.snapshots_mib();
    println!("Windows: {memory:.0} MiB resident, disk {disk_mib:.0} MiB, snapshot {snapshot_mib:.0} MiB\n");
    println!("figure vm_windows_memory_mib {memory:.1}");
    println!("figure vm_windows_disk_mib {disk_mib:.1}");
    println!("figure vm_windows_snapshot_mib {snapshot_mib:.1}");
    println!("figure vm_windows_revert_s {:.3}", median(&reverts));
    println!("figure vm_windows_program_to_report_s {:.3}", median(&reports));
}

struct Bench {
    home: tempfile::TempDir,
    guest: PathBuf,
    accelerator: Accelerator,
    plugin: Plugin,
    kind: Kind,
}

impl Bench {
    fn new(accelerator: Accelerator, kind: Kind) -> Bench {
        let guest = std::path::absolute(kind.guest).expect("a path");
        assert!(guest.join("root.squashfs").exists(), "no guest in {}: run `make guest`", guest.display());
        let plugin = Plugin::parse(kind.manifest, Path::new("/")).expect("a manifest of ours");
        Bench { home: tempfile::tempdir().expect("a folder"), guest, accelerator, plugin, kind }
    }

    /// How much room the snapshots take.
    fn snapshots_mib(&self) -> f64 {
        let files = std::fs::read_dir(self.home.path().join("vms")).into_iter().flatten().flatten();
        files
            .filter(|file| file.file_name().to_string_lossy().starts_with("golden-"))
            .map(|file| mib(&file.path()))
            .sum()
    }

    fn vms(&self, count: usize, revert: Revert) -> Vec<Vm> {
        let common = Common {
            home: self.home.path().join("vms"),
            qemu: "qemu-system-x86_64".into(),
            accelerator: Choice::Fixed(self.accelerator),
            watch: Duration::from_secs(60),
            unconfined: false,
        };
        let settings = |number| VmSettings {
            name: format!("vm{number}"),
            boot: Boot::Kernel { kernel: self.guest.join("vmlinuz"), initrd: self.guest.join("initrd") },
            memory_mib: self.kind.memory_mib,
            tags: Vec::new(),
            plugins: Vec::new(),
            revert,
            root: false,
        };
        let (vms, tasks) = vm::start(common, (1..=count).map(settings).collect()).expect("VMs");
        // They end when the last handle of their VM is dropped.
        tasks.into_iter().for_each(|task| drop(tokio::spawn(task.future)));
        vms
    }

    /// One sample, from its content to its report; seconds.
    async fn sample(&self, vm: &Vm) -> f64 {
        let folder = self.home.path().join(format!("job-{}", vm.settings().name));
        let begun = Instant::now();
        let Kind { name, media_type, sample, .. } = &self.kind;
        let job = Job::prepare(&folder, &Input::new(name, media_type), &mut &sample[..]).expect("a job");
        let report = vm.run(&self.plugin, &job, name, &Choices::NONE).await.expect("a report");
        let taken = begun.elapsed().as_secs_f64();
        assert!(report.full.get().contains("\"exit 0\""), "{}", report.full.get());
        std::fs::remove_dir_all(&folder).expect("it was there");
        taken
    }

    /// Samples one after the other: times to the report, and then to a VM that is clean again.
    async fn samples(&self, vm: &Vm, count: usize) -> (Vec<f64>, Vec<f64>) {
        let (mut reports, mut reverts) = (Vec::new(), Vec::new());
        for _ in 0..count {
            reports.push(self.sample(vm).await);
            let begun = Instant::now();
            free(vm).await;
            reverts.push(begun.elapsed().as_secs_f64());
        }
        (reports, reverts)
    }

    /// Samples a minute that so many VMs bear.
    async fn pace(&self, count: usize) -> f64 {
        let vms = self.vms(count, Revert::InPlace);
        for vm in &vms {
            free(vm).await;
        }
        let begun = Instant::now();
        let work = vms.iter().map(move |vm| async move {
            let mut done = 0_u32;
            while begun.elapsed() < PACE {
                self.sample(vm).await;
                free(vm).await;
                done += 1;
            }
            done
        });
        let mut done = 0;
        for count in join_all(work).await {
            done += count;
        }
        f64::from(done) * 60.0 / begun.elapsed().as_secs_f64()
    }
}

/// Runs up to four at once on this thread.
async fn join_all<F: Future<Output = u32>>(work: impl Iterator<Item = F>) -> Vec<u32> {
    let mut work: Vec<std::pin::Pin<Box<F>>> = work.map(Box::pin).collect();
    let mut done = vec![None; work.len()];
    std::future::poll_fn(|context| {
        for (future, done) in work.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(count) = future.as_mut().poll(context) {
                *done = Some(count);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// Until it is clean.
async fn free(vm: &Vm) {
    let mut phase = vm.phase();
    let waited = tokio::time::timeout(Duration::from_secs(600), phase.wait_for(|phase| *phase == Phase::Free)).await;
    waited.expect("a VM within ten minutes").expect("it lives");
}

fn row(what: &str, times: &[f64]) {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (first, last) = (sorted.first().copied().unwrap_or(0.0), sorted.last().copied().unwrap_or(0.0));
    println!("{what:<28} median {:.3} s, {first:.3} to {last:.3} s, {} times", median(times), times.len());
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

fn resident_mib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0
}

fn mib(file: &Path) -> f64 {
    std::fs::metadata(file).map_or(0.0, |about| about.len() as f64 / f64::from(1 << 20))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}
