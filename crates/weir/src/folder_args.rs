//! The arguments that name a data folder and its configuration.

use crate::config::{ConfigArg, Loaded};
use std::path::{Path, PathBuf};

/// Which data folder, for every verb that needs one.
#[derive(clap::Args, Clone)]
pub(crate) struct FolderArgs {
    /// The data folder [default: $WEIR_DATA, else store.folder of the configuration, else ./weir-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArg,
}

impl FolderArgs {
    /// This folder, whatever the configuration says.
    pub(crate) fn of_folder(folder: PathBuf) -> FolderArgs {
        FolderArgs { data: Some(folder), config: ConfigArg::default() }
    }

    /// The folder that is named, by argument, environment or configuration.
    pub(crate) fn folder(&self) -> anyhow::Result<PathBuf> {
        let named = self.data.clone().or_else(|| std::env::var_os("WEIR_DATA").map(PathBuf::from));
        match named.filter(|path| !path.as_os_str().is_empty()) {
            Some(path) => Ok(path),
            None => Ok(self.load()?.config.store.folder),
        }
    }

    /// The configuration file, if one was named.
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.config.file()
    }

    /// The configuration.
    pub(crate) fn load(&self) -> anyhow::Result<Loaded> {
        Ok(self.config.load()?)
    }
}
