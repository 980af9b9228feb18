//! Maps the rules of behaviour to techniques of MITRE ATT&CK (enterprise matrix).
//!
//! Every rule of behaviour has a technique, and so do the findings of our other plugins that name a trick. The ids and names are MITRE's.

use super::Merged;
use crate::job::Report;
use crate::sample_page::SamplePage;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One technique that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Technique {
    /// Such as `T1053.003`.
    pub id: &'static str,
    /// Such as `Scheduled Task/Job: Cron`.
    pub name: &'static str,
    /// The findings that show it.
    pub findings: Vec<String>,
}

impl Technique {
    /// The address of its page.
    pub fn link(&self) -> String {
        format!("https://attack.mitre.org/techniques/{}", self.id.replace('.', "/"))
    }
}

/// How many findings are listed for one technique.
const FINDINGS_MAX: usize = 8;
const FINDING_CHARS: usize = 200;

/// Rules and findings by name, each with the techniques to which it belongs.
const TABLE: [(&str, &[(&str, &str)]); 78] = [
    (
        "says-in-names",
        &[("T1071.004", "Application Layer Protocol: DNS"), ("T1048", "Exfiltration Over Alternative Protocol")],
    ),
    ("abuses-services", &[("T1210", "Exploitation of Remote Services")]),
    ("sniffs", &[("T1040", "Network Sniffing")]),
    ("asks-cloud", &[("T1552.005", "Unsecured Credentials: Cloud Instance Metadata API")]),
    ("plants-page", &[("T1505.003", "Server Software Component: Web Shell")]),
    ("backdates", &[("T1070.006", "Indicator Removal: Timestomp")]),
    ("floods", &[("T1498", "Network Denial of Service")]),
    (
        "tunnels",
        &[("T1071.004", "Application Layer Protocol: DNS"), ("T1048", "Exfiltration Over Alternative Protocol")],
    ),
    ("spams", &[("T1071.003", "Application Layer Protocol: Mail Protocols")]),
    ("redirects", &[("T1565.001", "Data Manipulation: Stored Data Manipulation")]),
    ("encrypts", &[("T1486", "Data Encrypted for Impact")]),
    ("stays", &[("T1547", "Boot or Logon Autostart Execution")]),
    (
        "takes-orders",
        &[("T1059.004", "Command and Scripting Interpreter: Unix Shell"), ("T1095", "Non-Application Layer Protocol")],
    ),
    ("mines", &[("T1496.001", "Resource Hijacking: Compute Hijacking")]),
    ("loads-module", &[("T1547.006", "Boot or Logon Autostart Execution: Kernel Modules and Extensions")]),
    ("scans", &[("T1046", "Network Service Discovery")]),
    ("pretends", &[("T1036.011", "Masquerading: Overwrite Process Arguments")]),
    ("stops-guards", &[("T1562.001", "Impair Defenses: Disable or Modify Tools")]),
    ("makes-setuid", &[("T1548.001", "Abuse Elevation Control Mechanism: Setuid and Setgid")]),
    ("writes-devices", &[("T1561", "Disk Wipe")]),
    ("reads-memory", &[("T1003.007", "OS Credential Dumping: Proc Filesystem")]),
    ("runs-fetched", &[("T1105", "Ingress Tool Transfer")]),
    ("runs-from-memory", &[("T1620", "Reflective Code Loading")]),
    ("reads-passwords", &[("T1003.008", "OS Credential Dumping: /etc/passwd and /etc/shadow")]),
    ("reads-keys", &[("T1552.004", "Unsecured Credentials: Private Keys")]),
    ("changes-many", &[("T1485", "Data Destruction")]),
    ("traces-others", &[("T1055.008", "Process Injection: Ptrace System Calls")]),
    ("reboots", &[("T1529", "System Shutdown/Reboot")]),
    ("kills-others", &[("T1489", "Service Stop")]),
    ("kills-guest", &[("T1499.004", "Endpoint Denial of Service: Application or System Exploitation")]),
    (
        "wipes-traces",
        &[
            ("T1070.002", "Indicator Removal: Clear Linux or Mac System Logs"),
            ("T1070.003", "Indicator Removal: Clear Command History"),
        ],
    ),
    ("chats", &[("T1071", "Application Layer Protocol")]),
    ("forks-without-end", &[("T1499.001", "Endpoint Denial of Service: OS Exhaustion Flood")]),
    ("runs-written", &[("T1027.009", "Obfuscated Files or Information: Embedded Payloads")]),
    ("deletes-itself", &[("T1070.004", "Indicator Removal: File Deletion")]),
    ("preloads", &[("T1574.006", "Hijack Execution Flow: Dynamic Linker Hijacking")]),
    ("hinders-tracing", &[("T1622", "Debugger Evasion")]),
    ("raw-address", &[("T1071", "Application Layer Protocol")]),
    ("waits", &[("T1497.003", "Virtualization/Sandbox Evasion: Time Based Evasion")]),
    ("listens", &[("T1571", "Non-Standard Port")]),
    ("lies-low", &[("T1497.001", "Virtualization/Sandbox Evasion: System Checks")]),
    ("cron", &[("T1053.003", "Scheduled Task/Job: Cron")]),
    ("rc", &[("T1037.004", "Boot or Logon Initialization Scripts: RC Scripts")]),
    ("systemd", &[("T1543.002", "Create or Modify System Process: Systemd Service")]),
    ("shell", &[("T1546.004", "Event Triggered Execution: Unix Shell Configuration Modification")]),
    ("preload", &[("T1574.006", "Hijack Execution Flow: Dynamic Linker Hijacking")]),
    ("ssh", &[("T1098.004", "Account Manipulation: SSH Authorized Keys")]),
    ("autostart", &[("T1547.013", "Boot or Logon Autostart Execution: XDG Autostart Entries")]),
    ("account", &[("T1136.001", "Create Account: Local Account")]),
    ("module", &[("T1547.006", "Boot or Logon Autostart Execution: Kernel Modules and Extensions")]),
    ("python", &[("T1546", "Event Triggered Execution")]),
    ("packer", &[("T1027.002", "Obfuscated Files or Information: Software Packing")]),
    ("packed", &[("T1027.002", "Obfuscated Files or Information: Software Packing")]),
    ("imports", &[("T1055", "Process Injection")]),
    (
        "macro",
        &[
            ("T1059.005", "Command and Scripting Interpreter: Visual Basic"),
            ("T1204.002", "User Execution: Malicious File"),
        ],
    ),
    ("excel4", &[("T1059.005", "Command and Scripting Interpreter: Visual Basic")]),
    ("dde", &[("T1559.002", "Inter-Process Communication: Dynamic Data Exchange")]),
    ("fetches", &[("T1221", "Template Injection")]),
    ("removes-backups", &[("T1490", "Inhibit System Recovery")]),
    ("injects", &[("T1055", "Process Injection")]),
    ("stays-in-windows", &[("T1547", "Boot or Logon Autostart Execution")]),
    (
        "takes-windows-orders",
        &[
            ("T1059.003", "Command and Scripting Interpreter: Windows Command Shell"),
            ("T1095", "Non-Application Layer Protocol"),
        ],
    ),
    ("logs-keys", &[("T1056.001", "Input Capture: Keylogging")]),
    (
        "steals",
        &[
            ("T1555.003", "Credentials from Password Stores: Credentials from Web Browsers"),
            ("T1005", "Data from Local System"),
        ],
    ),
    ("stops-windows-guards", &[("T1562.001", "Impair Defenses: Disable or Modify Tools")]),
    ("lolbin", &[("T1218", "System Binary Proxy Execution")]),
    ("drops-and-runs", &[("T1027.009", "Obfuscated Files or Information: Embedded Payloads")]),
    ("pretends-to-be-windows", &[("T1036.005", "Masquerading: Match Legitimate Resource Name or Location")]),
    ("changes-wallpaper", &[("T1491.001", "Defacement: Internal Defacement")]),
    ("kills-windows", &[("T1562", "Impair Defenses")]),
    ("looks-for-analysts", &[("T1497.001", "Virtualization/Sandbox Evasion: System Checks")]),
    ("run-key", &[("T1547.001", "Boot or Logon Autostart Execution: Registry Run Keys / Startup Folder")]),
    ("startup", &[("T1547.001", "Boot or Logon Autostart Execution: Registry Run Keys / Startup Folder")]),
    ("service", &[("T1543.003", "Create or Modify System Process: Windows Service")]),
    ("task", &[("T1053.005", "Scheduled Task/Job: Scheduled Task")]),
    ("winlogon", &[("T1547.004", "Boot or Logon Autostart Execution: Winlogon Helper DLL")]),
    ("debugger", &[("T1546.012", "Event Triggered Execution: Image File Execution Options Injection")]),
    ("appinit", &[("T1546.010", "Event Triggered Execution: AppInit DLLs")]),
];

