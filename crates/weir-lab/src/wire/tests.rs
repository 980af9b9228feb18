use super::*;
use crate::choices::Choices;
use proptest::prelude::*;
use std::time::Duration;
use weir_store::samples::SampleHash;

fn every_message() -> Vec<Message> {
    let (hash, vm) = (SampleHash([0xa7; 32]), || "vm_1".to_owned());
    let assignment = Assignment {
        choices: Choices { watch_s: Some(20), ..Choices::default() },
        attempt: 7,
        epoch: 3,
        sample: hash,
        size: 68,
        name: "a \"strange\"\nname.exe".into(),
        vm: vm(),
        plugins: vec![PluginCall { name: "strings".into(), version: "1.0".into() }],
        threshold: Duration::from_millis(60_500),
        children: ChildLimits { count: 100, bytes: 1 << 28 },
    };
    let asks = [
        Ask::Memory,
        Ask::MemoryFree,
        Ask::VmList,
        Ask::VmStatus(vm()),
        Ask::VmMemory(vm()),
        Ask::VmPlugins(vm()),
        Ask::VmTags(vm()),
        Ask::Index,
        Ask::Slots,
        Ask::Cores,
        Ask::Load,
    ];
    let status = VmStatus { in_use: true, on_revert: true };
    let (plugin, version, outcome) = ("strings".to_owned(), "1.0".to_owned(), PluginOutcome::Failed);
    let mut all: Vec<Message> = asks.into_iter().map(Message::Get).collect();
    all.extend([
        Message::Memory(u64::MAX),
        Message::MemoryFree(0),
        Message::Vm(vm()),
        Message::VmListEnd(2),
        Message::VmStatus(vm(), status),
        Message::VmMemory(vm(), 1 << 29),
        Message::VmPlugins(vm(), vec![(plugin.clone(), version.clone())]),
        Message::VmTags(vm(), vec!["linux".into(), "64 bit".into()]),
        Message::Index(12),
        Message::Slots(3),
        Message::Cores(2),
        Message::Load(250),
        Message::Assign(Box::new(assignment)),
        Message::Assigned(7),
        Message::Refused(7, "epoch 3 is older than 4".into()),
        Message::Lacks(7, "no machine has it".into()),
        Message::Cancel { attempt: 7, epoch: 3 },
        Message::Cancelled(7),
        Message::Result { attempt: 7, plugin: plugin.clone(), version, outcome, length: 1234 },
        Message::Stored(7, plugin),
        Message::Over(7),
        Message::Fetch(hash),
        Message::Sample(hash, 68),
        Message::Missing(hash),
        Message::Ping(1),
        Message::Pong(1),
        Message::Bye("the leader is another".into()),
    ]);
    all
}

#[test]
fn every_message_reads_back() {
    for message in every_message() {
        let line = message.to_string();
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(Message::parse(&line), Ok(message), "{line}");
    }
}

#[test]
fn the_papers_messages_are_the_papers_words() {
    assert_eq!(Message::Get(Ask::MemoryFree).to_string(), "get machine memory free");
    assert_eq!(Message::parse("get machine vm vm_X status"), Ok(Message::Get(Ask::VmStatus("vm_X".into()))));
    let status = Message::VmStatus("vm_X".into(), VmStatus { in_use: false, on_revert: true });
    assert_eq!(status.to_string(), "report machine vm vm_X status 2");
}

#[test]
fn what_is_no_message_is_refused_with_a_reason() {
    for (line, why) in [
        ("", "no message begins so"),
        ("get", "no message begins so"),
        ("get machine", "no message begins so"),
        ("get machine vm ../etc status", "the VM is missing or not valid"),
        ("get machine vm", "the VM is missing or not valid"),
        ("get machine memory free now", "more on the line"),
        ("getmachine memory", "no message begins so"),
        ("report machine memory -1", "the number of bytes"),
        ("report machine memory 18446744073709551616", "the number of bytes"),
        ("report machine vm a status 4", "the status"),
        ("report machine vm a plugins [[\"../x\",\"1\"]]", "the list of plugins"),
        ("assign {}", "the assignment"),
        ("result 1 strings 1.0 done 67108865", "the length"),
        ("result 1 strings 1.0 perhaps 1", "the outcome"),
        ("fetch abc", "the hash"),
        ("cancel 1", "the epoch"),
        ("refused 1 because \0", "the reason"),
        ("lacks 1 \u{1b}[2J", "the reason"),
        ("bye \u{7f}", "the reason"),
    ] {
        let problem = Message::parse(line).unwrap_err().to_string();
        assert!(problem.contains(why), "{line}: {problem}");
    }
}

#[test]
fn words_for_people_cannot_become_messages() {
    let line = Message::Refused(1, "no\ncancel 2 9".into()).to_string();
    assert_eq!(line, "refused 1 no cancel 2 9");
}

#[test]
fn long_words_for_people_are_cut_when_they_are_read_and_read_back_as_written() {
    type Read = fn(String) -> Message;
    let all: [(&str, Read); 3] = [
        ("refused 7", |why| Message::Refused(7, why)),
        ("lacks 7", |why| Message::Lacks(7, why)),
        ("bye", Message::Bye),
    ];
    for (begin, read) in all {
        for length in [0, 499, 500, 501, 60_000] {
            let message = Message::parse(&format!("{begin} {}", "ä".repeat(length))).unwrap();
            assert_eq!(message, read("ä".repeat(length.min(500))));
            assert_eq!(Message::parse(&message.to_string()), Ok(message));
        }
    }
}

#[test]
fn lines_and_payloads_in_pieces_of_any_size() {
    let hash = SampleHash([1; 32]);
    let text = format!("ping 1\n{}\nabc\nping 2\n", Message::Sample(hash, 4));
    for size in 1..text.len() {
        let (mut inbox, mut lines, mut payload) = (Inbox::default(), Vec::new(), Vec::new());
        let mut wanted = 0;
        for piece in text.as_bytes().chunks(size) {
            inbox.extend(piece);
            loop {
                if wanted > 0 {
                    let got = inbox.payload(wanted);
                    wanted -= got.len() as u64;
                    payload.extend_from_slice(got);
                    if wanted > 0 {
                        break;
                    }
                }
                let Some(line) = inbox.line().unwrap() else { break };
                let message = Message::parse(line).unwrap();
                wanted = message.payload();
                lines.push(message);
            }
        }
        assert_eq!(lines, [Message::Ping(1), Message::Sample(hash, 4), Message::Ping(2)], "pieces of {size}");
        assert_eq!(payload, b"abc\n");
    }
}

#[test]
fn an_endless_line_is_refused_before_it_fills_memory() {
    let mut inbox = Inbox::default();
    let refused = (0..1000).find(|_| {
        inbox.extend(&[b'x'; 1024]);
        inbox.line().is_err()
    });
    assert_eq!(refused, Some(63));
}

proptest! {
    #[test]
    fn no_line_panics(line in "(get|report|assign|result|sample|cancel)? ?(machine)? ?(vm|memory)? ?\\PC{0,80}") {
        if let Ok(message) = Message::parse(&line) {
            prop_assert_eq!(Message::parse(&message.to_string()), Ok(message));
        }
    }

    #[test]
    fn no_bytes_panic(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20)) {
        let mut inbox = Inbox::default();
        for piece in pieces {
            inbox.extend(&piece);
            while let Ok(Some(line)) = inbox.line() {
                let _ = Message::parse(line);
            }
        }
    }
}
