//! The messages between the main scheduler and the dispatchers: those in the paper, and further ones that the paper assumes but does not
//! describe.

use super::REPORT_MAX;
use super::assignment::Assignment;
use super::words::{Malformed, Words, one_line};
use std::fmt;
use weir_store::samples::SampleHash;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// `get …`: main scheduler to dispatcher.
    Get(Ask),
    /// `report machine memory N`: all of it, in bytes.
    Memory(u64),
    /// `report machine memory free N`.
    MemoryFree(u64),
    /// `report machine vm ID`: one of the answers to `get machine vm list`.
    Vm(String),
    /// `report machine vm list end N`: how many were named.
    VmListEnd(u32),
    /// `report machine vm ID status BITS`.
    VmStatus(String, VmStatus),
    /// `report machine vm ID memory N`.
    VmMemory(String, u64),
    /// `report machine vm ID plugins JSON`: what can run in it, as name and version.
    VmPlugins(String, Vec<(String, String)>),
    /// `report machine vm ID tags JSON`.
    VmTags(String, Vec<String>),
    /// `report machine index N`: the processing index.
    Index(u16),
    /// `report machine slots N`: how many VMs could take a sample now.
    Slots(u32),
    /// `report machine cores N`.
    Cores(u32),
    /// `report machine load N`: how many programs run or wait for a processor, the mean of a minute, in hundredths.
    Load(u32),
    /// `assign JSON`: main scheduler to dispatcher.
    Assign(Box<Assignment>),
    /// `assigned ATTEMPT`: the dispatcher has it and will report.
    Assigned(u64),
    /// `refused ATTEMPT WHY`: the dispatcher refuses it, or cannot run it.
    Refused(u64, String),
    /// `lacks ATTEMPT WHY`: the dispatcher cannot get the content of its sample.
    Lacks(u64, String),
    /// `cancel ATTEMPT EPOCH`.
    Cancel {
        attempt: u64,
        /// The epoch of the leader that cancels.
        epoch: u64,
    },
    /// `cancelled ATTEMPT`: no part of it runs any more.
    Cancelled(u64),
    /// `result ATTEMPT PLUGIN VERSION OUTCOME LENGTH`, followed by the report.
    Result {
        attempt: u64,
        plugin: String,
        version: String,
        /// The outcome.
        outcome: PluginOutcome,
        /// The length of the report.
        length: u64,
    },
    /// `stored ATTEMPT PLUGIN`: the main scheduler has stored the result; the dispatcher may forget it.
    Stored(u64, String),
    /// `over ATTEMPT`: every plugin of the attempt has been reported.
    Over(u64),
    /// `fetch HASH`: dispatcher to any machine that has samples.
    Fetch(SampleHash),
    /// `sample HASH LENGTH`, followed by the sample.
    Sample(SampleHash, u64),
    /// `missing HASH`: it is not here.
    Missing(SampleHash),
    /// `ping N` and `pong N`.
    Ping(u64),
    /// The answer.
    Pong(u64),
    /// `bye WHY`: the last message on a connection.
    Bye(String),
}

/// A question of the main scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// `machine memory`
    Memory,
    /// `machine memory free`
    MemoryFree,
    /// `machine vm list`
    VmList,
    /// `machine vm ID status`
    VmStatus(String),
    /// `machine vm ID memory`
    VmMemory(String),
    /// `machine vm ID plugins`
    VmPlugins(String),
    /// `machine vm ID tags`
    VmTags(String),
    /// `machine index`
    Index,
    /// `machine slots`
    Slots,
    /// `machine cores`
    Cores,
    /// `machine load`
    Load,
}

/// The paper's two bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VmStatus {
    /// Bit 0, IN_USE: an analysis runs in it.
    pub in_use: bool,
    /// Bit 1, ON_REVERT: it returns to its snapshot.
    pub on_revert: bool,
}

/// The outcome of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginOutcome {
    /// It ran, and its report is valid.
    Done,
    /// It ran and failed; the report says how.
    Failed,
}

impl VmStatus {
    fn from_bits(bits: u8) -> Option<VmStatus> {
        (bits < 4).then_some(VmStatus { in_use: bits & 1 != 0, on_revert: bits & 2 != 0 })
    }

    fn bits(self) -> u8 {
        u8::from(self.in_use) | u8::from(self.on_revert) << 1
    }
}

impl Message {
    /// Parses a line without its end.
    pub fn parse(line: &str) -> Result<Message, Malformed> {
        let mut words = Words::of(line);
        let message = if words.take("get machine") {
            Message::Get(ask(&mut words)?)
        } else if words.take("report machine") {
            report(&mut words)?
        } else {
            work(&mut words)?
        };
        words.end()?;
        Ok(message)
    }

