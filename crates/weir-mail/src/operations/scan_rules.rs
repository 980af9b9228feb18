//! Rules that people make for the scan: a content that does not pass, by its hash, and rules of YARA.
//!
//! A finding of the lab can be turned into a rule with one click. When the call that adds a rule returns, the rule is stored and in use;
//! a rule that cannot be put into use is removed again. Each says who made it, when, why, and from which sample.

use super::backend::scanning;
use super::{Actor, Backend, OperationError, OperationsParts, when};
use crate::scan::rule_name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::Mutex;
use weir_foundation::audit::AuditTrail;
use weir_foundation::clock::Clock;
use weir_scan::yara::{RuleFile, Rules};
use weir_store::records::{NewRule as Row, RuleRecords, RuleRow};

/// More rules than this are a list of signatures, which belongs into a scanner.
const RULES_MAX: usize = 10_000;
const YARA_MAX: usize = 64 << 10;
const YARA_RULES_MAX: usize = 500;
const ABOUT_MAX: usize = 200;

/// What a match means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuleSeverity {
    /// Malware.
    #[default]
    Infected,
    /// Does not pass.
    Forbidden,
}

impl RuleSeverity {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            RuleSeverity::Infected => "infected",
            RuleSeverity::Forbidden => "forbidden",
        }
    }
}

/// A rule to be made: either of a hash or of YARA.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewRule {
    /// The SHA-256 of a content that does not pass.
    pub sha256: String,
    /// How long that content is, if it is known.
    pub bytes: Option<u64>,
    /// A text of YARA; what its match means is said there.
    pub yara: String,
    /// What a match of the hash means.
    pub severity: RuleSeverity,
    /// The sample of the lab that it comes from.
    pub sample: Option<i64>,
    /// Why.
    pub about: String,
}

impl NewRule {
    /// Whether it is a text of YARA, which may match anything.
    pub fn is_yara(&self) -> bool {
        !self.yara.is_empty()
    }
}

/// A rule that is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Rule")]
pub struct RuleView {
    /// Its number.
    pub rule: i64,
    /// What its findings are called.
    pub name: String,
    /// `hash` or `yara`.
    #[schemars(extend("enum" = ["hash", "yara"]))]
    pub kind: String,
    /// The SHA-256, or the text of YARA.
    pub content: String,
    /// What a match of the hash means; what one of YARA means is in its text.
    #[schemars(extend("enum" = ["infected", "forbidden"]))]
    pub severity: String,
    /// The sample that it comes from.
    pub sample: Option<i64>,
    /// Why.
    pub about: String,
    /// Who made it.
    pub by: String,
    /// When.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
}

impl RuleView {
    /// Whether it is a text of YARA.
    pub fn is_yara(&self) -> bool {
        self.kind == "yara"
    }

    /// What the audit trail calls it.
    pub fn subject(&self) -> String {
        format!("rule-{}", self.rule)
    }
}

impl From<RuleRow> for RuleView {
    fn from(RuleRow { id, rule }: RuleRow) -> RuleView {
        RuleView {
            rule: id,
            name: rule_name(id),
            kind: rule.kind,
            content: rule.content,
            severity: rule.severity,
            sample: rule.sample,
            about: rule.about,
            by: rule.made_by,
            since: when(rule.made_at),
        }
    }
}

/// What may be done to the rules that people make for the scan. Cheap to clone.
#[derive(Clone)]
pub struct ScanRuleOperations {
    rules: RuleRecords,
    clock: Clock,
    audit: AuditTrail,
    backend: Arc<dyn Backend>,
    /// A rule is counted, written and brought into force: one at a time.
    changing: Arc<Mutex<()>>,
}

impl ScanRuleOperations {
    pub(super) fn new(parts: &OperationsParts) -> ScanRuleOperations {
        ScanRuleOperations {
            rules: parts.foundation.records.rules(),
            clock: Arc::clone(&parts.foundation.clock),
            audit: AuditTrail::new(&parts.foundation),
            backend: Arc::clone(&parts.backend),
            changing: Arc::default(),
        }
    }

    /// All rules that people made, in order of number.
    pub async fn list(&self) -> Result<Vec<RuleView>, OperationError> {
        Ok(self.rules.all().await?.into_iter().map(RuleView::from).collect())
    }

    /// One rule.
    pub async fn show(&self, number: &str) -> Result<RuleView, OperationError> {
        self.row(number).await.map(RuleView::from)
    }

    /// Makes a rule, which is in force when this returns.
    pub async fn add(&self, new: NewRule, actor: &Actor) -> Result<RuleView, OperationError> {
        let _changing = self.changing.lock().await;
        let row = self.checked(new, actor).await?;
        let number = self.rules.add(&row).await?.ok_or_else(|| {
            OperationError::conflict("this content is blocked already", "`weir scan rules list` shows by which rule")
        })?;
        if let Err(error) = self.bring_into_force().await {
            self.rules.remove(number).await?;
            return Err(error);
        }
        let view = RuleView::from(RuleRow { id: number, rule: row });
        let what = if view.is_yara() { format!("{} bytes of YARA", view.content.len()) } else { view.content.clone() };
        self.audit.write(actor, "rule.add", &view.subject(), format!("{what}: {}", view.about)).await?;
        Ok(view)
    }

