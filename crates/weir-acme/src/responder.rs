//! A small server that answers HTTP-01 challenges and nothing else, for machines on which nothing else listens on port 80.
//!
//! Its use of resources is bounded: a limited number of connections at a time, a few seconds and a few kilobytes for each, and one request
//! per connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use weir_tls::NamedCertificates;

const CONNECTIONS_MAX: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);
const HEAD_MAX: usize = 8 << 10;
const FIELDS_MAX: usize = 64;

/// Answers for ever; start it as a task.
pub async fn respond(listener: TcpListener, named: Arc<NamedCertificates>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let named = Arc::clone(&named);
                tokio::spawn(async move {
                    let _ = timeout(PATIENCE, answer(stream, &named)).await;
                    drop(place);
                });
            }
            // Most likely there are no file descriptors left, which passes.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(mut stream: TcpStream, named: &NamedCertificates) -> io::Result<()> {
    let mut head = Vec::with_capacity(1024);
    let found = loop {
        if stream.read_buf(&mut head).await? == 0 || head.len() > HEAD_MAX {
            return Ok(());
        }
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(&head) {
            Ok(httparse::Status::Partial) => {}
            Ok(httparse::Status::Complete(_)) => break find(&request, named),
            Err(_) => break None,
        }
    };
    let (status, body) = match &found {
        Some(body) => ("200 OK", body.as_str()),
        None => ("404 Not Found", "Nothing is here.\n"),
    };
    let length = body.len();
    let fields = "Content-Type: text/plain\r\nConnection: close";
    let said = format!("HTTP/1.1 {status}\r\n{fields}\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(said.as_bytes()).await?;
    stream.shutdown().await
}

fn find(request: &httparse::Request<'_, '_>, named: &NamedCertificates) -> Option<String> {
    let host = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case("host"))?;
    let host = std::str::from_utf8(host.value).ok()?;
    named.challenges().answer(host.trim(), request.path.filter(|_| request.method == Some("GET"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(at: std::net::SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut said = String::new();
        let _ = stream.read_to_string(&mut said).await;
        said
    }

    #[tokio::test]
    async fn it_answers_open_challenges_and_nothing_else() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let named = Arc::new(NamedCertificates::default());
        named.challenges().open("mail.example", "abc", "abc.def").unwrap();
        tokio::spawn(respond(listener, named));
        let get = |path: &str, host: &str| format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let path = "/.well-known/acme-challenge/abc";
        assert!(ask(at, &get(path, "mail.example")).await.ends_with("\r\n\r\nabc.def"));
        for other in [
            get(path, "evil.example"),
            get("/", "mail.example"),
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            "\0\0\r\n\r\n".to_owned(),
        ] {
            assert!(ask(at, &other).await.starts_with("HTTP/1.1 404 "), "{other:?}");
        }
        assert_eq!(ask(at, &get(&"a".repeat(2 * HEAD_MAX), "x")).await, "");
    }
}
