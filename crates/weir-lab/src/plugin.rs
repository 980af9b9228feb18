//! A plugin: a folder with `plugin.toml` and anything that can be started.
//!
//! The manifest is read as a whole, within bounds, and all its problems are reported at once. To the scheduler a plugin is its name, its
//! version and what it needs of a machine; the dispatcher decides how it is sandboxed.

use crate::wire::is_name;
use serde::Deserialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest manifest.
const MANIFEST_MAX: u64 = 64 * 1024;
/// The most plugins of one lab.
const PLUGINS_MAX: usize = 128;

/// A plugin that can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plugin {
    /// Its name, unique in the lab.
    pub name: String,
    /// Its version: results of another version do not count.
    pub version: String,
    /// One sentence for people.
    pub description: String,
    pub folder: PathBuf,
    /// How it runs.
    pub run: Run,
    /// Which samples it accepts.
    pub taste: Taste,
    /// Plugins of a lower stage run first.
    pub stage: u8,
    /// It runs only on samples for which these plugins have succeeded.
    pub requires: Vec<String>,
    /// Tags that its VM must have: a VM without them does not offer it.
    pub tags: Vec<String>,
    /// Files and folders outside its own that it sees, for reading only.
    pub reads: Vec<PathBuf>,
    /// Sockets of local services that it may talk to.
    pub sockets: Vec<PathBuf>,
    /// What it may use.
    pub limits: Limits,
    /// Its settings, which it finds in `input.json`.
    pub config: serde_json::Value,
    /// Whether a result counts for the next sample of the same content.
    pub cache: bool,
    /// Whether its `safe` is about what the file does. That a scanner knows no signature of a file says nothing about that.
    pub vouches: bool,
}

/// How a plugin runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// As a process on the machine, in a sandbox: program and arguments.
    Process(Vec<String>),
    /// In a VM, by the agent in it.
    Vm,
    /// Nowhere: the dispatcher answers at once. Used to measure everything else.
    Nothing,
}

/// Which samples a plugin accepts, by patterns of file types such as `application/zip` or `text/*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taste {
    accepts: Vec<String>,
    rejects: Vec<String>,
}

/// What a plugin may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Wall-clock time.
    pub time: Duration,
    /// Memory of all its processes.
    pub memory_bytes: u64,
    /// The length of its report.
    pub output_bytes: u64,
    /// All that it writes, the report included.
    pub disk_bytes: u64,
    /// Processes and threads at once.
    pub processes: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        let (memory_bytes, output_bytes, disk_bytes) = (512 << 20, 8 << 20, 512 << 20);
        Limits { time: Duration::from_secs(60), memory_bytes, output_bytes, disk_bytes, processes: 64 }
    }
}

impl Taste {
    /// Whether a sample of this type is accepted: some pattern accepts it (or there are none), and none rejects it.
    pub fn takes(&self, file_type: &str) -> bool {
        let fits = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, file_type));
        (self.accepts.is_empty() || fits(&self.accepts)) && !fits(&self.rejects)
    }
}

/// `*` stands for any characters. Linear, because the pattern goes back to its last star only.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p).is_some_and(|c| c.eq_ignore_ascii_case(&text[t])) {
            p += 1;
            t += 1;
        } else if let Some((star_p, star_t)) = star {
            star = Some((star_p, star_t + 1));
            (p, t) = (star_p + 1, star_t + 1);
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// `plugin.toml` as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    name: String,
    version: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    exec: Vec<String>,
    #[serde(default)]
    run: String,
    #[serde(default)]
    accepts: Vec<String>,
    #[serde(default)]
    rejects: Vec<String>,
    #[serde(default)]
    stage: u8,
    #[serde(default)]
    requires: Vec<String>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    network: String,
    #[serde(default)]
    reads: Vec<PathBuf>,
    #[serde(default)]
    sockets: Vec<PathBuf>,
    timeout_s: Option<u64>,
    memory_mib: Option<u64>,
    output_kib: Option<u64>,
    disk_mib: Option<u64>,
    processes: Option<u32>,
    cache: Option<bool>,
    vouches: Option<bool>,
    #[serde(default)]
    config: serde_json::Map<String, serde_json::Value>,
}

