//! Every operation of the API: how it is asked for, and which shapes go in and come out.

/// One operation.
pub(super) struct Operation {
    /// In small letters.
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    /// The least scope of a token that may.
    pub(super) scope: &'static str,
    /// The fields of its query.
    pub(super) query: &'static str,
    /// The shape of its body; empty for none.
    pub(super) body: &'static str,
    pub(super) answer: &'static str,
    /// It makes something, and answers 201.
    pub(super) makes: bool,
}

impl Operation {
    /// A name for programs that are written from the document: `get_users_name`.
    pub(super) fn id(&self) -> String {
        let path = self.path.replace(['{', '}'], "").replace(['/', '-', '.'], "_");
        format!("{}{path}", self.method)
    }

    const fn asks(mut self, query: &'static str) -> Operation {
        self.query = query;
        self
    }

    const fn takes(mut self, body: &'static str) -> Operation {
        self.body = body;
        self
    }

    const fn makes(mut self) -> Operation {
        self.makes = true;
        self
    }
}

const fn look(path: &'static str, answer: &'static str, summary: &'static str) -> Operation {
    Operation { method: "get", path, summary, scope: "read", query: "", body: "", answer, makes: false }
}

const fn operate(path: &'static str, answer: &'static str, summary: &'static str) -> Operation {
    Operation { method: "post", path, summary, scope: "operate", query: "", body: "", answer, makes: false }
}

const fn admin(method: &'static str, path: &'static str, answer: &'static str, summary: &'static str) -> Operation {
    Operation { method, path, summary, scope: "admin", query: "", body: "", answer, makes: false }
}

/// The scope that a request needs: that of the operation with this method and this path behind the prefix; nothing if there is none.
pub(super) fn scope_of(method: &str, path: &str) -> Option<&'static str> {
    let fits = |operation: &&Operation| operation.method.eq_ignore_ascii_case(method) && is_of(path, operation.path);
    OPERATIONS.iter().find(fits).map(|operation| operation.scope)
}

/// Whether a path is one of a pattern: what stands in braces is any one piece.
fn is_of(path: &str, pattern: &str) -> bool {
    let (mut pieces, mut patterns) = (path.split('/'), pattern.split('/'));
    loop {
        match (pieces.next(), patterns.next()) {
            (None, None) => return true,
            (Some(piece), Some(pattern)) if pattern.starts_with('{') && !piece.is_empty() => {}
            (Some(piece), Some(pattern)) if piece == pattern => {}
            _ => return false,
        }
    }
}

