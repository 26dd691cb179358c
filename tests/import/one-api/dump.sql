CREATE TABLE channels (id integer PRIMARY KEY, type integer, key text, status integer DEFAULT 1, name text, weight integer DEFAULT 0,
  base_url text DEFAULT '', other text, models text, "group" varchar(32) DEFAULT 'default', model_mapping text DEFAULT '',
  priority bigint DEFAULT 0, config text, system_prompt text);
INSERT INTO channels (id, type, key, name, models, config) VALUES (1, 28, 'mistral-key', 'mistral', 'mistral-large-latest', '{}'),
  (2, 30, '', 'ollama', 'llama3', '{}'), (3, 2000, 'x', 'unknown', 'y', '{}');
CREATE TABLE tokens (id integer PRIMARY KEY, user_id integer, key char(48), status integer DEFAULT 1, name text, expired_time bigint DEFAULT -1,
  remain_quota bigint DEFAULT 0, unlimited_quota numeric DEFAULT false, models text, subnet text DEFAULT '');
INSERT INTO tokens (id, user_id, key, name, unlimited_quota, models, subnet) VALUES
  (1, 1, 'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC', 'old', true, 'mistral-large-latest', '192.168.0.0/16'),
  (2, 1, 'DDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDD', 'odd', true, '', 'somewhere');
