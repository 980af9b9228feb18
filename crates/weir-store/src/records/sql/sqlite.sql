-- 1: the first schema. Times are nanoseconds since the Unix epoch.
create table users (
  name text primary key,
  password text not null,
  addresses text not null,
  contact text not null,
  profile text not null,
  params text not null,
  locked_at integer,
  locked_reason text not null default '',
  created_at integer not null
);
create table throttles (
  identity text primary key,
  state text not null,
  next_deadline integer,
  held integer not null,
  stopped_at integer,
  notified integer not null,
  updated_at integer not null
);
create index throttles_due on throttles (next_deadline) where next_deadline is not null;
create index throttles_stopped on throttles (stopped_at) where stopped_at is not null;
create table held (
  identity text not null,
  entry integer not null,
  fate text not null,
  message text not null,
  relay text not null,
  recipient text not null,
  place integer not null,
  sender text not null,
  subject text not null,
  source text not null,
  size integer not null,
  held_at integer not null,
  primary key (identity, entry)
);
create index held_fate on held (relay, fate) where fate <> 'held';
create index held_message on held (message);
create table relays (
  relay text primary key,
  seen_at integer not null
);
create table audit (
  id integer primary key autoincrement,
  at integer not null,
  actor text not null,
  action text not null,
  subject text not null,
  detail text not null
);
create index audit_subject on audit (subject, id);
create table tokens (
  digest text primary key,
  purpose text not null,
  expires_at integer not null
);
create table learned (
  identity text not null,
  day integer not null,
  mails integer not null,
  recipients integer not null,
  would_hold integer not null,
  would_stop integer not null,
  primary key (identity, day)
);
