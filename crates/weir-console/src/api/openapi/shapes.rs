//! The shapes of what goes in and comes out, in short words.
//!
//! A field is `name:kind`, or `name~:kind` if it may be left out; `+Name` takes all fields of another shape. A kind is `text`, `time`
//! (RFC 3339), `int`, `count` (not below zero), `number`, `bool`, `any`, the name of a shape, words with a bar between, `[kind]`,
//! or `{kind}` for a map; with a `?` it may be null.

use serde_json::{Value, json};

/// An object.
pub(super) struct Shape {
    pub(super) name: &'static str,
    /// It comes in: nothing else may.
    pub(super) comes_in: bool,
    pub(super) fields: &'static str,
}

const fn given(name: &'static str, fields: &'static str) -> Shape {
    Shape { name, comes_in: true, fields }
}

const fn told(name: &'static str, fields: &'static str) -> Shape {
    Shape { name, comes_in: false, fields }
}

/// One field of an object or a query.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) required: bool,
    pub(super) kind: &'static str,
}

/// The fields of a text.
pub(super) fn fields(text: &'static str) -> Vec<Field> {
    let of_word = |word: &'static str| match word.strip_prefix('+') {
        Some(other) => ALL.iter().filter(|shape| shape.name == other).flat_map(|shape| fields(shape.fields)).collect(),
        None => {
            let (name, kind) = word.split_once(':').unwrap_or((word, "any"));
            let bare = name.trim_end_matches('~');
            vec![Field { name: bare, required: bare == name, kind }]
        }
    };
    text.split_whitespace().flat_map(of_word).collect()
}

/// The schema of a kind.
pub(super) fn shape(kind: &str) -> Value {
    if let Some(kind) = kind.strip_suffix('?') {
        return nullable(shape(kind));
    }
    if let Some(kind) = kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']')) {
        return json!({ "type": "array", "items": shape(kind) });
    }
    if let Some(kind) = kind.strip_prefix('{').and_then(|kind| kind.strip_suffix('}')) {
        return json!({ "type": "object", "additionalProperties": shape(kind) });
    }
    match kind {
        "any" => json!({}),
        "text" => json!({ "type": "string" }),
        "time" => json!({ "type": "string", "format": "date-time" }),
        "int" => json!({ "type": "integer" }),
        "count" => json!({ "type": "integer", "minimum": 0 }),
        "number" => json!({ "type": "number" }),
        "bool" => json!({ "type": "boolean" }),
        words if words.contains('|') => json!({ "enum": words.split('|').collect::<Vec<_>>() }),
        name => json!({ "$ref": format!("#/components/schemas/{name}") }),
    }
}

fn nullable(mut schema: Value) -> Value {
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.push(Value::Null);
        return schema;
    }
    match schema["type"].as_str().map(str::to_owned) {
        Some(kind) => {
            schema["type"] = json!([kind, "null"]);
            schema
        }
        None => json!({ "anyOf": [schema, { "type": "null" }] }),
    }
}