impl Plugin {
    pub fn read(folder: &Path) -> Result<Plugin, PluginError> {
        let path = folder.join("plugin.toml");
        let error = |problems: Vec<String>| PluginError { path: path.clone(), problems };
        let mut text = String::new();
        let file = std::fs::File::open(&path).map_err(|e| error(vec![e.to_string()]))?;
        file.take(MANIFEST_MAX + 1).read_to_string(&mut text).map_err(|e| error(vec![e.to_string()]))?;
        if text.len() as u64 > MANIFEST_MAX {
            return Err(error(vec![format!("it is longer than {MANIFEST_MAX} bytes")]));
        }
        Plugin::parse(&text, folder)
    }

    /// Parses the text of a manifest. The program `weir` is this one; a plugin that needs no files of its own has an
    /// empty folder.
    pub fn parse(text: &str, folder: &Path) -> Result<Plugin, PluginError> {
        let error = |problems: Vec<String>| PluginError { path: folder.join("plugin.toml"), problems };
        let manifest: Manifest = toml::from_str(text).map_err(|e| error(vec![e.to_string().trim().to_owned()]))?;
        manifest.checked(folder).map_err(error)
    }

    /// The plugins that a sample of this type needs: they accept it, and so do all plugins that they require.
    pub fn needed<'p>(plugins: &'p [Plugin], file_type: &str) -> Vec<&'p Plugin> {
        let mut needed: Vec<&Plugin> = plugins.iter().filter(|plugin| plugin.taste.takes(file_type)).collect();
        loop {
            let names: Vec<&str> = needed.iter().map(|plugin| plugin.name.as_str()).collect();
            let fits = |plugin: &&Plugin| plugin.requires.iter().all(|name| names.contains(&name.as_str()));
            let left: Vec<&Plugin> = needed.iter().copied().filter(fits).collect();
            if left.len() == needed.len() {
                return needed;
            }
            needed = left;
        }
    }

    /// The same in the form of the database: pairs of name and version.
    pub fn needs(plugins: &[Plugin], file_type: &str) -> String {
        let needed: Vec<_> =
            Plugin::needed(plugins, file_type).into_iter().map(|plugin| (&plugin.name, &plugin.version)).collect();
        serde_json::json!(needed).to_string()
    }

    /// Reads all plugins below a folder and adds `own`, in order of stage and name. A folder without a manifest is not a plugin.
    pub fn read_all(folder: &Path, own: Vec<Plugin>) -> (Vec<Plugin>, Vec<PluginError>) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        folders.retain(|path| path.join("plugin.toml").exists());
        folders.sort();
        let (mut plugins, mut errors): (Vec<Plugin>, Vec<PluginError>) = (own, Vec::new());
        for folder in folders {
            match Plugin::read(&folder) {
                Ok(plugin) if plugins.iter().any(|other| other.name == plugin.name) => {
                    errors.push(PluginError::of(&folder, format!("there are two plugins named {}", plugin.name)));
                }
                Ok(_) if plugins.len() == PLUGINS_MAX => {
                    errors.push(PluginError::of(&folder, format!("a lab has at most {PLUGINS_MAX} plugins")));
                }
                Ok(plugin) => plugins.push(plugin),
                Err(error) => errors.push(error),
            }
        }
        plugins.sort_by(|a, b| (a.stage, &a.name).cmp(&(b.stage, &b.name)));
        (plugins, errors)
    }
}

impl Manifest {
    fn checked(self, folder: &Path) -> Result<Plugin, Vec<String>> {
        let mut problems = Vec::new();
        let mut name_is_fit = |key: &str, text: &str| {
            if !is_name(text) {
                problems.push(format!("{key}: {text:?} is no name: letters, digits, `.`, `_` and `-`, at most 64"));
            }
        };
        name_is_fit("name", &self.name);
        name_is_fit("version", &self.version);
        self.requires.iter().for_each(|name| name_is_fit("requires", name));
        self.tags.iter().for_each(|tag| name_is_fit("tags", tag));
        let run = self.how().unwrap_or_else(|problem| {
            problems.push(problem);
            Run::Vm
        });
        problems.extend(self.network().err());
        for path in self.reads.iter().chain(&self.sockets).filter(|path| !is_plain(path)) {
            problems.push(format!("reads, sockets: {} is not a whole path without `..`", path.display()));
        }
        if self.requires.contains(&self.name) {
            problems.push("requires: a plugin cannot require itself".into());
        }
        let limits = self.limits(&mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Plugin {
            name: self.name,
            version: self.version,
            description: self.description,
            folder: folder.to_owned(),
            run,
            taste: Taste { accepts: self.accepts, rejects: self.rejects },
            stage: self.stage,
            requires: self.requires,
            tags: self.tags,
            reads: self.reads,
            sockets: self.sockets,
            limits,
            config: self.config.into(),
            cache: self.cache.unwrap_or(true),
            vouches: self.vouches.unwrap_or(true),
        })
    }

