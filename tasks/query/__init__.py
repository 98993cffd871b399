"""DuckDB over the Parquet files; read only."""