    /// Removes a rule: from now on it stops nothing.
    pub async fn remove(&self, number: &str, actor: &Actor) -> Result<RuleView, OperationError> {
        let _changing = self.changing.lock().await;
        let row = self.row(number).await?;
        self.rules.remove(row.id).await?;
        if let Err(error) = self.bring_into_force().await {
            self.rules.restore(&row).await?;
            return Err(error);
        }
        let view = RuleView::from(row);
        self.audit.write(actor, "rule.remove", &view.subject(), view.about.clone()).await?;
        Ok(view)
    }

    async fn row(&self, number: &str) -> Result<RuleRow, OperationError> {
        let unknown = || {
            let shown: String = number.chars().take(20).collect();
            OperationError::unknown(format!("there is no rule {shown:?}"), "`weir scan rules list` shows all")
        };
        let number: i64 = number.parse().map_err(|_| unknown())?;
        self.rules.all().await?.into_iter().find(|row| row.id == number).ok_or_else(unknown)
    }

    /// At rest there is nobody to tell: the next start reads them.
    async fn bring_into_force(&self) -> Result<(), OperationError> {
        match self.backend.vital() {
            Some(_) => scanning(&*self.backend)?.adopt_rules().await,
            None => Ok(()),
        }
    }

    async fn checked(&self, new: NewRule, actor: &Actor) -> Result<Row, OperationError> {
        let about = line(&new.about)?;
        let rules = self.rules.all().await?;
        let (kind, content) = match (new.sha256.trim(), new.yara.trim()) {
            (hash, "") if !hash.is_empty() => ("hash", sha256(hash)?),
            ("", text) if !text.is_empty() => {
                let few = rules.iter().filter(|row| row.rule.kind == "yara").count() < YARA_RULES_MAX;
                enough(few, "rules of YARA", YARA_RULES_MAX)?;
                ("yara", yara(text).await?)
            }
            _ => {
                let hint = "give either the SHA-256 of a content or a text of YARA";
                return Err(OperationError::invalid("a rule is of a hash or of YARA", hint));
            }
        };
        enough(rules.len() < RULES_MAX, "rules", RULES_MAX)?;
        Ok(Row {
            kind: kind.to_owned(),
            content,
            bytes: new.bytes.and_then(|bytes| i64::try_from(bytes).ok()),
            severity: new.severity.as_str().to_owned(),
            sample: new.sample,
            about,
            made_by: actor.as_str().to_owned(),
            made_at: (self.clock)().0 as i64,
        })
    }
}

fn enough(room: bool, what: &str, most: usize) -> Result<(), OperationError> {
    let many =
        || OperationError::conflict(format!("there are {most} {what}"), "remove some that are not needed any more");
    if room { Ok(()) } else { Err(many()) }
}

fn sha256(text: &str) -> Result<String, OperationError> {
    let hash = text.to_ascii_lowercase();
    if hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let hint = "a SHA-256 is 64 hexadecimal digits; `sha256sum FILE` prints it";
        return Err(OperationError::invalid("this is no SHA-256", hint));
    }
    Ok(hash)
}

/// A text that compiles. It is compiled alone, under the name that it will not have: that is given by its number.
async fn yara(text: &str) -> Result<String, OperationError> {
    if text.len() > YARA_MAX {
        let hint = "larger sets of rules go into the folder of scan.yara";
        return Err(OperationError::invalid(format!("a text of YARA has at most {} KiB", YARA_MAX >> 10), hint));
    }
    let file = RuleFile { name: "the new rule".to_owned(), text: text.to_owned() };
    let compiled = tokio::task::spawn_blocking(move || Rules::compile(&[file]).map(|rules| rules.count()));
    match compiled.await {
        Ok(Ok(1..)) => Ok(text.to_owned()),
        Ok(Ok(0)) => {
            Err(OperationError::invalid("there is no rule in this text", "write `rule NAME { condition: … }`"))
        }
        Ok(Err(error)) => Err(OperationError::invalid(error.problem, "mend the place that is named, and try again")),
        Err(_) => Err(OperationError::invalid("the compiler of rules crashed on this text", "write it more simply")),
    }
}

/// Why, in one line.
fn line(text: &str) -> Result<String, OperationError> {
    let text = text.trim();
    if text.chars().count() > ABOUT_MAX || text.contains(char::is_control) {
        let hint = "for example: sample 12 of the lab is malicious";
        return Err(OperationError::invalid(
            format!("why there is a rule is one line of up to {ABOUT_MAX} characters"),
            hint,
        ));
    }
    Ok(if text.is_empty() { "made by hand".to_owned() } else { text.to_owned() })
}
