-- Incidents: what went wrong, from when to when, and its story. Times are seconds since the Unix epoch. One that concerns the whole site has no
-- scope, one of a single relay has its name; only one of each kind and subject is open at a time.
create table incidents (
  id IDENTITY,
  scope text not null,
  relay text not null,
  kind text not null,
  subject text not null,
  title text not null,
  opened_s bigint not null,
  seen_s bigint not null,
  closed_s bigint,
  story text not null
);
create unique index incidents_open on incidents (scope, kind, subject) where closed_s is null;
create index incidents_closed on incidents (closed_s);
