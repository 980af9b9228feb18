-- Children of samples, verdicts, and what a leader must know of a result without reading the whole report.
alter table lab_samples add column root bigint;
alter table lab_samples add column verdict bigint not null default 0;
alter table lab_samples add column reasons text not null default '[]';
create index lab_samples_root on lab_samples (root) where root is not null;
create index lab_samples_verdict on lab_samples (verdict, id);
alter table lab_results add column brief text not null default '{}';
create index lab_attempts_running on lab_attempts (sample) where ended_at is null;
