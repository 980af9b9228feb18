//! The API operations on samples of the lab: submitting them, what waits, and what is known of each.

use super::call::Call;
use super::lab::LabGates;
use super::operation::{Answer, Operation, look, operate};
use super::problem::Problem;
use super::table::Table;
use crate::lab_report;
use crate::rule_proposal::Proposal;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use weir_foundation::OperationError;
use weir_lab::choices::TypedChoices;
use weir_lab::operations::{
    HandedIn, LabError, Packets, QueuePage, Relative, SampleFilter, SampleLine, SamplePage, Wishes, Wrapped,
};
use weir_lab::report::{Merged, attack, misp, stix};
use weir_lab::verdict::Verdict;

/// A larger sample must be put into one of the numbered directories.
const SAMPLE_BYTES_MAX: usize = 64 << 20;
const PCAP: &str = "application/vnd.tcpdump.pcap";
const LIST_MAX: i64 = 1_000;

/// Samples, the newest first.
pub const LIST: Operation<Filter, Vec<SampleLine>> = look("/lab/samples", "Samples, the newest first");
/// Submits a sample.
pub const SUBMIT: Operation<Given, HandedIn> =
    operate("/lab/samples", "Hands a sample in").with_content(SAMPLE_BYTES_MAX);
/// Everything about a sample.
pub const SHOW: Operation<(), SamplePage> =
    look("/lab/samples/{sample}", "Everything about a sample, by number or by the beginning of its hash");
/// One report about a sample and everything in it.
pub const REPORT: Operation<Form, Box<RawValue>> =
    look("/lab/samples/{sample}/report", "One report of a sample and all that is in it; html comes as one text");
/// The sample itself.
pub const CONTENT: Operation<(), Zip> =
    look("/lab/samples/{sample}/content", "The sample in an archive with the password \"infected\"");
/// The packets of its network.
pub const PACKETS: Operation<(), Pcap> =
    look("/lab/samples/{sample}/pcap", "The packets that a sample sent and got in its guest, as a pcap file");
/// The rules for mail that a sample suggests.
pub const RULE: Operation<(), Proposal> =
    look("/lab/samples/{sample}/rule", "The rules for mail that a sample suggests; nothing is saved");
/// Samples that are similar to it.
pub const RELATIVES: Operation<(), Vec<Relative>> =
    look("/lab/samples/{sample}/relatives", "Samples that are like this one by their TLSH, the nearest first");
/// Analyses a sample again.
pub const RERUN: Operation<Which, HandedIn> = operate("/lab/rerun", "Analyses a sample again, whatever is known of it");
/// The samples that wait.
pub const QUEUE: Operation<Next, QueuePage> = look("/lab/queue", "What waits, by priority, and which samples are next");
/// Cancels a sample.
pub const CANCEL: Operation<Which, SampleLine> = operate("/lab/cancel", "Takes a sample back");

pub(super) fn operations(table: Table<LabGates>) -> Table<LabGates> {
    table
        .with(LIST, list)
        .with(SUBMIT, submit)
        .with(SHOW, show)
        .with(REPORT, report)
        .with(CONTENT, content)
        .with(PACKETS, packets)
        .with(RULE, rule)
        .with(RELATIVES, relatives)
        .with(RERUN, rerun)
        .with(QUEUE, queue)
        .with(CANCEL, cancel)
}

/// Which samples are listed. Empty fields match everything.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Filter {
    /// Whose SHA-256 begins like this.
    pub hash: String,
    /// In this state.
    pub state: String,
    /// `malicious`, `suspicious`, `clean` or `unknown`.
    pub verdict: String,
    /// Older than this one, by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub before: Option<i64>,
    /// How many at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub most: Option<i64>,
}

