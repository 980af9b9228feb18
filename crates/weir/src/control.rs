//! How a command reaches the gates.
//!
//! If a process owns the data folder, the command asks it over `DATA/control.sock`. If none does, the command locks and opens the folder
//! itself, and calls the same router in its own process. So there is only one set of handlers, and there are never two processes that write
//! to the store.

use crate::answer::print_answer;
use crate::assembly;
use crate::folder_args::{FolderArgs, SYSTEM_DATA};
use anyhow::{Context, anyhow, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tower::ServiceExt;
use weir_console::api::{Answer, Operation, PREFIX, router, whole};
use weir_console::gates::Gates;
use weir_console::socket;
use weir_foundation::Actor;
use weir_foundation::Foundation;
use weir_foundation::administration::Administration;
use weir_foundation::directory::Directory;
use weir_foundation::passwords::Passwords;
use weir_foundation::random::random;
use weir_foundation::supervision::GateStates;
use weir_mail::gate::operations_at_rest;
use weir_store::folder::{DataFolder, FolderError};

/// How long a process may take to start, or another command to finish.
const PATIENCE_TO_REACH: Duration = Duration::from_secs(5);
/// How long an answer may take. The server gives up earlier, except for a backup.
const PATIENCE_FOR_ANSWER: Duration = Duration::from_secs(7 * 3600);
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Whom a verb asks, and how it says the answer: for every verb that asks a gate one thing.
#[derive(clap::Args)]
pub(crate) struct Asking {
    #[command(flatten)]
    place: FolderArgs,
    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl Asking {
    /// Reaches the Weir of this data folder.
    pub(crate) fn reach(&self) -> anyhow::Result<Control> {
        Control::reach(&self.place)
    }

    /// Reaches it only if it runs: without a process there is no `part` to ask.
    pub(crate) fn reach_running(&self, part: &str) -> anyhow::Result<Control> {
        let control = self.reach()?;
        if !control.is_running() {
            bail!(
                "Weir is not running on this data folder, so there is no {part} to ask\n  hint: start it with `weir up`"
            );
        }
        Ok(control)
    }

    /// Prints the answer: as JSON if that is wanted, otherwise with `print`.
    pub(crate) fn answer<A: Serialize>(
        &self,
        out: &mut dyn io::Write,
        answer: &A,
        print: impl FnOnce(&mut dyn io::Write, &A) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        if self.json { print_answer(out, answer) } else { print(out, answer) }
    }
}

/// A Weir that can be asked.
pub(crate) struct Control {
    runtime: Runtime,
    reached: Reached,
}

/// How it is asked.
enum Reached {
    /// Through the socket of the running process.
    Socket(PathBuf),
    /// No process runs, so this command owns the store for a moment.
    Here(axum::Router, Actor, Foundation),
}

impl Control {
    /// Finds the process that owns the folder, or takes the folder if no process does.
    pub(crate) fn reach(place: &FolderArgs) -> anyhow::Result<Control> {
        let folder = std::path::absolute(place.existing_folder()?)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let socket = folder.join("control.sock");
        refuse_no_folder(&folder)?;
        let begun = Instant::now();
        loop {
            if runtime.block_on(is_served(&socket, &folder))? {
                return Ok(Control { runtime, reached: Reached::Socket(socket) });
            }
            match DataFolder::open(&folder) {
                Ok(owned) => {
                    let reached = runtime.block_on(here(place, owned))?;
                    return Ok(Control { runtime, reached });
                }
                // The process is about to listen, or another command is about to finish.
                Err(FolderError::Owned { .. }) if begun.elapsed() < PATIENCE_TO_REACH => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(FolderError::Owned { pid, .. }) => bail!(
                    "a process (pid {pid}) owns {} but does not listen on its control socket\n  hint: it may still be \
                     starting; if it hangs, stop it and try again",
                    folder.display()
                ),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether a process runs.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.reached, Reached::Socket(_))
    }

    /// Calls an operation that has no name in its path.
    pub(crate) fn ask<I: Serialize + 'static, A: Answer>(
        &self,
        operation: &Operation<I, A>,
        input: &I,
    ) -> anyhow::Result<A> {
        self.ask_of(operation, "", input)
    }

    /// Calls an operation on the thing with this name.
    pub(crate) fn ask_of<I: Serialize + 'static, A: Answer>(
        &self,
        operation: &Operation<I, A>,
        name: &str,
        input: &I,
    ) -> anyhow::Result<A> {
        let address = operation.address(name, input)?;
        self.answered(operation.method(), &address, operation.body(input)?)
    }

    /// Sends content, with a description of it.
    pub(crate) fn hand_in<I: Serialize + 'static, A: Answer>(
        &self,
        operation: &Operation<I, A>,
        about: &I,
        content: Vec<u8>,
    ) -> anyhow::Result<A> {
        self.answered(operation.method(), &operation.address("", about)?, content)
    }

    fn answered<A: Answer>(&self, method: Method, address: &str, body: Vec<u8>) -> anyhow::Result<A> {
        let (status, bytes) = self.exchange(method, address, body.into())?;
        if status.is_success() {
            return A::read(&bytes).context("the gate's answer has an unexpected form: does another version run?");
        }
        Err(refusal(&bytes))
    }

    fn exchange(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<(StatusCode, Bytes)> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{PREFIX}{path}"))
            .header(header::HOST, "weir")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        self.runtime.block_on(async {
            match &self.reached {
                Reached::Socket(socket) => over_socket(socket, request, PATIENCE_FOR_ANSWER).await,
                Reached::Here(router, actor, _) => in_process(router.clone(), actor.clone(), request).await,
            }
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Reached::Here(_, _, foundation) = &self.reached {
            // When the last connection is closed properly, SQLite merges its log into the database file.
            self.runtime.block_on(foundation.records.close());
        }
    }
}

/// Refuses to work as another user than the folder's owner, because the owner could not use the files that this would make.
pub(crate) fn refuse_other_owner(folder: &Path) -> anyhow::Result<()> {
    let Ok(facts) = std::fs::metadata(folder) else { return Ok(()) };
    let ours = rustix::process::geteuid().as_raw();
    if facts.uid() != ours {
        bail!(
            "{} belongs to user {}, and you are {}\n  hint: run this as its owner (sudo -u …), so that all files in it \
             stay theirs",
            folder.display(),
            name_of(facts.uid()),
            name_of(ours)
        );
    }
    Ok(())
}

fn name_of(uid: u32) -> String {
    socket::actor(uid).as_str().trim_start_matches("cli:").to_owned()
}

/// Makes sure that there is a data folder, because a command must not make one by accident.
fn refuse_no_folder(folder: &Path) -> anyhow::Result<()> {
    let denied = || {
        anyhow!(
            "you are not allowed to look into {}\n  hint: run this as the user that runs Weir, or as root (sudo)",
            folder.display()
        )
    };
    match std::fs::metadata(folder.join("format")) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(denied()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match std::fs::read_dir(folder).map(|entries| entries.take(1).count()) {
                // The folder is not empty; `DataFolder` says whose it is.
                Ok(1) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(denied()),
                _ if folder == Path::new(SYSTEM_DATA) => bail!(
                    "Weir has never run on {SYSTEM_DATA}\n  hint: start the service with `systemctl start weir`, or \
                     name another folder with --data or $WEIR_DATA"
                ),
                _ => bail!(
                    "there is no data folder at {}\n  hint: `weir up` creates one there; name another with --data, \
                     $WEIR_DATA, or store.folder in the configuration",
                    folder.display()
                ),
            }
        }
        Err(error) => Err(error).with_context(|| format!("cannot use {}", folder.display())),
    }
}

/// Whether a process answers on the socket.
async fn is_served(socket: &Path, folder: &Path) -> anyhow::Result<bool> {
    use io::ErrorKind::{ConnectionRefused, InvalidInput, NotFound, PermissionDenied};
    match UnixStream::connect(socket).await {
        Ok(_) => {}
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused | InvalidInput) => return Ok(false),
        Err(error) if error.kind() == PermissionDenied => bail!(
            "you are not allowed to talk to the process that runs {}\n  hint: run this as the user that runs Weir, or \
             as root (sudo)",
            folder.display()
        ),
        Err(error) => return Err(error).with_context(|| format!("cannot reach {}", socket.display())),
    }
    let request =
        Request::get(format!("{PREFIX}{}", whole::ALIVE.path())).header(header::HOST, "weir").body(Full::default())?;
    match over_socket(socket, request, PATIENCE_TO_REACH).await {
        Ok(_) => Ok(true),
        Err(error) => Err(error.context(format!(
            "the process that runs {} does not answer\n  hint: it accepts connections but sends nothing; look at its \
             log, or stop it and try again",
            folder.display()
        ))),
    }
}

