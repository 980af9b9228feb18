//! `make bench-vm`: samples in VMs. How long a revert takes, how long a sample takes from the job to its report, how many
//! samples a minute one to four VMs bear, what a VM costs in memory, and what it is worth to have VMs restored ahead of need.
//!
//! The VMs are those of the lab, with QEMU's own translation of instructions (TCG) unless `bench-vm kvm` says otherwise. The
//! sample is a script that exits at once. The last lines are `figure NAME VALUE` and `ratio NAME VALUE`, one a line.

#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
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
const SAMPLE: &[u8] = b"#!/bin/sh\nexit 0\n";
const MANIFEST: &str = include_str!("../../plugins/run-linux/plugin.toml");

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(run());
}

async fn run() {
    let accelerator = match std::env::args().nth(1).as_deref() {
        Some("kvm") => Accelerator::Kvm,
        _ => Accelerator::Tcg,
    };
    let bench = Bench::new(accelerator);
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
    paces.iter().for_each(|(count, pace)| println!("figure vm_samples_per_minute_{count} {pace:.1}"));
    println!("figure vm_memory_mib {memory:.1}");
    println!("figure vm_fresh_process_s {:.3}", median(&fresh_reverts));
    println!("figure vm_revert_s {:.3}", median(&reverts));
    println!("figure vm_sample_to_report_s {:.3}", median(&reports));
    println!("ratio vm_warm_vs_cold {:.2}", median(&cold) / median(&reports));
}

struct Bench {
    home: tempfile::TempDir,
    guest: PathBuf,
    accelerator: Accelerator,
    plugin: Plugin,
}

impl Bench {
    fn new(accelerator: Accelerator) -> Bench {
        let guest = std::path::absolute("target/guest").expect("a path");
        assert!(guest.join("root.squashfs").exists(), "no guest in {}: run `make guest`", guest.display());
        let plugin = Plugin::parse(MANIFEST, Path::new("/")).expect("a manifest of ours");
        Bench { home: tempfile::tempdir().expect("a folder"), guest, accelerator, plugin }
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
            memory_mib: 256,
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
        let job =
            Job::prepare(&folder, &Input::new("sample.sh", "text/x-shellscript"), &mut &SAMPLE[..]).expect("a job");
        let report = vm.run(&self.plugin, &job, "sample.sh", &Choices::NONE).await.expect("a report");
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
    let waited = tokio::time::timeout(Duration::from_secs(240), phase.wait_for(|phase| *phase == Phase::Free)).await;
    waited.expect("a VM within four minutes").expect("it lives");
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

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}
