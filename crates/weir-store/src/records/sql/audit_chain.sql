alter table audit add column seal text;
create table audit_head (lines bigint not null, seal text not null);
insert into audit_head (lines, seal) values (0, '');
create table audit_begun (id IDENTITY, relay text not null, at bigint not null, actor text not null, what text not null);