/// The sample that is submitted.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// The name of the file.
    pub name: String,
    /// 0 is the most urgent, 127 the least.
    #[serde(default = "normal")]
    pub priority: u64,
    /// Separated by commas: it runs only where all of these tags are.
    #[serde(default)]
    pub tags: String,
    /// `clear`, `green`, `amber`, `amber+strict` or `red`: who may be told what is found; amber if it is empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tlp: String,
    /// Separated by commas: only these plugins examine it, and those that they require.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub plugins: String,
    /// `linux` or `windows`: the guest that runs it; `none`: it is not run.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub guest: String,
    /// For how many seconds it is watched at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32")]
    pub watch_s: Option<u32>,
    /// `simulated`: a simulated internet inside the guest, which answers; `none`: nothing answers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub network: String,
    /// A password to try, if it is an archive.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub password: String,
}

impl Given {
    /// A sample of this name, analysed as usual.
    pub fn named(name: &str) -> Given {
        Given {
            name: name.to_owned(),
            priority: normal(),
            tags: String::new(),
            tlp: String::new(),
            plugins: String::new(),
            guest: String::new(),
            watch_s: None,
            network: String::new(),
            password: String::new(),
        }
    }

    fn wishes(&self) -> Result<Wishes, LabError> {
        let typed = TypedChoices {
            tlp: &self.tlp,
            plugins: &self.plugins,
            guest: &self.guest,
            watch_s: self.watch_s,
            network: &self.network,
            password: &self.password,
        };
        let tags = self.tags.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
        Ok(Wishes { priority: self.priority, tags, choices: typed.read()? })
    }
}

fn normal() -> u64 {
    weir_lab::intake::NORMAL
}

/// The form of a report.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Form {
    /// JSON if it is empty.
    #[schemars(extend("enum" = ["json", "html", "misp", "stix", "navigator"]))]
    pub form: String,
}

/// One sample.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// Its number, or the beginning of its hash.
    pub sample: String,
}

/// How many waiting samples are listed.
#[derive(Serialize, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
pub struct Next {
    /// This many samples at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub next: Option<i64>,
}

/// A sample in an archive with the password `infected`.
pub struct Zip(pub Wrapped);

impl Answer for Zip {
    fn described(_: &mut SchemaGenerator) -> (&'static str, Schema) {
        ("application/zip", schemars::json_schema!({ "type": "string", "format": "binary" }))
    }

    fn response(self) -> Response {
        let named = format!("attachment; filename=\"{}\"", self.0.name);
        let headers = [(header::CONTENT_TYPE, "application/zip".to_owned()), (header::CONTENT_DISPOSITION, named)];
        (headers, self.0.bytes).into_response()
    }

    /// Its name is in a header, which a caller that reads it in this way does not need.
    fn read(content: &[u8]) -> Result<Zip, serde_json::Error> {
        Ok(Zip(Wrapped { name: String::new(), bytes: content.to_vec() }))
    }
}

/// Packets, in the format of Wireshark and tcpdump.
pub struct Pcap(pub Packets);

impl Answer for Pcap {
    fn described(_: &mut SchemaGenerator) -> (&'static str, Schema) {
        (PCAP, schemars::json_schema!({ "type": "string", "format": "binary" }))
    }

    fn response(self) -> Response {
        let named = format!("attachment; filename=\"{}\"", self.0.name);
        let headers = [(header::CONTENT_TYPE, PCAP.to_owned()), (header::CONTENT_DISPOSITION, named)];
        (headers, self.0.bytes).into_response()
    }

    fn read(content: &[u8]) -> Result<Pcap, serde_json::Error> {
        Ok(Pcap(Packets { name: String::new(), bytes: content.to_vec() }))
    }
}

async fn list(call: Call<LabGates>, filter: Filter) -> Result<Vec<SampleLine>, Problem> {
    let Filter { hash, state, verdict, before, most } = filter;
    let most = most.unwrap_or(100).clamp(1, LIST_MAX);
    let verdict = match verdict.as_str() {
        "" => None,
        word => Some(Verdict::named(word).ok_or_else(|| no_verdict(word))?.number()),
    };
    let filter = SampleFilter { hash: hash.to_ascii_lowercase(), state, verdict, before };
    Ok(call.state.node.list(&filter, most).await?)
}