async fn here(place: &FolderArgs, folder: DataFolder) -> anyhow::Result<Reached> {
    refuse_other_owner(folder.path())?;
    let loaded = place.load()?;
    let settings = assembly::mail_gate(&loaded.config);
    let foundation = Foundation::lay(folder, loaded.config.store.records.as_deref(), &assembly::machine_name()).await?;
    let passwords = Passwords::new(loaded.config.submission.hashes_at_once as usize, random())?;
    let passwords = passwords.with_directory(Directory::open(&loaded.config.directory).context("sign_in.ldap")?);
    let mail = operations_at_rest(&foundation, passwords.clone(), &settings);
    let mut administration =
        Administration::new(&foundation, passwords, Some(mail.backup.clone()), &loaded.config.store);
    administration.backup = administration.backup.with_configuration(loaded.file);
    administration.audit.report_interrupted().await;
    let gates = Gates {
        administration,
        mail,
        web: None,
        lab: None,
        states: GateStates::default(),
        sessions: Arc::default(),
        certificates: Arc::default(),
        demo: false,
    };
    Ok(Reached::Here(router(&gates), socket::actor(rustix::process::getuid().as_raw()), foundation))
}

async fn over_socket(
    socket: &Path,
    request: Request<Full<Bytes>>,
    patience: Duration,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let talk = async {
        let stream = UnixStream::connect(socket).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let talking = tokio::spawn(connection);
        let answer = sender.send_request(request).await?;
        let read = bytes_of(answer).await;
        talking.abort();
        read
    };
    match tokio::time::timeout(patience, talk).await {
        Ok(answer) => answer.map_err(|error| anyhow!("the process that runs the gate closed the connection: {error}")),
        Err(_) => bail!("the process that runs the gate gave no answer for {} s", patience.as_secs()),
    }
}

async fn in_process(
    router: axum::Router,
    actor: Actor,
    mut request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, Bytes)> {
    request.extensions_mut().insert(actor);
    let answer = router.oneshot(request).await?;
    bytes_of(answer).await
}

async fn bytes_of<B>(answer: Response<B>) -> anyhow::Result<(StatusCode, Bytes)>
where
    B: hyper::body::Body<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let status = answer.status();
    let body =
        Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|error| anyhow!("{error}"))?;
    Ok((status, body.to_bytes()))
}

/// The reason for which the gate refused, and its hint.
fn refusal(bytes: &[u8]) -> anyhow::Error {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Problem {
        detail: String,
        hint: String,
    }
    match serde_json::from_slice(bytes) {
        Ok(Problem { detail, hint }) if hint.is_empty() => anyhow!("{detail}"),
        Ok(Problem { detail, hint }) => anyhow!("{detail}\n  hint: {hint}"),
        Err(error) => anyhow::Error::new(error).context("the gate's answer is not JSON: does another version run?"),
    }
}
