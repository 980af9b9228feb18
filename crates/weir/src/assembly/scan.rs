//! Builds the scan stage from the sections `[scan]` and `[quarantine]`.

use super::hostname;
use super::together::{self, CurrentLab};
use crate::config::Config;
use std::sync::Arc;
use weir_foundation::Foundation;
use weir_mail::scan::{Inspector, LabSettings, OnLimit, Settings, Setup, Site, adopt_rules, stored_limits};
use weir_scan::content::Content;
use weir_scan::inspect::{About, Inspect};
use weir_scan::panel::{Panel, StartError};
use weir_scan::verdict::Verdict;
use weir_scan::worker::scanner::Workers;
use weir_store::spool::Spool;

/// The scan stage, ready to be started when the spool is open.
pub(crate) struct Scan {
    settings: Settings,
    inspectors: Vec<Arc<dyn Inspector>>,
    foundation: Foundation,
    /// The rules for mail that waits for the lab; none if no mail does.
    lab: Option<LabSettings>,
}

impl Scan {
    /// Reads the configuration, and the limits that tuning found before.
    pub(crate) async fn new(config: &Config, foundation: &Foundation) -> anyhow::Result<Scan> {
        let scan = &config.scan;
        let limits = &scan.stage.plan.limits;
        let found_limits = stored_limits(&foundation.records.values(), &foundation.relay, limits).await?;
        let settings = Settings {
            enabled: scan.enabled,
            hostname: hostname(config),
            found_limits,
            bound: config.scanners.own_feeds(),
            whole: config.scanners.want_trace(),
            quarantine: config.quarantine.clone(),
            ..scan.stage.clone()
        };
        let lab = together::is_on(config).then(|| config.scan_lab.clone());
        let inspectors = inspectors(config).await?;
        // The rules must be in force before the first message is scanned. If they cannot be read, mail flows all the same.
        if scan.enabled
            && let Err(error) = adopt_rules(&foundation.records.rules(), &inspectors).await
        {
            tracing::error!(%error, "the rules that people made are not in force");
        }
        Ok(Scan { settings, inspectors, foundation: foundation.clone(), lab })
    }

    /// A description of the scan for people; none if it is off.
    pub(crate) fn about(&self) -> Option<String> {
        let Settings { enabled, auto_tune, .. } = &self.settings;
        let plan = self.settings.plan_in_force();
        let tuned = if *auto_tune { ", tuned by the traffic" } else { "" };
        let lab = self.lab.as_ref().map_or_else(String::new, |lab| {
            format!("; what is worth it waits up to {} s for the lab", lab.wait.as_secs())
        });
        enabled.then(|| format!("{} feeds up to {} bytes and above{tuned}{lab}", plan.limits.feeds(), plan.limits))
    }

    /// What the stage needs to start with this spool. If mail waits for the lab, the stage is connected with it.
    pub(crate) fn setup(self, spool: &Spool, lab: &CurrentLab) -> Setup {
        let Foundation { folder, records, relay, .. } = self.foundation;
        let site = Site {
            spool: spool.clone(),
            records,
            relay,
            folder: folder.path().to_owned(),
            quarantine: folder.quarantine(),
        };
        let lab = self.lab.map(|settings| together::way(settings, lab));
        Setup { settings: self.settings, inspectors: self.inspectors, lab, site }
    }
}

/// The inspectors: one panel of scanners for all feeds, or one for each feed if some have scanners of their own. This is the only place
/// where scanners are connected with the stage.
async fn inspectors(config: &Config) -> Result<Vec<Arc<dyn Inspector>>, StartError> {
    if !config.scan.enabled {
        return Ok(vec![Arc::new(Nobody)]);
    }
    let mut scanners = config.scanners.clone();
    scanners.limits_decide = config.scan.stage.on_limit == OnLimit::Quarantine;
    if let Some(mut workers) = scanners.find::<Workers>().cloned().filter(|_| together::is_on(config)) {
        workers.setup.samples = config.scan_lab.policy.clone();
        scanners = scanners.with(workers);
    }
    let panel = Panel::start(scanners).await?;
    if config.scanners.own_feeds().is_empty() {
        return Ok(vec![Arc::new(panel)]);
    }
    let feed = |feed: usize| Arc::new(panel.for_feed(feed)) as Arc<dyn Inspector>;
    Ok((0..config.scan.stage.plan.limits.feeds()).map(feed).collect())
}

/// The inspector for when the scan is off. Its verdict lets nothing pass, because nobody looked at the mail.
struct Nobody;

impl Inspect for Nobody {
    async fn inspect(&self, _: &Content, _: &Arc<About>) -> Verdict {
        Verdict::default()
    }
}
