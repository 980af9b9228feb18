-- Rules that people made for the scan. A content by its hash, or a text of YARA.
create table scan_rules (
  id IDENTITY,
  kind text not null,
  content text not null,
  bytes bigint,
  severity text not null,
  sample bigint,
  about text not null,
  made_by text not null,
  made_at bigint not null
);
create unique index scan_rules_hash on scan_rules (content) where kind = 'hash';
create index scan_rules_sample on scan_rules (sample) where sample is not null;
-- For whoever looks at everything: counts and lists that need not read every row.
create index users_locked on users (name) where locked_at is not null;
create index throttles_busy on throttles ((stopped_at is null), held desc, identity) where held > 0 or stopped_at is not null;
create index held_waiting on held (message, fate) where fate = 'held';
create index held_recipient on held (recipient);
create index quarantine_waiting on quarantine (message, queue, size, at, relay, fate) where fate = 'held';
create index lab_samples_state on lab_samples (state, id);
