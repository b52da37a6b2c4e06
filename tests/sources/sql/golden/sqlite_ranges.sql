-- integer: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE "the cursor" > -1 AND "the cursor" <= 42;

-- integer: greatest value
SELECT "the cursor" AS "headwater_value" FROM "sales"."order's" WHERE "the cursor" > -1 AND "the cursor" <= 42 ORDER BY "the cursor" DESC LIMIT 1;

-- integer: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" >= -1;

-- decimal: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE "the cursor" > -0.10 AND "the cursor" <= 1000;

-- decimal: greatest value
SELECT "the cursor" AS "headwater_value" FROM "sales"."order's" WHERE "the cursor" > -0.10 AND "the cursor" <= 1000 ORDER BY "the cursor" DESC LIMIT 1;

-- decimal: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" >= -0.10;

-- date: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE "the cursor" > '0001-01-01' AND "the cursor" <= '9999-12-31';

-- date: greatest value
SELECT "the cursor" AS "headwater_value" FROM "sales"."order's" WHERE "the cursor" > '0001-01-01' AND "the cursor" <= '9999-12-31' ORDER BY "the cursor" DESC LIMIT 1;

-- date: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" >= '0001-01-01';

-- timestamp: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE ("the cursor" >= '2026-03-29 01:30:00' AND SUBSTR(REPLACE("the cursor", 'T', ' ') || CASE WHEN LENGTH(REPLACE("the cursor", 'T', ' ')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) > '2026-03-29 01:30:00.123456') AND SUBSTR(REPLACE("the cursor", 'T', ' ') || CASE WHEN LENGTH(REPLACE("the cursor", 'T', ' ')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) <= '9999-12-31 23:59:59.999999';

-- timestamp: greatest value
SELECT SUBSTR(REPLACE("the cursor", 'T', ' ') || CASE WHEN LENGTH(REPLACE("the cursor", 'T', ' ')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) AS "headwater_value" FROM "sales"."order's" WHERE ("the cursor" >= '2026-03-29 01:30:00' AND SUBSTR(REPLACE("the cursor", 'T', ' ') || CASE WHEN LENGTH(REPLACE("the cursor", 'T', ' ')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) > '2026-03-29 01:30:00.123456') AND SUBSTR(REPLACE("the cursor", 'T', ' ') || CASE WHEN LENGTH(REPLACE("the cursor", 'T', ' ')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) <= '9999-12-31 23:59:59.999999' ORDER BY SUBSTR(REPLACE("the cursor", 'T', ' ') || CASE WHEN LENGTH(REPLACE("the cursor", 'T', ' ')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) DESC LIMIT 1;

-- timestamp: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" >= '2026-03-29 01:30:00' AND SUBSTR(REPLACE("the cursor", 'T', ' ') || CASE WHEN LENGTH(REPLACE("the cursor", 'T', ' ')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) >= '2026-03-29 01:30:00.123456';

-- timestamptz: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE ("the cursor" >= '2026-03-29 01:30:00' AND SUBSTR(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '') || CASE WHEN LENGTH(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) > '2026-03-29 01:30:00.123456') AND SUBSTR(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '') || CASE WHEN LENGTH(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) <= '2026-10-25 01:30:00.000000';

-- timestamptz: greatest value
SELECT SUBSTR(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '') || CASE WHEN LENGTH(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) AS "headwater_value" FROM "sales"."order's" WHERE ("the cursor" >= '2026-03-29 01:30:00' AND SUBSTR(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '') || CASE WHEN LENGTH(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) > '2026-03-29 01:30:00.123456') AND SUBSTR(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '') || CASE WHEN LENGTH(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) <= '2026-10-25 01:30:00.000000' ORDER BY SUBSTR(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '') || CASE WHEN LENGTH(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) DESC LIMIT 1;

-- timestamptz: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" >= '2026-03-29 01:30:00' AND SUBSTR(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '') || CASE WHEN LENGTH(REPLACE(REPLACE(REPLACE("the cursor", 'T', ' '), 'Z', ''), '+00:00', '')) = 19 THEN '.' ELSE '' END || '000000', 1, 26) >= '2026-03-29 01:30:00.123456';

-- string: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE "the cursor" COLLATE BINARY > 'O''Brien\' AND "the cursor" COLLATE BINARY <= 'zürich ''ß''';

-- string: greatest value
SELECT "the cursor" COLLATE BINARY AS "headwater_value" FROM "sales"."order's" WHERE "the cursor" COLLATE BINARY > 'O''Brien\' AND "the cursor" COLLATE BINARY <= 'zürich ''ß''' ORDER BY "the cursor" COLLATE BINARY DESC LIMIT 1;

-- string: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" COLLATE BINARY >= 'O''Brien\';

-- uuid: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE "the cursor" > '00000000-0000-0000-0000-000000000001' AND "the cursor" <= 'ffffffff-ffff-ffff-ffff-ffffffffffff';

-- uuid: greatest value
SELECT "the cursor" AS "headwater_value" FROM "sales"."order's" WHERE "the cursor" > '00000000-0000-0000-0000-000000000001' AND "the cursor" <= 'ffffffff-ffff-ffff-ffff-ffffffffffff' ORDER BY "the cursor" DESC LIMIT 1;

-- uuid: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" >= '00000000-0000-0000-0000-000000000001';

