create table quarantine (
  message text not null,
  place bigint not null,
  relay text not null,
  queue text not null,
  fate text not null,
  recipient text not null,
  sender text not null,
  subject text not null,
  source text not null,
  owner text not null,
  origin text not null,
  size bigint not null,
  at bigint not null,
  reason text not null,
  detail text not null,
  decided_by text not null,
  primary key (message, place)
);
create index quarantine_fate on quarantine (relay, fate) where fate <> 'held';
create index quarantine_at on quarantine (at);
create index quarantine_recipient on quarantine (recipient);
create table kept (
  relay text not null,
  name text not null,
  value text not null,
  primary key (relay, name)
);