    fn how(&self) -> Result<Run, String> {
        match (self.run.as_str(), self.exec.first()) {
            ("" | "process", Some(program)) if !program.is_empty() => Ok(Run::Process(self.exec.clone())),
            ("vm", None) => Ok(Run::Vm),
            ("nothing", None) => Ok(Run::Nothing),
            ("" | "process", _) => Err("exec: the program to start is missing; or say run = \"vm\"".into()),
            ("vm", Some(_)) => Err("exec: a plugin with run = \"vm\" has none".into()),
            ("nothing", Some(_)) => Err("exec: a plugin with run = \"nothing\" has none".into()),
            (other, _) => Err(format!("run: {other:?} is none of \"process\", \"vm\" and \"nothing\"")),
        }
    }

    /// A process has no network at all; a guest has a simulated one.
    fn network(&self) -> Result<(), String> {
        match (self.network.as_str(), self.run.as_str()) {
            ("" | "none", _) | ("simulated", "vm") => Ok(()),
            ("simulated", _) => {
                Err("network: \"simulated\" is for plugins with run = \"vm\"; a process has none".into())
            }
            ("internet", _) => Err("network: \"internet\" is refused: nothing leaves the lab".into()),
            (other, _) => Err(format!("network: {other:?} is neither \"none\" nor \"simulated\"")),
        }
    }

    fn limits(&self, problems: &mut Vec<String>) -> Limits {
        let default = Limits::default();
        let mut bounded = |key: &str, value: Option<u64>, default: u64, most: u64| {
            let value = value.unwrap_or(default);
            if !(1..=most).contains(&value) {
                problems.push(format!("{key}: {value} is not between 1 and {most}"));
            }
            value.clamp(1, most)
        };
        Limits {
            time: Duration::from_secs(bounded("timeout_s", self.timeout_s, default.time.as_secs(), 86_400)),
            memory_bytes: bounded("memory_mib", self.memory_mib, default.memory_bytes >> 20, 1 << 20) << 20,
            output_bytes: bounded("output_kib", self.output_kib, default.output_bytes >> 10, 64 << 10) << 10,
            disk_bytes: bounded("disk_mib", self.disk_mib, default.disk_bytes >> 20, 1 << 20) << 20,
            processes: bounded("processes", self.processes.map(u64::from), default.processes.into(), 4096) as u32,
        }
    }
}

/// Whether the path is absolute and does not contain `..`.
fn is_plain(path: &Path) -> bool {
    use std::path::Component::{Normal, RootDir};
    path.is_absolute()
        && path.components().all(|part| matches!(part, RootDir | Normal(_)))
        && path.components().count() > 1
}

/// A manifest that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", path.display(), problems.join("; "))]
pub struct PluginError {
    /// The manifest.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

impl PluginError {
    fn of(folder: &Path, problem: String) -> PluginError {
        PluginError { path: folder.join("plugin.toml"), problems: vec![problem] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(manifest: &str) -> (tempfile::TempDir, Result<Plugin, PluginError>) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("plugin.toml"), manifest).unwrap();
        let plugin = Plugin::read(folder.path());
        (folder, plugin)
    }