/// All of them.
pub(super) const ALL: &[Shape] = &[
    told("Problem", "title:text status:int detail:text hint:text"),
    told("Alive", "version:text pid:int"),
    told(
        "Status",
        "version:text running:bool gate:Vital? data:text records:sqlite|postgresql relay:text learn_only:bool totals:Totals spool:Spool gates:[Gate]",
    ),
    told(
        "Gate",
        "gate:mail|web|lab|console state:off|starting|up|failed since_unix_s:int last_failure:text? next_try_s:int? restarts:int",
    ),
    told("Vital", "pid:int since:text listeners:[Listener] delivery:text sessions:int counters:{int} inbound~:{int}"),
    told("Listener", "name:text address:text about:text"),
    told("Totals", "users:int locked:int stopped:int held_recipients:int held_messages:int decided:int"),
    told("Spool", "messages:int body_bytes:int disk_bytes:int segments:int damage:[text]"),
    told("AuditLine", "at:time actor:text action:text subject:text detail:text"),
    given("BackupTo", "folder:text"),
    told("BackupDone", "folder:text held_files:int bytes:int note:text"),
    // Users.
    given(
        "NewUser",
        "name:text password~:text? addresses~:[text] contact~:text profile~:person|list|application|exempt",
    ),
    given(
        "UserChange",
        "addresses~:[text]? contact~:text? profile~:person|list|application|exempt? throttle~:OwnThrottle trust~:[text] distrust~:[text]",
    ),
    given(
        "OwnThrottle",
        "reset~:bool rate_per_min~:number? multi_rate_per_min~:number? working_set~:count? lru~:bool? max_slack~:count? \
         max_multi_slack~:count? stop_at~:count? messages_a_day~:count? new_recipients_a_day~:count?",
    ),
    given("NewPassword", "password:text"),
    given("Reason", "reason:text"),
    told("UserList", "users:[User] next:text?"),
    told(
        "User",
        "name:text addresses:[text] contact:text profile:text state:active|locked|stopped held:int locked_since:time? locked_reason:text \
         created:text",
    ),
    told("UserPage", "+User has_password:bool sessions:int throttle:Throttle own_parameters:[text] trusted:[text]"),
    told(
        "Throttle",
        "state:text in_words:text held:int next_at:time? last_at:time? stopped_since:time? slack:int multi_slack:int working_set:int \
         params:ThrottleParameters",
    ),
    told(
        "ThrottleParameters",
        "rate_per_min:number? multi_rate_per_min:number? working_set:int replacement:text max_slack:int max_multi_slack:int stop_at:int \
         messages_a_day:int? new_recipients_a_day:int?",
    ),
    told("LockDone", "name:text sessions_ended:int"),
    told("UnlockDone", "name:text lock_ended:bool stop_ended:bool held:int"),
    // Held mail.
    given("HeldSelection", "messages~:[text] user~:text recipient~:text all~:bool"),
    given("HeldRelease", "selection~:HeldSelection trust~:bool"),
    given("HeldDelete", "selection~:HeldSelection"),
    told("HeldList", "messages:[HeldMessage] recipients:int more:bool"),
    told(
        "HeldMessage",
        "message:text user:text sender:text subject:text source:text since:time stopped:bool relay:text relay_down:bool file_missing:bool \
         recipients:[HeldRecipient]",
    ),
    told("HeldRecipient", "address:text expected:time?"),
    told("HeldPage", "+HeldMessage why:text choices:[text] size_bytes:int? file:text? header:[text] throttle:Throttle"),
    told(
        "HeldDone",
        "recipients:int messages:[text] users:[text] trusted:[text] stops_ended:[text] relays_down:[text]",
    ),
    told(
        "HeldAnalysed",
        "messages:int attachments:int submitted:int known:int samples:[int] problems:[text] messages_left:int",
    ),
    told("Learned", "user:text last_day:text mails:int recipients:int would_hold:int would_stop:int"),
    // The quarantine.
    given(
        "QuarantineSelection",
        "messages~:[text] queue~:text recipient~:text sender~:text older_than_s~:count text~:text all~:bool",
    ),
    given("QuarantineWhich", "selection~:QuarantineSelection"),
    told("QuarantineList", "entries:[QuarantineEntry] totals:[QuarantineTotal] more:bool"),
    told(
        "QuarantineEntry",
        "message:text queue:virus|ext|spam|error|limit reason:text sender:text recipients:[text] subject:text source:text user:text \
         size_bytes:int since:time relay:text",
    ),
    told("QuarantineTotal", "queue:text messages:int bytes:int oldest_at:int"),
    told("QuarantinePage", "+QuarantineEntry verdict:any choices:[text] file:text? header:[text]"),
    told("QuarantineDone", "messages:[text] recipients:int"),
    // The feeds. A number that is not finite is null.
    given("Tune", "apply~:bool"),
    told(
        "Feeds",
        "enabled:bool strategy:size|size-load|shortest limits:[int] tuned:bool auto_tune:bool cpus:int waiting:int oldest_s:number \
         under_way:int retrying:int outage:Outage? lambda_per_s:number? lambda_max_per_s:number? t0_s:number? ts_s_per_byte:number? \
         remembered:int feeds:[Feed] classes:[Feed] counts:ScanCounts scanners:[Scanner] \
         services:[ServiceTimes] pending:Pending?",
    ),
    told("ServiceTimes", "scanner:text feed:int? t0_s:number? ts_s_per_byte:number?"),
    told(
        "Pending",
        "messages:int bytes:int oldest_s:number wait_s:int then:quarantine|pass answers:bool counts:PendingCounts",
    ),
    told("PendingCounts", "arrived:int passed:int quarantined:int undecided:int"),
    told("Outage", "for_s:number problem:text"),
    told("Feed", "up_to:int? workers:int? waiting:int? oldest_s:number? scanned:int wait:Spread scan:Spread"),
    told("Spread", "mean_s:number? p50_s:number? p95_s:number? p99_s:number?"),
    told("ScanCounts", "arrived:int passed:int quarantined:int failed:int"),
    told("Scanner", "scanner:text address:text up:bool version:text signature_age_s:int? problem:text advice:text"),
    told(
        "Tuning",
        "strategy:text arrivals:int lambda_per_s:number? t0_s:number? ts_s_per_byte:number? today:Predicted proposed:Predicted better:bool \
         applied:bool",
    ),
    told(
        "Predicted",
        "limits:[int] mean_wait_s:number? p95_wait_s:number? lambda_max_per_s:number? classes:[ClassWait]",
    ),
    told("ClassWait", "up_to:int? share:number? mean_wait_s:number? p95_wait_s:number?"),
    // One id, one timeline.
    told("Trace", "id:text messages:[text] samples:[int] lines:[TraceLine] now:[text] notes:[text]"),
    told("TraceLine", "at:time at_ns:int stage:text event:text message:text sample:int? text:text"),
    // Rules for the scan.
    given("NewRule", "sha256~:text bytes~:count? yara~:text severity~:infected|forbidden sample~:int? about~:text"),
    told(
        "Rule",
        "rule:int name:text kind:hash|yara content:text severity:infected|forbidden sample:int? about:text by:text since:time",
    ),
    told("ProposedRule", "hash:NewRule yara:text? blocked:[Rule]"),
    // The console.
    given("NewAccount", "name:text role:operator|admin password:text"),
    told("Account", "name:text role:operator|admin created:time codes:bool"),
    given("NewToken", "name:text scope:read|operate|admin days~:count"),
    told("Token", "name:text scope:read|operate|admin created:time by:text expires:time? used:time?"),
    told("TokenMade", "+Token token:text"),
    // Keys, and mail on its way out.
    given("NewKey", "domain:text selector~:text kind~:rsa|ed25519"),
    told("Key", "domain:text selector:text signs:bool record:text"),
    given("QueueSelection", "messages~:[text] user~:text domain~:text all~:bool"),
    told("Queue", "messages:[QueueEntry] total:int"),
    told(
        "QueueEntry",
        "message:text user:text sender:text accepted:time size_bytes:int attempts:int next_attempt:time? recipients:[QueueRecipient]",
    ),
    told("QueueRecipient", "address:text last_answer:text"),
    told("QueueDone", "messages:[text]"),
    // The lab. Its times are nanoseconds since the Unix epoch.
    told(
        "Lab",
        "leader:text? epoch:int leads_here:bool open:int? states:[LabState] analysis:text plugins:[text] terms:[any] figures:LabFigures? \
         vacant_ms:int?",
    ),
    told(
        "LabFigures",
        "queues:[LabRunQueue] machines:int vms_free:int vms_in_use:int vms_on_revert:int attempts:int attempts_lost:int ended:{int}",
    ),
    told("LabRunQueue", "queue:int samples:int oldest_wait_ms:int"),
    told("LabState", "state:text samples:int"),
    told(
        "LabNode",
        "name:text role:text priority:int index:int? address:text leads:bool drained:bool cores:int? memory:int? memory_free:int? \
         slots:int? seen_at:int",
    ),
    told("LabPlace", "node:text name:text state:FREE|IN_USE|ON_REVERT sample:int? plugins:[text] memory:int?"),
    told(
        "Sample",
        "sample:int hash:text name:text size:int file_type:text submitter:text priority:int state:text why:text arrived_at:int ended_at:int? \
         verdict:text parent:int? depth:int",
    ),
    told(
        "SamplePage",
        "+Sample now:text reasons:[text] attempts:[Attempt] results:[PluginResult] children:[Sample] left_out:int",
    ),
    told("LabQueue", "queues:[LabPriority] next:[Sample]"),
    told("LabPriority", "priority:int waiting:int running:int oldest_wait_s:number"),
    told("Attempt", "attempt:int epoch:int node:text vm:text started_at:int ended_at:int? outcome:text"),
    told("PluginResult", "plugin:text version:text accepted:bool outcome:text of_sample:int? report:any"),
    told("HandedIn", "sample:int hash:text"),
    given("Which", "sample:text"),
    given("Drain", "node:text drained:bool"),
    given("Remove", "node:text"),
    given("Invite", "role:text priority:count valid_s:count"),
    told("Invitation", "token:text"),
    // The web gate.
    told(
        "Web",
        "listeners:[WebListener] threads:int connections:int connections_accepted:int connections_refused:int idle_connections:int \
         responses:[int] given_up:int log_lines_dropped:int backends:[Backend] exchange:any",
    ),
    told("WebListener", "address:text about:text"),
    told("Backend", "queue:WebQueue servers:[WebServer]"),
    told(
        "WebQueue",
        "backend:text waiting:int running:int slots:int slots_auto:bool observe:bool streams:int waiting_bytes:int sessions:int subnets:int \
         mean_cost_ms:number counters:WebCounters",
    ),
    told(
        "WebCounters",
        "asked:int dispatched:int waited:int finished:int left:int refused:[int] waits:[int] wait_s:number service_s:number sooner:int \
         sooner_s:number later:int later_s:number reports_refused:int",
    ),
    told("WebServer", "address:text up:bool trouble:text? in_flight:int"),
    told(
        "Session",
        "backend:text session:text subnet:text client:text waiting:int running:int oldest_wait_s:number weight:number debt_s:number \
         served_s:number active_at:int",
    ),
];
