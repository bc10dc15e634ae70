"""What all importers use: tables that note what nobody read, and backends."""
