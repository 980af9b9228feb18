//! The history profile: how much each subnet used to ask for.