/// The techniques of a rule or finding with this name.
pub(super) fn of_rule(name: &str) -> &'static [(&'static str, &'static str)] {
    TABLE.iter().find(|(known, _)| *known == name).map_or(&[], |(_, techniques)| techniques)
}

/// The techniques that the reports of these samples name, in the order of their ids.
pub(super) fn of<'a>(pages: impl Iterator<Item = &'a SamplePage>) -> Vec<Technique> {
    let mut seen: BTreeMap<&'static str, Technique> = BTreeMap::new();
    let mut note = |name: &str, finding: &str| {
        for (id, name) in of_rule(name) {
            let technique = seen.entry(id).or_insert(Technique { id, name, findings: Vec::new() });
            let finding: String = finding.chars().take(FINDING_CHARS).collect();
            if technique.findings.len() < FINDINGS_MAX && !technique.findings.contains(&finding) {
                technique.findings.push(finding);
            }
        }
    };
    for result in pages.flat_map(|page| &page.results) {
        // A failed result may still say that the sample crashed its guest.
        let Ok(report) = Report::parse(result.report.get().as_bytes()) else { continue };
        if !result.accepted && report.success {
            continue;
        }
        for found in &report.summary.taxonomies {
            note(&found.predicate, &format!("{}: {}: {}", result.plugin, found.predicate, found.value));
            if matches!(found.predicate.as_str(), "stays" | "stays-in-windows") {
                // The ways that were used.
                found.value.split(", ").for_each(|way| note(way, &format!("{}: stays: {way}", result.plugin)));
            }
        }
    }
    seen.into_values().collect()
}

