//! Runs the binary and checks what it printed.

use std::process::{Command, Output, Stdio};

/// What a run of `weir` printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

/// Runs `weir` with these arguments until it ends.
pub(crate) fn weir<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(args).stdin(Stdio::null()).output();
    output.expect("the binary starts").into()
}

/// The child processes of a process that still run.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

impl From<Output> for Run {
    fn from(output: Output) -> Run {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Run { stdout: text(&output.stdout), stderr: text(&output.stderr), code: output.status.code() }
    }
}

impl Run {
    /// Checks that the run succeeded, and returns what was printed.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self.stdout
    }

    /// Checks that the run was refused properly (without a panic), with a message that contains every one of `words`.
    #[track_caller]
    pub(crate) fn refused(self, words: &[&str]) {
        assert!(matches!(self.code, Some(1 | 2)), "exit code {:?}\nstderr:\n{}", self.code, self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is missing in:\n{}", self.stderr);
        }
    }
}
