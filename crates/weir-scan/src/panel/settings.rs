//! Which scanners a panel has.

use super::Bounds;
use crate::registry::REGISTRY;
use crate::scanner::{Common, Configured, ScannerKind, Wants};
use std::any::Any;
use std::sync::Arc;
use weir_settings::Reader;

/// The scanners that are on, each with its settings, in the order in which they report.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    scanners: Vec<Arc<dyn Configured>>,
    /// What is remembered of each scanner's answers.
    pub memory: Bounds,
    /// Whether mail beyond a limit of our own walk is kept, whatever other scanners say: then they are not asked about it.
    pub limits_decide: bool,
}

impl Settings {
    /// Reads the sections of all kinds in the registry; mail goes to this many feeds.
    pub fn read(reader: &mut Reader<'_>, feeds: usize) -> Settings {
        Settings::read_kinds(REGISTRY, reader, feeds)
    }

    /// The same for a list of one's own.
    pub fn read_kinds(kinds: &[&ScannerKind], reader: &mut Reader<'_>, feeds: usize) -> Settings {
        let mut common = Common { feeds, memory: Bounds::default() };
        let on: Vec<Box<dyn Configured>> = kinds.iter().filter_map(|kind| (kind.read)(reader, &mut common)).collect();
        Settings { scanners: on.into_iter().map(Arc::from).collect(), memory: common.memory, limits_decide: false }
    }

    /// With one more scanner, or with other settings for the one of this type.
    pub fn with<T: Configured>(mut self, scanner: T) -> Settings {
        let scanner: Arc<dyn Configured> = Arc::new(scanner);
        match self.scanners.iter_mut().find(|known| is::<T>(known)) {
            Some(known) => *known = scanner,
            None => self.scanners.push(scanner),
        }
        self
    }

    /// The settings of this type, if that scanner is on.
    pub fn find<T: Configured>(&self) -> Option<&T> {
        self.scanners.iter().find_map(|scanner| (&**scanner as &dyn Any).downcast_ref())
    }

    /// All of them.
    pub(super) fn scanners(&self) -> &[Arc<dyn Configured>] {
        &self.scanners
    }

    /// Whether some scanner wants to see the Received field that we write.
    pub fn want_trace(&self) -> bool {
        self.scanners.iter().any(|scanner| scanner.wants() == Wants::MessageWithTrace)
    }

    /// Feeds, counted from 0, that have scanners of their own.
    pub fn own_feeds(&self) -> Vec<usize> {
        let mut feeds: Vec<usize> = self.scanners.iter().flat_map(|scanner| scanner.own_feeds()).collect();
        feeds.sort_unstable();
        feeds.dedup();
        feeds
    }
}

fn is<T: Configured>(scanner: &Arc<dyn Configured>) -> bool {
    (&**scanner as &dyn Any).is::<T>()
}