/// A layer for MITRE's Navigator: what was seen, on the matrix.
pub fn layer(merged: &Merged) -> Value {
    let sample = &merged.page.sample;
    let name = if sample.name.is_empty() { &sample.hash } else { &sample.name };
    let technique = |technique: &Technique| {
        json!({
            "techniqueID": technique.id, "score": technique.findings.len(), "enabled": true,
            "comment": technique.findings.join("; "), "showSubtechniques": technique.id.contains('.'),
        })
    };
    json!({
        "name": format!("Analysis of {name}"),
        "versions": { "attack": "17", "navigator": "5.1.0", "layer": "4.5" },
        "domain": "enterprise-attack",
        "description": format!("{}: {}", sample.verdict, merged.page.reasons.join("; ")),
        "filters": { "platforms": ["Linux", "Windows"] },
        "techniques": merged.techniques.iter().map(technique).collect::<Vec<_>>(),
        "gradient": { "colors": ["#ffe766", "#ff6666"], "minValue": 1, "maxValue": FINDINGS_MAX },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_of_behaviour_has_a_technique() {
        for rule in crate::vm::rule_names() {
            assert!(!of_rule(rule).is_empty(), "{rule}");
        }
        let shaped = |id: &str| {
            let digits = |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
            let (main, sub) = id.split_once('.').map_or((id, None), |(main, sub)| (main, Some(sub)));
            main.strip_prefix('T').is_some_and(|number| digits(number, 4)) && sub.is_none_or(|sub| digits(sub, 3))
        };
        for (rule, techniques) in TABLE {
            assert!(techniques.iter().all(|(id, name)| shaped(id) && !name.is_empty()), "{rule}");
            assert_eq!(TABLE.iter().filter(|(other, _)| *other == rule).count(), 1, "{rule} is there twice");
        }
    }

    #[test]
    fn a_layer_has_what_was_seen() {
        let merged = super::super::tests::merged();
        let ids: Vec<&str> = merged.techniques.iter().map(|technique| technique.id).collect();
        assert_eq!(ids, ["T1053.003", "T1105", "T1547"]);
        let layer = layer(&merged);
        assert_eq!(layer["techniques"][0]["techniqueID"], "T1053.003");
        assert_eq!((&layer["domain"], &layer["versions"]["layer"]), (&"enterprise-attack".into(), &"4.5".into()));
        assert_eq!(merged.techniques[0].link(), "https://attack.mitre.org/techniques/T1053/003");
    }
}
