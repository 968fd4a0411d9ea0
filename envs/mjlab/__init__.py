"""Tasks of mjlab with many candidates in one process (docs/mjlab.md). mjlab itself is imported where it is used."""
