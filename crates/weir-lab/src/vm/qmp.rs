//! QEMU's monitor: one JSON document per line, one answer per command. Events that it sends by itself are skipped.

use serde_json::{Value, json};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

/// The longest line.
const LINE_MAX: u64 = 1 << 20;
/// Every command is answered within this.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How many events QEMU may send before an answer.
const EVENTS_MAX: usize = 1000;

/// A connection with a monitor.
#[derive(Debug)]
pub(super) struct Qmp {
    line: BufReader<UnixStream>,
}

impl Qmp {
    /// Greets the monitor.
    pub(super) async fn greet(stream: UnixStream) -> io::Result<Qmp> {
        let mut qmp = Qmp { line: BufReader::new(stream) };
        let greeting = tokio::time::timeout(ANSWER_MAX, qmp.read()).await.map_err(|_| late("the greeting"))??;
        if greeting.get("QMP").is_none() {
            return Err(io::Error::other("this is no QEMU monitor"));
        }
        qmp.execute("qmp_capabilities", Value::Null).await?;
        Ok(qmp)
    }

    /// Carries out a command.
    pub(super) async fn execute(&mut self, command: &str, arguments: Value) -> io::Result<Value> {
        let mut order = json!({ "execute": command });
        if !arguments.is_null() {
            order["arguments"] = arguments;
        }
        let answer = async {
            let mut order = order.to_string();
            order.push('\n');
            self.line.get_mut().write_all(order.as_bytes()).await?;
            self.answer(command).await
        };
        tokio::time::timeout(ANSWER_MAX, answer).await.map_err(|_| late(command))?
    }

    /// Carries out a command of the monitor for people, which prints nothing if it worked.
    pub(super) async fn human(&mut self, line: &str) -> io::Result<()> {
        let said = self.execute("human-monitor-command", json!({ "command-line": line })).await?;
        match said.as_str().map(str::trim) {
            Some("") => Ok(()),
            Some(problem) => Err(io::Error::other(format!("{line}: {}", problem.lines().next().unwrap_or_default()))),
            None => Err(io::Error::other(format!("{line}: no answer"))),
        }
    }

    async fn answer(&mut self, command: &str) -> io::Result<Value> {
        for _ in 0..EVENTS_MAX {
            let mut said = self.read().await?;
            if let Some(answer) = said.get_mut("return") {
                return Ok(answer.take());
            }
            if let Some(error) = said.get("error") {
                let why = error["desc"].as_str().unwrap_or("no reason");
                return Err(io::Error::other(format!("{command}: {why}")));
            }
        }
        Err(late(command))
    }

    async fn read(&mut self) -> io::Result<Value> {
        let mut line = Vec::new();
        (&mut self.line).take(LINE_MAX).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "QEMU has ended"));
        }
        serde_json::from_slice(&line).map_err(io::Error::other)
    }
}

fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what}: QEMU does not answer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A monitor that answers this, whatever it is asked.
    async fn says(lines: &'static str) -> io::Result<Qmp> {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        tokio::spawn(async move {
            theirs.write_all(lines.as_bytes()).await.unwrap();
            let mut heard = [0; 1024];
            while theirs.read(&mut heard).await.is_ok_and(|length| length > 0) {}
        });
        Qmp::greet(ours).await
    }

    #[tokio::test]
    async fn answers_are_found_between_events() {
        let lines = "{\"QMP\":{}}\n{\"return\":{}}\n{\"event\":\"STOP\"}\n{\"return\":{\"a\":1}}\n\
                     {\"error\":{\"desc\":\"no such thing\"}}\n{\"return\":\"\"}\n{\"return\":\"Error: no\\r\\n\"}\nnonsense\n";
        let mut qmp = says(lines).await.unwrap();
        assert_eq!(qmp.execute("x", Value::Null).await.unwrap(), json!({ "a": 1 }));
        assert!(qmp.execute("y", Value::Null).await.unwrap_err().to_string().contains("y: no such thing"));
        assert!(qmp.human("loadvm a").await.is_ok());
        assert!(qmp.human("loadvm b").await.unwrap_err().to_string().contains("loadvm b: Error: no"));
        assert!(qmp.execute("z", Value::Null).await.is_err());
        assert!(says("hello\n").await.is_err());
        assert!(says("{}\n").await.is_err());
    }
}
