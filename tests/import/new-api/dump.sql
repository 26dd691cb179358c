PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE channels (id integer PRIMARY KEY AUTOINCREMENT, type integer, key text NOT NULL, status integer DEFAULT 1, name text,
  weight integer DEFAULT 0, base_url text DEFAULT '', other text, models text, "group" varchar(64) DEFAULT 'default', model_mapping text,
  priority bigint DEFAULT 0, auto_ban integer DEFAULT 1, tag text, invented text);
INSERT INTO channels (id, type, key, name, weight, priority, models, "group", model_mapping, base_url, other) VALUES
  (1, 1, 'sk-upstream-1' || char(10) || 'sk-upstream-2', 'openai main', 3, 10, 'gpt-4o,gpt-4o-mini', 'default,vip', '{"gpt-4o":"gpt-4o-2024-11-20"}', '', ''),
  (2, 3, 'azure-key', 'azure eu', 1, 5, 'gpt-4o', 'vip', '', 'https://example.openai.azure.com', '2024-10-21'),
  (3, 33, 'AK|SK|us-east-1', 'bedrock', 0, 0, 'claude-3-haiku', 'default', '', '', ''),
  (4, 14, 'sk-ant-1', 'claude', 0, 0, 'claude-sonnet-4-6', 'vip', '', '', '');
CREATE TABLE tokens (id integer PRIMARY KEY, user_id integer, key char(48), status integer DEFAULT 1, name text, expired_time bigint DEFAULT -1,
  remain_quota integer DEFAULT 0, unlimited_quota numeric DEFAULT false, model_limits_enabled numeric DEFAULT false, model_limits text DEFAULT '',
  allow_ips text DEFAULT '', "group" text DEFAULT '', deleted_at datetime);
INSERT INTO tokens (id, user_id, key, name, unlimited_quota, model_limits_enabled, model_limits, allow_ips) VALUES
  (1, 1, 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA', 'ci', true, true, 'gpt-4o,claude-sonnet-4-6', '10.0.0.0/8');
INSERT INTO tokens (id, user_id, key, name, remain_quota, expired_time) VALUES
  (2, 2, 'BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB', 'app', 250000, 1798761600);
INSERT INTO tokens (id, user_id, key, name, unlimited_quota, model_limits_enabled, model_limits) VALUES
  (3, 1, 'EEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEE', 'none', true, true, '');
CREATE TABLE users (id integer PRIMARY KEY, username text, password text, status integer DEFAULT 1, quota integer, "group" text, deleted_at datetime);
INSERT INTO users VALUES (1, 'alice', 'x', 1, 2500000, 'vip', NULL), (2, 'bob', 'x', 2, 500001, 'default', NULL);
CREATE TABLE options (key text PRIMARY KEY, value text);
INSERT INTO options VALUES ('ModelRatio', '{"gpt-4o":1.25,"claude-sonnet-4-6":1.5}'), ('CompletionRatio', '{"gpt-4o":4}'),
  ('CacheRatio', '{"gpt-4o":0.5}'), ('GroupRatio', '{"default":1,"vip":0.8}'), ('RetryTimes', '3'), ('SMTPServer', 'mail');
CREATE TABLE logs (id integer, content text);
COMMIT;
