//! A private gunicorn with workers that do one thing at a time, as on most sites in Python.

use crate::{free_port, spawn_bound};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server with its application.
#[derive(Debug)]
pub struct Gunicorn {
    _folder: tempfile::TempDir,
    server: Child,
    place: String,
}

impl Gunicorn {
    /// Starts one with an application and waits until it accepts connections. `app` is the source of the application in Python.
    pub fn start(app: &str, workers: u32) -> Gunicorn {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        Gunicorn::start_at("gunicorn", app, workers, tempfile::tempdir().expect("a temporary folder"), free.to_string())
    }

    /// The same with the Flask that `tools/setup` has installed in `target/flask`.
    pub fn start_flask(app: &str, workers: u32) -> Gunicorn {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/flask/bin/gunicorn");
        Gunicorn::start_at(program, app, workers, tempfile::tempdir().expect("a temporary folder"), free.to_string())
    }

    /// The same on a Unix socket.
    pub fn start_on_socket(app: &str, workers: u32) -> Gunicorn {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = format!("unix:{}", folder.path().join("app.sock").display());
        Gunicorn::start_at("gunicorn", app, workers, folder, place)
    }

    fn start_at(program: &str, app: &str, workers: u32, folder: tempfile::TempDir, place: String) -> Gunicorn {
        std::fs::write(folder.path().join("site_app.py"), app).expect("an application");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig=TERM", program, "--worker-class=sync", "--keep-alive=2", "--timeout=120"]);
        command.arg(format!("--workers={workers}")).arg(format!("--bind={place}"));
        command.arg("--chdir").arg(folder.path()).arg("site_app:app");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let gunicorn = Gunicorn { server: spawn_bound(command), place, _folder: folder };
        let deadline = Instant::now() + Duration::from_secs(120);
        while !gunicorn.accepts() {
            assert!(Instant::now() < deadline, "gunicorn did not start: is it installed? Run `make setup`");
            std::thread::sleep(Duration::from_millis(20));
        }
        gunicorn
    }

    /// The address at which it listens: `host:port`, or `unix:/path`.
    pub fn place(&self) -> &str {
        &self.place
    }

    fn accepts(&self) -> bool {
        match self.place.strip_prefix("unix:") {
            Some(path) => UnixStream::connect(path).is_ok(),
            None => TcpStream::connect(&self.place).is_ok(),
        }
    }
}

impl Drop for Gunicorn {
    fn drop(&mut self) {
        // Terminated in an orderly way, it ends its workers; if it were killed, they would stay. A worker that is stuck in a write does not
        // react.
        let _ = Command::new("kill").args(["-QUIT", &self.server.id().to_string()]).status();
        let _ = self.server.wait();
    }
}
