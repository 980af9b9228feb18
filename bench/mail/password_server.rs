//! Whom Postfix asks whether a password is right. It says yes to all, and at once, in the words of Dovecot's authentication protocol: so
//! logins cost Postfix as little as they can.

use std::io::{BufRead, BufReader, Result, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// How it introduces itself.
const GREETING: &[u8] = b"VERSION\t1\t1\nMECH\tPLAIN\tplaintext\nSPID\t1\nCUID\t1\nDONE\n";

/// Starts one that runs as long as the benchmark does; its port.
pub(crate) fn start() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("it listens").port();
    std::thread::spawn(move || {
        for asking in listener.incoming().flatten() {
            // A process of Postfix keeps its connection until it ends.
            std::thread::spawn(move || answer(asking));
        }
    });
    port
}

fn answer(asking: TcpStream) -> Result<()> {
    asking.set_nodelay(true)?;
    let mut answers = asking.try_clone()?;
    answers.write_all(GREETING)?;
    for line in BufReader::new(asking).lines() {
        let line = line?;
        let mut words = line.split('\t');
        if words.next() == Some("AUTH") {
            let question = words.next().unwrap_or_default();
            answers.write_all(format!("OK\t{question}\tuser=somebody\n").as_bytes())?;
        }
    }
    Ok(())
}