    #[test]
    fn a_short_manifest_is_enough() {
        let (_folder, plugin) = written("name = \"strings\"\nversion = \"1.0\"\nexec = [\"./run\"]");
        let plugin = plugin.unwrap();
        assert_eq!(plugin.run, Run::Process(vec!["./run".into()]));
        assert_eq!((plugin.limits, plugin.cache, plugin.vouches), (Limits::default(), true, true));
        assert_eq!(plugin.config, serde_json::json!({}));
        assert!(plugin.taste.takes("application/zip"));
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let (_folder, plugin) =
            written("name = \"../x\"\nversion = \"\"\ntimeout_s = 0\nrun = \"moon\"\ntags = [\"a b\"]");
        let text = plugin.unwrap_err().to_string();
        for part in ["name: \"../x\"", "version: \"\"", "timeout_s: 0", "run: \"moon\"", "tags: \"a b\""] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn what_a_plugin_may_see_and_reach_is_said_plainly() {
        let with = |more: &str| written(&format!("name = \"a\"\nversion = \"1\"\nexec = [\"a\"]\n{more}")).1;
        let plugin =
            with("sockets = [\"/run/clamav/clamd.ctl\"]\nreads = [\"/srv/rules\"]\nnetwork = \"none\"").unwrap();
        assert_eq!(plugin.sockets, [PathBuf::from("/run/clamav/clamd.ctl")]);
        for (more, why) in [
            ("network = \"internet\"", "nothing leaves the lab"),
            ("network = \"simulated\"", "a process has none"),
            ("network = \"loud\"", "neither"),
            ("reads = [\"rules\"]", "not a whole path"),
            ("reads = [\"/\"]", "not a whole path"),
            ("sockets = [\"/run/../root/x\"]", "not a whole path"),
            ("requires = [\"a\"]", "require itself"),
        ] {
            let text = with(more).unwrap_err().to_string();
            assert!(text.contains(why), "{more}: {text}");
        }
    }

    #[test]
    fn what_requires_a_plugin_that_does_not_take_the_sample_is_not_needed() {
        let plugin = |name: &str, more: &str| {
            Plugin::parse(&format!("name = \"{name}\"\nversion = \"1\"\nexec = [\"a\"]\n{more}"), Path::new(""))
                .unwrap()
        };
        let plugins = [
            plugin("a", "accepts = [\"text/*\"]"),
            plugin("b", "requires = [\"a\"]"),
            plugin("c", "requires = [\"b\"]"),
            plugin("d", ""),
            plugin("e", "requires = [\"gone\"]"),
        ];
        let names = |kind: &str| -> Vec<String> {
            Plugin::needed(&plugins, kind).iter().map(|plugin| plugin.name.clone()).collect()
        };
        assert_eq!(names("text/plain"), ["a", "b", "c", "d"]);
        assert_eq!(names("application/zip"), ["d"]);
    }

    #[test]
    fn settings_are_any_table() {
        let (_folder, plugin) =
            written("name = \"a\"\nversion = \"1\"\nexec = [\"a\"]\n[config]\nkey = \"k\"\nlimits = { depth = 3 }");
        assert_eq!(plugin.unwrap().config, serde_json::json!({ "key": "k", "limits": { "depth": 3 } }));
    }

    #[test]
    fn unknown_keys_and_endless_files_are_refused() {
        assert!(written("name = \"a\"\nversion = \"1\"\nexec = [\"a\"]\ncolour = 1").1.is_err());
        let long = format!("# {}\nname = \"a\"", "x".repeat(MANIFEST_MAX as usize));
        assert!(written(&long).1.unwrap_err().to_string().contains("longer"));
    }

    #[test]
    fn taste() {
        let taste = Taste { accepts: vec!["application/*".into()], rejects: vec!["*/zip".into()] };
        assert!(taste.takes("application/x-executable") && taste.takes("APPLICATION/pdf"));
        assert!(!taste.takes("application/zip") && !taste.takes("text/plain"));
    }

    #[test]
    fn patterns() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "ab", false),
            ("*b*b", "abab", true),
            ("", "a", false),
            ("a**", "a", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} on {text}");
        }
        // This would take for ever if all possibilities were tried.
        assert!(!matches(&"*a".repeat(200), &"a".repeat(199)));
    }

    #[test]
    fn two_plugins_of_one_name_are_told() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["one", "two"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            let manifest = "name = \"same\"\nversion = \"1\"\nexec = [\"a\"]";
            std::fs::write(folder.path().join(name).join("plugin.toml"), manifest).unwrap();
        }
        let (plugins, errors) = Plugin::read_all(folder.path(), Vec::new());
        assert_eq!((plugins.len(), errors.len()), (1, 1));
        let (own, errors) = Plugin::read_all(folder.path(), plugins.clone());
        assert_eq!((own, errors.len()), (plugins, 2), "one of our own has the name already");
    }
}
