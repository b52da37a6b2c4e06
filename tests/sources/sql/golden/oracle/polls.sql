-- first: plan 1
SELECT TO_CHAR("the cursor", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "headwater_value" FROM "sales"."orders" WHERE NOT "the cursor" IS NULL ORDER BY "the cursor" DESC FETCH FIRST 1 ROWS ONLY;

-- first: plan 2
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" IS NULL;

-- first: plan 3
SELECT "id", "note", "the cursor", CASE WHEN NOT "the cursor" IS NULL THEN 0 ELSE 1 END AS "headwater_flag_0", CASE WHEN "the cursor" < 900 THEN 0 ELSE 1 END AS "headwater_flag_1" FROM "sales"."orders" WHERE "the cursor" >= 900 AND "the cursor" <= 900
-- as h0 BIGINT, h1 STRING, h2 BIGINT, h3 BIGINT, h4 BIGINT;

-- first: plan 4
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" <= 900;

-- first: read 1
SELECT "id", "note", "the cursor" FROM "sales"."orders" WHERE "the cursor" < 900;

-- first: read 2
SELECT "id", "note", "the cursor", CASE WHEN NOT "the cursor" IS NULL THEN 0 ELSE 1 END AS "headwater_flag_0", CASE WHEN "the cursor" < 900 THEN 0 ELSE 1 END AS "headwater_flag_1" FROM "sales"."orders" WHERE "the cursor" >= 900 AND "the cursor" <= 900;

-- first, above a value, in three parts: plan 1
SELECT TO_CHAR("the cursor", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "headwater_value" FROM "sales"."orders" WHERE "the cursor" > -1 ORDER BY "the cursor" DESC FETCH FIRST 1 ROWS ONLY;

-- first, above a value, in three parts: plan 2
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" IS NULL;

-- first, above a value, in three parts: plan 3
SELECT "id", "note", "the cursor", CASE WHEN NOT "the cursor" IS NULL THEN 0 ELSE 1 END AS "headwater_flag_0", CASE WHEN "the cursor" < 900 THEN 0 ELSE 1 END AS "headwater_flag_1" FROM "sales"."orders" WHERE "the cursor" >= 900 AND "the cursor" <= 900
-- as h0 BIGINT, h1 STRING, h2 BIGINT, h3 BIGINT, h4 BIGINT;

-- first, above a value, in three parts: plan 4
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" > -1 AND "the cursor" <= 900;

-- first, above a value, in three parts: cut 1
SELECT TO_CHAR("the cursor", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "headwater_value" FROM "sales"."orders" WHERE "the cursor" > -1 AND "the cursor" < 900 ORDER BY "the cursor" ASC OFFSET 2 ROWS FETCH FIRST 1 ROWS ONLY;

-- first, above a value, in three parts: cut 2
SELECT TO_CHAR("the cursor", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "headwater_value" FROM "sales"."orders" WHERE "the cursor" > -1 AND "the cursor" < 900 ORDER BY "the cursor" ASC OFFSET 5 ROWS FETCH FIRST 1 ROWS ONLY;

-- first, above a value, in three parts: read 1
SELECT "id", "note", "the cursor" FROM "sales"."orders" WHERE ("the cursor" <= 300 AND "the cursor" > -1) AND "the cursor" < 900;

-- first, above a value, in three parts: read 2
SELECT "id", "note", "the cursor" FROM "sales"."orders" WHERE (("the cursor" > 300 AND "the cursor" <= 600) AND "the cursor" > -1) AND "the cursor" < 900;

-- first, above a value, in three parts: read 3
SELECT "id", "note", "the cursor" FROM "sales"."orders" WHERE ("the cursor" > 600 AND "the cursor" > -1) AND "the cursor" < 900;

-- first, above a value, in three parts: read 4
SELECT "id", "note", "the cursor", CASE WHEN NOT "the cursor" IS NULL THEN 0 ELSE 1 END AS "headwater_flag_0", CASE WHEN "the cursor" < 900 THEN 0 ELSE 1 END AS "headwater_flag_1" FROM "sales"."orders" WHERE "the cursor" >= 900 AND "the cursor" <= 900 AND "the cursor" > -1;

-- first, cut by max_rows: plan 1
SELECT TO_CHAR("the cursor", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "headwater_value" FROM "sales"."orders" WHERE NOT "the cursor" IS NULL ORDER BY "the cursor" DESC FETCH FIRST 1 ROWS ONLY;

-- first, cut by max_rows: plan 2
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" IS NULL;

-- first, cut by max_rows: plan 3
SELECT TO_CHAR("the cursor", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "headwater_value" FROM "sales"."orders" WHERE NOT "the cursor" IS NULL ORDER BY "the cursor" ASC OFFSET 99 ROWS FETCH FIRST 1 ROWS ONLY;

-- first, cut by max_rows: plan 4
SELECT "id", "note", "the cursor", CASE WHEN NOT "the cursor" IS NULL THEN 0 ELSE 1 END AS "headwater_flag_0", CASE WHEN "the cursor" < 100 THEN 0 ELSE 1 END AS "headwater_flag_1" FROM "sales"."orders" WHERE "the cursor" >= 100 AND "the cursor" <= 100
-- as h0 BIGINT, h1 STRING, h2 BIGINT, h3 BIGINT, h4 BIGINT;

-- first, cut by max_rows: plan 5
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" <= 100;

-- first, cut by max_rows: read 1
SELECT "id", "note", "the cursor" FROM "sales"."orders" WHERE "the cursor" < 100;

-- first, cut by max_rows: read 2
SELECT "id", "note", "the cursor", CASE WHEN NOT "the cursor" IS NULL THEN 0 ELSE 1 END AS "headwater_flag_0", CASE WHEN "the cursor" < 100 THEN 0 ELSE 1 END AS "headwater_flag_1" FROM "sales"."orders" WHERE "the cursor" >= 100 AND "the cursor" <= 100;

-- next: plan 1
SELECT TO_CHAR("the cursor", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "headwater_value" FROM "sales"."orders" WHERE "the cursor" > 900.000000 ORDER BY "the cursor" DESC FETCH FIRST 1 ROWS ONLY;

-- next: plan 2
SELECT "id", "note", "the cursor", CASE WHEN "the cursor" > 900.000000 THEN 0 ELSE 1 END AS "headwater_flag_0", CASE WHEN "the cursor" < 950 THEN 0 ELSE 1 END AS "headwater_flag_1" FROM "sales"."orders" WHERE ("the cursor" >= 900.000000 AND "the cursor" <= 900.000000) OR ("the cursor" >= 950 AND "the cursor" <= 950) OR "the cursor" IS NULL
-- as h0 BIGINT, h1 STRING, h2 BIGINT, h3 BIGINT, h4 BIGINT;

-- next: plan 3
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" > 900.000000 AND "the cursor" <= 950;

-- next: read 1
SELECT "id", "note", "the cursor" FROM "sales"."orders" WHERE "the cursor" > 900.000000 AND "the cursor" < 950;

-- next: read 2
SELECT "id", "note", "the cursor", CASE WHEN "the cursor" > 900.000000 THEN 0 ELSE 1 END AS "headwater_flag_0", CASE WHEN "the cursor" < 950 THEN 0 ELSE 1 END AS "headwater_flag_1" FROM "sales"."orders" WHERE ("the cursor" >= 900.000000 AND "the cursor" <= 900.000000) OR ("the cursor" >= 950 AND "the cursor" <= 950 AND "the cursor" > 900.000000) OR "the cursor" IS NULL;

-- next, by time, with lookback: plan 1
SELECT TO_CHAR("the cursor", 'YYYY-MM-DD HH24:MI:SS.FF6') AS "headwater_value" FROM "sales"."orders" WHERE "the cursor" > TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') ORDER BY "the cursor" DESC FETCH FIRST 1 ROWS ONLY;

-- next, by time, with lookback: plan 2
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" IS NULL;

-- next, by time, with lookback: plan 3
SELECT "id", "note", TO_CHAR("the cursor", 'YYYY-MM-DD HH24:MI:SS.FF6') AS "the cursor", CASE WHEN "the cursor" > TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') THEN 0 ELSE 1 END AS "headwater_flag_0", CASE WHEN "the cursor" < TO_TIMESTAMP('2026-03-29 01:30:00.500000', 'YYYY-MM-DD HH24:MI:SS.FF6') THEN 0 ELSE 1 END AS "headwater_flag_1" FROM "sales"."orders" WHERE ("the cursor" >= TO_TIMESTAMP('2026-03-29 01:25:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') AND "the cursor" <= TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6')) OR ("the cursor" >= TO_TIMESTAMP('2026-03-29 01:30:00.500000', 'YYYY-MM-DD HH24:MI:SS.FF6') AND "the cursor" <= TO_TIMESTAMP('2026-03-29 01:40:00.500000', 'YYYY-MM-DD HH24:MI:SS.FF6'))
-- as h0 BIGINT, h1 STRING, h2 STRING, h3 BIGINT, h4 BIGINT;

-- next, by time, with lookback: plan 4
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" > TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') AND "the cursor" <= TO_TIMESTAMP('2026-03-29 01:40:00.500000', 'YYYY-MM-DD HH24:MI:SS.FF6');

-- next, by time, with lookback: read 1
SELECT "id", "note", TO_CHAR("the cursor", 'YYYY-MM-DD HH24:MI:SS.FF6') AS "the cursor" FROM "sales"."orders" WHERE "the cursor" > TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') AND "the cursor" < TO_TIMESTAMP('2026-03-29 01:30:00.500000', 'YYYY-MM-DD HH24:MI:SS.FF6');

-- next, by time, with lookback: read 2
SELECT "id", "note", TO_CHAR("the cursor", 'YYYY-MM-DD HH24:MI:SS.FF6') AS "the cursor", CASE WHEN "the cursor" > TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') THEN 0 ELSE 1 END AS "headwater_flag_0", CASE WHEN "the cursor" < TO_TIMESTAMP('2026-03-29 01:30:00.500000', 'YYYY-MM-DD HH24:MI:SS.FF6') THEN 0 ELSE 1 END AS "headwater_flag_1" FROM "sales"."orders" WHERE ("the cursor" >= TO_TIMESTAMP('2026-03-29 01:25:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') AND "the cursor" <= TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6')) OR ("the cursor" >= TO_TIMESTAMP('2026-03-29 01:30:00.500000', 'YYYY-MM-DD HH24:MI:SS.FF6') AND "the cursor" <= TO_TIMESTAMP('2026-03-29 01:40:00.500000', 'YYYY-MM-DD HH24:MI:SS.FF6') AND "the cursor" > TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6'));

-- late: off: plan 1
SELECT TO_CHAR("the cursor", 'YYYY-MM-DD HH24:MI:SS.FF6') AS "headwater_value" FROM "sales"."orders" WHERE "the cursor" > TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') ORDER BY "the cursor" DESC FETCH FIRST 1 ROWS ONLY;

-- late: off: plan 2
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" > TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') AND "the cursor" <= TO_TIMESTAMP('2026-03-29 01:40:00.500000', 'YYYY-MM-DD HH24:MI:SS.FF6');

-- late: off: read 1
SELECT "id", "note", TO_CHAR("the cursor", 'YYYY-MM-DD HH24:MI:SS.FF6') AS "the cursor" FROM "sales"."orders" WHERE "the cursor" > TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') AND "the cursor" <= TO_TIMESTAMP('2026-03-29 01:40:00.500000', 'YYYY-MM-DD HH24:MI:SS.FF6');

