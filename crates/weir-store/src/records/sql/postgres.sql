-- 1: the first schema. Times are nanoseconds since the Unix epoch.
create table users (
  name text primary key,
  password text not null,
  addresses text not null,
  contact text not null,
  profile text not null,
  params text not null,
  locked_at bigint,
  locked_reason text not null default '',
  created_at bigint not null
);
create table throttles (
  identity text primary key,
  state text not null,
  next_deadline bigint,
  held bigint not null,
  stopped_at bigint,
  notified bigint not null,
  updated_at bigint not null
);
create index throttles_due on throttles (next_deadline) where next_deadline is not null;
create index throttles_stopped on throttles (stopped_at) where stopped_at is not null;
create table held (
  identity text not null,
  entry bigint not null,
  fate text not null,
  message text not null,
  relay text not null,
  recipient text not null,
  place bigint not null,
  sender text not null,
  subject text not null,
  source text not null,
  size bigint not null,
  held_at bigint not null,
  primary key (identity, entry)
);
create index held_fate on held (relay, fate) where fate <> 'held';
create index held_message on held (message);
create table relays (
  relay text primary key,
  seen_at bigint not null
);
create table audit (
  id bigint generated always as identity primary key,
  at bigint not null,
  actor text not null,
  action text not null,
  subject text not null,
  detail text not null
);
create index audit_subject on audit (subject, id);
create table tokens (
  digest text primary key,
  purpose text not null,
  expires_at bigint not null
);
create table learned (
  identity text not null,
  day bigint not null,
  mails bigint not null,
  recipients bigint not null,
  would_hold bigint not null,
  would_stop bigint not null,
  primary key (identity, day)
);
