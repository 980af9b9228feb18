//! The arguments that name a data folder and its configuration.

use crate::config::{ConfigArg, Loaded, Problems, SYSTEM_FILE};
use std::path::{Path, PathBuf};
use weir_settings::Setting;

/// The data folder of the installed service, as the package's systemd unit sets it.
pub(crate) const SYSTEM_DATA: &str = "/var/lib/weir";

/// Which data folder, for every verb that needs one.
#[derive(clap::Args, Clone)]
pub(crate) struct FolderArgs {
    /// The data folder [default: $WEIR_DATA, else store.folder in the configuration, else ./weir-data; if there is no
    /// ./weir-data, commands that need an existing folder use /var/lib/weir, where the installed service keeps its
    /// data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArg,
}

impl FolderArgs {
    /// Names this folder, whatever the configuration says.
    pub(crate) fn of_folder(folder: PathBuf) -> FolderArgs {
        FolderArgs { data: Some(folder), config: ConfigArg::default() }
    }

    /// The folder that the argument, the environment or the configuration names.
    pub(crate) fn folder(&self) -> anyhow::Result<PathBuf> {
        match self.named() {
            Some(path) => Ok(path),
            None => Ok(self.load()?.config.store.folder),
        }
    }

    /// The folder of an existing Weir. If nothing names one and there is none in the current folder, it is the folder of the installed
    /// service. That service gets its folder on the command line, not from the configuration.
    pub(crate) fn existing_folder(&self) -> anyhow::Result<PathBuf> {
        if let Some(path) = self.named() {
            return Ok(path);
        }
        let loaded = self.load()?;
        let folder = loaded.config.store.folder;
        let is_set =
            |setting: &Setting| setting.line.is_some() && (setting.section, setting.key) == ("store", "folder");
        let installed = Path::new(SYSTEM_DATA);
        let other_file = loaded.file.is_some_and(|file| file != Path::new(SYSTEM_FILE));
        match other_file || loaded.settings.iter().any(is_set) || folder.exists() || !installed.exists() {
            true => Ok(folder),
            false => Ok(installed.to_owned()),
        }
    }

    fn named(&self) -> Option<PathBuf> {
        let named = self.data.clone().or_else(|| std::env::var_os("WEIR_DATA").map(PathBuf::from));
        named.filter(|path| !path.as_os_str().is_empty())
    }

    /// The configuration file, if one was named on the command line.
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.config.file()
    }

    /// The configuration.
    pub(crate) fn load(&self) -> anyhow::Result<Loaded> {
        Ok(self.load_or_problems()?)
    }

    /// The configuration, or all its problems.
    pub(crate) fn load_or_problems(&self) -> Result<Loaded, Problems> {
        self.config.load()
    }
}
