-- NUMBER(18): rows
SELECT "the cursor" FROM "sales"."orders" WHERE "the cursor" > -0.10 AND "the cursor" <= 1000;

-- NUMBER(18): greatest value
SELECT TO_CHAR("the cursor", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "headwater_value" FROM "sales"."orders" WHERE "the cursor" > -0.10 AND "the cursor" <= 1000 ORDER BY "the cursor" DESC FETCH FIRST 1 ROWS ONLY;

-- NUMBER(18): from a value on
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" >= -0.10;

-- NUMBER: rows
SELECT "the cursor" FROM "sales"."orders" WHERE "the cursor" > -0.10 AND "the cursor" <= 1000;

-- NUMBER: greatest value
SELECT TO_CHAR("the cursor", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "headwater_value" FROM "sales"."orders" WHERE "the cursor" > -0.10 AND "the cursor" <= 1000 ORDER BY "the cursor" DESC FETCH FIRST 1 ROWS ONLY;

-- NUMBER: from a value on
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" >= -0.10;

-- DATE: rows
SELECT TO_CHAR("the cursor", 'YYYY-MM-DD HH24:MI:SS') AS "the cursor" FROM "sales"."orders" WHERE "the cursor" > TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') AND "the cursor" <= TO_TIMESTAMP('2026-03-29 01:30:00.997000', 'YYYY-MM-DD HH24:MI:SS.FF6');

-- DATE: greatest value
SELECT TO_CHAR("the cursor", 'YYYY-MM-DD HH24:MI:SS') AS "headwater_value" FROM "sales"."orders" WHERE "the cursor" > TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') AND "the cursor" <= TO_TIMESTAMP('2026-03-29 01:30:00.997000', 'YYYY-MM-DD HH24:MI:SS.FF6') ORDER BY "the cursor" DESC FETCH FIRST 1 ROWS ONLY;

-- DATE: from a value on
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" >= TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6');

-- TIMESTAMP: rows
SELECT TO_CHAR("the cursor", 'YYYY-MM-DD HH24:MI:SS.FF6') AS "the cursor" FROM "sales"."orders" WHERE "the cursor" > TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') AND "the cursor" <= TO_TIMESTAMP('2026-03-29 01:30:00.997000', 'YYYY-MM-DD HH24:MI:SS.FF6');

-- TIMESTAMP: greatest value
SELECT TO_CHAR("the cursor", 'YYYY-MM-DD HH24:MI:SS.FF6') AS "headwater_value" FROM "sales"."orders" WHERE "the cursor" > TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6') AND "the cursor" <= TO_TIMESTAMP('2026-03-29 01:30:00.997000', 'YYYY-MM-DD HH24:MI:SS.FF6') ORDER BY "the cursor" DESC FETCH FIRST 1 ROWS ONLY;

-- TIMESTAMP: from a value on
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" >= TO_TIMESTAMP('2026-03-29 01:30:00.123456', 'YYYY-MM-DD HH24:MI:SS.FF6');

-- TIMESTAMP WITH TIME ZONE: rows
SELECT TO_CHAR(SYS_EXTRACT_UTC("the cursor"), 'YYYY-MM-DD HH24:MI:SS.FF6') AS "the cursor" FROM "sales"."orders" WHERE "the cursor" > TO_TIMESTAMP_TZ('2026-03-29 01:30:00.123456 +00:00', 'YYYY-MM-DD HH24:MI:SS.FF6 TZH:TZM') AND "the cursor" <= TO_TIMESTAMP_TZ('2026-03-28 23:30:00.123456 +00:00', 'YYYY-MM-DD HH24:MI:SS.FF6 TZH:TZM');

-- TIMESTAMP WITH TIME ZONE: greatest value
SELECT TO_CHAR(SYS_EXTRACT_UTC("the cursor"), 'YYYY-MM-DD HH24:MI:SS.FF6') AS "headwater_value" FROM "sales"."orders" WHERE "the cursor" > TO_TIMESTAMP_TZ('2026-03-29 01:30:00.123456 +00:00', 'YYYY-MM-DD HH24:MI:SS.FF6 TZH:TZM') AND "the cursor" <= TO_TIMESTAMP_TZ('2026-03-28 23:30:00.123456 +00:00', 'YYYY-MM-DD HH24:MI:SS.FF6 TZH:TZM') ORDER BY "the cursor" DESC FETCH FIRST 1 ROWS ONLY;

-- TIMESTAMP WITH TIME ZONE: from a value on
SELECT COUNT(*) FROM "sales"."orders" WHERE "the cursor" >= TO_TIMESTAMP_TZ('2026-03-29 01:30:00.123456 +00:00', 'YYYY-MM-DD HH24:MI:SS.FF6 TZH:TZM');

-- VARCHAR2: rows
SELECT "the cursor" FROM "sales"."orders" WHERE NLSSORT("the cursor", 'NLS_SORT=BINARY') > HEXTORAW('00') AND NLSSORT("the cursor", 'NLS_SORT=BINARY') <= NLSSORT('O''Brien\ zürich 🚀', 'NLS_SORT=BINARY');

-- VARCHAR2: greatest value
SELECT "the cursor" AS "headwater_value" FROM "sales"."orders" WHERE NLSSORT("the cursor", 'NLS_SORT=BINARY') > HEXTORAW('00') AND NLSSORT("the cursor", 'NLS_SORT=BINARY') <= NLSSORT('O''Brien\ zürich 🚀', 'NLS_SORT=BINARY') ORDER BY NLSSORT("the cursor", 'NLS_SORT=BINARY') DESC FETCH FIRST 1 ROWS ONLY;

-- VARCHAR2: from a value on
SELECT COUNT(*) FROM "sales"."orders" WHERE NLSSORT("the cursor", 'NLS_SORT=BINARY') >= HEXTORAW('00');

