-- postgres: keys, int64
SELECT "k0" FROM "public"."t" WHERE "k0" IN ('-1', '3');

-- postgres: keys, string
SELECT "k0" FROM "public"."t" WHERE "k0" IN ('', 'O''Brien\');

-- postgres: keys, bool
SELECT "k0" FROM "public"."t" WHERE "k0" IN ('false', 'true');

-- postgres: keys, date
SELECT "k0" FROM "public"."t" WHERE "k0" IN ('2026-03-29');

-- postgres: keys, timestamp
SELECT "k0" FROM "public"."t" WHERE "k0" IN ('2026-03-29T01:30:00.123456');

-- postgres: keys, timestamptz
SELECT "k0" FROM "public"."t" WHERE "k0" IN ('2026-03-29T01:30:00.123456+00:00');

-- postgres: keys, decimal(9,2)
SELECT "k0" FROM "public"."t" WHERE "k0" IN ('-1.50');

-- postgres: keys, binary
SELECT "k0" FROM "public"."t" WHERE "k0" IN ('\x00ff');

-- postgres: keys, float64
-- everything is read;

-- postgres: keys of two columns
SELECT "k0", "k1" FROM "public"."t" WHERE ("k0" IN ('1') AND "k1" IN ('x')) OR ("k0" IN ('2') AND "k1" IS NULL);

-- postgres: ranges, int64
SELECT "k0" FROM "public"."t" WHERE "k0" <= 5 OR ("k0" >= 9 AND "k0" <= 9) OR "k0" >= 20;

-- postgres: ranges, date
SELECT "k0" FROM "public"."t" WHERE "k0" >= CAST('2026-03-29' AS date);

-- postgres: ranges, timestamptz
SELECT "k0" FROM "public"."t" WHERE "k0" >= CAST('2026-03-29T01:30:00.123456+00:00' AS timestamptz) AND "k0" <= CAST('2026-03-30T01:30:00.123456+00:00' AS timestamptz);

-- postgres: ranges, decimal(9,2)
SELECT "k0" FROM "public"."t" WHERE "k0" >= -1.50 AND "k0" <= 2.00;

-- postgres: ranges, string
-- everything is read;

-- sqlite: keys, int64
SELECT "k0" FROM "public"."t" WHERE "k0" IN ('-1', -1) OR "k0" IN ('3', 3);

-- sqlite: keys, string
SELECT "k0" FROM "public"."t" WHERE "k0" IN ('') OR "k0" IN ('O''Brien\');

-- sqlite: keys, bool
-- everything is read;

-- sqlite: keys, date
-- everything is read;

-- sqlite: keys, timestamp
-- everything is read;

-- sqlite: keys, timestamptz
-- everything is read;

-- sqlite: keys, decimal(9,2)
-- everything is read;

-- sqlite: keys, binary
-- everything is read;

-- sqlite: keys, float64
-- everything is read;

-- sqlite: keys of two columns
SELECT "k0", "k1" FROM "public"."t" WHERE ("k0" IN ('1', 1) AND "k1" IN ('x')) OR ("k0" IN ('2', 2) AND "k1" IS NULL);

-- sqlite: ranges, int64
SELECT "k0" FROM "public"."t" WHERE "k0" <= 5 OR ("k0" >= 9 AND "k0" <= 9) OR "k0" >= 20;

-- sqlite: ranges, date
-- everything is read;

-- sqlite: ranges, timestamptz
-- everything is read;

-- sqlite: ranges, decimal(9,2)
-- everything is read;

-- sqlite: ranges, string
-- everything is read;

-- mysql: keys, int64
SELECT `k0` FROM `public`.`t` WHERE `k0` IN (-1, 3);

-- mysql: keys, string
-- everything is read;

-- mysql: keys, bool
-- everything is read;

-- mysql: keys, date
-- everything is read;

-- mysql: keys, timestamp
-- everything is read;

-- mysql: keys, timestamptz
-- everything is read;

-- mysql: keys, decimal(9,2)
-- everything is read;

-- mysql: keys, binary
-- everything is read;

-- mysql: keys, float64
-- everything is read;

-- mysql: keys of two columns
-- everything is read;

-- mysql: ranges, int64
SELECT `k0` FROM `public`.`t` WHERE `k0` <= 5 OR (`k0` >= 9 AND `k0` <= 9) OR `k0` >= 20;

-- mysql: ranges, date
-- everything is read;

-- mysql: ranges, timestamptz
-- everything is read;

-- mysql: ranges, decimal(9,2)
-- everything is read;

-- mysql: ranges, string
-- everything is read;

-- tsql: keys, int64
SELECT [k0] FROM [public].[t] WHERE [k0] IN (-1, 3);

-- tsql: keys, string
-- everything is read;

-- tsql: keys, bool
-- everything is read;

-- tsql: keys, date
-- everything is read;

-- tsql: keys, timestamp
-- everything is read;

-- tsql: keys, timestamptz
-- everything is read;

-- tsql: keys, decimal(9,2)
-- everything is read;

-- tsql: keys, binary
-- everything is read;

-- tsql: keys, float64
-- everything is read;

-- tsql: keys of two columns
-- everything is read;

-- tsql: ranges, int64
SELECT [k0] FROM [public].[t] WHERE [k0] <= 5 OR ([k0] >= 9 AND [k0] <= 9) OR [k0] >= 20;

-- tsql: ranges, date
-- everything is read;

-- tsql: ranges, timestamptz
-- everything is read;

-- tsql: ranges, decimal(9,2)
-- everything is read;

-- tsql: ranges, string
-- everything is read;

-- oracle: keys, int64
SELECT "k0" FROM "public"."t" WHERE "k0" IN (-1, 3);

-- oracle: keys, string
-- everything is read;

-- oracle: keys, bool
-- everything is read;

-- oracle: keys, date
-- everything is read;

-- oracle: keys, timestamp
-- everything is read;

-- oracle: keys, timestamptz
-- everything is read;

-- oracle: keys, decimal(9,2)
-- everything is read;

-- oracle: keys, binary
-- everything is read;

-- oracle: keys, float64
-- everything is read;

-- oracle: keys of two columns
-- everything is read;

-- oracle: ranges, int64
SELECT "k0" FROM "public"."t" WHERE "k0" <= 5 OR ("k0" >= 9 AND "k0" <= 9) OR "k0" >= 20;

-- oracle: ranges, date
-- everything is read;

-- oracle: ranges, timestamptz
-- everything is read;

-- oracle: ranges, decimal(9,2)
-- everything is read;

-- oracle: ranges, string
-- everything is read;