fn no_verdict(word: &str) -> Problem {
    Problem::invalid(format!("{word:?} is no verdict"), "malicious, suspicious, clean or unknown")
}

async fn show(call: Call<LabGates>, (): ()) -> Result<SamplePage, Problem> {
    Ok(call.state.node.page(&call.name).await?)
}

/// Reports of plugins are passed on as they were written. The page comes as JSON too, as one text.
async fn report(call: Call<LabGates>, asked: Form) -> Result<Box<RawValue>, Problem> {
    let merged = call.state.node.merged(&call.name).await?;
    let written = match asked.form.as_str() {
        "" | "json" => to_raw_value(&merged),
        "html" => to_raw_value(&lab_report::page(&merged).into_string()),
        "misp" => to_raw_value(&misp::event(&merged)),
        "stix" => to_raw_value(&stix::bundle(&merged)),
        "navigator" => to_raw_value(&attack::layer(&merged)),
        other => {
            let known = "json, html, misp, stix or navigator";
            return Err(Problem::invalid(format!("{other:?} is no form of a report"), known));
        }
    };
    written.map_err(|error| OperationError::Failed(error.to_string()).into())
}

async fn content(call: Call<LabGates>, (): ()) -> Result<Zip, Problem> {
    Ok(Zip(call.state.node.wrapped(&call.name).await?))
}

async fn packets(call: Call<LabGates>, (): ()) -> Result<Pcap, Problem> {
    Ok(Pcap(call.state.node.packets(&call.name).await?))
}

/// The rules that the sample suggests; a person decides whether to save them.
async fn rule(call: Call<LabGates>, (): ()) -> Result<Proposal, Problem> {
    let merged = Merged::new(call.state.node.page(&call.name).await?, Vec::new());
    Ok(Proposal::of(&merged, call.state.gates.mail.rules.list().await?))
}

async fn relatives(call: Call<LabGates>, (): ()) -> Result<Vec<Relative>, Problem> {
    Ok(call.state.node.relatives(&call.name).await?)
}

async fn rerun(call: Call<LabGates>, which: Which) -> Result<HandedIn, Problem> {
    let sample = call.state.node.page(&which.sample).await?.sample;
    let subject = format!("sample-{}", sample.sample);
    call.state.audit().note(&call.actor, "lab.rerun", &subject, &sample.name).await?;
    Ok(call.state.node.rerun(&which.sample, call.actor.as_str()).await?)
}

async fn queue(call: Call<LabGates>, asked: Next) -> Result<QueuePage, Problem> {
    Ok(call.state.node.queue(asked.next.unwrap_or(20).clamp(0, LIST_MAX)).await?)
}

async fn submit(call: Call<LabGates>, given: Given) -> Result<HandedIn, Problem> {
    let wishes = given.wishes()?;
    // Written before it is done, as everywhere: it has no number yet, so it is named by its hash.
    let subject = weir_scan::samples::sha256(&call.content);
    call.state.audit().note(&call.actor, "lab.submit", &subject, &given.name).await?;
    Ok(call.state.node.hand_in(call.content.to_vec(), &given.name, wishes, call.actor.as_str()).await?)
}

async fn cancel(call: Call<LabGates>, which: Which) -> Result<SampleLine, Problem> {
    let sample = call.state.node.page(&which.sample).await?.sample;
    let subject = format!("sample-{}", sample.sample);
    call.state.audit().note(&call.actor, "lab.cancel", &subject, &sample.name).await?;
    let taken_back = call.state.node.take_back(&which.sample).await;
    if let Err(error) = &taken_back {
        call.state.audit().note(&call.actor, "lab.cancel", &subject, &format!("not done: {error}")).await?;
    }
    Ok(taken_back?)
}