    /// How many bytes follow the line.
    pub fn payload(&self) -> u64 {
        match self {
            Message::Result { length, .. } | Message::Sample(_, length) => *length,
            _ => 0,
        }
    }
}

fn ask(words: &mut Words<'_>) -> Result<Ask, Malformed> {
    if words.take("memory free") {
        return Ok(Ask::MemoryFree);
    }
    for (word, ask) in [
        ("memory", Ask::Memory),
        ("vm list", Ask::VmList),
        ("index", Ask::Index),
        ("slots", Ask::Slots),
        ("cores", Ask::Cores),
        ("load", Ask::Load),
    ] {
        if words.take(word) {
            return Ok(ask);
        }
    }
    if !words.take("vm") {
        return Err(words.unknown());
    }
    let vm = name(words, "the VM")?;
    for (word, ask) in [
        ("status", Ask::VmStatus as fn(String) -> Ask),
        ("memory", Ask::VmMemory),
        ("plugins", Ask::VmPlugins),
        ("tags", Ask::VmTags),
    ] {
        if words.take(word) {
            return Ok(ask(vm));
        }
    }
    Err(words.unknown())
}

fn report(words: &mut Words<'_>) -> Result<Message, Malformed> {
    if words.take("memory free") {
        return Ok(Message::MemoryFree(words.next("the number of bytes")?));
    }
    if words.take("memory") {
        return Ok(Message::Memory(words.next("the number of bytes")?));
    }
    if words.take("index") {
        return Ok(Message::Index(words.next("the index")?));
    }
    if words.take("slots") {
        return Ok(Message::Slots(words.next("the number of slots")?));
    }
    if words.take("cores") {
        return Ok(Message::Cores(words.next("the number of cores")?));
    }
    if words.take("load") {
        return Ok(Message::Load(words.next("the load")?));
    }
    if words.take("vm list end") {
        return Ok(Message::VmListEnd(words.next("the number of VMs")?));
    }
    if !words.take("vm") {
        return Err(words.unknown());
    }
    let vm = name(words, "the VM")?;
    vm_report(vm, words)
}

fn vm_report(vm: String, words: &mut Words<'_>) -> Result<Message, Malformed> {
    if words.take("status") {
        let bits = VmStatus::from_bits(words.next("the status")?).ok_or(Malformed::Argument("the status"))?;
        return Ok(Message::VmStatus(vm, bits));
    }
    if words.take("memory") {
        return Ok(Message::VmMemory(vm, words.next("the number of bytes")?));
    }
    if words.take("plugins") {
        let plugins: Vec<(String, String)> = words.json("the list of plugins")?;
        return match plugins.iter().all(|(plugin, version)| is_name(plugin) && is_name(version)) {
            true => Ok(Message::VmPlugins(vm, plugins)),
            false => Err(Malformed::Argument("the list of plugins")),
        };
    }
    if words.take("tags") {
        return Ok(Message::VmTags(vm, words.json("the list of tags")?));
    }
    Ok(Message::Vm(vm))
}

fn work(words: &mut Words<'_>) -> Result<Message, Malformed> {
    let what = "the attempt";
    if words.take("assign") {
        return Ok(Message::Assign(words.json("the assignment")?));
    }
    if words.take("assigned") {
        return Ok(Message::Assigned(words.next(what)?));
    }
    if words.take("refused") {
        return Ok(Message::Refused(words.next(what)?, words.rest()?));
    }
    if words.take("lacks") {
        return Ok(Message::Lacks(words.next(what)?, words.rest()?));
    }
    if words.take("cancel") {
        return Ok(Message::Cancel { attempt: words.next(what)?, epoch: words.next("the epoch")? });
    }
    if words.take("cancelled") {
        return Ok(Message::Cancelled(words.next(what)?));
    }
    if words.take("result") {
        return result(words);
    }
    if words.take("stored") {
        return Ok(Message::Stored(words.next(what)?, name(words, "the plugin")?));
    }
    if words.take("over") {
        return Ok(Message::Over(words.next(what)?));
    }
    exchange(words)
}

fn result(words: &mut Words<'_>) -> Result<Message, Malformed> {
    let (attempt, plugin) = (words.next("the attempt")?, name(words, "the plugin")?);
    let version = name(words, "the version")?;
    let outcome = if words.take("done") {
        PluginOutcome::Done
    } else if words.take("failed") {
        PluginOutcome::Failed
    } else {
        return Err(Malformed::Argument("the outcome"));
    };
    let length = words.next("the length")?;
    if length > REPORT_MAX {
        return Err(Malformed::Argument("the length"));
    }
    Ok(Message::Result { attempt, plugin, version, outcome, length })
}

