-- say "hi": rows
SELECT [say "hi"], CASE WHEN [say "hi"] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [say "hi"].[say "hi"] WHERE NOT [say "hi"] IS NULL AND (
x <> 'say "hi"' -- or so
);

-- say "hi": for Spark
SELECT [say "hi"] AS [h0] FROM (SELECT [say "hi"], CASE WHEN [say "hi"] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [say "hi"].[say "hi"] WHERE NOT [say "hi"] IS NULL AND (
x <> 'say "hi"' -- or so
)) AS [headwater_part];

-- say "hi": greatest
SELECT TOP 1 CAST([say "hi"] AS nvarchar(max)) AS [headwater_value] FROM [say "hi"].[say "hi"] WHERE (
x <> 'say "hi"' -- or so
) ORDER BY [say "hi"] DESC;

-- back`tick: rows
SELECT [back`tick], CASE WHEN [back`tick] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [back`tick].[back`tick] WHERE NOT [back`tick] IS NULL AND (
x <> 'back`tick' -- or so
);

-- back`tick: for Spark
SELECT [back`tick] AS [h0] FROM (SELECT [back`tick], CASE WHEN [back`tick] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [back`tick].[back`tick] WHERE NOT [back`tick] IS NULL AND (
x <> 'back`tick' -- or so
)) AS [headwater_part];

-- back`tick: greatest
SELECT TOP 1 CAST([back`tick] AS nvarchar(max)) AS [headwater_value] FROM [back`tick].[back`tick] WHERE (
x <> 'back`tick' -- or so
) ORDER BY [back`tick] DESC;

-- brac]ket[: rows
SELECT [brac]]ket[], CASE WHEN [brac]]ket[] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [brac]]ket[].[brac]]ket[] WHERE NOT [brac]]ket[] IS NULL AND (
x <> 'brac]ket[' -- or so
);

-- brac]ket[: for Spark
SELECT [brac]]ket[] AS [h0] FROM (SELECT [brac]]ket[], CASE WHEN [brac]]ket[] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [brac]]ket[].[brac]]ket[] WHERE NOT [brac]]ket[] IS NULL AND (
x <> 'brac]ket[' -- or so
)) AS [headwater_part];

-- brac]ket[: greatest
SELECT TOP 1 CAST([brac]]ket[] AS nvarchar(max)) AS [headwater_value] FROM [brac]]ket[].[brac]]ket[] WHERE (
x <> 'brac]ket[' -- or so
) ORDER BY [brac]]ket[] DESC;

-- with blank.and dot: rows
SELECT [with blank.and dot], CASE WHEN [with blank.and dot] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [with blank.and dot].[with blank.and dot] WHERE NOT [with blank.and dot] IS NULL AND (
x <> 'with blank.and dot' -- or so
);

-- with blank.and dot: for Spark
SELECT [with blank.and dot] AS [h0] FROM (SELECT [with blank.and dot], CASE WHEN [with blank.and dot] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [with blank.and dot].[with blank.and dot] WHERE NOT [with blank.and dot] IS NULL AND (
x <> 'with blank.and dot' -- or so
)) AS [headwater_part];

-- with blank.and dot: greatest
SELECT TOP 1 CAST([with blank.and dot] AS nvarchar(max)) AS [headwater_value] FROM [with blank.and dot].[with blank.and dot] WHERE (
x <> 'with blank.and dot' -- or so
) ORDER BY [with blank.and dot] DESC;

-- select: rows
SELECT [select], CASE WHEN [select] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [select].[select] WHERE NOT [select] IS NULL AND (
x <> 'select' -- or so
);

-- select: for Spark
SELECT [select] AS [h0] FROM (SELECT [select], CASE WHEN [select] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [select].[select] WHERE NOT [select] IS NULL AND (
x <> 'select' -- or so
)) AS [headwater_part];

-- select: greatest
SELECT TOP 1 CAST([select] AS nvarchar(max)) AS [headwater_value] FROM [select].[select] WHERE (
x <> 'select' -- or so
) ORDER BY [select] DESC;

-- größe-Δ: rows
SELECT [größe-Δ], CASE WHEN [größe-Δ] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [größe-Δ].[größe-Δ] WHERE NOT [größe-Δ] IS NULL AND (
x <> 'größe-Δ' -- or so
);

-- größe-Δ: for Spark
SELECT [größe-Δ] AS [h0] FROM (SELECT [größe-Δ], CASE WHEN [größe-Δ] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [größe-Δ].[größe-Δ] WHERE NOT [größe-Δ] IS NULL AND (
x <> 'größe-Δ' -- or so
)) AS [headwater_part];

-- größe-Δ: greatest
SELECT TOP 1 CAST([größe-Δ] AS nvarchar(max)) AS [headwater_value] FROM [größe-Δ].[größe-Δ] WHERE (
x <> 'größe-Δ' -- or so
) ORDER BY [größe-Δ] DESC;

-- semi;colon--: rows
SELECT [semi;colon--], CASE WHEN [semi;colon--] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [semi;colon--].[semi;colon--] WHERE NOT [semi;colon--] IS NULL AND (
x <> 'semi;colon--' -- or so
);

-- semi;colon--: for Spark
SELECT [semi;colon--] AS [h0] FROM (SELECT [semi;colon--], CASE WHEN [semi;colon--] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [semi;colon--].[semi;colon--] WHERE NOT [semi;colon--] IS NULL AND (
x <> 'semi;colon--' -- or so
)) AS [headwater_part];

-- semi;colon--: greatest
SELECT TOP 1 CAST([semi;colon--] AS nvarchar(max)) AS [headwater_value] FROM [semi;colon--].[semi;colon--] WHERE (
x <> 'semi;colon--' -- or so
) ORDER BY [semi;colon--] DESC;

-- qu'ote: rows
SELECT [qu'ote], CASE WHEN [qu'ote] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [qu'ote].[qu'ote] WHERE NOT [qu'ote] IS NULL AND (
x <> '' -- or so
);

-- qu'ote: for Spark
SELECT [qu'ote] AS [h0] FROM (SELECT [qu'ote], CASE WHEN [qu'ote] > 5 THEN 0 ELSE 1 END AS [headwater_flag_0] FROM [qu'ote].[qu'ote] WHERE NOT [qu'ote] IS NULL AND (
x <> '' -- or so
)) AS [headwater_part];

-- qu'ote: greatest
SELECT TOP 1 CAST([qu'ote] AS nvarchar(max)) AS [headwater_value] FROM [qu'ote].[qu'ote] WHERE (
x <> '' -- or so
) ORDER BY [qu'ote] DESC;

