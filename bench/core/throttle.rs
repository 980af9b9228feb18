//! (to come)

use crate::table::Table;

pub(crate) fn run(_table: &mut Table) {}
