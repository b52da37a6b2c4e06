-- integer: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE "the cursor" > -1 AND "the cursor" <= 42;

-- integer: greatest value
SELECT CAST("the cursor" AS text) AS "headwater_value" FROM "sales"."order's" WHERE "the cursor" > -1 AND "the cursor" <= 42 ORDER BY "the cursor" DESC LIMIT 1;

-- integer: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" >= -1;

-- decimal: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE "the cursor" > -0.10 AND "the cursor" <= 1000;

-- decimal: greatest value
SELECT CAST("the cursor" AS text) AS "headwater_value" FROM "sales"."order's" WHERE "the cursor" > -0.10 AND "the cursor" <= 1000 ORDER BY "the cursor" DESC LIMIT 1;

-- decimal: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" >= -0.10;

-- date: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE "the cursor" > CAST('0001-01-01' AS date) AND "the cursor" <= CAST('9999-12-31' AS date);

-- date: greatest value
SELECT CAST("the cursor" AS text) AS "headwater_value" FROM "sales"."order's" WHERE "the cursor" > CAST('0001-01-01' AS date) AND "the cursor" <= CAST('9999-12-31' AS date) ORDER BY "the cursor" DESC LIMIT 1;

-- date: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" >= CAST('0001-01-01' AS date);

-- timestamp: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE "the cursor" > CAST('2026-03-29T01:30:00.123456' AS timestamp) AND "the cursor" <= CAST('9999-12-31T23:59:59.999999' AS timestamp);

-- timestamp: greatest value
SELECT CAST("the cursor" AS text) AS "headwater_value" FROM "sales"."order's" WHERE "the cursor" > CAST('2026-03-29T01:30:00.123456' AS timestamp) AND "the cursor" <= CAST('9999-12-31T23:59:59.999999' AS timestamp) ORDER BY "the cursor" DESC LIMIT 1;

-- timestamp: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" >= CAST('2026-03-29T01:30:00.123456' AS timestamp);

-- timestamptz: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE "the cursor" > CAST('2026-03-29T01:30:00.123456+00:00' AS timestamptz) AND "the cursor" <= CAST('2026-10-25T01:30:00.000000+00:00' AS timestamptz);

-- timestamptz: greatest value
SELECT CAST("the cursor" AS text) AS "headwater_value" FROM "sales"."order's" WHERE "the cursor" > CAST('2026-03-29T01:30:00.123456+00:00' AS timestamptz) AND "the cursor" <= CAST('2026-10-25T01:30:00.000000+00:00' AS timestamptz) ORDER BY "the cursor" DESC LIMIT 1;

-- timestamptz: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" >= CAST('2026-03-29T01:30:00.123456+00:00' AS timestamptz);

-- string: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE "the cursor" COLLATE "C" > 'O''Brien\' AND "the cursor" COLLATE "C" <= 'zürich ''ß''';

-- string: greatest value
SELECT CAST("the cursor" AS text) AS "headwater_value" FROM "sales"."order's" WHERE "the cursor" COLLATE "C" > 'O''Brien\' AND "the cursor" COLLATE "C" <= 'zürich ''ß''' ORDER BY "the cursor" COLLATE "C" DESC LIMIT 1;

-- string: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" COLLATE "C" >= 'O''Brien\';

-- uuid: rows
SELECT "id", "odd ""name""", CAST("payload" AS text) AS "payload", "tree" FROM "sales"."order's" WHERE "the cursor" > CAST('00000000-0000-0000-0000-000000000001' AS uuid) AND "the cursor" <= CAST('ffffffff-ffff-ffff-ffff-ffffffffffff' AS uuid);

-- uuid: greatest value
SELECT CAST("the cursor" AS text) AS "headwater_value" FROM "sales"."order's" WHERE "the cursor" > CAST('00000000-0000-0000-0000-000000000001' AS uuid) AND "the cursor" <= CAST('ffffffff-ffff-ffff-ffff-ffffffffffff' AS uuid) ORDER BY "the cursor" DESC LIMIT 1;

-- uuid: from a value on
SELECT COUNT(*) FROM "sales"."order's" WHERE "the cursor" >= CAST('00000000-0000-0000-0000-000000000001' AS uuid);

