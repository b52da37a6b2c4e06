-- describe
SELECT * FROM (
SELECT a, '%;' AS b FROM t -- the end
) "rows_of_query" FETCH FIRST 0 ROWS ONLY;

-- rows
SELECT "id", "note" FROM (
SELECT a, '%;' AS b FROM t -- the end
) "rows_of_query" WHERE "the cursor" > 5.000000;

-- the thousandth value
SELECT TO_CHAR("the cursor", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "headwater_value" FROM (
SELECT a, '%;' AS b FROM t -- the end
) "rows_of_query" WHERE NOT "the cursor" IS NULL ORDER BY "the cursor" ASC OFFSET 999 ROWS FETCH FIRST 1 ROWS ONLY;

-- for Spark
SELECT "id" AS "h0", "note" AS "h1" FROM (SELECT "id", "note" FROM (
SELECT a, '%;' AS b FROM t -- the end
) "rows_of_query") "headwater_part";