fn exchange(words: &mut Words<'_>) -> Result<Message, Malformed> {
    let what = "the hash";
    if words.take("fetch") {
        return Ok(Message::Fetch(words.next(what)?));
    }
    if words.take("sample") {
        return Ok(Message::Sample(words.next(what)?, words.next("the length")?));
    }
    if words.take("missing") {
        return Ok(Message::Missing(words.next(what)?));
    }
    if words.take("ping") {
        return Ok(Message::Ping(words.next("the number")?));
    }
    if words.take("pong") {
        return Ok(Message::Pong(words.next("the number")?));
    }
    if words.take("bye") {
        return Ok(Message::Bye(words.rest()?));
    }
    Err(words.unknown())
}

fn name(words: &mut Words<'_>, what: &'static str) -> Result<String, Malformed> {
    let name: String = words.next(what)?;
    if is_name(&name) { Ok(name) } else { Err(Malformed::Argument(what)) }
}

/// Letters, digits, `.`, `_` and `-`, at most 64, not beginning with `.` or `-`: safe in a path, a line and a log.
pub(crate) fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=64).contains(&text.len()) && text.chars().all(fits) && !text.starts_with(['.', '-'])
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Get(ask) => write!(f, "get machine {ask}"),
            Message::Memory(bytes) => write!(f, "report machine memory {bytes}"),
            Message::MemoryFree(bytes) => write!(f, "report machine memory free {bytes}"),
            Message::Vm(vm) => write!(f, "report machine vm {vm}"),
            Message::VmListEnd(count) => write!(f, "report machine vm list end {count}"),
            Message::VmStatus(vm, status) => write!(f, "report machine vm {vm} status {}", status.bits()),
            Message::VmMemory(vm, bytes) => write!(f, "report machine vm {vm} memory {bytes}"),
            Message::VmPlugins(vm, plugins) => write!(f, "report machine vm {vm} plugins {}", json(plugins)?),
            Message::VmTags(vm, tags) => write!(f, "report machine vm {vm} tags {}", json(tags)?),
            Message::Index(index) => write!(f, "report machine index {index}"),
            Message::Slots(slots) => write!(f, "report machine slots {slots}"),
            Message::Cores(cores) => write!(f, "report machine cores {cores}"),
            Message::Load(load) => write!(f, "report machine load {load}"),
            Message::Assign(assignment) => write!(f, "assign {}", json(assignment)?),
            Message::Assigned(attempt) => write!(f, "assigned {attempt}"),
            Message::Refused(attempt, why) => write!(f, "refused {attempt} {}", one_line(why)),
            Message::Lacks(attempt, why) => write!(f, "lacks {attempt} {}", one_line(why)),
            Message::Cancel { attempt, epoch } => write!(f, "cancel {attempt} {epoch}"),
            Message::Cancelled(attempt) => write!(f, "cancelled {attempt}"),
            Message::Result { attempt, plugin, version, outcome, length } => {
                write!(f, "result {attempt} {plugin} {version} {outcome} {length}")
            }
            Message::Stored(attempt, plugin) => write!(f, "stored {attempt} {plugin}"),
            Message::Over(attempt) => write!(f, "over {attempt}"),
            Message::Fetch(hash) => write!(f, "fetch {hash}"),
            Message::Sample(hash, length) => write!(f, "sample {hash} {length}"),
            Message::Missing(hash) => write!(f, "missing {hash}"),
            Message::Ping(number) => write!(f, "ping {number}"),
            Message::Pong(number) => write!(f, "pong {number}"),
            Message::Bye(why) => write!(f, "bye {}", one_line(why)),
        }
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ask::Memory => f.write_str("memory"),
            Ask::MemoryFree => f.write_str("memory free"),
            Ask::VmList => f.write_str("vm list"),
            Ask::VmStatus(vm) => write!(f, "vm {vm} status"),
            Ask::VmMemory(vm) => write!(f, "vm {vm} memory"),
            Ask::VmPlugins(vm) => write!(f, "vm {vm} plugins"),
            Ask::VmTags(vm) => write!(f, "vm {vm} tags"),
            Ask::Index => f.write_str("index"),
            Ask::Slots => f.write_str("slots"),
            Ask::Cores => f.write_str("cores"),
            Ask::Load => f.write_str("load"),
        }
    }
}

impl fmt::Display for PluginOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PluginOutcome::Done => "done",
            PluginOutcome::Failed => "failed",
        })
    }
}

fn json(value: &impl serde::Serialize) -> Result<String, fmt::Error> {
    serde_json::to_string(value).map_err(|_| fmt::Error)
}
