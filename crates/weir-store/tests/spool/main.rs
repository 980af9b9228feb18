//! The spool as its callers see it: against a model, under kills, power cuts, full disks and damage.

mod behaviour;
mod crash;
mod dice;
mod full_disk;
mod harm;
mod model;
mod power_cut;
