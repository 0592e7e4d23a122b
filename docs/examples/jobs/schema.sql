CREATE TABLE jobs (
	id INTEGER PRIMARY KEY,
	input VARCHAR(200) NOT NULL,
	state VARCHAR(10) DEFAULT 'new' NOT NULL, -- new, taken, done
	fence BIGINT DEFAULT 0 NOT NULL,          -- of the last pick or stale
	worker VARCHAR(100) DEFAULT '' NOT NULL,
	since TIMESTAMP NULL DEFAULT NULL,
	result VARCHAR(200) DEFAULT '' NOT NULL
);
