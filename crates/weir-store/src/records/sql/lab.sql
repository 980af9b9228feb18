-- The lab. Times are nanoseconds since the Unix epoch, those of the lease milliseconds by the database's own clock.
create table lab_leader (
  one bigint primary key check (one = 1),
  epoch bigint not null,
  holder text not null,
  expires_at bigint not null
);
insert into lab_leader (one, epoch, holder, expires_at) values (1, 0, '', 0);
create table lab_history (
  epoch bigint primary key,
  holder text not null,
  acquired_at bigint not null
);
create table lab_nodes (
  node text primary key,
  name text not null,
  role text not null,
  priority bigint not null,
  address text not null,
  fingerprint text not null,
  processing_index bigint,
  drained bigint not null default 0,
  registered_at bigint not null,
  seen_at bigint not null
);
create table lab_samples (
  id IDENTITY,
  ticket text not null unique,
  hash text not null,
  size bigint not null,
  name text not null,
  submitter text not null,
  directory bigint not null,
  file_type text not null,
  needs text not null,
  tags text not null,
  parent bigint,
  depth bigint not null,
  forced bigint not null,
  state text not null,
  why text not null,
  arrived_at bigint not null,
  ended_at bigint
);
create index lab_samples_open on lab_samples (id) where ended_at is null;
create index lab_samples_hash on lab_samples (hash, id);
create index lab_samples_ended on lab_samples (ended_at) where ended_at is not null;
create index lab_samples_parent on lab_samples (parent) where parent is not null;
create table lab_attempts (
  id bigint primary key,
  sample bigint not null,
  epoch bigint not null,
  node text not null,
  vm text not null,
  plugins text not null,
  started_at bigint not null,
  ended_at bigint,
  outcome text not null
);
create index lab_attempts_sample on lab_attempts (sample);
create table lab_results (
  attempt bigint not null,
  plugin text not null,
  version text not null,
  sample bigint not null,
  hash text not null,
  accepted bigint not null,
  outcome text not null,
  report text not null,
  at bigint not null,
  primary key (attempt, plugin)
);
create unique index lab_results_accepted on lab_results (sample, plugin, version) where accepted = 1;
create index lab_results_hash on lab_results (hash, plugin, version) where accepted = 1;