/// All of them, in the order of the routers.
pub(super) const OPERATIONS: &[Operation] = &[
    look("/openapi.json", "any", "This document"),
    look("/alive", "Alive", "Whether somebody is there, whatever the store is doing"),
    look("/status", "Status", "How the whole is doing"),
    look("/audit", "[AuditLine]", "Who did what, the newest first").asks("subject~:text lines~:int"),
    admin("post", "/backup", "BackupDone", "Copies the data folder; only over the control socket").takes("BackupTo"),
    look("/users", "UserList", "Users in order of name").asks("after~:text"),
    admin("post", "/users", "UserPage", "Makes a user").takes("NewUser").makes(),
    look("/users/{name}", "UserPage", "Everything about one user"),
    admin("patch", "/users/{name}", "UserPage", "Changes a user; what is left out stays").takes("UserChange"),
    admin("post", "/users/{name}/password", "UserPage", "Gives a user a new password").takes("NewPassword"),
    operate("/users/{name}/lock", "LockDone", "Locks a user, who reads the reason").takes("Reason"),
    operate("/users/{name}/unlock", "UnlockDone", "Ends a lock and a stop; what waits drains one by one"),
    look("/held", "HeldList", "Held mail in the order of its queues").asks("message~:text user~:text recipient~:text"),
    operate("/held/release", "HeldDone", "Sends held mail now; with trust it never waits again").takes("HeldRelease"),
    operate("/held/delete", "HeldDone", "Drops held mail; nobody is told").takes("HeldDelete"),
    operate("/held/analyse", "HeldAnalysed", "Hands the attachments of held mail to the lab, each content once")
        .takes("HeldDelete"),
    look("/held/learned", "[Learned]", "What learn-only mode would have held").asks("days~:int"),
    look("/held/messages/{message}", "HeldPage", "Everything about one held message"),
    look("/quarantine", "QuarantineList", "Quarantined mail, the newest first")
        .asks("message~:text queue~:text recipient~:text sender~:text older_than_s~:count text~:text"),
    operate(
        "/quarantine/release",
        "QuarantineDone",
        "Sends quarantined mail as it is; infected mail needs the scope admin",
    )
    .takes("QuarantineWhich"),
    operate("/quarantine/delete", "QuarantineDone", "Drops quarantined mail; nobody is told").takes("QuarantineWhich"),
    look("/quarantine/messages/{message}", "QuarantinePage", "Everything about one quarantined message"),
    look("/feeds", "Feeds", "How the scan's feeds are doing"),
    admin("post", "/feeds/tune", "Tuning", "What better limits would do; takes them if asked to").takes("Tune"),
    look("/scan/rules", "[Rule]", "Rules that people made for the scan"),
    operate("/scan/rules", "Rule", "Makes a rule of a hash, or one of YARA, which needs the scope admin")
        .takes("NewRule")
        .makes(),
    operate("/scan/rules/{rule}/remove", "[Rule]", "Removes a rule; one of YARA needs the scope admin"),
    admin("get", "/console/accounts", "[Account]", "Accounts of the console"),
    admin("post", "/console/accounts", "Account", "Makes an account").takes("NewAccount").makes(),
    admin("post", "/console/accounts/{name}/password", "[Account]", "Gives an account a new password")
        .takes("NewPassword"),
    admin("post", "/console/accounts/{name}/remove", "[Account]", "Removes an account"),
    admin("post", "/console/accounts/{name}/codes-off", "[Account]", "Takes a lost second factor away"),
    admin("get", "/console/tokens", "[Token]", "Tokens for programs"),
    admin("post", "/console/tokens", "TokenMade", "Makes a token, which is told only now").takes("NewToken").makes(),
    admin("post", "/console/tokens/{name}/revoke", "[Token]", "Revokes a token"),
    look(
        "/trace/{id}",
        "Trace",
        "The way of a message, by any of its ids or its Message-ID, or of a sample, by its hash",
    ),
    look("/dkim", "[Key]", "Keys that outgoing mail is signed with"),
    admin("post", "/dkim", "Key", "Makes a key").takes("NewKey").makes(),
    look("/queue", "Queue", "Mail that waits for delivery").asks("message~:text user~:text domain~:text"),
    operate("/queue/retry", "QueueDone", "Tries delivery again now").takes("QueueSelection"),
    admin("post", "/queue/delete", "QueueDone", "Drops mail that waits for delivery").takes("QueueSelection"),
    look("/lab", "Lab", "How the lab is doing"),
    look("/lab/samples", "[Sample]", "Samples, the newest first")
        .asks("hash~:text state~:text verdict~:text before~:int most~:int"),
    operate("/lab/samples", "HandedIn", "Hands a sample in")
        .asks("name:text priority~:count tags~:text")
        .takes("bytes"),
    look("/lab/samples/{sample}", "SamplePage", "Everything about a sample, by number or by the beginning of its hash"),
    look("/lab/samples/{sample}/report", "any", "One report of a sample and all that is in it; html comes as one text")
        .asks("form~:json|html|misp|stix"),
    look("/lab/samples/{sample}/content", "zip", "The sample in an archive with the password \"infected\""),
    look("/lab/samples/{sample}/rule", "ProposedRule", "The rules for mail that a sample suggests; nothing is saved"),
    operate("/lab/rerun", "HandedIn", "Analyses a sample again, whatever is known of it").takes("Which"),
    look("/lab/queue", "LabQueue", "What waits, by priority, and which samples are next").asks("next~:int"),
    operate("/lab/cancel", "Sample", "Takes a sample back").takes("Which"),
    look("/lab/nodes", "[LabNode]", "The machines of the lab"),
    look("/lab/vms", "[LabPlace]", "What every VM and place of the lab does, where this machine leads"),
    admin("post", "/lab/drain", "[LabNode]", "Lets a machine take no more samples, or takes that back").takes("Drain"),
    admin("post", "/lab/remove", "[LabNode]", "Takes a machine out of the lab: its certificate counts no more")
        .takes("Remove"),
    admin("post", "/lab/invite", "Invitation", "Makes a token with which a machine joins").takes("Invite"),
    look("/web", "Web", "How the web gate is doing"),
    look("/web/sessions", "[Session]", "Sessions that ask, those that ask for most first").asks("most~:count"),
    look("/web/metrics", "metrics", "The web gate as Prometheus reads it"),
];
