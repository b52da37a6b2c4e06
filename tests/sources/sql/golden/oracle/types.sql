-- NUMBER(18) as int64
SELECT "x" FROM "sales"."orders";

-- NUMBER(18) as string (as_text)
SELECT TO_CHAR("x", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "x" FROM "sales"."orders";

-- NUMBER as decimal(38,2)
SELECT "x" FROM "sales"."orders";

-- NUMBER as string (as_text)
SELECT TO_CHAR("x", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "x" FROM "sales"."orders";

-- DATE as timestamp
SELECT TO_CHAR("x", 'YYYY-MM-DD HH24:MI:SS') AS "x" FROM "sales"."orders";

-- DATE as string (as_text)
SELECT TO_CHAR("x", 'YYYY-MM-DD HH24:MI:SS') AS "x" FROM "sales"."orders";

-- TIMESTAMP as timestamp
SELECT TO_CHAR("x", 'YYYY-MM-DD HH24:MI:SS.FF6') AS "x" FROM "sales"."orders";

-- TIMESTAMP as string (as_text)
SELECT TO_CHAR("x", 'YYYY-MM-DD HH24:MI:SS.FF9') AS "x" FROM "sales"."orders";

-- TIMESTAMP WITH TIME ZONE as timestamptz
SELECT TO_CHAR(SYS_EXTRACT_UTC("x"), 'YYYY-MM-DD HH24:MI:SS.FF6') AS "x" FROM "sales"."orders";

-- TIMESTAMP WITH TIME ZONE as string (as_text)
SELECT TO_CHAR("x", 'YYYY-MM-DD HH24:MI:SS.FF9 TZH:TZM') AS "x" FROM "sales"."orders";

-- VARCHAR2 as string
SELECT "x" FROM "sales"."orders";

-- VARCHAR2 as string (as_text)
SELECT "x" AS "x" FROM "sales"."orders";

-- FLOAT as string
SELECT TO_CHAR("x", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "x" FROM "sales"."orders";

-- FLOAT as string (as_text)
SELECT TO_CHAR("x", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "x" FROM "sales"."orders";

-- BINARY_FLOAT as float32
SELECT "x" FROM "sales"."orders";

-- BINARY_FLOAT as string (as_text)
SELECT TO_CHAR("x", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "x" FROM "sales"."orders";

-- BINARY_DOUBLE as float64
SELECT "x" FROM "sales"."orders";

-- BINARY_DOUBLE as string (as_text)
SELECT TO_CHAR("x", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') AS "x" FROM "sales"."orders";

-- CLOB as string
SELECT "x" FROM "sales"."orders";

-- CLOB as string (as_text)
SELECT "x" AS "x" FROM "sales"."orders";

-- RAW as binary
SELECT "x" FROM "sales"."orders";

-- RAW as string (as_text)
SELECT RAWTOHEX("x") AS "x" FROM "sales"."orders";

-- INTERVAL DAY TO SECOND as string
SELECT TO_CHAR("x") AS "x" FROM "sales"."orders";

-- INTERVAL DAY TO SECOND as string (as_text)
SELECT TO_CHAR("x") AS "x" FROM "sales"."orders";

-- NVARCHAR2 as string
SELECT "x" FROM "sales"."orders";

-- NVARCHAR2 as string (as_text)
SELECT "x" AS "x" FROM "sales"."orders";

-- CHAR as string
SELECT CAST("x" AS VARCHAR2(4000)) AS "x" FROM "sales"."orders";

-- CHAR as string (as_text)
SELECT CAST("x" AS VARCHAR2(4000)) AS "x" FROM "sales"."orders";

-- NCHAR as string
SELECT CAST("x" AS NVARCHAR2(2000)) AS "x" FROM "sales"."orders";

-- NCHAR as string (as_text)
SELECT CAST("x" AS NVARCHAR2(2000)) AS "x" FROM "sales"."orders";

