//! Seeded fuzzing of the session: dialogues that are put together from good and bad pieces, mutated, and cut anywhere.
//!
//! `weir_smtp::fuzz::session` makes the checks: memory is bounded, the session makes progress, and the transcript does not depend on the
//! cuts. `WEIR_FUZZ_SEED` replays one seed, `WEIR_FUZZ_RUNS` sets how many are run.

use proptest::prelude::*;
use weir_smtp::fuzz::session as fuzz;

const PIECES: &[&str] = &[
    "EHLO client.example\r\n",
    "HELO x\r\n",
    "LHLO x\r\n",
    "MAIL FROM:<a@b.example>\r\n",
    "RCPT TO:<c@d.example>\r\n",
    "MAIL FROM:<a@b> SIZE=100 BODY=8BITMIME SMTPUTF8 RET=FULL ENVID=x\r\n",
    "MAIL FROM:<>\r\n",
    "RCPT TO:<\"q \\\" uoted\"@d> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;c@d\r\n",
    "RCPT TO:<ü@d>\r\n",
    "DATA\r\n",
    "Subject: hi\r\n\r\ntext\r\n",
    ".\r\n",
    "..stuffed\r\n",
    "\r\n.\r\n",
    ".\r\r\n",
    "\n.\n",
    "BDAT 5\r\nab\r\nc",
    "BDAT 0\r\n",
    "BDAT 0 LAST\r\n",
    "BDAT 12 LAST\r\nhello world!",
    "BDAT 99999\r\n",
    "BDAT x\r\n",
    "AUTH PLAIN\r\n",
    "AUTH LOGIN\r\n",
    "AUTH PLAIN AGFubgBzZWNyZXQ=\r\n",
    "AUTH PLAIN =\r\n",
    "*\r\n",
    "YW5u\r\n",
    "c2VjcmV0\r\n",
    "STARTTLS\r\n",
    "RSET\r\n",
    "NOOP\r\n",
    "QUIT\r\n",
    "VRFY a\r\n",
    "HELP\r\n",
    "EXPN l\r\n",
    "XCLIENT ADDR=192.0.2.7 LOGIN=ann\r\n",
    "XFORWARD NAME=x ADDR=1.2.3.4\r\n",
    "MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nDATA\r\n..dot\r\nline\r\n.\r\n",
    "DATA\r\ntext\r\n.\r\n",
    "MAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\nBDAT 3\r\nab\rBDAT 4 LAST\r\n\nxyz",
    "RSET\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\n",
    "GET / HTTP/1.0\r\n",
    "\r\n",
    "\n",
    "\r",
    "\0",
    ".",
    " ",
    "junk",
    "MAIL FROM:<@r,@s:a@b>\r\n",
];

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

fn dialogue(seed: u64) -> Vec<u8> {
    let mut dice = Dice(seed);
    let mut data: Vec<u8> = (0..10).map(|_| dice.below(256) as u8).collect();
    // Half of the runs begin with a plausible dialogue, so that they get further.
    if dice.below(2) == 0 {
        data[0] &= !(1 | 2 | 8);
        data.extend_from_slice(b"EHLO deep\r\nMAIL FROM:<a@b>\r\nRCPT TO:<c@d>\r\n");
    }
    for _ in 0..dice.below(60) {
        match dice.below(12) {
            0 => data.extend((0..dice.below(40)).map(|_| dice.below(256) as u8)),
            1 => data.extend(std::iter::repeat_n(b'x', dice.below(3_000))),
            _ => data.extend_from_slice(PIECES[dice.below(PIECES.len())].as_bytes()),
        }
    }
    for _ in 0..dice.below(8) {
        mutate(&mut data, &mut dice);
    }
    data
}

fn mutate(data: &mut Vec<u8>, dice: &mut Dice) {
    let at = 10 + dice.below(data.len() - 9);
    match dice.below(4) {
        0 => data.insert(at.min(data.len()), dice.below(256) as u8),
        1 if at < data.len() => data[at] = b"\r\n.\0 <>=\xff"[dice.below(9)],
        2 if at < data.len() => drop(data.remove(at)),
        _ => data.truncate(at.max(11).min(data.len())),
    }
}

#[test]
fn seeded_dialogues() {
    let number = |name| std::env::var(name).ok().and_then(|value: String| value.parse::<u64>().ok());
    let seeds = match number("WEIR_FUZZ_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WEIR_FUZZ_RUNS").unwrap_or(20_000),
    };
    let (mut messages, mut closed, mut questions) = (0, 0, 0);
    let runs = seeds.end - seeds.start;
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| fuzz::session(&dialogue(seed)));
        let Ok(transcript) = outcome else {
            panic!("replay with WEIR_FUZZ_SEED={seed} cargo test -p weir-mail seeded_dialogues")
        };
        messages += transcript.messages.len();
        closed += usize::from(transcript.closed.is_some());
        questions += transcript.questions.len();
    }
    // If the runs reach nothing, they prove nothing.
    assert!(runs < 1_000 || messages as u64 > runs / 20, "{messages} messages, {questions} questions, {closed} closed");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_gives_the_same(seed in any::<u64>()) {
        // `fuzz::session` runs the dialogue as a whole and in pieces, and compares the results.
        fuzz::session(&dialogue(seed));
    }

    #[test]
    fn arbitrary_octets(data in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz::session(&data);
    }
}
